"""Schedules for recognition: long and short cycles (Wu et al. 2020, section 3.2), and the cascade."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from vcycle.errors import PlanError, shown
from vcycle.plan.arguments import check_kind, check_number, check_numbers, check_positive
from vcycle.plan.baseline import Baseline
from vcycle.plan.build import Segment, lay_out, scaled_lr, whole
from vcycle.plan.grids import Grids
from vcycle.plan.rates import ConstantRate, CosineRate, Rate, StepDecay
from vcycle.plan.schedule import Plan
from vcycle.plan.shape import FULL, BatchShape, Scale

__all__ = ["LONG_SHAPES", "SHORT_SIZES", "SPACE_FIRST", "cascade", "constant", "multigrid"]

_HALF, _QUARTER = Fraction(1, 2), Fraction(1, 4)

LONG_SHAPES = (Scale(_QUARTER, _HALF), Scale(_HALF, _HALF), Scale(_HALF, Fraction(1)), FULL)
"""The long cycle of the paper: `(T/4, S/√2)`, `(T/2, S/√2)`, `(T/2, S)`, `(T, S)`."""

SHORT_SIZES = (_QUARTER, _HALF)
"""The short cycle of the paper, as areas: `S/2`, `S/√2`; the base size follows."""

SPACE_FIRST = (Scale(_HALF, _QUARTER), Scale(Fraction(1), _QUARTER), Scale(Fraction(1), _HALF), FULL)
"""The cascade's shapes: `(T/2, S/2)`, `(T, S/2)`, `(T, S/√2)`, `(T, S)`. Motion keeps its frames longest."""

FINISHES = ("law", "cosine")
"""LR decays of a cascade at full resolution."""


def constant(
    baseline: Baseline,
    *,
    shape: Scale | Sequence[float] = FULL,
    epoch_factor: float = 1.0,
    steps: int | None = None,
    lr_scaling: str = "linear",
    frames_multiple: int = 1,
    size_multiple: int = 1,
) -> Plan:
    """The baseline as a plan: one shape throughout.

    Args:
        baseline: The recipe.
        shape: A smaller grid, or fewer tokens, for the whole training, with a larger batch so that a step costs the
            same; evaluation stays at full resolution (Wu et al. 2020 compare with it) and has all tokens.
        epoch_factor: Length as a multiple of the baseline's. Milestones scale with it; warmup and freezes shrink with
            it but do not grow.
        steps: Length in steps instead.
        lr_scaling: How the LR scales with the batch of a smaller grid: `linear`, `sqrt` or `none`.
        frames_multiple: Round the frames of each shape to the nearest multiple, for models that need one; half a
            multiple or less is refused.
        size_multiple: The same of the side in pixels, such as 16 for a transformer with patches of 16.

    Raises:
        PlanError: if the options contradict each other or the baseline, or an argument is of the wrong type.
    """
    check_kind("baseline", baseline, Baseline, "vcycle.constant(baseline)")
    (scale,) = Scale.each([shape])
    grids = Grids(baseline, frames_multiple=frames_multiple, size_multiple=size_multiple)
    return _to_budget("constant", grids, _lr_segments(grids, (), scale, lr_scaling), epoch_factor, steps)


def multigrid(
    baseline: Baseline,
    *,
    long_shapes: Sequence[Scale | Sequence[float]] = LONG_SHAPES,
    short_sizes: Sequence[Fraction] = SHORT_SIZES,
    epoch_factor: float = 1.5,
    steps: int | None = None,
    cycles: int = 3,
    fine_tune: bool = True,
    lr_scaling: str = "linear",
    frames_multiple: int = 1,
    size_multiple: int = 1,
) -> Plan:
    """Long and short cycles over a baseline (Wu et al. 2020, sections 3.1 and 3.2).

    Args:
        baseline: The recipe. With LR drops, one long cycle runs per LR stage except the last; an LR schedule without
            drops has `cycles` long cycles over the first 82 % of the samples.
        long_shapes: Base shapes of a long cycle, coarse to fine, as scales or as fractions of the frames, of the side
            and (1 if absent) of a transformer's tokens; empty for the short cycle only.
        short_sizes: Areas of the short cycle, as fractions of the *baseline's*; empty for the long cycle only.
        epoch_factor: Samples of the plan, relative to the baseline. The paper: 1.5.
        steps: The budget in steps instead, as in ablations that compare equal iterations.
        cycles: Number of long cycles if the LR schedule has no drops.
        fine_tune: End with a fine-tuning phase at full resolution (+0.4 points in the paper); without it the last LR
            stage is a long cycle like the others.
        lr_scaling: How the LR scales with the batch of the long cycle: `linear`, `sqrt` or `none`. It never scales with
            the batch of the short cycle.
        frames_multiple: Round the frames of each shape to the nearest multiple, for models that need one; half a
            multiple or less is refused.
        size_multiple: The same of the side in pixels, such as 16 for a transformer with patches of 16.

    Returns:
        The plan. The default Kinetics recipe takes 3.43× fewer steps than its baseline.

    Raises:
        PlanError: if the options contradict each other or the baseline, or an argument is of the wrong type.
    """
    check_kind("baseline", baseline, Baseline, "vcycle.multigrid(baseline)")
    if check_number("cycles", cycles, whole=True) < 1:
        raise PlanError(f"cycles {cycles} is below 1")
    longs, shorts = Scale.each(long_shapes), tuple(check_numbers("short_sizes", short_sizes))
    if not all(0 < area <= 1 for area in shorts):
        raise PlanError(f"short sizes {shown([float(area) for area in shorts])} must be areas in (0, 1]")
    name = "+".join(part for part, used in (("long", longs), ("short", shorts)) if used) or "constant"
    grids = Grids(baseline, frames_multiple=frames_multiple, size_multiple=size_multiple)
    if longs:
        segments = _long_cycles(grids, longs, shorts, cycles, fine_tune=fine_tune, lr_scaling=lr_scaling)
    else:
        segments = _lr_segments(grids, shorts)
    return _to_budget(name, grids, segments, epoch_factor, steps)


