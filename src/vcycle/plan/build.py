"""Rounds real-valued stage lengths to whole steps; every schedule uses it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise

from vcycle.errors import PlanError, shown
from vcycle.plan.baseline import Baseline
from vcycle.plan.rates import Rate
from vcycle.plan.schedule import Plan, Stage
from vcycle.plan.shape import BatchShape

__all__ = ["LR_SCALINGS", "Segment", "lay_out", "scaled_lr", "whole"]

LR_SCALINGS = ("linear", "sqrt", "none")


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A stage before rounding; `rate` is called with its start and end, as fractions of all samples."""

    name: str
    steps: Fraction
    pattern: tuple[BatchShape, ...]
    rate: Callable[[float, float], Rate]
    lr_factor: float = 1.0


def scaled_lr(batch_factor: Fraction, scaling: str) -> float:
    """The LR factor for a batch that has grown by `batch_factor`.

    `linear` is the rule of both papers for SGD; `sqrt` suits adaptive optimizers.
    """
    if scaling not in LR_SCALINGS:
        raise PlanError(f"lr_scaling {shown(scaling)} is unknown: {', '.join(LR_SCALINGS)}")
    return {"linear": float(batch_factor), "sqrt": math.sqrt(batch_factor), "none": 1.0}[scaling]


def whole(rate: Rate) -> Callable[[float, float], Rate]:
    """A rate that runs from start to end within the stage, independent of the stage's position in training."""
    return lambda _begin, _end: rate


def lay_out(
    name: str,
    baseline: Baseline,
    segments: Sequence[Segment],
    *,
    warmup_samples: Fraction,
    mirrored: bool = False,
    notes: Sequence[str] = (),
) -> Plan:
    """The plan of these segments: edges are rounded cumulatively to whole steps, with at least one step per segment.

    Raises:
        PlanError: if there are fewer steps than segments.
    """
    steps = _whole_steps(name, segments)
    ends = _sample_ends(segments, steps)
    total = ends[-1]
    stages = tuple(
        Stage(
            name=segment.name,
            steps=count,
            pattern=segment.pattern,
            rate=segment.rate(begin / total, end / total),
            lr_factor=segment.lr_factor,
        )
        for segment, count, begin, end in zip(segments, steps, [0, *ends[:-1]], ends, strict=True)
    )
    return Plan(
        name=name,
        baseline=baseline,
        stages=stages,
        warmup_samples=float(warmup_samples),
        mirrored=mirrored,
        notes=tuple(notes),
    )


def _whole_steps(name: str, segments: Sequence[Segment]) -> list[int]:
    """Whole steps of each segment: they add up to the rounded total, and none is 0."""
    ends = list(accumulate(s.steps for s in segments))
    total = max(1, round(ends[-1]))
    if total < len(segments):
        rounded = [0, *map(round, ends)]
        empty = next(s.name for s, (a, b) in zip(segments, pairwise(rounded), strict=True) if a == b)
        leave = "1 step for {} stages leaves" if total == 1 else f"{total} steps for {{}} stages leave"
        raise PlanError(
            f"plan {name!r}: {leave.format(len(segments))} stage {empty!r} without a step: "
            f"train for at least {len(segments)} steps or with fewer stages"
        )
    edges = [0]
    for left, end in zip(reversed(range(len(segments))), ends, strict=True):
        # A stage that rounds to nothing takes its step from its neighbours, not from the budget.
        edges.append(min(max(round(end), edges[-1] + 1), total - left))
    return [b - a for a, b in pairwise(edges)]


def _sample_ends(segments: Sequence[Segment], steps: Sequence[int]) -> list[int]:
    """The position in the sample stream at which each segment ends, given its number of steps."""
    ends, step, sample = [], 0, 0
    for segment, count in zip(segments, steps, strict=True):
        batches = [cell.batch for cell in segment.pattern]
        rounds, rest = divmod(count, len(batches))
        sample += rounds * sum(batches)
        sample += sum(batches[(step + i) % len(batches)] for i in range(rest))
        step += count
        ends.append(sample)
    return ends
