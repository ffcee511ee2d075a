"""The models by name: what each asks of a shape (without torch), and how to build it.

Example:
    >>> needs("slowfast_tiny").frames_multiple
    4
    >>> sum(p.numel() for p in build("r3d_tiny", classes=10).parameters())
    226362
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from vcycle.errors import RecipeError, did_you_mean
from vcycle.plan import Needs, Shape

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Task", "build", "build_restorer", "names", "needs", "options_of"]

Task = Literal["recognition", "superresolution"]


def names(task: Task = "recognition") -> tuple[str, ...]:
    """Return the names of all models of a task."""
    return tuple(_ENTRIES if task == "recognition" else _RESTORERS)


def options_of(name: str) -> tuple[str, ...]:
    """Return the options that a model accepts.

    Raises:
        RecipeError: the model is unknown.
    """
    return tuple(_entry(name).options)


def needs(name: str, task: Task = "recognition", /, **options: Any) -> Needs:
    """Return what a model asks of the shape of a clip. Imports no torch.

    Raises:
        RecipeError: the model or an option is unknown, or an option's value is not accepted.
    """
    entry = _entry(name, task)
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
    model: nn.Module = _builder(entry)(classes, **values)
    return model


def build_restorer(name: str, **options: Any) -> nn.Module:
    """Build a model of super-resolution: a ``vcycle.tasks.superres.models.clips.Restorer``.

    Args:
        name: one of ``names("superresolution")``.
        options: the model's own, each in place of the preset's.

    Raises:
        RecipeError: the model or an option is unknown, or a value is not accepted.
    """
    entry = _entry(name, "superresolution")
    model: nn.Module = _builder(entry)(**{**entry.preset, **_checked(name, entry, options)})
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
_extents = _Kind(
    accepted="a list with an odd whole number, or a list of them, for each stage",
    accepts=lambda v: _is_list(v, lambda item: _is_odd(item) or _is_list(item, _is_odd)),
)
_counts = _Kind(accepted="a list of whole numbers", accepts=lambda v: _is_list(v, lambda n: n == 0 or _is_whole(n)))
_kernel = _Kind(accepted="three odd whole numbers", accepts=lambda v: _is_list(v, _is_odd) and len(v) == 3)
_flag = _Kind(accepted="true or false", accepts=lambda v: isinstance(v, bool))
_share = _Kind(
    accepted="a number from 0 to below 1",
    accepts=lambda v: isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v < 1,
)
_text = _Kind(accepted="a name", accepts=lambda v: isinstance(v, str))

_RESNET3D: Mapping[str, _Kind] = {
    "stem_width": _whole,
    "widths": _wholes,
    "blocks": _wholes,
    "block": _text,
    "temporal_kernels": _extents,
    "temporal_strides": _wholes,
    "temporal_pool": _whole,
    "stem_kernel": _kernel,
    "stem_pool": _flag,
    "nonlocal_every": _counts,
    "nonlocal_form": _text,
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
    "slow_kernels": _extents,
    "fast_kernels": _extents,
    "stem_size": _odd,
    "stem_pool": _flag,
    "dropout": _share,
    "zero_gamma": _flag,
    "channels_in": _whole,
}
_TORCHVISION: Mapping[str, _Kind] = {"weights": _text, "dropout": _share}


def _resnet3d(**preset: Any) -> _Entry:
    return _Entry(
        builder="vcycle.tasks.recognition.models.resnet3d:ResNet3d",
        options=_RESNET3D,
        preset=preset,
        needs=_needs_of_resnet3d,
    )


def _needs_of_resnet3d(options: Mapping[str, Any]) -> Needs:
    """Pooling in time, and a non-local block's in space, have no padding: below their extent nothing is left."""
    nonlocals = [stage for stage, every in enumerate(options.get("nonlocal_every", ())) if every]
    halvings = 1 + options.get("stem_pool", False) + max(nonlocals, default=0)
    stride = (options.get("temporal_strides") or (1,))[0]  # of the stage before the pooling; it is padded
    return Needs(
        min_frames=(options.get("temporal_pool", 1) - 1) * stride + 1,
        min_size=2**halvings + 1 if nonlocals else 1,
    )


def _bottlenecks(**preset: Any) -> _Entry:
    """A ResNet-50 of one pathway as Kinetics' models build it, or what the preset makes of it."""
    return _resnet3d(
        **{
            "widths": (64, 128, 256, 512),
            "blocks": (3, 4, 6, 3),
            "block": "bottleneck",
            "stem_pool": True,
            "dropout": 0.5,
            **preset,
        }
    )


