"""The LR-matched control: measures how much of a plan's gain comes from its LR schedule rather than its grids."""

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise

from vcycle.plan.arguments import check_kind, check_positive
from vcycle.plan.build import Segment, lay_out, whole
from vcycle.plan.rates import ConstantRate, Rate
from vcycle.plan.schedule import Plan

__all__ = ["control"]


def control(plan: Plan, *, epoch_factor: float = 1.0) -> Plan:
    """The constant shape with a plan's LR schedule, without its batch factors, by fraction of samples.

    Warmup and freezes are part of the schedule, and last for the same fraction.

    About half of the apparent gain of coarse-to-fine training can come from its LR schedule; compare a plan with the
    constant shape *and* with this control.

    Args:
        plan: The plan to compare with.
        epoch_factor: Samples of the control, relative to the baseline: choose it as for the constant shape.

    Raises:
        PlanError: if an argument is of the wrong type or out of range.
    """
    check_kind("plan", plan, Plan, "vcycle.control(plan)")
    length = check_positive("epoch_factor", epoch_factor)
    baseline = plan.baseline
    pattern = (plan.baseline_shape,)
    steps = length * Fraction(baseline.length) * baseline.unit
    segments: list[Segment] = []
    previous: Rate | None = None
    edges = [plan.samples_before(step) for step in accumulate((s.steps for s in plan.stages), initial=0)]
    for stage, (begin, end) in zip(plan.stages, pairwise(edges), strict=True):
        rate = stage.rate.scaled(1 / stage.lr_factor)
        share = steps * Fraction(end - begin, plan.samples)
        if isinstance(rate, ConstantRate) and _same(rate, previous):
            last = segments.pop()
            segments.append(replace(last, steps=last.steps + share))
        else:
            segments.append(Segment(name=f"as {stage.name}", steps=share, pattern=pattern, rate=whole(rate)))
        previous = rate
    ratio = steps * baseline.batch / plan.samples
    return lay_out(
        f"control of {plan.name}",
        baseline.stretched(ratio),
        segments,
        warmup_samples=Fraction(plan.warmup_samples) * ratio,
    )


def _same(rate: ConstantRate, other: Rate | None) -> bool:
    # Dividing by the batch factor may change the last bit.
    return isinstance(other, ConstantRate) and abs(rate.lr - other.lr) <= 1e-12 * rate.lr
