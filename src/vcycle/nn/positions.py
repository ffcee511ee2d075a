"""Lets transformers take clips of any shape: their positions follow the lattice of tokens of each clip.

A transformer's positions belong to the lattice of tokens ``(T′, H′, W′)`` that it was built for. At another shape it
raises an error or, worse, uses the wrong positions and says nothing. :func:`any_shape` corrects the instances of a
model in place. Weights, their names and the output at the model's own shape stay bit for bit as they were.

Each supported class has one adapter in ``_ADAPTERS``. Classes are found by name, so nothing is imported here.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn

from vcycle.errors import PlanError
from vcycle.nn import hiera
from vcycle.nn.resampling import Lattice, clips_in, resampled
from vcycle.nn.tokens import drop_tokens_after
from vcycle.plan import ShapeConstraints
from vcycle.plan.arguments import check_kind

__all__ = ["any_shape", "shape_constraints"]

_REPLACING = threading.RLock()
"""Held while values of a module are replaced: threads that overlap would restore each other's replacements, for good.
One for all modules, since a copied or pickled module cannot hold a lock."""


def any_shape(model: nn.Module, *, strict: bool = True) -> nn.Module:
    """Make a transformer take clips or images of any shape, and drop tokens where a plan does.

    =============================  ====================================================================================
    torchvision MViT v1            position tables are resampled
    torchvision MViT v2            relative positions follow the clip's lattice; torchvision interpolates them
    torchvision Swin3D             small windows use the biases of their own offsets (torchvision uses those of others)
    transformers VideoMAE, ViViT   position tables are resampled
    transformers TimeSformer       position tables are resampled; attention splits the clip's own frames and rows
    transformers V-JEPA 2          rotary positions follow the clip's own rows and frames
    Hiera                          position tables are resampled; mask units and pooling follow the clip (transformers',
                                   of images; hiera-transformer's and timm's, of images and clips)
    torchvision VisionTransformer  the position table is resampled (images)
    timm VisionTransformer         timm resamples the position table, if built with ``dynamic_img_size=True`` (images)
    =============================  ====================================================================================

    VideoMAE, ViViT, V-JEPA 2 and both VisionTransformers can also drop tokens in training, as a plan requires
    (:class:`vcycle.nn.TokenDropping`). The other layers of this table need the whole lattice.

    Tables are resampled linearly along each axis, inside the graph, so learned tables learn at every shape. The output
    at the model's own shape, ``state_dict`` and ``config`` are unchanged. Calling it again has no effect. Threads that
    run one model at once must give it clips of one shape; weights stay as they are in any case.

    Args:
        model: A model that is, or contains, one of these. It is changed in place.
        strict: Whether to refuse a model that contains none of these; otherwise it is returned as it is.

    Returns:
        The same model.

    Raises:
        PlanError: If it contains none of these, with ``strict``. From the model's forward: if a clip's frames, height
            or width are not a multiple of the model's patch, which would otherwise ignore the rest of the clip, or of
            Hiera's mask unit.

    Example:
        ``model = vcycle.any_shape(VideoMAEForVideoClassification.from_pretrained(name))``
    """
    check_kind("model", model, nn.Module, "vcycle.any_shape(model)")
    found = list(_adapters(model))
    if strict and not found:
        known = ", ".join(sorted({name.rpartition(".")[2] for name in _ADAPTERS}))
        raise PlanError(
            f"{type(model).__name__} contains no transformer that any_shape can adapt; accepted: models with {known}. "
            "A convolutional network with global pooling takes any shape as it is"
        )
    for module, adapt in found:
        if not getattr(module, "_takes_any_shape", False):
            module._takes_any_shape = True
            adapt(module)
            for part in module.modules():
                part._replicate_for_data_parallel = partial(_replicated, part)
    return model


def _replicated(module: Any) -> nn.Module:
    """A module's copy for another GPU, as ``nn.DataParallel`` makes one: its methods are the copy's own."""
    copied: nn.Module = type(module)._replicate_for_data_parallel(module)
    for name, value in vars(module).items():
        if isinstance(value, partial) and value.args == (module,):
            copied.__dict__[name] = partial(value.func, copied)
    return copied


def shape_constraints(model: nn.Module) -> ShapeConstraints:
    """Return the shapes that a transformer takes after :func:`any_shape`: multiples of its patch or mask unit.

    Example:
        ``plan = vcycle.cascade(baseline, **vcycle.shape_constraints(model).multiples)`` has only shapes that the model
        takes.

        >>> shape_constraints(nn.Identity()).multiples
        {'frames_multiple': 1, 'size_multiple': 1}
    """
    check_kind("model", model, nn.Module, "vcycle.shape_constraints(model)")
    patches = [patch for module, _ in _adapters(model) if (patch := _patch(module)) is not None]
    if not patches:
        return ShapeConstraints()
    frames, height, width = patches[0]
    return ShapeConstraints(
        min_frames=frames, frames_multiple=frames, min_size=max(height, width), size_multiple=max(height, width)
    )


def _adapters(model: nn.Module) -> Iterator[tuple[Any, Callable[[Any], None]]]:
    for module in model.modules():
        for base in type(module).__mro__:
            adapt = _ADAPTERS.get(f"{base.__module__.partition('.')[0]}.{base.__name__}")
            if adapt is not None:
                yield module, adapt
                break


@contextmanager
def _replaced(module: nn.Module, **values: Any) -> Iterator[None]:
    """Replace parameters and attributes of a module by other values in this block. Gradients reach the originals.

    Hold `_REPLACING` from where the originals are read.
    """
    saved: list[tuple[dict[str, Any], str, Any]] = []
    homes: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
    for name, value in values.items():
        home = next((home for home in homes if name in home), module.__dict__)
        saved.append((home, name, home[name]))
        home[name] = value
    try:
        yield
    finally:
        for home, name, value in saved:
            home[name] = value


def _replacing(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Make a forward pass that replaces values of its module: one thread at a time, and not compiled."""

    @wraps(forward)
    def alone(*args: Any, **kwargs: Any) -> Any:
        with _REPLACING:
            return forward(*args, **kwargs)

    disabled: Callable[..., Any] = torch.compiler.disable(alone)
    return disabled


