"""Precise BatchNorm: recomputes running statistics over given clips at the current weights.

Running statistics are averages over past steps, at past weights and shapes. With sub-batch BatchNorm they are good
enough for both methods; this module allows a comparison with training that recomputes them.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vcycle.nn.freezing import FrozenBatchNorm
from vcycle.nn.moments import Moments, merge_moments
from vcycle.plan import NoDecay, Plan, constant

__all__ = ["over_ranks", "precise_plan", "recompute_statistics"]

_Batch = TypeVar("_Batch")

_Layers = dict[str, _BatchNorm]


def precise_plan(plan: Plan, clips: int) -> Plan:
    """A plan of whole batches at full resolution with about `clips` clips in all, at least one batch."""
    baseline = plan.baseline.with_(
        epochs=None, steps=max(1, clips // plan.baseline.batch), decay=NoDecay(), warmup=None
    )
    return constant(baseline)


@torch.no_grad()
def recompute_statistics(
    model: nn.Module,
    batches: Iterable[_Batch],
    forward: Callable[[_Batch], object],
) -> None:
    """Set the running statistics of every BatchNorm to the statistics of its inputs over some batches.

    Meanwhile each BatchNorm normalises by its batch (or by its blocks of clips) as in training, and all other modules
    are in evaluation mode. Mean and variance are those of all values together, by the law of total variance; the
    variance is unbiased, as in BatchNorm. A frozen BatchNorm, one without running statistics and one without input stay
    as they are. After an exception all of them do.

    Args:
        model: Any module; its mode, momenta and ``num_batches_tracked`` stay as they were.
        batches: The arguments of ``forward``.
        forward: Runs the model on a batch.
    """
    layers = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm)
        and module.running_mean is not None
        and not isinstance(module, FrozenBatchNorm)
    }
    if not layers:
        return
    found: dict[str, Moments] = {}
    with _statistics_kept(layers), _modes(model, layers), _watched(layers, found):
        for batch in batches:
            forward(batch)
    merged = over_ranks([found.get(name) or _nothing(layer) for name, layer in layers.items()])
    for layer, moments in zip(layers.values(), merged, strict=True):
        if moments.values > 1 and layer.running_mean is not None and layer.running_var is not None:
            layer.running_mean.copy_(moments.mean)
            layer.running_var.copy_(moments.m2 / (moments.values - 1))


def over_ranks(moments: list[Moments]) -> list[Moments]:
    """Merge each layer's moments over all ranks of the default process group; unchanged without one."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return moments
    # One exchange for all layers: the number of values, means and sums of squares, end to end.
    mine = torch.cat([torch.cat([m.mean.new_full((1,), m.values), m.mean, m.m2]) for m in moments])
    everyone = [torch.empty_like(mine) for _ in range(distributed.get_world_size())]
    distributed.all_gather(everyone, mine)
    sizes = [1 + 2 * len(m.mean) for m in moments]
    ranks = [[_unpacked(part) for part in torch.split(vector, sizes)] for vector in everyone]
    return [merge_moments([part for part in parts if part.values] or [parts[0]]) for parts in zip(*ranks, strict=True)]


def _unpacked(part: Tensor) -> Moments:
    channels = len(part) // 2
    return Moments(round(part[0].item()), part[1 : 1 + channels], part[1 + channels :])


def _nothing(layer: _BatchNorm) -> Moments:
    zeros = torch.zeros_like(layer.running_mean, dtype=torch.float64)  # type: ignore[arg-type]
    return Moments(0, zeros, zeros)


@contextmanager
def _watched(layers: _Layers, found: dict[str, Moments]) -> Iterator[None]:
    """Merge the moments of the layers' inputs into ``found``, in double precision."""

    def watch(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
            x: Tensor = args[0] if args else options["input"]
            axes = [axis for axis in range(x.dim()) if axis != 1]
            values = x.numel() // x.shape[1]
            # Half precision is too coarse for the sums and for the results.
            variance, mean = torch.var_mean(x if x.dtype == torch.float64 else x.float(), axes, correction=0)
            part = Moments(values, mean.double(), variance.double() * values)
            found[name] = merge_moments([found[name], part]) if name in found else part

        return hook

    hooks = [layer.register_forward_pre_hook(watch(name), with_kwargs=True) for name, layer in layers.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _modes(model: nn.Module, layers: _Layers) -> Iterator[None]:
    """Put layers into training mode and everything else into evaluation mode; restore the modes at exit."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    for layer in layers.values():
        layer.train()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


@contextmanager
def _statistics_kept(layers: _Layers) -> Iterator[None]:
    """Restore the statistics of layers at exit."""
    before = {name: {key: value.clone() for key, value in layer.named_buffers()} for name, layer in layers.items()}
    try:
        yield
    finally:
        for name, layer in layers.items():
            for key, value in layer.named_buffers():
                value.copy_(before[name][key])
