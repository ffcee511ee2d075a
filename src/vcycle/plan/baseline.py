"""The baseline: the constant-shape recipe from which every plan is derived."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, get_args

from vcycle.errors import PlanError, shown
from vcycle.plan.arguments import check_kind, check_number, check_positive
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
    """Training at a constant shape, from which every plan is derived and with which it is compared.

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
    """The batch size that `lr` and a ramp's `start_lr` refer to; both scale linearly with the batch. None: `batch`."""
    epochs: float | None = None
    """Length of the training in epochs; give either this or `steps`."""
    steps: int | None = None
    """Length of the training in steps; give either this or `epochs`."""
    decay: Decay = field(default_factory=NoDecay)
    """LR decay; its milestones are in the unit of the length (epochs or steps)."""
    warmup: Warmup | None = None
    """LR warmup; the length of a ramp is in the unit of the length (epochs or steps)."""
    bn_batch: int = 8
    """Clips over which BatchNorm computes its statistics; a smaller batch is a single group."""
    roles: dict[str, Role] = field(default_factory=dict, hash=False)
    """LR multipliers and freezes of parameter groups, by role."""

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
        """Check types here rather than at first use, and convert numbers to Python's types."""
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
                raise PlanError(f"baseline {name} is {shown(value)}: {accepted} is needed")
            if kinds in (whole, number) and type(value) not in (int, float, type(None)):  # NumPy's, a fraction
                plain: Any = int if kinds is whole else float
                object.__setattr__(self, name, plain(value))
        roles: Any = self.roles
        if not isinstance(roles, Mapping) or not all(
            isinstance(name, str) and isinstance(role, Role) for name, role in roles.items()
        ):
            raise PlanError(f"baseline roles is {shown(roles)}: a dict of Role(...) by name is needed")

    def _check_laws(self) -> None:
        end = self._measured(self.length)
        last = self.decay.milestones[-1:] if isinstance(self.decay, StepDecay) else ()
        if last and last[0] >= self.length:
            raise PlanError(
                f"milestone {last[0]:g} is at or after the end of training ({end}): its LR would never be used"
            )
        if isinstance(self.decay, CosineDecay) and self.decay.floor >= self.peak_lr:
            raise PlanError(f"cosine floor {self.decay.floor:g} is not below the LR {self.peak_lr:g} it starts at")
        if isinstance(self.warmup, RampWarmup) and self.warmup.length >= self.length:
            raise PlanError(f"warm-up of {self._measured(self.warmup.length)} is not shorter than the training ({end})")

    @property
    def length(self) -> float:
        """Length in the unit of the recipe (epochs or steps)."""
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
        """The peak LR for this batch (linear scaling from `lr_batch`)."""
        return self._at_this_batch(self.lr)

    @property
    def start_lr(self) -> float:
        """The LR at the start of a ramp warmup, for this batch; the peak LR without one."""
        return self._at_this_batch(self.warmup.start_lr) if isinstance(self.warmup, RampWarmup) else self.peak_lr

    @property
    def group(self) -> int:
        """Clips in a BatchNorm group at the baseline's shape."""
        return min(self.bn_batch, self.batch)

    def with_(self, **changes: object) -> "Baseline":
        """A copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def at(self, scale: Scale, *, bn_factor: int = 1, growth: float = 1.0) -> BatchShape:
        """The batch shape at a grid scale; the batch grows so that the work of a step stays the same.

        Args:
            scale: Fractions of the baseline's frames and area, and the share of tokens.
            bn_factor: Size of a BatchNorm group, in groups of the baseline (Wu et al. 2020, section 3.2).
            growth: The batch grows by this power of the batch factor; below 1, a coarse step has less work.

        Raises:
            PlanError: if an argument is of the wrong type, or a shape has no frame or no pixel.
        """
        check_kind("scale", scale, Scale, "baseline.at(scale)")
        check_number("bn_factor", bn_factor, whole=True)
        check_number("growth", growth)
        factor = scale.grown(growth)
        batch = int(self.batch * factor + Fraction(1, 2))
        frames, size = scale.frames(self.frames), scale.size(self.size)
        if frames < 1 or size < 1:
            raise PlanError(
                f"grid {scale} of a {self.frames}×{self.size}² baseline is {frames} frames of {size} pixels: "
                "at least 1 of each is needed"
            )
        return BatchShape(
            frames=frames, size=size, batch=batch, bn_batch=self.group * bn_factor, tokens=float(scale.tokens)
        )

    def lr_stages(self) -> list[tuple[Fraction, Rate]]:
        """The stages between LR drops as (steps, rate); a schedule without drops is one stage."""
        if not isinstance(self.decay, StepDecay):
            return [(Fraction(self.length) * self.unit, _smooth_rate(self.peak_lr, self.decay))]
        edges = [0.0, *self.decay.milestones, self.length]
        return [
            ((Fraction(b) - Fraction(a)) * self.unit, ConstantRate(lr=self.peak_lr * self.decay.factor(k)))
            for k, (a, b) in enumerate(pairwise(edges))
        ]

    def warmup_samples(self) -> Fraction:
        """Samples of a ramp warmup; 0 without one."""
        if not isinstance(self.warmup, RampWarmup):
            return Fraction(0)
        return Fraction(self.warmup.length) * self.unit * self.batch

    def stretched(self, ratio: Fraction) -> "Baseline":
        """The baseline with its freezes and its factor warmup stretched to `ratio` times their steps.

        A warmup of less than half a step is dropped. A ramp stays as it is: `Plan.warmup_samples` has its length.

        Raises:
            PlanError: if the ratio is not a number above 0.
        """
        ratio = check_positive("ratio", ratio)
        warmup = self.warmup
        if isinstance(warmup, FactorWarmup):
            steps = round(warmup.steps * ratio)
            warmup = replace(warmup, steps=steps) if steps else None
        roles = {
            name: replace(role, frozen_until=round(role.frozen_until * ratio)) for name, role in self.roles.items()
        }
        return replace(self, warmup=warmup, roles=roles)

    def _at_this_batch(self, lr: float) -> float:
        """Scale an LR linearly from `lr_batch` to `batch`."""
        return lr if self.lr_batch is None else lr * self.batch / self.lr_batch

    def _measured(self, length: float) -> str:
        """A length with its unit."""
        return f"{length:g} {'steps' if self.epochs is None else 'epochs'}"


def _smooth_rate(peak: float, decay: NoDecay | CosineDecay | CurveDecay) -> Rate:
    """The rate of a schedule without drops, over the whole training."""
    if isinstance(decay, CurveDecay):
        return CurveRate(lr=peak, points=decay.points)
    return ConstantRate(lr=peak) if isinstance(decay, NoDecay) else CosineRate(peak=peak, floor=decay.floor)
