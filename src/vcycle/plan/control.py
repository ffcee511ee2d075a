"""The LR-matched control: how much of a plan's gain is its LR curve, and not its grids."""

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise

from vcycle.errors import PlanError
from vcycle.plan.build import Segment, lay_out, whole
from vcycle.plan.rates import ConstantRate, Rate
from vcycle.plan.schedule import Plan

__all__ = ["control"]


def control(plan: Plan, *, epoch_factor: float = 1.0) -> Plan:
    """The constant shape under a plan's LR curve without its batch factors, by fraction of samples.

    Warm-up and freezes are part of the curve, and last for the same fraction.

    About half of what coarse-to-fine training seems to gain can come from the LR curve that it brings along;
    a claim is made against the constant shape *and* against this.

    Args:
        plan: The plan to compare with.
        epoch_factor: Samples of the control, in samples of the baseline: chosen by the rule that chose the
            constant shape's budget.
    """
    if not 0 < epoch_factor < float("inf"):
        raise PlanError(f"epoch_factor {epoch_factor} is out of range: a number above 0 is needed")
    baseline = plan.baseline
    pattern = (plan.baseline_shape,)
    steps = Fraction(epoch_factor) * Fraction(baseline.length) * baseline.unit
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
    # Dividing a batch factor out again may leave the last bit different.
    return isinstance(other, ConstantRate) and abs(rate.lr - other.lr) <= 1e-12 * rate.lr
