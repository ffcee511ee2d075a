"""Options of the networks that do not go together, or name what is not there. Imports no torch."""

from collections.abc import Sequence

from vcycle.errors import RecipeError

__all__ = [
    "BLOCKS",
    "FLOWS",
    "NONLOCAL_FORMS",
    "SCALE",
    "check_basicvsr",
    "check_groups",
    "check_lengths",
    "check_name",
    "check_resnet3d",
    "check_slowfast",
]

SCALE = 4
"""Output pixels to an input pixel, along a side: of every network here."""
BLOCKS = ("basic", "bottleneck")
"""Kinds of residual blocks."""
NONLOCAL_FORMS = ("dot", "softmax")
"""How non-local blocks weigh."""
FLOWS = ("spynet", "none")
"""Flow networks of a ``BasicVSR``."""


def check_name(option: str, value: object, accepted: Sequence[str]) -> None:
    """Check an option that names something.

    Raises:
        RecipeError: there is no such thing.
    """
    if value not in accepted:
        raise RecipeError(f"{option} {value!r} is unknown; accepted: {', '.join(accepted)}")


def check_lengths(**lists: Sequence[object]) -> None:
    """Check that per-stage lists are of one length.

    Raises:
        RecipeError: they are not.
    """
    if len({len(values) for values in lists.values()}) > 1:
        *others, last = (f"{name} {tuple(values)}" for name, values in lists.items())
        raise RecipeError(f"{', '.join(others)} and {last} differ in length; accepted: one value per stage in each")


def check_resnet3d(
    *,
    block: str = "basic",
    nonlocal_form: str = "dot",
    widths: Sequence[int] = (16, 32, 64),
    blocks: Sequence[int] = (1, 1, 1),
    temporal_kernels: Sequence[object] = (3, 3, 3),
    temporal_strides: Sequence[int] | None = None,
    nonlocal_every: Sequence[int] | None = None,
    **_: object,
) -> None:
    """Check the options of a ``ResNet3d``, whose defaults these are.

    Raises:
        RecipeError: the per-stage lists differ in length, or an unknown ``block`` or ``nonlocal_form``.
    """
    check_name("block", block, BLOCKS)
    check_name("nonlocal_form", nonlocal_form, NONLOCAL_FORMS)
    given = {"temporal_strides": temporal_strides, "nonlocal_every": nonlocal_every}
    check_lengths(
        widths=widths,
        blocks=blocks,
        temporal_kernels=temporal_kernels,
        **{name: values for name, values in given.items() if values is not None},
    )


def check_slowfast(
    *,
    block: str = "bottleneck",
    stem_width: int = 64,
    widths: Sequence[int] = (64, 128, 256, 512),
    blocks: Sequence[int] = (3, 4, 6, 3),
    beta_inverse: int = 8,
    slow_kernels: Sequence[object] = (1, 1, 3, 3),
    fast_kernels: Sequence[object] = (3, 3, 3, 3),
    **_: object,
) -> None:
    """Check the options of a ``SlowFast``, whose defaults these are.

    Raises:
        RecipeError: the per-stage lists differ in length, ``beta_inverse`` does not divide a width, or an unknown
            ``block``.
    """
    check_name("block", block, BLOCKS)
    check_lengths(widths=widths, blocks=blocks, slow_kernels=slow_kernels, fast_kernels=fast_kernels)
    for width in (stem_width, *widths):
        if width % beta_inverse:
            raise RecipeError(f"width {width} is not a multiple of beta_inverse {beta_inverse}")


def check_basicvsr(*, flow: str = "spynet", **_: object) -> None:
    """Check the options of a ``BasicVSR``, whose defaults these are.

    Raises:
        RecipeError: an unknown ``flow``.
    """
    if flow not in FLOWS:
        raise RecipeError(f"flow is {flow!r}; accepted: {', '.join(FLOWS)}")


def check_groups(*, channels: int = 64, groups: int = 8, **_: object) -> None:
    """Check the groups of an ``EDVR``'s deformable convolutions, whose defaults these are.

    Raises:
        RecipeError: the groups do not divide the channels.
    """
    if channels % groups:
        raise RecipeError(f"channels is {channels}, groups is {groups}; accepted: groups that divide the channels")
