"""Shapes of clips and batches, the scales of sampling grids, and the shape constraints of models."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, TypedDict

from vcycle.errors import PlanError, shown
from vcycle.plan import serial
from vcycle.plan.arguments import check_kind, check_number

__all__ = ["FULL", "TOKEN_DROPPERS", "BatchShape", "Multiples", "Scale", "Shape", "ShapeConstraints"]

TOKEN_DROPPERS = (
    "VideoMAE, ViViT, V-JEPA 2, the VisionTransformer of torchvision and of timm, and networks that contain a \
vcycle.nn.TokenDropping"
)
"""Models that can drop tokens."""


class Shape(NamedTuple):
    """The shape `T x H x W` of one sampled clip, in frames and pixels."""

    frames: int
    """Frames of the clip, T."""
    height: int
    """Height in pixels, H."""
    width: int
    """Width in pixels, W."""

    @property
    def size(self) -> int:
        """The short side in pixels."""
        return min(self.height, self.width)

    @property
    def voxels(self) -> int:
        """`T * H * W`."""
        return self.frames * self.height * self.width

    def __str__(self) -> str:
        return f"{self.frames}×{self.height}×{self.width}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
    """The batch of one step: `batch` clips of `frames x size x size`, BatchNorm in groups of `bn_batch`.

    A transformer drops all but a share `tokens` of each clip's tokens.
    """

    frames: int
    size: int
    batch: int
    bn_batch: int
    tokens: float = field(default=1.0, metadata={serial.SAVED: serial.UNLESS_DEFAULT})

    def __post_init__(self) -> None:
        check_number("tokens", self.tokens)
        for name in ("frames", "size", "batch", "bn_batch"):
            if check_number(name, getattr(self, name), whole=True) < 1:
                raise PlanError(f"{name} {getattr(self, name)} is below 1 in batch shape {self}")
        if not 0 < self.tokens <= 1:
            raise PlanError(f"tokens {self.tokens} is out of range in batch shape {self}: a share in (0, 1] is needed")

    @property
    def shape(self) -> Shape:
        """The shape of each clip."""
        return Shape(self.frames, self.size, self.size)

    @property
    def voxels(self) -> int:
        """`b * T * H * W`."""
        return self.batch * self.shape.voxels

    @property
    def work(self) -> float:
        """The work of a step if no model is known: its voxels, times the share of tokens that are kept."""
        return self.voxels * self.tokens

    def __str__(self) -> str:
        kept = "" if self.tokens == 1 else f" with {100 * self.tokens:.3g} % of the tokens"
        return f"{self.batch}×{self.frames}×{self.size}²{kept}"


@dataclass(frozen=True, slots=True)
class Scale:
    """A sampling grid as exact fractions of the baseline's frames and *area*, and the share of tokens that are kept.

    The area rather than the side, because the method often uses the side 1/√2, whose square is exact. Batch factors
    come from these fractions, not from sizes rounded to pixels: a batch of 64 becomes 512, not 515 (Wu et al. 2020,
    section 3.2).

    >>> Scale.of(0.25, 0.7071).batch_factor
    Fraction(8, 1)
    """

    time: Fraction
    area: Fraction
    tokens: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        for name, value in (("time", self.time), ("area", self.area), ("tokens", self.tokens)):
            if not isinstance(value, Fraction | int):
                raise PlanError(
                    f"grid scale: its {name} is {shown(value)}, and an exact fraction is needed; "
                    "Scale.of(0.5, 0.7071) takes numbers: of the frames, and of the side"
                )
        if not all(0 < part <= 1 for part in (self.time, self.area, self.tokens)):
            raise PlanError(
                f"grid scale: its time {self.time}, area {self.area} and tokens {self.tokens} must all be in (0, 1]"
            )

    @classmethod
    def of(cls, time: float, space: float, tokens: float = 1.0) -> "Scale":
        """The scale with `time` of the frames, `space` of the side and `tokens` of the tokens; 0.7071 means 1/√2.

        Raises:
            PlanError: if a value is not a number in (0, 1].
        """
        given = {"time": time, "space": space, "tokens": tokens}
        time, space, tokens = (check_number(f"grid scale: its {name}", value) for name, value in given.items())
        if not (math.isfinite(time) and math.isfinite(space) and math.isfinite(tokens)):
            kept = "" if tokens == 1 else f" and a share of tokens, {tokens}"
            raise PlanError(f"grid scale [{time}, {space}] is not a pair of finite numbers{kept}")
        parts = _simple(time), _simple(space * space), _simple(tokens)
        if space < 0 or not all(0 < part <= 1 for part in parts[:2]):
            raise PlanError(
                f"grid scale [{time:g}, {space:g}] is out of range: "
                "the fraction of frames and the fraction of the side must both be in (0, 1]"
            )
        if not 0 < parts[2] <= 1:
            raise PlanError(f"grid scale: its share of tokens {tokens:g} is out of range: (0, 1]")
        return cls(*parts)

    @classmethod
    def each(cls, shapes: Iterable["Scale | Sequence[float]"]) -> tuple["Scale", ...]:
        """Convert scales to scales, and so tuples as in recipes: fractions of frames and side, and a share of tokens.

        `(0.5, 0.7071)` keeps all tokens, `(1, 1, 0.25)` a quarter.

        Raises:
            PlanError: if a value is neither, or there is no list of them.
        """
        if isinstance(shapes, Scale | str) or not isinstance(shapes, Iterable):
            raise PlanError(f"grid scales are {shown(shapes)}: a list is needed, such as [(0.5, 0.7071), (1, 1)]")
        return tuple(shape if isinstance(shape, Scale) else cls._of_numbers(shape) for shape in shapes)

    @classmethod
    def _of_numbers(cls, numbers: Any) -> "Scale":
        try:
            if isinstance(numbers, str):
                raise TypeError
            time, space, *tokens = map(float, numbers)
            (kept,) = tokens or [1.0]
        except (TypeError, ValueError):
            raise PlanError(
                f"grid scale {shown(numbers)}: a pair of numbers is accepted, of the frames and of the side: "
                "(0.5, 0.7071), with the share of tokens as a third"
            ) from None
        return cls.of(time, space, kept)

    @property
    def batch_factor(self) -> Fraction:
        """The factor by which the batch grows so that `b·t·h·w` stays constant (Wu et al. 2020, equation 1).

        Where tokens are dropped, `b·t·h·w·tokens` stays constant.
        """
        return 1 / (self.time * self.area * self.tokens)

    def grown(self, power: float) -> Fraction:
        """A power of the batch factor.

        Args:
            power: 1 keeps the work of a step, 0 the batch.

        Raises:
            PlanError: if it is no number.
        """
        check_number("power", power)
        return self.batch_factor if power == 1 else Fraction(float(self.batch_factor) ** power)

    def frames(self, full: int) -> int:
        """The number of frames of `full`, rounded to the nearest."""
        check_number("full", full)
        return math.floor(full * self.time + Fraction(1, 2))

    def size(self, full: int) -> int:
        """The side in pixels of `full`, rounded to the nearest."""
        check_number("full", full)
        return math.floor(full * math.sqrt(self.area) + 0.5)

    def __str__(self) -> str:
        kept = "" if self.tokens == 1 else f"·{_fraction(self.tokens, 'N')}"
        return f"{_fraction(self.time, 'T')}·{_side(self.area)}{kept}"


FULL = Scale(Fraction(1), Fraction(1))


class Multiples(TypedDict, total=False):
    """The multiples to which a plan rounds its shapes, as arguments of its builder."""

    frames_multiple: int
    size_multiple: int


@dataclass(frozen=True, kw_only=True)
class ShapeConstraints:
    """The constraints of a model on the shape of clips; a plan is checked against them before anything runs.

    >>> ShapeConstraints(frames_multiple=2, size_multiple=16).multiples
    {'frames_multiple': 2, 'size_multiple': 16}
    """

    min_frames: int = 1
    frames_multiple: int = 1
    min_size: int = 1
    """Pixels of the short side."""
    size_multiple: int = 1
    """A divisor of height and width, for networks that downsample and upsample."""
    window: int | None = None
    """The exact number of frames that the model takes."""
    all_tokens: bool = False
    """Whether the model needs all tokens of a clip, such as a convolutional network: none may be dropped."""

    def __post_init__(self) -> None:
        for name in ("min_frames", "frames_multiple", "min_size", "size_multiple", "window"):
            value = getattr(self, name)
            if name == "window" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise PlanError(f"a model's {name} is {shown(value)}; accepted: a whole number, at least 1")

    @property
    def multiples(self) -> Multiples:
        """The multiples, as arguments of a plan's builder: ``cascade(baseline, **constraints.multiples)``."""
        return {"frames_multiple": self.frames_multiple, "size_multiple": self.size_multiple}

    def violation(self, shape: Shape) -> str | None:
        """The reason why the model cannot take `shape`, or None.

        Raises:
            PlanError: if it is no `Shape`.
        """
        check_kind("shape", shape, Shape, "constraints.violation(shape)")
        if self.window is not None and shape.frames != self.window:
            return f"{shape.frames} frames, the model takes a window of {self.window}"
        if shape.frames < self.min_frames:
            return f"{shape.frames} frames, the model needs at least {self.min_frames}"
        if shape.frames % self.frames_multiple:
            return f"{shape.frames} frames, the model needs a multiple of {self.frames_multiple}"
        if shape.size < self.min_size:
            return f"{shape.size} pixels, the model needs at least {self.min_size}"
        for side in (shape.height, shape.width):
            if side % self.size_multiple:
                return f"{side} pixels, the model needs a multiple of {self.size_multiple}"
        return None


def _simple(value: float) -> Fraction:
    """The simple fraction closest to a rounded decimal (1/2 for 0.7071²), or the decimal itself if none is close."""
    exact = Fraction(value)
    near = exact.limit_denominator(16)
    return near if abs(near - exact) < abs(exact) / 400 else exact


def _fraction(value: Fraction, name: str) -> str:
    if value == 1:
        return name
    return f"{name}/{value.denominator}" if value.numerator == 1 else f"{float(value):g}{name}"


def _side(area: Fraction) -> str:
    root = math.isqrt(area.denominator)
    if area.numerator == 1 and root * root == area.denominator:
        return _fraction(Fraction(1, root), "S")
    return f"S/√{area.denominator}" if area.numerator == 1 else f"{math.sqrt(area):.3g}S"
