"""Sub-batch BatchNorm: statistics over blocks of clips, running statistics over the whole batch.

A plan changes the batch from 1 to 16 times the baseline's. BatchNorm's regularisation depends on how many clips
share their statistics, so those are kept near constant: a batch is cut along its first dimension into consecutive
blocks of ``bn_batch`` clips, each normalised by its own mean and variance (Wu et al. 2020, section 3.3). A remainder
is a block of its own, so any batch size works.

The *running* statistics, which ``eval()`` uses, are those of the whole batch: block moments are merged by the law
of total variance and committed once per step, with the unbiased variance that BatchNorm keeps. A forward in training
mode is one step unless it runs inside :func:`one_step`. ``eval()`` needs no further call, and ``state_dict()`` is
plain BatchNorm's key for key in every mode.

The first dimension must be clips: a 2-D network fed frames as ``(B*T, C, H, W)`` would mix up the blocks, and must
either be converted with ``bn_batch`` counted in frames or not at all.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from vcycle.errors import PlanError, RecipeError
from vcycle.nn.moments import Moments, merge_equal, merge_moments
from vcycle.nn.sharing import Sharing, merge_over_ranks, normalise_shared
from vcycle.nn.traced import normalise_blocks_traced

__all__ = [
    "Commitment",
    "SubBatchNorm",
    "convert_batchnorm",
    "one_step",
    "revert_batchnorm",
    "set_bn_batch",
]

_Model = TypeVar("_Model", bound=nn.Module)


def convert_batchnorm(model: _Model, bn_batch: int = 8) -> _Model:
    """Make every BatchNorm of a model a :class:`SubBatchNorm`, in place.

    Modules keep their identity (only their class changes, as torch's own lazy modules do it), and with it their
    parameters, buffers, hooks and names: optimizers built before stay valid, zero-initialised gammas stay zero.

    Args:
        model: any module; it may itself be a BatchNorm. Layers that are sub-batch already only get ``bn_batch``.
        bn_batch: clips per block.

    Returns:
        The same model.

    Raises:
        RecipeError: a layer is a BatchNorm with a forward of its own, which a conversion would lose, or a lazy one.
        PlanError: ``bn_batch`` is not a positive integer.

    Example:
        >>> import torch
        >>> model = convert_batchnorm(torch.nn.Sequential(torch.nn.BatchNorm3d(4)), bn_batch=8)
        >>> type(model[0]).__name__, model[0].bn_batch
        ('SubBatchNorm', 8)
    """
    _check_bn_batch(bn_batch)
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, _BatchNorm)]
    for name, module in layers:  # all are checked before any is changed
        if isinstance(module, LazyModuleMixin):
            raise RecipeError(
                f"layer {name or 'model'!r} is a {type(module).__name__}, which does not know its channels before its "
                "first input: run one forward of the model first"
            )
        if not isinstance(module, SubBatchNorm) and type(module).forward not in _PLAIN_FORWARDS:
            raise RecipeError(
                f"layer {name or 'model'!r} is a {type(module).__name__}, a BatchNorm with a forward of its own that "
                "sub-batch BatchNorm would replace; accepted: BatchNorm1d, BatchNorm2d, BatchNorm3d, SyncBatchNorm"
            )
    for _, module in layers:
        if not isinstance(module, SubBatchNorm):
            module.__dict__.update(plain_class=type(module), _pending=None, _sharing=None)
            module.__class__ = SubBatchNorm
        module.__dict__["bn_batch"] = bn_batch
    return model


def revert_batchnorm(model: _Model) -> _Model:
    """Undo :func:`convert_batchnorm`: every layer gets its original class back, in place.

    A layer that :func:`~vcycle.nn.freeze` has frozen stays as it is.

    Returns:
        The same model, with the same parameters and buffers.
    """
    for module in [layer for layer in _sub_batch_layers(model) if type(layer) is SubBatchNorm]:
        module.__class__ = module.plain_class  # type: ignore[assignment]
        for attribute in ("plain_class", "bn_batch", "_pending", "_sharing"):
            delattr(module, attribute)
    return model


def set_bn_batch(model: nn.Module, clips: int) -> None:
    """Set the number of clips per block in every sub-batch BatchNorm of a model.

    Raises:
        PlanError: ``clips`` is not a positive integer.
    """
    _check_bn_batch(clips)
    for module in _sub_batch_layers(model):
        module.bn_batch = clips


@dataclass
class Commitment:
    """Whether a step's statistics are to be committed; may be changed until the step ends."""

    keep: bool | Tensor = True
    """A boolean or, so that a device need not be waited for, a boolean scalar on it."""


@contextmanager
def one_step(model: nn.Module, sharing: Sharing | None = None) -> Iterator[Commitment]:
    """Count all training forwards inside (micro-batches) as one step of the running statistics.

    Their moments are merged and committed once, at exit: momentum is applied once and ``num_batches_tracked`` grows
    by one. After an exception nothing is committed. Inside another ``one_step`` it does nothing.

    Blocks do not span micro-batches: cut those at multiples of ``bn_batch`` to normalise as the whole batch would.

    Args:
        model: Any module.
        sharing: How ranks share the step's batch, if they do: all of them enter together, and what is committed is
            the whole batch's. Where a block lies on several ranks, a rank's clips must come in one forward.

    Yields:
        What decides whether they are committed at all.
    """
    modules = [module for module in _sub_batch_layers(model) if module._pending is None]
    for module in modules:
        module._pending, module._sharing = [], sharing
    commitment = Commitment()
    try:
        yield commitment
        if commitment.keep is False:
            return
        used = [module for module in modules if module._pending]
        found = [merge_moments(module._pending or ()) for module in used]
        if sharing is not None and used and sharing.has_whole_blocks(used[0].bn_batch):
            found = merge_over_ranks(found, sharing)
        _commit(used, found, commitment.keep)
    finally:
        for module in modules:
            module._pending = module._sharing = None


class SubBatchNorm(_BatchNorm):
    """BatchNorm whose training statistics are those of consecutive blocks of ``bn_batch`` clips.

    Takes ``(B, C)``, ``(B, C, L)``, ``(B, C, H, W)`` or ``(B, C, T, H, W)`` in any memory format, which the output
    keeps. Statistics are computed in fp32 (fp64 for fp64 input); the output has the input's dtype. A layer without
    running statistics normalises by block in ``eval()`` too, as plain BatchNorm normalises by batch.

    A forward that runs inside a backward recomputes activations (``torch.utils.checkpoint``): it does not touch the
    running statistics a second time.

    Args:
        num_features: channels.
        eps: added to the variance.
        momentum: weight of the new statistics; None for a cumulative average.
        affine: learn a scale and a shift.
        track_running_stats: keep running statistics for ``eval()``.
        device: of parameters and buffers.
        dtype: of parameters and buffers.
        bn_batch: clips per block.
        plain_class: what :func:`revert_batchnorm` turns the layer into.
    """

    bn_batch: int
    plain_class: type[_BatchNorm]
    _pending: list[Moments] | None
    _sharing: Sharing | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bn_batch: int = 8,
        plain_class: type[_BatchNorm] = nn.BatchNorm3d,
    ) -> None:
        _check_bn_batch(bn_batch)
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self.bn_batch = bn_batch
        self.plain_class = plain_class
        self._pending = None
        self._sharing = None

    def forward(self, input: Tensor) -> Tensor:
        """Normalise ``input``, by block in training and by the running statistics in ``eval()``.

        Raises:
            PlanError: the input has no channel dimension, or a block has one value per channel.
        """
        self._check_input_dim(input)
        tracked = self.running_mean is not None
        if tracked and not self.training:
            return super().forward(input)
        recomputed = not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
        if self._sharing is not None and not self._sharing.has_whole_blocks(self.bn_batch):
            self._check_shared(input.shape, self._sharing)
            output, moments = normalise_shared(input, self.weight, self.bias, self.bn_batch, self.eps, self._sharing)
        else:
            self._check_blocks(input.shape[0], input.shape)
            if input.shape[0] <= self.bn_batch and self._pending is None and not recomputed:
                return super().forward(input)  # one block, committed at once: plain BatchNorm, bit for bit
            output, moments = _normalise_blocks(input, self.weight, self.bias, self.bn_batch, self.eps)
        if tracked and not recomputed:
            if self._pending is None:
                _commit([self], [moments])
            else:
                self._pending.append(moments)
        return output

    def extra_repr(self) -> str:
        """Return what ``repr`` shows."""
        return f"{super().extra_repr()}, bn_batch={self.bn_batch}"  # type: ignore[no-untyped-call]

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (2, 3, 4, 5) or input.shape[1] != self.num_features:
            raise PlanError(
                f"BatchNorm of {self.num_features} channels got input of shape {tuple(input.shape)}; "
                f"accepted: (B, {self.num_features}, ...) with 2 to 5 dimensions"
            )

    def _check_shared(self, shape: torch.Size, sharing: Sharing) -> None:
        own = sharing.clips[sharing.rank]
        if shape[0] != own:
            raise PlanError(
                f"BatchNorm got {shape[0]} clips, and this rank has {own} of a batch whose blocks of {self.bn_batch} "
                "clips lie on several ranks; accepted: all its clips in one forward"
            )
        self._check_blocks(sharing.starts[-1], shape)

    def _check_blocks(self, clips: int, shape: torch.Size) -> None:
        values = shape[2:].numel()
        smallest = clips % self.bn_batch or min(clips, self.bn_batch)
        if smallest * values <= 1:
            raise PlanError(
                f"BatchNorm needs more than 1 value per channel in each block of clips: input of shape "
                f"{tuple(shape)} with bn_batch {self.bn_batch} has a block of {smallest} clip(s) with {values} "
                "value(s) each; accepted: a batch whose last block has at least 2 clips, or a larger shape"
            )


