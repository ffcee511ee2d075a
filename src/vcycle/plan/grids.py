"""Batch shapes at the grid scales of a baseline, on the multiples that a model needs."""

import math
from fractions import Fraction

from vcycle.errors import PlanError, shown
from vcycle.plan.baseline import Baseline
from vcycle.plan.shape import BatchShape, Scale, ShapeConstraints

__all__ = ["Grids", "check_multiples", "nearest_multiple", "work_note"]

_TOLERANCE = Fraction(1, 10)
"""How far a step's work may be off before the plan adapts the batch, or notes it."""


class Grids:
    """The batch shapes of a plan at grid scales of its baseline, and notes of what is rounded.

    A shape is rounded to whole frames and pixels, and to multiples of them. The batch follows from the nominal scale:
    64 clips become 512 at T/4·S/√2, although 158² is not quite half of 224² (Wu et al. 2020, section 3.2). Where a
    multiple changes the shape, or rounding changes its voxels by more than 10 %, batch and LR follow from the shape.
    """

    def __init__(
        self, baseline: Baseline, *, frames_multiple: int = 1, size_multiple: int = 1, growth: float = 1.0
    ) -> None:
        """Check the multiples.

        Args:
            baseline: The baseline.
            frames_multiple: The number of frames is a multiple of this.
            size_multiple: The side in pixels is a multiple of this.
            growth: The batch grows by this power of the batch factor.

        Raises:
            PlanError: if a multiple is below 1, or the baseline's own shape is no multiple.
        """
        check_multiples(baseline, frames_multiple=frames_multiple, size_multiple=size_multiple)
        self.baseline, self._growth = baseline, growth
        self._frames_multiple, self._size_multiple = frames_multiple, size_multiple
        self._notes: dict[str, None] = {}

    @property
    def needs(self) -> ShapeConstraints:
        """The multiples, for `Plan.require`: half a multiple or less is not rounded up to one."""
        return ShapeConstraints(frames_multiple=self._frames_multiple, size_multiple=self._size_multiple)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was rounded, and which steps have another amount of work than intended."""
        return tuple(self._notes)

    def fitted(self, scale: Scale) -> Scale:
        """The scale of the rounded shape; `scale` itself where rounding to whole frames and pixels is all it takes."""
        full = self.baseline
        plain = scale.frames(full.frames), scale.size(full.size)
        found = (
            nearest_multiple(full.frames * scale.time, self._frames_multiple) or plain[0],
            nearest_multiple(full.size * math.sqrt(scale.area), self._size_multiple) or plain[1],
        )
        if min(found) < 1:
            return scale  # refused where the batch shape is made
        exact = Scale(Fraction(found[0], full.frames), Fraction(found[1], full.size) ** 2, scale.tokens)
        share = (exact.time * exact.area) / (scale.time * scale.area)
        if found == plain and abs(share - 1) <= _TOLERANCE:
            return scale
        multiples = [
            f"{name} a multiple of {multiple}"
            for name, multiple, before, after in zip(
                ("frames", "size"), (self._frames_multiple, self._size_multiple), plain, found, strict=True
            )
            if before != after
        ]
        why = f" (rounded from {_shape(*plain)}: {', '.join(multiples)})" if multiples else ""
        self._note(
            f"{scale} is {_shape(*found)}{why}, {float(share):.2f} times the voxels of the scale: the batch and the LR "
            "follow from this shape"
        )
        return exact

    def at(self, scale: Scale, *, bn_factor: int = 1) -> BatchShape:
        """The batch shape at a fitted scale; see `Baseline.at`.

        Raises:
            PlanError: if it has no frame or no pixel.
        """
        cell = self.baseline.at(scale, bn_factor=bn_factor, growth=self._growth)
        intended = self.baseline.batch * scale.grown(self._growth) * scale.time * scale.area
        self._note(work_note(self.baseline, cell, intended))
        return cell

    def _note(self, text: str | None) -> None:
        if text is not None:
            self._notes[text] = None


def nearest_multiple(value: Fraction | float, multiple: int) -> int:
    """The multiple closest to a value, the smaller of two equally close ones; 0 if that is 0.

    A multiple of 1 rounds as `Scale` does, half up.

    >>> nearest_multiple(158.4, 16), nearest_multiple(6, 4), nearest_multiple(2, 4)
    (160, 4, 0)
    """
    half = Fraction(1, 2)
    if multiple == 1:
        return math.floor(value + half)
    return math.ceil(Fraction(value) / multiple - half) * multiple


def check_multiples(baseline: Baseline, *, frames_multiple: int, size_multiple: int) -> None:
    """Check that a baseline's shape has the multiples that its plan is to have.

    Raises:
        PlanError: if it does not, or a multiple is below 1.
    """
    for name, value, multiple in (
        ("frames", baseline.frames, frames_multiple),
        ("size", baseline.size, size_multiple),
    ):
        if type(multiple) is not int or multiple < 1:
            raise PlanError(f"{name}_multiple is {shown(multiple)}; accepted: a whole number, at least 1")
        if value % multiple:
            raise PlanError(
                f"baseline {name} {value} is not a multiple of {multiple} ({name}_multiple): "
                f"{value // multiple * multiple or multiple} is one"
            )


def work_note(baseline: Baseline, cell: BatchShape, intended: Fraction) -> str | None:
    """A note if the work of a step, in voxels, is off by more than 10 %; None otherwise.

    Args:
        baseline: The baseline.
        cell: The step's batch shape.
        intended: The work that it should have, in clips of the baseline's shape.
    """
    full = baseline.frames * baseline.size**2
    share = Fraction(cell.voxels, full) / intended
    if abs(share - 1) <= _TOLERANCE:
        return None
    return f"a step of {cell} has {float(share):.2f} times the intended work: the batch is rounded to whole clips"


def _shape(frames: int, size: int) -> str:
    return f"{frames}×{size}²"