def cascade(
    baseline: Baseline,
    *,
    shapes: Sequence[Scale | Sequence[float]] = SPACE_FIRST,
    weights: Sequence[float] | None = None,
    epoch_factor: float = 1.0,
    steps: int | None = None,
    lr_scaling: str = "linear",
    batch_growth: float = 1.0,
    finish: str = "law",
    frames_multiple: int = 1,
    size_multiple: int = 1,
) -> Plan:
    """Each shape once, coarse to fine (progressive resizing); the LR decays at full resolution only.

    Args:
        baseline: The recipe.
        shapes: Grid scales, coarse to fine, or fractions of the frames, of the side and (1 if absent) of a
            transformer's tokens; the last is the full grid, `(1, 1)`.
        weights: Relative numbers of steps per shape; equal if None.
        epoch_factor: Samples of the plan, relative to the baseline.
        steps: The budget in steps instead.
        lr_scaling: How the LR scales with the batch: `linear`, `sqrt` or `none`.
        batch_growth: How much the batch grows as clips shrink, as a power of the batch factor: at 1 a step costs the
            same at every shape, at 0 the batch stays the same. A value below 1 gives more and cheaper updates for the
            same samples, which small datasets need.
        finish: LR decay over the steps of the last shape: `law` compresses the baseline's whole schedule into them,
            `cosine` is half a cosine, which wastes none of these few steps on an LR too small to learn.
        frames_multiple: Round the frames of each shape to the nearest multiple, for models that need one; half a
            multiple or less is refused.
        size_multiple: The same of the side in pixels, such as 16 for a transformer with patches of 16.

    Raises:
        PlanError: if the last shape is not the full grid, the weights do not fit the shapes, or the batch would grow by
            more than the clip shrinks.
    """
    check_kind("baseline", baseline, Baseline, "vcycle.cascade(baseline)")
    batch_growth = check_number("batch_growth", batch_growth)
    if not 0 <= batch_growth <= 1:
        raise PlanError(f"batch_growth {batch_growth} is out of range: 0 (the batch stays) to 1 (the work stays)")
    scales = Scale.each(shapes)
    if not scales or scales[-1] != FULL:
        raise PlanError(f"cascade shapes [{', '.join(map(str, scales))}] must end with the full grid [1, 1]")
    given = [1] * len(scales) if weights is None else check_numbers("weights", weights)
    shares = [check_positive("weights", weight) for weight in given]
    if len(shares) != len(scales):
        raise PlanError(
            f"{len(shares)} weights for {len(scales)} cascade shapes: one each is needed, or "
            "no weights (null in a recipe), for equal steps"
        )
    grids = Grids(baseline, frames_multiple=frames_multiple, size_multiple=size_multiple, growth=batch_growth)
    segments = []
    for scale, share in zip(scales[:-1], shares[:-1], strict=True):
        fitted = grids.fitted(scale)
        gain = scaled_lr(fitted.grown(batch_growth), lr_scaling)
        flat = ConstantRate(lr=baseline.peak_lr * gain)
        pattern = (grids.at(fitted),)
        segments.append(Segment(name=str(scale), steps=share, pattern=pattern, rate=whole(flat), lr_factor=gain))
    if finish not in FINISHES:
        raise PlanError(f"finish {shown(finish)} is unknown: {', '.join(FINISHES)}")
    stages = baseline.lr_stages()
    if finish == "cosine":
        stages = [(Fraction(1), CosineRate(peak=baseline.peak_lr))]
    length = sum(n for n, _ in stages)
    for k, (n, rate) in enumerate(stages):
        # The whole decay runs at full resolution, from start to end.
        name = str(FULL) + (f", {_lr_name(baseline, k)}" if len(stages) > 1 else "")
        pattern = (grids.at(FULL),)
        segments.append(Segment(name=name, steps=shares[-1] * n / length, pattern=pattern, rate=whole(rate)))
    return _to_budget("cascade", grids, segments, epoch_factor, steps)


