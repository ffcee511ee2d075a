"""Sub-batch BatchNorm: statistics over blocks of clips, running statistics over the whole batch.

A plan uses batches of 1 to 16 times the baseline's. BatchNorm's regularisation depends on how many clips share their
statistics, so this number stays nearly constant: a batch is split along its first dimension into consecutive blocks of
``bn_batch`` clips, and each block is normalised by its own mean and variance (Wu et al. 2020, section 3.2). A remainder
is a block of its own, unless it has a single value per channel: it then joins the previous block. Any batch that plain
BatchNorm accepts works.

The *running* statistics, which ``eval()`` uses, are those of the whole batch: block moments are merged by the law
of total variance and committed once per step, with the unbiased variance that BatchNorm keeps. A forward pass in
training mode is one step unless it runs inside :func:`one_step`. ``eval()`` needs no further call, and
``state_dict()`` has the keys of plain BatchNorm in every mode.

The first dimension must be clips. In a 2-D network with frames as ``(B*T, C, H, W)`` it is frames, so ``bn_batch``
must count frames: call :func:`set_bn_batch` after each :func:`vcycle.apply`, which sets clips.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from vcycle.errors import PlanError, RecipeError, shown
from vcycle.nn.blocks import Blocks, blocks_of
from vcycle.nn.moments import Moments, merge_equal, merge_moments
from vcycle.nn.partition import BatchPartition, merge_over_ranks, normalise_shared
from vcycle.nn.traced import normalise_blocks_traced
from vcycle.plan.arguments import check_kind

__all__ = [
    "Commitment",
    "SubBatchNorm",
    "convert_batchnorm",
    "one_step",
    "revert_batchnorm",
    "set_bn_batch",
    "sub_batch_class",
    "sub_batch_layers",
]

_Model = TypeVar("_Model", bound=nn.Module)


def convert_batchnorm(model: _Model, bn_batch: int = 8) -> _Model:
    """Convert every BatchNorm of a model to :class:`SubBatchNorm`, in place.

    Modules keep their identity (only their class changes, as in torch's lazy modules), and so their parameters,
    buffers, hooks and names: existing optimizers stay valid, zero-initialised gammas stay zero. The new class also
    derives from the old one, so that code which looks for BatchNorm by class still finds it.

    Args:
        model: any module; it may itself be a BatchNorm. Layers already converted only get ``bn_batch``.
        bn_batch: clips per block.

    Returns:
        The same model.

    Raises:
        RecipeError: a layer is a BatchNorm with its own forward, which a conversion would lose, or a lazy BatchNorm.
        PlanError: ``bn_batch`` is not a positive integer, or ``model`` no module.

    Example:
        >>> import torch
        >>> model = convert_batchnorm(torch.nn.Sequential(torch.nn.BatchNorm3d(4)), bn_batch=8)
        >>> model[0].bn_batch, isinstance(model[0], SubBatchNorm), isinstance(model[0], torch.nn.BatchNorm3d)
        (8, True, True)
    """
    check_kind("model", model, nn.Module, "vcycle.convert_batchnorm(model)")
    _check_bn_batch(bn_batch)
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, _BatchNorm)]
    for name, module in layers:  # check all before changing any
        if isinstance(module, LazyModuleMixin):
            raise RecipeError(
                f"layer {name or 'model'!r} is a {type(module).__name__}, which does not know its channels before its "
                "first input: run one forward of the model first"
            )
        if not isinstance(module, SubBatchNorm) and type(module).forward not in _PLAIN_FORWARDS:
            raise RecipeError(
                f"layer {name or 'model'!r} is a {type(module).__name__}, a BatchNorm with its own forward, which "
                "sub-batch BatchNorm would replace; accepted: BatchNorm1d, BatchNorm2d, BatchNorm3d, SyncBatchNorm"
            )
    for _, module in layers:
        if not isinstance(module, SubBatchNorm):
            module.__dict__.update(_pending=None, _sharing=None)
            module.__class__ = sub_batch_class(SubBatchNorm, type(module))
        module.__dict__["bn_batch"] = bn_batch
    return model


def revert_batchnorm(model: _Model) -> _Model:
    """Undo :func:`convert_batchnorm`: every layer gets its original class back, in place.

    Layers frozen by :func:`~vcycle.nn.freeze` stay as they are.

    Returns:
        The same model, with the same parameters and buffers.
    """
    check_kind("model", model, nn.Module, "vcycle.revert_batchnorm(model)")
    for module in [
        layer for layer in sub_batch_layers(model) if type(layer) in _CLASSES.values() and layer.kind is SubBatchNorm
    ]:
        module.__class__ = module.plain_class  # type: ignore[assignment]
        for attribute in ("bn_batch", "_pending", "_sharing"):
            delattr(module, attribute)
    return model


def set_bn_batch(model: nn.Module, clips: int) -> None:
    """Set the number of clips per block in every sub-batch BatchNorm of a model.

    Raises:
        PlanError: ``clips`` is not a positive integer.
    """
    check_kind("model", model, nn.Module, "vcycle.nn.set_bn_batch(model, clips)")
    _check_bn_batch(clips)
    for module in sub_batch_layers(model):
        module.bn_batch = clips


def sub_batch_layers(model: nn.Module) -> Iterator["SubBatchNorm"]:
    """Every sub-batch BatchNorm of a model."""
    return (module for module in model.modules() if isinstance(module, SubBatchNorm))


@dataclass
class Commitment:
    """Whether to commit a step's statistics; may be changed until the step ends."""

    keep: bool | Tensor = True
    """A boolean or, to avoid synchronizing with the device, a boolean scalar on the device."""


@contextmanager
def one_step(model: nn.Module, sharing: BatchPartition | None = None) -> Iterator[Commitment]:
    """Count all training forward passes inside (gradient accumulation) as one step of the running statistics.

    Their moments are merged and committed once, at exit: momentum is applied once and ``num_batches_tracked`` grows
    by one. After an exception nothing is committed. Inside another ``one_step`` it does nothing.

    Blocks do not span micro-batches: split the batch at multiples of ``bn_batch`` to get the blocks of the whole batch.

    Args:
        model: Any module.
        sharing: How ranks share the step's batch, if they do, such as ``BatchPartition.of(step, rank=rank,
            world=world)``: all ranks enter together, and blocks and committed statistics are those of the whole batch.
            If a block spans several ranks, a rank must pass its clips in one forward.

    Yields:
        A :class:`Commitment`, to decide whether the statistics are committed.
    """
    check_kind("model", model, nn.Module, "vcycle.one_step(model)")
    modules = [module for module in sub_batch_layers(model) if module._pending is None]
    for module in modules:
        module._pending, module._sharing = [], sharing
    commitment = Commitment()
    try:
        yield commitment
        if commitment.keep is False:
            return
        used = [module for module in modules if module._pending]
        found = [merge_moments(module._pending or ()) for module in used]
        if sharing is not None:
            found = merge_over_ranks(found, sharing)
        _commit(used, found, commitment.keep)
    finally:
        for module in modules:
            module._pending = module._sharing = None


class SubBatchNorm(_BatchNorm):
    """BatchNorm that computes training statistics over consecutive blocks of ``bn_batch`` clips.

    Accepts ``(B, C)``, ``(B, C, L)``, ``(B, C, H, W)`` or ``(B, C, T, H, W)`` in any memory format, which the output
    keeps. Statistics are computed in fp32 (fp64 for fp64 input); the output has the input's dtype. Without running
    statistics, a layer normalises by block in ``eval()`` too, as plain BatchNorm normalises by batch.

    The class of every layer derives from this one and from a plain BatchNorm (see :func:`sub_batch_class`).

    A forward inside a backward pass is a recomputation (``torch.utils.checkpoint``): it does not update the running
    statistics a second time.

    Args:
        num_features: channels.
        eps: added to the variance.
        momentum: weight of the new statistics; None for a cumulative average.
        affine: learn a scale and a shift.
        track_running_stats: keep running statistics for ``eval()``.
        device: device of parameters and buffers.
        dtype: dtype of parameters and buffers.
        bn_batch: clips per block.
        plain_class: the plain BatchNorm that the class also derives from; :func:`revert_batchnorm` restores it.
    """

    bn_batch: int
    kind: "type[SubBatchNorm]"
    """The kind of sub-batch BatchNorm; set by :func:`sub_batch_class`."""
    plain_class: type[_BatchNorm] = nn.BatchNorm3d
    """The plain BatchNorm that the class derives from; set by :func:`sub_batch_class`."""
    _pending: list[Moments] | None
    _sharing: BatchPartition | None

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
        self._pending = None
        self._sharing = None
        if type(self) is SubBatchNorm:
            self.__class__ = sub_batch_class(SubBatchNorm, plain_class)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise ``input``, by block in training and by the running statistics in ``eval()``.

        Raises:
            PlanError: the input has no channel dimension, or a single value per channel.
        """
        # Not super().forward: SyncBatchNorm's would exchange statistics between ranks, which one_step does if asked.
        self._check_input_dim(input)
        tracked = self.running_mean is not None
        if tracked and not self.training:
            return _BatchNorm.forward(self, input)
        recomputed = not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
        values = input.shape[2:].numel()
        if self._sharing is not None and not self._sharing.has_whole_blocks(self.bn_batch, values):
            self._check_shared(input.shape, self._sharing)
            output, moments = normalise_shared(input, self.weight, self.bias, self.bn_batch, self.eps, self._sharing)
        else:
            self._check_values(input.shape[0], input.shape)
            blocks = blocks_of(input.shape[0], self.bn_batch, values)
            if blocks.is_one and self._pending is None and not recomputed:
                return _BatchNorm.forward(self, input)  # nothing to defer: plain BatchNorm, bit for bit
            output, moments = _normalise_blocks(input, self.weight, self.bias, blocks, self.eps)
        if tracked and not recomputed:
            if self._pending is None:
                _commit([self], [moments])
            else:
                self._pending.append(moments)
        return output

    def extra_repr(self) -> str:
        """Return the text that ``repr`` shows."""
        return f"{super().extra_repr()}, bn_batch={self.bn_batch}"  # type: ignore[no-untyped-call]

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Copy and pickle through the bases of the class: the class itself is created at run time."""
        reduced = super().__reduce_ex__(protocol)
        if type(self) not in _CLASSES.values():  # a named subclass of one of them, or of this class
            return reduced
        return _blank, (self.kind, self.plain_class), *reduced[2:]

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (2, 3, 4, 5) or input.shape[1] != self.num_features:
            raise PlanError(
                f"BatchNorm of {self.num_features} channels got input of shape {tuple(input.shape)}; "
                f"accepted: (B, {self.num_features}, ...) with 2 to 5 dimensions"
            )

    def _check_shared(self, shape: torch.Size, sharing: BatchPartition) -> None:
        own = sharing.clips[sharing.rank]
        if shape[0] != own:
            raise PlanError(
                f"BatchNorm got {shape[0]} clips, but this rank has {own} clips of a batch whose blocks of "
                f"{self.bn_batch} clips span several ranks; accepted: all its clips in one forward"
            )
        self._check_values(sharing.starts[-1], shape)

    def _check_values(self, clips: int, shape: torch.Size) -> None:
        values = clips * shape[2:].numel()
        if values <= 1:
            raise PlanError(
                f"BatchNorm needs more than 1 value per channel in training: input of shape {tuple(shape)} has "
                f"{values}; accepted: at least 2 clips in one forward, or a larger shape"
            )


_CLASSES: dict[tuple[type[SubBatchNorm], type[_BatchNorm]], type[SubBatchNorm]] = {}


def sub_batch_class(kind: type[SubBatchNorm], plain: type[_BatchNorm]) -> type[SubBatchNorm]:
    """Return the class that derives from a kind of sub-batch BatchNorm and from a plain BatchNorm.

    Example:
        >>> made = sub_batch_class(SubBatchNorm, nn.BatchNorm3d)
        >>> made.__name__, issubclass(made, SubBatchNorm), issubclass(made, nn.BatchNorm3d)
        ('SubBatchNorm3d', True, True)
    """
    if (kind, plain) not in _CLASSES:
        name = kind.__name__.removesuffix("BatchNorm") + plain.__name__
        body = {"__module__": kind.__module__, "__doc__": kind.__doc__, "kind": kind, "plain_class": plain}
        _CLASSES[kind, plain] = type(name, (kind, plain), body)
    return _CLASSES[kind, plain]


def _blank(kind: type[SubBatchNorm], plain: type[_BatchNorm]) -> SubBatchNorm:
    """An uninitialised layer, for a copy to fill."""
    made = sub_batch_class(kind, plain)
    return made.__new__(made)


class _BlockNorm(torch.autograd.Function):
    """BatchNorm of consecutive blocks with torch's kernels, which write into one output without a copy.

    Returns the output and each block's mean and unbiased variance, shape ``(blocks, C)``.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, sizes: list[int], eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        output = torch.empty_like(x)
        blocks, outputs = torch.split(x, sizes), torch.split(output, sizes)
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
        ctx.sizes, ctx.eps = sizes, eps
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
                torch.split(grad, ctx.sizes),
                torch.split(x, ctx.sizes),
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
    """Update the running statistics with one step's statistics; nothing else changes them.

    All layers are updated together: many small operations would cost more than the arithmetic itself.
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
    # A cumulative average counts in a tensor: reading it would synchronize with the device.
    for place, (old, each, weight) in enumerate(zip(running, new, weights, strict=True)):
        # If no step has been kept yet, new and old statistics are equal, and any weight works.
        count = counts[place // 2].clamp(min=1).to(old.dtype)
        old.lerp_(each, count.reciprocal() if weight is None else weight)


def _normalise_blocks(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, blocks: Blocks, eps: float
) -> tuple[Tensor, Moments]:
    """Return the output and the whole batch's moments."""
    dtype = _statistics_dtype(x)
    weight = None if weight is None else weight.to(dtype)
    bias = None if bias is None else bias.to(dtype)
    if torch.compiler.is_compiling():
        return normalise_blocks_traced(x, weight, bias, blocks, eps)
    values = x.shape[2:].numel()
    if blocks.is_one:
        count = x.shape[0] * values
        mean, variance = x.new_zeros((2, x.shape[1]), dtype=dtype).unbind()
        output = F.batch_norm(x, mean, variance, weight, bias, True, 1.0, eps)
        return output, Moments(count, mean, variance * (count - 1))
    output, means, variances = _BlockNorm.apply(_dense(x), weight, bias, blocks.sizes, eps)
    equal = blocks.equal
    moments = merge_equal(blocks.clips * values, means[:equal], variances[:equal])
    if blocks.rest:
        count = blocks.rest * values
        moments = merge_moments([moments, Moments(count, means[equal], variances[equal] * (count - 1))])
    return output, moments


def _dense(x: Tensor) -> Tensor:
    """Return ``x`` in a layout for which the kernels accept a given output: contiguous or channels last."""
    if x.is_contiguous():
        return x
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    return x if last is not None and x.is_contiguous(memory_format=last) else x.contiguous()


def _statistics_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _check_bn_batch(clips: int) -> None:
    if not isinstance(clips, int) or isinstance(clips, bool) or clips < 1:
        raise PlanError(f"bn_batch is {shown(clips)}; accepted: a whole number of clips, at least 1")


_PLAIN_FORWARDS = (_BatchNorm.forward, nn.SyncBatchNorm.forward)
