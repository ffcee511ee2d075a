"""LR schedules as pure functions of the position in training: no scheduler object, no state.

A *decay* is the LR schedule of a baseline (milestones, cosine). A *rate* is the LR schedule of one stage of a plan.
*Warmup* and parameter *roles* apply to the whole plan.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Real

from vcycle.errors import PlanError, shown
from vcycle.plan.arguments import check_number, check_numbers

__all__ = [
    "ConstantRate",
    "CosineDecay",
    "CosineRate",
    "CurveDecay",
    "CurveRate",
    "Decay",
    "FactorWarmup",
    "NoDecay",
    "RampWarmup",
    "Rate",
    "Role",
    "StepDecay",
    "Warmup",
]


@dataclass(frozen=True, kw_only=True)
class NoDecay:
    """A constant LR."""


@dataclass(frozen=True, kw_only=True)
class CosineDecay:
    """Half a cosine from the LR down to `floor` at the end of training."""

    floor: float = 0.0

    def __post_init__(self) -> None:
        check_number("cosine floor", self.floor)
        if not 0 <= self.floor < math.inf:
            raise PlanError(f"cosine floor {self.floor} is out of range: 0 or more is needed")


@dataclass(frozen=True, kw_only=True)
class StepDecay:
    """The LR is multiplied by `factors[k]` from `milestones[k]` on, or by `gamma` at each milestone.

    Milestones are in the unit of the baseline's length: epochs or steps.
    """

    milestones: tuple[float, ...] = ()
    gamma: float = 0.1
    factors: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_numbers("milestones", self.milestones)
        check_number("gamma", self.gamma)
        if not all(a < b for a, b in pairwise((0.0, *self.milestones))):
            raise PlanError(f"milestones {shown([*self.milestones])} must be above 0 and increase")
        if not 0 < self.gamma < math.inf:
            raise PlanError(f"gamma {self.gamma} must be above 0")
        if self.factors is None:
            return
        check_numbers("LR factors", self.factors)
        if len(self.factors) != len(self.milestones):
            raise PlanError(f"{len(self.factors)} LR factors for {len(self.milestones)} milestones: one each is needed")
        if not all(0 < f < math.inf for f in self.factors):
            raise PlanError(f"LR factors {shown([*self.factors])} must be above 0")

    def factor(self, stage: int) -> float:
        """The LR factor in LR stage `stage`, 0-based.

        Raises:
            PlanError: if there is no such stage.
        """
        if not 0 <= check_number("LR stage", stage, whole=True) <= len(self.milestones):
            raise PlanError(f"LR stage {stage} is not one of {len(self.milestones) + 1}: 0 is the first")
        if stage == 0:
            return 1.0
        return self.gamma**stage if self.factors is None else self.factors[stage - 1]


@dataclass(frozen=True, kw_only=True)
class CurveDecay:
    """Your own LR schedule: LR factors at fractions of the training, with linear interpolation between them.

    A plan treats it like a cosine: the long cycle follows it over all samples, the cascade runs it from start to end at
    full resolution.

    >>> half = CurveDecay.sampled(lambda fraction: 1 - fraction / 2, points=5)
    >>> half.points
    ((0.0, 1.0), (0.25, 0.875), (0.5, 0.75), (0.75, 0.625), (1.0, 0.5))

    Raises:
        PlanError: if fractions do not rise from 0 to 1, or factors are not numbers of which one is above 0.
    """

    points: tuple[tuple[float, float], ...]
    """Pairs of a fraction of the training, from 0 to 1, and the LR factor there."""

    def __post_init__(self) -> None:
        given = self.points if isinstance(self.points, tuple | list) else (self.points,)
        pairs = [tuple(point) if isinstance(point, tuple | list) else (point,) for point in given]
        if not all(len(pair) == 2 and all(isinstance(value, Real) for value in pair) for pair in pairs):
            raise PlanError(
                f"points {shown(self.points)} of an LR curve: pairs of numbers (fraction, factor) are needed"
            )
        object.__setattr__(self, "points", tuple((float(at), float(factor)) for at, factor in pairs))
        at, factors = [point[0] for point in self.points], [point[1] for point in self.points]
        if len(at) < 2 or (at[0], at[-1]) != (0, 1) or not all(a < b for a, b in pairwise(at)):
            raise PlanError(f"fractions {shown(at)} of an LR curve must increase from 0 to 1")
        if not all(0 <= factor < math.inf for factor in factors) or not any(factors):
            raise PlanError(f"factors {shown(factors)} of an LR curve must be 0 or more, and one above 0")

    @classmethod
    def sampled(cls, curve: Callable[[float], float], *, points: int = 1001) -> "CurveDecay":
        """Sample a function at evenly spaced points, so that the plan stays plain data.

        Args:
            curve: The LR factor as a function of the fraction of the training, from 0 to 1.
            points: Number of points.

        Raises:
            PlanError: if the curve is no function, a factor is no number, or there are fewer than two points.
        """
        if not callable(curve):
            raise PlanError(f"curve is {shown(curve)}: a function of the fraction of the training is needed")
        check_number("number of points of an LR curve", points, whole=True)
        if points < 2:
            raise PlanError(f"an LR curve of {points} points: at least 2 are needed")
        at = [place / (points - 1) for place in range(points)]
        return cls(points=tuple((fraction, curve(fraction)) for fraction in at))


Decay = NoDecay | CosineDecay | StepDecay | CurveDecay


@dataclass(frozen=True, kw_only=True)
class ConstantRate:
    """A stage with one LR."""

    lr: float

    def __post_init__(self) -> None:
        check_number("rate lr", self.lr)

    def at(self, fraction: float) -> float:
        """The LR at a fraction of the stage's samples."""
        check_number("fraction", fraction)
        return self.lr

    def scaled(self, factor: float) -> "ConstantRate":
        """The same rate times `factor`."""
        check_number("factor", factor)
        return ConstantRate(lr=self.lr * factor)

    def part(self, begin: float, end: float) -> "ConstantRate":
        """The rate of the part of the stage between two fractions."""
        check_numbers("part", (begin, end))
        return self


