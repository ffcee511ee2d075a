"""The models by name: what each asks of a shape (without torch), and how to build it.

Example:
    >>> needs("slowfast_tiny").frames_multiple
    4
    >>> sum(p.numel() for p in build("r3d_tiny", classes=10).parameters())
    226362
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from vcycle.errors import RecipeError
from vcycle.plan import Needs, Shape

if TYPE_CHECKING:
    from torch import nn

__all__ = ["build", "names", "needs", "options_of"]


def names() -> tuple[str, ...]:
    """Return the names of all models."""
    return tuple(_ENTRIES)


def options_of(name: str) -> tuple[str, ...]:
    """Return the options that a model accepts.

    Raises:
        RecipeError: the model is unknown.
    """
    return tuple(_entry(name).options)


def needs(name: str, **options: Any) -> Needs:
    """Return what a model asks of the shape of a clip. Imports no torch.

    Raises:
        RecipeError: the model or an option is unknown, or an option's value is not accepted.
    """
    entry = _entry(name)
    return entry.needs({**entry.preset, **_checked(name, entry, options)})


def build(name: str, classes: int, **options: Any) -> nn.Module:
    """Build a model: ``(B, C, T, H, W)`` in, logits ``(B, classes)`` out.

    Args:
        name: one of :func:`names`.
        classes: outputs.
        options: the model's own, each in place of the preset's.

    Raises:
        RecipeError: the model or an option is unknown, or a value is not accepted.
    """
    entry = _entry(name)
    values = {**entry.preset, **_checked(name, entry, options)}
    if not _is_whole(classes):
        raise RecipeError(f"classes is {classes!r}; accepted: {_whole.accepted}")
    module, attribute = entry.builder.split(":")
    model: nn.Module = getattr(import_module(module), attribute)(classes, **values)
    return model


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """What values an option takes."""

    accepted: str
    accepts: Callable[[Any], bool]


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One model by name."""

    builder: str
    """``module:callable``, imported when a model is built."""
    options: Mapping[str, _Kind]
    preset: Mapping[str, Any] = field(default_factory=dict)
    needs: Callable[[Mapping[str, Any]], Needs] = lambda options: Needs()


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_list(value: Any, accepts: Callable[[Any], bool]) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(accepts(item) for item in value)


def _is_odd(value: Any) -> bool:
    return _is_whole(value) and value % 2 == 1


_whole = _Kind(accepted="a whole number, at least 1", accepts=_is_whole)
_wholes = _Kind(accepted="a list of whole numbers, each at least 1", accepts=lambda v: _is_list(v, _is_whole))
_odd = _Kind(accepted="an odd whole number", accepts=_is_odd)
_odds = _Kind(accepted="a list of odd whole numbers", accepts=lambda v: _is_list(v, _is_odd))
_kernel = _Kind(accepted="three odd whole numbers", accepts=lambda v: _is_list(v, _is_odd) and len(v) == 3)
_flag = _Kind(accepted="true or false", accepts=lambda v: isinstance(v, bool))
_share = _Kind(
    accepted="a number from 0 to below 1",
    accepts=lambda v: isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v < 1,
)
_text = _Kind(accepted="a name", accepts=lambda v: isinstance(v, str))

_RESNET3D: Mapping[str, _Kind] = {
    "widths": _wholes,
    "blocks": _wholes,
    "temporal_kernels": _odds,
    "temporal_strides": _wholes,
    "stem_kernel": _kernel,
    "dropout": _share,
    "zero_gamma": _flag,
    "channels_in": _whole,
}
_SLOWFAST: Mapping[str, _Kind] = {
    "stem_width": _whole,
    "widths": _wholes,
    "blocks": _wholes,
    "block": _text,
    "alpha": _whole,
    "beta_inverse": _whole,
    "fusion_kernel": _odd,
    "fusion_ratio": _whole,
    "slow_kernels": _odds,
    "fast_kernels": _odds,
    "stem_size": _odd,
    "stem_pool": _flag,
    "dropout": _share,
    "zero_gamma": _flag,
    "channels_in": _whole,
}
_TORCHVISION: Mapping[str, _Kind] = {"weights": _text, "dropout": _share}


def _resnet3d(**preset: Any) -> _Entry:
    return _Entry(builder="vcycle.nn.models.resnet3d:ResNet3d", options=_RESNET3D, preset=preset)


def _slowfast(**preset: Any) -> _Entry:
    return _Entry(
        builder="vcycle.nn.models.slowfast:SlowFast",
        options=_SLOWFAST,
        preset={"alpha": 4, **preset},
        needs=lambda options: Needs(min_frames=options["alpha"], frames_multiple=options["alpha"]),
    )


def _torchvision(name: str, needs: Needs) -> _Entry:
    return _Entry(
        builder="vcycle.nn.models.torchvision:torchvision_model",
        options=_TORCHVISION,
        preset={"name": name},
        needs=lambda options: needs,
    )


_TORCHVISION_NEEDS = {
    "r3d_18": Needs(),
    "mc3_18": Needs(),
    "r2plus1d_18": Needs(),
    "s3d": Needs(min_frames=5, min_size=17),  # its strided pooling has no padding: below, nothing is left
    "swin3d_t": Needs(),
    "swin3d_s": Needs(),
    "swin3d_b": Needs(),
    "mvit_v1_b": Needs(fixed=Shape(16, 224, 224)),  # its position embeddings belong to one lattice
    "mvit_v2_s": Needs(fixed=Shape(16, 224, 224)),
}
_ENTRIES: Mapping[str, _Entry] = {
    "r3d_tiny": _resnet3d(widths=(16, 32, 64), blocks=(1, 1, 1)),
    "r3d_small": _resnet3d(widths=(32, 64, 128), blocks=(2, 2, 2), temporal_kernels=(3, 3, 3)),
    "slowfast_tiny": _slowfast(
        stem_width=16,
        widths=(16, 32, 64),
        blocks=(1, 1, 1),
        block="basic",
        beta_inverse=4,
        fusion_kernel=5,
        slow_kernels=(1, 3, 3),
        fast_kernels=(3, 3, 3),
        stem_size=5,
        stem_pool=False,
        dropout=0.0,
    ),
    "slowfast_4x16_r50": _slowfast(alpha=8, fusion_kernel=5),
    "slowfast_8x8_r50": _slowfast(alpha=4, fusion_kernel=7),
    **{name: _torchvision(name, needs) for name, needs in _TORCHVISION_NEEDS.items()},
}


def _entry(name: str) -> _Entry:
    if name not in _ENTRIES:
        raise RecipeError(f"model {name!r} is unknown{_nearest(name, _ENTRIES)}; accepted: {', '.join(_ENTRIES)}")
    return _ENTRIES[name]


def _checked(name: str, entry: _Entry, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options, lists as tuples, after checking each."""
    for option, value in options.items():
        kind = entry.options.get(option)
        if kind is None:
            raise RecipeError(
                f"option {option!r} of model {name!r} is unknown{_nearest(option, entry.options)}; "
                f"accepted: {', '.join(entry.options)}"
            )
        if not kind.accepts(value):
            raise RecipeError(f"option {option!r} of model {name!r} is {value!r}; accepted: {kind.accepted}")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
