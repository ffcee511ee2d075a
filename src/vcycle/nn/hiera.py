"""Lets Hiera (Ryali et al. 2023) take clips and images of any multiple of its mask unit; see `vcycle.nn.positions`."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vcycle.errors import PlanError
from vcycle.nn.resampling import Lattice, clips_in, resampled

__all__ = ["adapt", "adapt_model", "unit_of"]


def _sizes(model: Any) -> tuple[Sequence[int], Sequence[int]] | None:
    """Hiera's stride from token to token in pixels, and its mask unit in tokens; None for other models."""
    sources: tuple[tuple[Any, str], ...] = (
        (model, "mask_unit_size"),
        (getattr(model, "config", None), "masked_unit_size"),
    )
    for source, unit in sources:
        if hasattr(source, "patch_stride") and hasattr(source, unit):
            return source.patch_stride, getattr(source, unit)
    return None


def unit_of(model: Any) -> Lattice | None:
    """Hiera's mask unit in frames, rows and columns of the clip."""
    sizes = _sizes(model)
    if sizes is None:
        return None
    time, height, width = (1, *(step * unit for step, unit in zip(*sizes, strict=True)))[-3:]
    return time, height, width


def adapt(model: Any) -> None:
    """Adapt the Hiera of hiera-transformer or timm."""
    model._lattice, model._schedule = tuple(model.tokens_spatial_shape), model.reroll.schedule
    if hasattr(model, "get_pos_embed"):
        model.get_pos_embed = partial(_positions, model)
    elif model.pos_embed_win is None:  # else timm resamples its positions itself
        model._pos_embed = partial(_add_positions, model)
    model.register_forward_pre_hook(_set_shape, with_kwargs=True)


def _set_shape(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    clips: Any = clips_in(args, kwargs, "x")
    lattice = _lattice(model, clips[0] if isinstance(clips, list) else clips)
    _, unit = _sizes(model) or ((), ())
    model.tokens_spatial_shape = model.unroll.size = model.reroll.size = lattice
    model.mask_spatial_shape = [tokens // side for tokens, side in zip(lattice, unit, strict=True)]
    model.reroll.schedule = _schedule(model._schedule, model._lattice, lattice)


def _lattice(model: nn.Module, clips: Tensor) -> list[int]:
    """The lattice of tokens of clips ``(B, C, T, H, W)`` or images ``(B, C, H, W)``.

    Raises:
        PlanError: If a mask unit does not divide the clips: attention and pooling would cut it.
    """
    size = list(clips.shape[2:])
    stride, unit = _sizes(model) or ((), ())
    whole = [step * side for step, side in zip(stride, unit, strict=True)]
    if any(extent % step for extent, step in zip(size, whole, strict=True)):
        raise PlanError(
            f"clips of {'×'.join(map(str, size))} are not a multiple of {type(model).__name__}'s mask unit "
            f"{'×'.join(map(str, whole))}, which attention and pooling would cut; "
            f"set needs: {{frames_multiple: {whole[0] if len(whole) == 3 else 1}, size_multiple: {max(whole[-2:])}}}"
        )
    return [extent // step for extent, step in zip(size, stride, strict=True)]


def _schedule(schedule: Any, own: Sequence[int], lattice: Sequence[int]) -> dict[int, Any]:
    """Hiera's schedule for intermediate features, on another lattice than its own."""
    return {
        stage: (strides, [now * part // whole for now, part, whole in zip(lattice, size, own, strict=True)])
        for stage, (strides, size) in schedule.items()
    }


def _positions(model: Any) -> Tensor:
    """Return the positions ``(1, tokens, D)`` of the clip's lattice."""
    now, own = model.tokens_spatial_shape, model._lattice
    if (table := getattr(model, "pos_embed", None)) is not None:
        return resampled(table, 0, own, now)
    space = resampled(model.pos_embed_spatial, 0, own[1:], now[1:])
    time = resampled(model.pos_embed_temporal, 0, own[:1], now[:1])
    return space.repeat(1, now[0], 1) + torch.repeat_interleave(time, now[1] * now[2], dim=1)


def _add_positions(model: Any, x: Tensor) -> Tensor:
    return x + _positions(model)


def adapt_model(model: Any) -> None:
    """Adapt transformers' Hiera."""
    embeddings, config = model.embeddings, model.config
    embeddings._lattice = tuple(side // step for side, step in zip(config.image_size, config.patch_stride, strict=True))
    embeddings.get_position_embedding = partial(_embedding, embeddings)
    model._lattice, model._schedule = embeddings._lattice, model.encoder.schedule
    model.register_forward_pre_hook(_set_model_shape, with_kwargs=True)


def _set_model_shape(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    lattice = _lattice(model, clips_in(args, kwargs, "pixel_values"))
    patches = model.embeddings.patch_embeddings
    patches.mask_spatial_shape = [
        tokens // unit for tokens, unit in zip(lattice, model.config.masked_unit_size, strict=True)
    ]
    model.encoder.schedule = _schedule(model._schedule, model._lattice, lattice)


def _embedding(embeddings: Any, tokens: Tensor, height: int, width: int, interpolate_pos_encoding: Any) -> Tensor:
    if interpolate_pos_encoding:  # transformers' own resampling, as asked
        own: Tensor = type(embeddings).get_position_embedding(embeddings, tokens, height, width, True)
        return own
    now = [side // step for side, step in zip((height, width), embeddings.patch_stride, strict=True)]
    return resampled(embeddings.position_embeddings, 0, embeddings._lattice, now)