@dataclass(frozen=True, kw_only=True)
class CosineRate:
    """A stage that follows a half cosine from phase `begin` to phase `end`, both in [0, 1].

    `floor + (peak - floor) * (1 + cos(pi * phase)) / 2`. A super-resolution stage that restarts at
    `peak` and decays over the whole training's length ends at the phase `its steps / all steps`
    (Lin et al. 2022, equation 1, with the π that the printed formula lacks).
    """

    peak: float
    floor: float = 0.0
    begin: float = 0.0
    end: float = 1.0

    def __post_init__(self) -> None:
        for name in ("peak", "floor", "begin", "end"):
            check_number(f"rate {name}", getattr(self, name))

    def at(self, fraction: float) -> float:
        """The LR at a fraction of the stage's samples."""
        check_number("fraction", fraction)
        phase = self.begin + (self.end - self.begin) * fraction
        return self.floor + 0.5 * (self.peak - self.floor) * (1 + math.cos(math.pi * phase))

    def scaled(self, factor: float) -> "CosineRate":
        """The same rate times `factor`."""
        check_number("factor", factor)
        return CosineRate(peak=self.peak * factor, floor=self.floor * factor, begin=self.begin, end=self.end)

    def part(self, begin: float, end: float) -> "CosineRate":
        """The rate of the part of the stage between two fractions."""
        check_numbers("part", (begin, end))
        span = self.end - self.begin
        return CosineRate(
            peak=self.peak, floor=self.floor, begin=self.begin + span * begin, end=self.begin + span * end
        )