def _lr_segments(
    grids: Grids, shorts: tuple[Fraction, ...], base: Scale = FULL, lr_scaling: str = "linear"
) -> list[Segment]:
    """One segment per LR stage, all at one base shape, with the samples of the baseline."""
    baseline, fitted = grids.baseline, grids.fitted(base)
    pattern = _pattern(grids, fitted, shorts)
    gain = scaled_lr(fitted.batch_factor, lr_scaling)
    stages = baseline.lr_stages()

    def name(k: int) -> str:
        law = _lr_name(baseline, k)
        return law if base == FULL else str(base) + (f", {law}" if len(stages) > 1 else "")

    return [
        Segment(
            name=name(k),
            steps=n / _mean(baseline, pattern),
            pattern=pattern,
            rate=rate.scaled(gain).part,
            lr_factor=gain,
        )
        for k, (n, rate) in enumerate(stages)
    ]


def _long_cycles(
    grids: Grids,
    longs: tuple[Scale, ...],
    shorts: tuple[Fraction, ...],
    cycles: int,
    *,
    fine_tune: bool,
    lr_scaling: str,
) -> list[Segment]:
    """Segments of all long cycles and of the fine-tuning phase, before scaling to the budget."""
    baseline = grids.baseline
    stages = baseline.lr_stages()
    tuning: list[tuple[Fraction, Rate]] = []
    if len(stages) == 1:
        (steps, rate) = stages[0]
        share = Fraction(82, 100) if fine_tune else Fraction(1)
        stages = [(steps * share / cycles, rate)] * cycles
        if fine_tune:
            tuning = [(steps * (1 - share), rate)]
    elif fine_tune:
        (steps, last) = stages.pop()
        tuning = [(steps / 2, stages[-1][1]), (steps / 2, last)]
    fitted = [grids.fitted(scale) for scale in longs]
    patterns = [_pattern(grids, scale, shorts) for scale in fitted]
    means = [_mean(baseline, p) for p in patterns]
    mean_sum = sum(means, Fraction(0))
    full = _pattern(grids, FULL, shorts)
    segments = []
    for k, (steps, rate) in enumerate(stages):
        for scale, actual, pattern in zip(longs, fitted, patterns, strict=True):
            gain = scaled_lr(actual.batch_factor, lr_scaling)
            segments.append(
                Segment(
                    name=f"cycle {k + 1}, {scale}",
                    steps=steps / mean_sum,
                    pattern=pattern,
                    rate=rate.scaled(gain).part,
                    lr_factor=gain,
                )
            )
    # With LR drops, the phase is shortened in *iterations*, as much as the cycles before it; without, it
    # keeps its share of the *samples*.
    shrink = len(longs) / mean_sum if len(tuning) == 2 else 1 / _mean(baseline, full)
    for k, (steps, rate) in enumerate(tuning):
        name = "fine-tuning" + (f" {k + 1}" if len(tuning) > 1 else "")
        segments.append(Segment(name=name, steps=steps * shrink, pattern=full, rate=rate.part))
    return segments


def _to_budget(name: str, grids: Grids, segments: Sequence[Segment], epoch_factor: float, steps: int | None) -> Plan:
    """The plan of these segments, stretched to a budget in samples or, if given, in steps."""
    baseline = grids.baseline
    batches = sum((s.steps * _mean(baseline, s.pattern) for s in segments), Fraction(0))
    own = batches / (Fraction(baseline.length) * baseline.unit)
    stretch = check_positive("epoch_factor", epoch_factor) / own
    if steps is not None:
        stretch = check_positive("steps", steps) / sum((s.steps for s in segments), Fraction(0))
    # Warmup and freezes keep their samples; in training shorter than the baseline they shrink with it.
    share = min(Fraction(1), own * stretch)
    stretched = [replace(s, steps=s.steps * stretch) for s in segments]
    plan = lay_out(
        name,
        baseline.stretched(share),
        stretched,
        warmup_samples=baseline.warmup_samples() * share,
        notes=grids.notes,
    )
    plan.require(grids.needs)
    return plan


def _pattern(grids: Grids, base: Scale, shorts: Sequence[Fraction]) -> tuple[BatchShape, ...]:
    """The batch shapes that a stage cycles through: the short sizes, capped at the fitted base's, then the base."""
    smaller = (Scale(base.time, min(Fraction(area), base.area), base.tokens) for area in shorts)
    scales = [*map(grids.fitted, smaller), base]
    return tuple(grids.at(s, bn_factor=round(s.batch_factor / base.batch_factor)) for s in scales)


def _mean(baseline: Baseline, pattern: Sequence[BatchShape]) -> Fraction:
    """The mean batch of a pattern, in batches of the baseline."""
    return Fraction(sum(c.batch for c in pattern), len(pattern) * baseline.batch)


def _lr_name(baseline: Baseline, stage: int) -> str:
    return f"LR ×{baseline.decay.factor(stage):g}" if isinstance(baseline.decay, StepDecay) else "full"