class _BlockNorm(torch.autograd.Function):
    """BatchNorm of consecutive blocks, each by torch's own kernels, written into one output without a copy.

    Returns the output and each block's mean and unbiased variance, shape ``(blocks, C)``.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, bn_batch: int, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        output = torch.empty_like(x)
        blocks, outputs = torch.split(x, bn_batch), torch.split(output, bn_batch)
        # The kernel writes mean and unbiased variance into its "running" buffers when momentum is 1.
        rows = x.new_zeros((4, len(blocks), x.shape[1]), dtype=_statistics_dtype(x))
        means, variances, centers, inverse_stds = rows.unbind()
        for block, out, mean, variance, center, inverse_std in zip(
            blocks,
            outputs,
            means.unbind(),
            variances.unbind(),
            centers.unbind(),
            inverse_stds.unbind(),
            strict=True,
        ):
            torch.native_batch_norm(block, weight, bias, mean, variance, True, 1.0, eps, out=(out, center, inverse_std))
        ctx.save_for_backward(x, weight, centers, inverse_stds)
        ctx.bn_batch, ctx.eps = bn_batch, eps
        ctx.mark_non_differentiable(means, variances)
        ctx.set_materialize_grads(False)
        return output, means, variances

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None, None, None
        x, weight, centers, inverse_stds = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        parts = [
            torch.ops.aten.native_batch_norm_backward(
                grad_block, block, weight, None, None, center, inverse_std, True, ctx.eps, wanted
            )
            for grad_block, block, center, inverse_std in zip(
                torch.split(grad, ctx.bn_batch),
                torch.split(x, ctx.bn_batch),
                centers.unbind(),
                inverse_stds.unbind(),
                strict=True,
            )
        ]
        grad_inputs, *grad_affine = zip(*parts, strict=True)
        grad_x = torch.cat(grad_inputs) if wanted[0] else None
        sums = [torch.stack(each).sum(0) if need else None for each, need in zip(grad_affine, wanted[1:], strict=True)]
        return grad_x, *sums, None, None


@torch.no_grad()
def _commit(layers: Sequence[SubBatchNorm], found: Sequence[Moments], keep: bool | Tensor = True) -> None:
    """Move running statistics towards one step's: the only place that changes them.

    All layers at once: many small operations would cost more than what they compute.
    """
    counts, running, new, weights = [], [], [], []
    for layer, moments in zip(layers, found, strict=True):
        if layer.running_mean is None or layer.running_var is None or layer.num_batches_tracked is None:
            continue
        counts.append(layer.num_batches_tracked)
        running += [layer.running_mean, layer.running_var]
        new += [
            moments.mean.to(layer.running_mean.dtype),
            moments.m2.to(layer.running_var.dtype) / (moments.values - 1),
        ]
        weights += [layer.momentum] * 2
    if not counts:
        return
    torch._foreach_add_(counts, 1 if keep is True else keep)
    if isinstance(keep, Tensor):
        new = [torch.where(keep, each, old) for each, old in zip(new, running, strict=True)]
    if weights[0] is not None and len(set(weights)) == 1:
        torch._foreach_lerp_(running, new, weights[0])
        return
    # A cumulative average counts by a tensor: reading it would wait for the device.
    for place, (old, each, weight) in enumerate(zip(running, new, weights, strict=True)):
        # Where no step has been kept yet, the new are the old, and any weight will do.
        count = counts[place // 2].clamp(min=1).to(old.dtype)
        old.lerp_(each, count.reciprocal() if weight is None else weight)


def _normalise_blocks(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, bn_batch: int, eps: float
) -> tuple[Tensor, Moments]:
    """Return the output and the whole batch's moments."""
    dtype = _statistics_dtype(x)
    weight = None if weight is None else weight.to(dtype)
    bias = None if bias is None else bias.to(dtype)
    if torch.compiler.is_compiling():
        return normalise_blocks_traced(x, weight, bias, bn_batch, eps)
    clips, values = x.shape[0], x.shape[2:].numel()
    if clips <= bn_batch:
        mean, variance = x.new_zeros((2, x.shape[1]), dtype=dtype).unbind()
        output = F.batch_norm(x, mean, variance, weight, bias, True, 1.0, eps)
        return output, Moments(clips * values, mean, variance * (clips * values - 1))
    output, means, variances = _BlockNorm.apply(_dense(x), weight, bias, bn_batch, eps)
    whole, rest = divmod(clips, bn_batch)
    moments = merge_equal(bn_batch * values, means[:whole], variances[:whole])
    if rest:
        last = Moments(rest * values, means[whole], variances[whole] * (rest * values - 1))
        moments = merge_moments([moments, last])
    return output, moments


def _dense(x: Tensor) -> Tensor:
    """Return ``x`` in a layout that the kernels fill a given output in: contiguous or channels last."""
    if x.is_contiguous():
        return x
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    return x if last is not None and x.is_contiguous(memory_format=last) else x.contiguous()


def _statistics_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _sub_batch_layers(model: nn.Module) -> Iterator[SubBatchNorm]:
    return (module for module in model.modules() if isinstance(module, SubBatchNorm))


def _check_bn_batch(clips: int) -> None:
    if not isinstance(clips, int) or isinstance(clips, bool) or clips < 1:
        raise PlanError(f"bn_batch is {clips!r}; accepted: a whole number of clips, at least 1")


_PLAIN_FORWARDS = (_BatchNorm.forward, nn.SyncBatchNorm.forward)