@dataclass(frozen=True, kw_only=True)
class CurveRate:
    """A stage that follows an LR curve from fraction `begin` of it to fraction `end`, both in [0, 1]."""

    lr: float
    points: tuple[tuple[float, float], ...]
    begin: float = 0.0
    end: float = 1.0

    def __post_init__(self) -> None:
        for name in ("lr", "begin", "end"):
            check_number(f"rate {name}", getattr(self, name))
        CurveDecay(points=self.points)  # checks them

    def at(self, fraction: float) -> float:
        """The LR at a fraction of the stage's samples."""
        check_number("fraction", fraction)
        place = min(max(self.begin + (self.end - self.begin) * fraction, 0.0), 1.0)
        right = min(max(bisect_right(self.points, place, key=lambda point: point[0]), 1), len(self.points) - 1)
        (start, low), (stop, high) = self.points[right - 1 : right + 1]
        return self.lr * (low + (high - low) * (place - start) / (stop - start))

    def scaled(self, factor: float) -> "CurveRate":
        """The same rate times `factor`."""
        check_number("factor", factor)
        return replace(self, lr=self.lr * factor)

    def part(self, begin: float, end: float) -> "CurveRate":
        """The rate of the part of the stage between two fractions."""
        check_numbers("part", (begin, end))
        span = self.end - self.begin
        return replace(self, begin=self.begin + span * begin, end=self.begin + span * end)


Rate = ConstantRate | CosineRate | CurveRate


@dataclass(frozen=True, kw_only=True)
class RampWarmup:
    """Linear warmup from `start_lr` to the LR that the schedule has at the end of the warmup.

    `length` is in the baseline's unit (epochs or steps of the baseline). A plan keeps it in *samples*, so that a plan
    with larger batches does not warm up ten times longer. Wu et al. 2020 (section 4) only give the warmup of the
    baseline: counting it in samples is vcycle's choice. `start_lr` refers to the baseline's `lr_batch`, as `lr` does.
    """

    length: float
    start_lr: float = 0.0

    def __post_init__(self) -> None:
        check_number("warm-up length", self.length)
        check_number("warm-up start_lr", self.start_lr)
        if not self.length > 0 or not 0 <= self.start_lr < math.inf:
            raise PlanError(
                f"warm-up of length {self.length} from LR {self.start_lr}: length > 0 and LR >= 0 are needed"
            )


@dataclass(frozen=True, kw_only=True)
class FactorWarmup:
    """A factor on the LR schedule in the first `steps` steps (Lin et al. 2022, "Implementation Details").

    `linear`: `(step + 1) / steps`. `constant`: `factor` throughout. Steps are steps of the baseline. A plan keeps the
    samples of the warmup, so that a larger batch does not warm up longer; a plan shorter than the baseline keeps its
    share of the training.
    """

    steps: int
    law: str = "linear"
    factor: float = 0.1

    def __post_init__(self) -> None:
        check_number("warm-up steps", self.steps, whole=True)
        check_number("warm-up factor", self.factor)
        if self.steps < 1:
            raise PlanError(f"warm-up of {self.steps} steps: at least 1 is needed")
        if self.law not in ("linear", "constant"):
            raise PlanError(f"warm-up law {shown(self.law)} is unknown: linear or constant")
        if not 0 < self.factor < math.inf:
            raise PlanError(f"warm-up factor {self.factor} is out of range: a number above 0 is needed")

    def at(self, step: float) -> float:
        """The LR factor after `step` steps of the baseline."""
        check_number("step", step)
        if step >= self.steps:
            return 1.0
        return min(1.0, (step + 1) / self.steps) if self.law == "linear" else self.factor


Warmup = RampWarmup | FactorWarmup


@dataclass(frozen=True, kw_only=True)
class Role:
    """A parameter group's LR multiplier, and the step until which the group is frozen.

    Freezing is a function of the step, so a resumed run equals an uninterrupted one (Lin et al. 2022: the flow network
    trains at 0.125 times the LR after 5,000 steps). Steps are steps of the baseline, as in a warmup.
    """

    multiplier: float = 1.0
    frozen_until: int = 0

    def __post_init__(self) -> None:
        check_number("role multiplier", self.multiplier)
        check_number("role frozen_until", self.frozen_until, whole=True)
        if not 0 <= self.multiplier < math.inf or self.frozen_until < 0:
            raise PlanError(
                f"role with multiplier {self.multiplier}, frozen until step {self.frozen_until}: both must be 0 or more"
            )

    def at(self, step: float) -> float:
        """The LR factor after `step` steps of the baseline: 0 while frozen."""
        check_number("step", step)
        return 0.0 if step < self.frozen_until else self.multiplier