def _i3d(**preset: Any) -> _Entry:
    """Time seen by the stem and by every other block of the later stages, and halved after the first."""
    kernels = (3, (3, 1), (3, 1), (1, 3))
    return _bottlenecks(stem_kernel=(5, 7, 7), temporal_kernels=kernels, temporal_pool=2, **preset)


def _slowfast(**preset: Any) -> _Entry:
    return _Entry(
        builder="vcycle.tasks.recognition.models.slowfast:SlowFast",
        options=_SLOWFAST,
        preset={"alpha": 4, **preset},
        needs=lambda options: Needs(min_frames=options["alpha"], frames_multiple=options["alpha"]),
    )


def _torchvision(name: str, needs: Needs) -> _Entry:
    return _Entry(
        builder="vcycle.tasks.recognition.models.torchvision:torchvision_model",
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
_BASICVSR: Mapping[str, _Kind] = {
    "blocks": _whole,
    "channels": _whole,
    "head_channels": _whole,
    "flow": _text,
    "zero_last": _flag,
    "checkpointing": _flag,
}
_EDVR: Mapping[str, _Kind] = {
    "window": _odd,
    "channels": _whole,
    "groups": _whole,
    "front_blocks": _whole,
    "back_blocks": _whole,
    "attention": _flag,
    "head_channels": _whole,
    "zero_last": _flag,
    "checkpointing": _flag,
}


def _basicvsr(blocks: int) -> _Entry:
    return _Entry(
        builder="vcycle.tasks.superres.models.basicvsr:BasicVSR", options=_BASICVSR, preset={"blocks": blocks}
    )


def _edvr(*, attention: bool) -> _Entry:
    return _Entry(
        builder="vcycle.tasks.superres.models.edvr:EDVR",
        options=_EDVR,
        preset={"window": 5, "attention": attention},
        needs=lambda options: Needs(window=options["window"], min_size=3),
    )


_RESTORERS: Mapping[str, _Entry] = {
    "basicvsr": _basicvsr(30),
    "basicvsr_m": _basicvsr(15),  # Lin et al. 2022 do not give its depth: this one is ours
    "edvr_m": _edvr(attention=True),
    "edvr_m_wotsa": _edvr(attention=False),
}
_R101 = (3, 4, 23, 3)
_FIRST_6 = (3,) * 6 + (1,) * 17
"""Of the 23 blocks, those that see time: as many as an R50 has, hence the 50-50 in the name."""
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
    "slowfast_8x8_r50": _slowfast(fusion_kernel=7),
    "slowfast_16x8_r50": _slowfast(fusion_kernel=7),
    "slowfast_8x8_r101": _slowfast(fusion_kernel=5, blocks=_R101),
    "slowfast_16x8_r101_50_50": _slowfast(
        fusion_kernel=5, blocks=_R101, slow_kernels=(1, 1, _FIRST_6, 3), fast_kernels=(3, 3, _FIRST_6, 3)
    ),
    "i3d_r50": _i3d(),
    "i3d_r101": _i3d(blocks=_R101),
    "i3d_nl_r50": _i3d(nonlocal_every=(0, 2, 2, 0), nonlocal_form="dot"),
    "slow_r50": _bottlenecks(stem_kernel=(1, 7, 7), temporal_kernels=(1, 1, 3, 3)),
    "c2d_r50": _bottlenecks(stem_kernel=(1, 7, 7), temporal_kernels=(1, 1, 1, 1), temporal_pool=2),
    **{name: _torchvision(name, needs) for name, needs in _TORCHVISION_NEEDS.items()},
}


def _entry(name: str, task: Task = "recognition") -> _Entry:
    entries, others = (_ENTRIES, _RESTORERS) if task == "recognition" else (_RESTORERS, _ENTRIES)
    if name in others:
        raise RecipeError(f"model {name!r} is not one of {task}; accepted: {', '.join(entries)}")
    if name not in entries:
        raise RecipeError(f"model {name!r} is unknown{did_you_mean(name, entries)}; accepted: {', '.join(entries)}")
    return entries[name]


def _builder(entry: _Entry) -> Callable[..., Any]:
    module, attribute = entry.builder.split(":")
    builder: Callable[..., Any] = getattr(import_module(module), attribute)
    return builder


def _checked(name: str, entry: _Entry, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options, lists as tuples, after checking each."""
    for option, value in options.items():
        kind = entry.options.get(option)
        if kind is None:
            raise RecipeError(
                f"option {option!r} of model {name!r} is unknown{did_you_mean(option, entry.options)}; "
                f"accepted: {', '.join(entry.options)}"
            )
        if not kind.accepts(value):
            raise RecipeError(f"option {option!r} of model {name!r} is {value!r}; accepted: {kind.accepted}")
    return {key: _as_tuples(value) for key, value in options.items()}


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list | tuple) else value
