"""The recipe that a user has today, in the words in which it is written down."""

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, get_args

from vcycle.errors import PlanError
from vcycle.plan.rates import (
    ConstantRate,
    CosineDecay,
    CosineRate,
    CurveDecay,
    CurveRate,
    Decay,
    FactorWarmup,
    NoDecay,
    RampWarmup,
    Rate,
    Role,
    StepDecay,
    Warmup,
)
from vcycle.plan.shape import BatchShape, Scale

__all__ = ["Baseline"]


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A constant-shape training: what every plan is derived from and compared with.

    >>> kinetics = Baseline(
    ...     batch=64, frames=32, size=224, clips=240_000, epochs=239, lr=0.1,
    ...     decay=StepDecay(milestones=(94, 154, 196)), warmup=RampWarmup(length=34, start_lr=0.01),
    ... )
    >>> kinetics.total_steps
    896250

    Raises:
        PlanError: for a value out of range; the message names it.
    """

    batch: int
    """Clips in the global batch of a step."""
    frames: int
    """Frames of a clip, `T`."""
    size: int
    """Side of the square crop in pixels, `S` (super-resolution: low-resolution pixels)."""
    clips: int
    """Length of the training set: samples in an epoch."""
    lr: float
    """Peak learning rate, for a batch of `lr_batch`."""
    lr_batch: int | None = None
    """The batch that `lr` and a ramp's `start_lr` are stated for; another batch scales both linearly. None: `batch`
    itself."""
    epochs: float | None = None
    """Length of the training in epochs; either this or `steps`."""
    steps: int | None = None
    """Length of the training in steps; either this or `epochs`."""
    decay: Decay = field(default_factory=NoDecay)
    """How the LR falls; its milestones are in the unit of the length."""
    warmup: Warmup | None = None
    """How the LR starts; a ramp's length is in the unit of the length."""
    bn_batch: int = 8
    """Clips over which BatchNorm takes its statistics; a smaller batch is its own group."""
    roles: dict[str, Role] = field(default_factory=dict, hash=False)
    """Laws of parameter groups, by role."""

    def __post_init__(self) -> None:
        self._check_kinds()
        for name in ("batch", "frames", "size", "clips", "bn_batch"):
            if getattr(self, name) < 1:
                raise PlanError(f"baseline {name} is {getattr(self, name)}: at least 1 is needed")
        if not 0 < self.lr < math.inf:
            raise PlanError(f"baseline lr is {self.lr}: a number above 0 is needed")
        if self.lr_batch is not None and self.lr_batch < 1:
            raise PlanError(f"baseline lr_batch is {self.lr_batch}: at least 1 is needed")
        if (self.epochs is None) == (self.steps is None):
            raise PlanError(
                f"baseline has epochs {self.epochs} and steps {self.steps}: exactly one of the two is needed"
            )
        if not 0 < self.length < math.inf:
            raise PlanError(f"baseline length is {self._measured(self.length)}: a number above 0 is needed")
        self._check_laws()

    def _check_kinds(self) -> None:
        """Refuse what is of another kind here, not where it is first computed with; make numbers Python's own."""
        whole, number = (Integral,), (Real,)
        wanted: tuple[tuple[str, tuple[type, ...], str, bool], ...] = (
            *((name, whole, "a whole number", False) for name in ("batch", "frames", "size", "clips", "bn_batch")),
            *((name, whole, "a whole number", True) for name in ("lr_batch", "steps")),
            ("lr", number, "a number", False),
            ("epochs", number, "a number", True),
            (
                "decay",
                get_args(Decay),
                "NoDecay(), CosineDecay(), StepDecay(milestones=...) or CurveDecay(points=...)",
                False,
            ),
            ("warmup", get_args(Warmup), "RampWarmup(...), FactorWarmup(...) or None", True),
        )
        for name, kinds, accepted, optional in wanted:
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not (isinstance(value, kinds) or (optional and value is None)):
                raise PlanError(f"baseline {name} is {value!r}: {accepted} is needed")
            if kinds in (whole, number) and type(value) not in (int, float, type(None)):  # NumPy's, a fraction
                plain: Any = int if kinds is whole else float
                object.__setattr__(self, name, plain(value))

    def _check_laws(self) -> None:
        end = self._measured(self.length)
        last = self.decay.milestones[-1:] if isinstance(self.decay, StepDecay) else ()
        if last and last[0] >= self.length:
            raise PlanError(
                f"milestone {last[0]:g} lies at or past the end of training ({end}): its LR would never be used"
            )
        if isinstance(self.decay, CosineDecay) and self.decay.floor >= self.peak_lr:
            raise PlanError(f"cosine floor {self.decay.floor:g} is not below the LR {self.peak_lr:g} it starts at")
        if isinstance(self.warmup, RampWarmup) and self.warmup.length >= self.length:
            raise PlanError(f"warm-up of {self._measured(self.warmup.length)} is not shorter than the training ({end})")

    @property
    def length(self) -> float:
        """Length in the unit that the recipe is written in."""
        return self.epochs if self.epochs is not None else float(self.steps or 0)

    @property
    def unit(self) -> Fraction:
        """Steps per unit of length: steps per epoch, or 1."""
        return Fraction(self.clips, self.batch) if self.epochs is not None else Fraction(1)

    @property
    def total_steps(self) -> int:
        """Steps of the whole training."""
        return max(1, round(Fraction(self.length) * self.unit))

    @property
    def peak_lr(self) -> float:
        """The LR of this batch (linear scaling from `lr_batch`)."""
        return self._at_this_batch(self.lr)

    @property
    def start_lr(self) -> float:
        """The LR that a ramp warm-up starts at, for this batch; the peak without one."""
        return self._at_this_batch(self.warmup.start_lr) if isinstance(self.warmup, RampWarmup) else self.peak_lr

    @property
    def group(self) -> int:
        """Clips in a BatchNorm group at the baseline's shape."""
        return min(self.bn_batch, self.batch)

    def with_(self, **changes: object) -> "Baseline":
        """A copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def at(self, scale: Scale, *, bn_factor: int = 1, growth: float = 1.0) -> BatchShape:
        """The batch shape at a grid scale, its batch grown so that the work stays the same.

        Args:
            scale: Fractions of the baseline's frames and area.
            bn_factor: How many times the usual group BatchNorm takes (Wu et al. 2020, section 3.2).
            growth: The power of the batch factor by which the batch grows instead, where that is less than 1.
        """
        factor = scale.grown(growth)
        batch = int(self.batch * factor + Fraction(1, 2))
        frames, size = scale.frames(self.frames), scale.size(self.size)
        if frames < 1 or size < 1:
            raise PlanError(
                f"grid {scale} of a {self.frames}×{self.size}² baseline is {frames} frames of {size} pixels: "
                "at least 1 of each is needed"
            )
        return BatchShape(frames=frames, size=size, batch=batch, bn_batch=self.group * bn_factor)

    def lr_stages(self) -> list[tuple[Fraction, Rate]]:
        """The stages between LR drops as (steps, rate); a law without drops is one stage."""
        if not isinstance(self.decay, StepDecay):
            return [(Fraction(self.length) * self.unit, _smooth_rate(self.peak_lr, self.decay))]
        edges = [0.0, *self.decay.milestones, self.length]
        return [
            ((Fraction(b) - Fraction(a)) * self.unit, ConstantRate(lr=self.peak_lr * self.decay.factor(k)))
            for k, (a, b) in enumerate(pairwise(edges))
        ]

    def warmup_samples(self) -> Fraction:
        """Samples of a ramp warm-up; 0 without one."""
        if not isinstance(self.warmup, RampWarmup):
            return Fraction(0)
        return Fraction(self.warmup.length) * self.unit * self.batch

    def stretched(self, ratio: Fraction) -> "Baseline":
        """The baseline with freezes, and a warm-up by a factor, of `ratio` times the steps.

        Less than half a step is none. A ramp stays as it is: how long a plan's is, it says (`Plan.warmup_samples`).
        """
        warmup = self.warmup
        if isinstance(warmup, FactorWarmup):
            steps = round(warmup.steps * ratio)
            warmup = replace(warmup, steps=steps) if steps else None
        roles = {
            name: replace(role, frozen_until=round(role.frozen_until * ratio)) for name, role in self.roles.items()
        }
        return replace(self, warmup=warmup, roles=roles)

    def _at_this_batch(self, lr: float) -> float:
        """An LR stated for `lr_batch`, scaled linearly to `batch`."""
        return lr if self.lr_batch is None else lr * self.batch / self.lr_batch

    def _measured(self, length: float) -> str:
        """A length with its unit."""
        return f"{length:g} {'steps' if self.epochs is None else 'epochs'}"


def _smooth_rate(peak: float, decay: NoDecay | CosineDecay | CurveDecay) -> Rate:
    """The rate of a law without drops, over the whole training."""
    if isinstance(decay, CurveDecay):
        return CurveRate(lr=peak, points=decay.points)
    return ConstantRate(lr=peak) if isinstance(decay, NoDecay) else CosineRate(peak=peak, floor=decay.floor)