def _patch(module: Any) -> Lattice | None:
    """The patch or mask unit of an adapted module in frames, rows and columns; None if it takes any size."""
    if (unit := hiera.unit_of(module)) is not None:
        return unit
    embeddings = getattr(module, "embeddings", None) or getattr(getattr(module, "encoder", None), "embeddings", module)
    if isinstance(getattr(module, "patch_size", None), int) and hasattr(module, "conv_proj"):  # torchvision's ViT
        return 1, module.patch_size, module.patch_size
    patches = getattr(embeddings, "patch_embeddings", None) or getattr(module, "patch_embed", None)
    projection = getattr(patches, "projection", None) or getattr(patches, "proj", None)
    if not isinstance(projection, nn.Conv2d | nn.Conv3d):
        return None
    time, height, width = (1, *projection.kernel_size)[-3:]
    return time, height, width


def _lattice(module: nn.Module, clips: Tensor) -> Lattice:
    """The lattice of tokens of clips ``(B, T, C, H, W)``.

    Raises:
        PlanError: If a patch does not divide the clips.
    """
    patch = _patch(module)
    assert patch is not None
    size = (clips.shape[1], clips.shape[3], clips.shape[4])
    if any(extent % step for extent, step in zip(size, patch, strict=True)):
        raise PlanError(
            f"clips of {size[0]}×{size[1]}×{size[2]} are not a multiple of {type(module).__name__}'s patch "
            f"{'×'.join(map(str, patch))}, which would ignore the rest; "
            f"set needs: {{frames_multiple: {patch[0]}, size_multiple: {patch[1]}}}"
        )
    time, height, width = (extent // step for extent, step in zip(size, patch, strict=True))
    return time, height, width


def _own_forward(module: Any, *args: Any, **kwargs: Any) -> Any:
    return type(module).forward(module, *args, **kwargs)


def _built_for(embeddings: Any) -> Lattice:
    """The lattice that patch embeddings of transformers were built for."""
    patches = embeddings.patch_embeddings
    _, *patch = _patch(embeddings) or (1, 1, 1)
    size = patches.image_size
    height, width = ((size, size) if isinstance(size, int) else size)[:2]
    rows, columns = height // patch[0], width // patch[1]
    return patches.num_patches // (rows * columns), rows, columns


def _adapt_lattice_table(prefix: int) -> Callable[[Any], None]:
    """Adapt embeddings with one table over time and space, after ``prefix`` other tokens (VideoMAE, ViViT)."""

    def adapt(embeddings: Any) -> None:
        embeddings._lattice_prefix, embeddings._lattice = prefix, _built_for(embeddings)
        embeddings.forward = partial(_forward_lattice_table, embeddings)
        # Without mean pooling, VideoMAE classifies by its first token, which is then kept.
        pooled = getattr(getattr(embeddings, "config", None), "use_mean_pooling", True)
        drop_tokens_after(embeddings, prefix=prefix if pooled else max(prefix, 1))

    return adapt


@_replacing
def _forward_lattice_table(embeddings: Any, *args: Any, **kwargs: Any) -> Any:
    clips = clips_in(args, kwargs, "pixel_values")
    masks = (*args[1:], *(value for name, value in kwargs.items() if name != "pixel_values"))
    if embeddings.token_dropping.is_active and any(isinstance(mask, Tensor) for mask in masks):
        _refuse_masks(embeddings)
    patches = embeddings.patch_embeddings
    lattice = _lattice(embeddings, clips)
    height, width = clips.shape[3:]
    # Some versions of transformers keep one number, which squares alone can equal.
    size = height if isinstance(patches.image_size, int) and height == width else (height, width)
    table = resampled(embeddings.position_embeddings, embeddings._lattice_prefix, embeddings._lattice, lattice)
    own = {"image_size": size} if hasattr(embeddings, "image_size") else {}
    with _replaced(patches, image_size=size), _replaced(embeddings, position_embeddings=table, **own):
        return _own_forward(embeddings, *args, **kwargs)


def _adapt_timesformer(model: Any) -> None:
    embeddings = model.embeddings
    embeddings._lattice = (model.config.num_frames, *_built_for(embeddings)[1:])
    embeddings.forward = partial(_forward_timesformer_embeddings, embeddings)
    # Layers split tokens into frames and rows by their config: they get a copy that follows the clip, so that the
    # user's config, which save_pretrained writes, stays as it is.
    shape = copy.copy(model.config)
    for layer in model.encoder.layer:
        layer.config = shape
    model.register_forward_pre_hook(_set_timesformer_shape, with_kwargs=True)


def _set_timesformer_shape(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    clips = clips_in(args, kwargs, "pixel_values")
    shape = model.encoder.layer[0].config
    shape.num_frames, shape.image_size = clips.shape[1], clips.shape[-1]


@_replacing
def _forward_timesformer_embeddings(embeddings: Any, *args: Any, **kwargs: Any) -> Any:
    clips = clips_in(args, kwargs, "pixel_values")
    frames, *space = _lattice(embeddings, clips)
    own_frames, *own_space = embeddings._lattice
    tables = {"position_embeddings": resampled(embeddings.position_embeddings, 1, own_space, space)}
    if hasattr(embeddings, "time_embeddings"):
        tables["time_embeddings"] = resampled(embeddings.time_embeddings, 0, (own_frames,), (frames,))
    with _replaced(embeddings, **tables):
        return _own_forward(embeddings, *args, **kwargs)


def _adapt_vjepa2(model: Any) -> None:
    for attention in _rotary(model):
        attention.get_position_ids = partial(_vjepa2_positions, attention)
    model.register_forward_pre_hook(_set_vjepa2_lattice, with_kwargs=True)
    drop_tokens_after(model.encoder.embeddings)
    model.predictor.register_forward_pre_hook(_refuse_dropped)


def _rotary(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if type(module).__name__ == "VJEPA2RopeAttention"]


def _set_vjepa2_lattice(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    clips = clips_in(args, kwargs, "pixel_values_videos")
    tubelet = model.encoder.embeddings.patch_embeddings.proj.kernel_size[0]
    if clips.shape[1] < tubelet:  # V-JEPA 2 repeats these frames
        clips = clips[:, :1].expand(-1, tubelet, -1, -1, -1)
    lattice = _lattice(model, clips)
    for attention in _rotary(model):
        attention._lattice = lattice
    # Referred to, but not a submodule of them.
    for module in (*_rotary(model.encoder), model.predictor):
        module.__dict__["_dropping"] = model.encoder.embeddings.token_dropping


def _vjepa2_positions(attention: Any, x: Tensor, masks: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the frame, row and column of each token; those of ``masks``, indices of tokens, if given."""
    if masks is None and "_dropping" in attention.__dict__:
        masks = attention._dropping.kept
    if masks is None:
        tokens = torch.arange(x.size(1), device=x.device)
    else:
        tokens = masks.unsqueeze(1).repeat(1, attention.num_attention_heads, 1)
    _, rows, columns = attention._lattice
    in_frame = tokens % (rows * columns)
    return tokens // (rows * columns), in_frame // columns, in_frame % columns


def _refuse_dropped(predictor: Any, args: Any) -> None:
    if predictor._dropping.kept is not None:
        _refuse_masks(predictor)


def _refuse_masks(module: nn.Module) -> None:
    raise PlanError(
        f"{type(module).__name__} masks tokens itself, as in pre-training, and the plan drops others; accepted: a plan "
        "that keeps all tokens, or a model that classifies"
    )


def _adapt_vit(model: Any) -> None:
    model.encoder._lattice = (model.image_size // model.patch_size,) * 2
    model._process_input = partial(_vit_patches, model)
    model.encoder.forward = partial(_forward_vit_encoder, model.encoder)
    drop_tokens_after(model.encoder.dropout, prefix=1)


def _vit_patches(model: Any, images: Tensor) -> Tensor:
    """Return the tokens ``(B, N, D)`` of images of any size; torchvision refuses all sizes but its own."""
    _, *model.encoder._current = _lattice(model, images.unsqueeze(1))
    tokens: Tensor = model.conv_proj(images).flatten(2).transpose(1, 2)
    return tokens


def _forward_vit_encoder(encoder: Any, tokens: Tensor) -> Any:
    positions = resampled(encoder.pos_embedding, 1, encoder._lattice, encoder._current)
    return encoder.ln(encoder.layers(encoder.dropout(tokens + positions)))


def _adapt_timm_vit(model: Any) -> None:
    drop_tokens_after(model.patch_drop, prefix=model.num_prefix_tokens)


def _adapt_mvit(model: Any) -> None:
    positions = model.pos_encoding
    positions._lattice = (positions.temporal_size, *positions.spatial_size)
    if positions.spatial_pos is not None:
        positions.forward = partial(_forward_mvit_positions, positions)
    model.register_forward_pre_hook(_set_mvit_lattice, with_kwargs=True)


def _set_mvit_lattice(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    conv, clips = model.conv_proj, clips_in(args, kwargs, "x")
    size = clips.shape[2:] if clips.dim() == 5 else (1, *clips.shape[2:])  # torchvision takes pictures, too
    time, height, width = (
        (extent + 2 * pad - kernel) // stride + 1
        for extent, pad, kernel, stride in zip(size, conv.padding, conv.kernel_size, conv.stride, strict=True)
    )
    model.pos_encoding.temporal_size, model.pos_encoding.spatial_size = time, (height, width)


@_replacing
def _forward_mvit_positions(positions: Any, x: Tensor) -> Any:
    time, *space = positions._lattice
    with _replaced(
        positions,
        spatial_pos=resampled(positions.spatial_pos, 0, space, positions.spatial_size),
        temporal_pos=resampled(positions.temporal_pos, 0, (time,), (positions.temporal_size,)),
    ):
        return _own_forward(positions, x)


def _adapt_swin3d(attention: Any) -> None:
    attention.get_relative_position_bias = partial(_swin3d_bias, attention)


def _swin3d_bias(attention: Any, window_size: Sequence[int]) -> Tensor:
    """Return the biases ``(1, heads, N, N)`` of a window of at most the full size.

    torchvision takes the first N of the full window's tokens. These are the tokens of the small window only if it is
    smaller in time alone.
    """
    full, (time, rows, columns) = attention.window_size, window_size
    index = attention.relative_position_index.view(*full, *full)
    index = index[:time, :rows, :columns, :time, :rows, :columns].reshape(-1)
    tokens = time * rows * columns
    bias: Tensor = attention.relative_position_bias_table[index].view(tokens, tokens, -1)
    return bias.permute(2, 0, 1).contiguous().unsqueeze(0)


_ADAPTERS: dict[str, Callable[[Any], None]] = {
    "hiera.Hiera": hiera.adapt,
    "timm.Hiera": hiera.adapt,
    "timm.VisionTransformer": _adapt_timm_vit,
    "torchvision.MViT": _adapt_mvit,
    "torchvision.ShiftedWindowAttention3d": _adapt_swin3d,
    "torchvision.VisionTransformer": _adapt_vit,
    "transformers.HieraModel": hiera.adapt_model,
    "transformers.TimesformerModel": _adapt_timesformer,
    "transformers.VJEPA2Model": _adapt_vjepa2,
    "transformers.VideoMAEEmbeddings": _adapt_lattice_table(prefix=0),
    "transformers.VivitEmbeddings": _adapt_lattice_table(prefix=1),
}
"""Adapters by package and class."""
