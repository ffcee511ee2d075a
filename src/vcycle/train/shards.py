"""Weights, gradients and optimizer state in parts on the ranks, by PyTorch's `fully_shard`.

Each rank holds a slice of every parameter, and with it of its gradient and of what the optimizer keeps. A layer's
parameters are put together when it computes, block by block, and taken apart again. Buffers, such as running
statistics, are whole on every rank. The model that is evaluated is whole on every rank, too: ranks evaluate different
numbers of clips, and a sharded forward pass needs all of them each time. Checkpoints are written in parts.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from vcycle.errors import VcycleError

__all__ = [
    "blocks_of",
    "gather_state",
    "is_sharded",
    "local_shard",
    "meta_copy",
    "scatter_optimizer_state",
    "scatter_state",
    "set_reshard",
    "shard",
    "unsharded_copy",
]

_LEAST = 2**20
"""Parameters of a block from which on it is put together by itself: below, it costs more messages than it saves
memory."""
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
_CONTAINERS = (nn.Sequential, nn.ModuleList)


def shard(*models: nn.Module, device: torch.device, compress: Literal["fp16", "bf16"] | None = None) -> None:
    """Cut the parameters of models between all ranks, in place; to be called before their optimizer is made.

    Args:
        models: Equal on all ranks, anywhere. Their blocks are those of the first.
        device: Of this rank, where they are put.
        compress: What gradients are rounded to on their way between ranks.

    Raises:
        VcycleError: if a parameter cannot be cut.
    """
    for name, parameter in models[0].named_parameters():
        if parameter.ndim == 0:
            raise VcycleError(
                f"run.shard is true, and parameter {name} is a single number, which cannot be cut: false is accepted"
            )
    if device.type == "cuda":
        torch.cuda.set_device(device)
    mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
    policy = MixedPrecisionPolicy(reduce_dtype=None if compress is None else _DTYPES[compress])
    for model in models:
        for parameter in model.parameters():
            parameter.data = parameter.data.contiguous()  # channels last cannot be cut
        for module in [*blocks_of(model), model]:
            # Not even the outermost layer's parameters stay together between forward and backward.
            fully_shard(module, mesh=mesh, reshard_after_forward=True, mp_policy=policy)


def blocks_of(model: nn.Module, least: int | None = None) -> list[nn.Module]:
    """The parts of a model that are put together one at a time, inner ones first.

    They are what repeats: children of one class in a sequence or a list, such as a network's residual blocks, or its
    stages where those are small. Only sequences and lists are looked into once they repeat themselves. Parameters that
    lie in several modules are left to the whole model.

    Args:
        model: Any module.
        least: How many parameters a block has, those of blocks within it not counted; by default a million.
    """
    least = _LEAST if least is None else least
    shared = _shared_parameters(model)
    blocks: list[nn.Module] = []
    taken: set[int] = set()

    def visit(module: nn.Module) -> None:
        children = list(module.children())
        classes = [type(child) for child in children] if isinstance(module, _CONTAINERS) else []
        for child in children:
            repeats = classes.count(type(child)) > 1
            if isinstance(child, _CONTAINERS) or not (repeats and take(child)):
                visit(child)
                if repeats and not isinstance(child, nn.ModuleList):  # which has no forward
                    take(child)

    def take(block: nn.Module) -> bool:
        """Whether a part of the model is large enough, and then made a block."""
        sizes = {id(p): p.numel() for p in block.parameters() if id(p) not in taken}
        if sum(sizes.values()) < max(least, 1) or shared & sizes.keys():
            return False
        blocks.append(block)
        taken.update(sizes)
        return True

    visit(model)
    return [block for block in blocks if block is not model]


def _shared_parameters(model: nn.Module) -> set[int]:
    """Parameters of several modules, and of a module that lies in several places."""
    seen: set[int] = set()
    shared: set[int] = set()
    for _, parameter in model.named_parameters(remove_duplicate=False):
        (shared if id(parameter) in seen else seen).add(id(parameter))
    return shared


def is_sharded(model: nn.Module) -> bool:
    """Whether ranks hold parts of a model's parameters."""
    return isinstance(model, FSDPModule)


def set_reshard(model: nn.Module, *, parted: bool, last: bool) -> None:
    """Say what becomes of parameters and gradients in the next forward and backward.

    Ranks may compute a step in different numbers of micro-batches, and still must put parameters together and exchange
    gradients the same number of times: once each. Parameters are then whole during the step, and so are gradients.

    Args:
        model: The sharded model.
        parted: Whether any rank computes the step in several micro-batches.
        last: Whether this is the last of this rank's.
    """
    if isinstance(model, FSDPModule):
        model.set_reshard_after_forward(not parted)
        model.set_reshard_after_backward(last)
        model.set_requires_gradient_sync(last)


def local_shard(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor, on the same memory; all of one that is not sharded."""
    if not isinstance(tensor, DTensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()


def gather_state(state: Any, *, keep: bool) -> Any:
    """A state with all that is sharded in one piece, in main memory; all ranks call this with their own.

    Args:
        state: Tensors and plain values in dictionaries and lists.
        keep: Whether this rank wants it; others are given the state without sharded tensors.
    """
    if isinstance(state, DTensor):
        whole = _whole(state)
        return whole.cpu() if keep else None
    if isinstance(state, Mapping):
        return {key: gather_state(value, keep=keep) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(gather_state(value, keep=keep) for value in state)
    return state


def scatter_state(state: Mapping[str, Any], like: Mapping[str, Tensor]) -> dict[str, Any]:
    """A state of whole tensors with those in parts that are so in another; what has another shape stays as it is."""
    return {key: _part(value, like[key]) if key in like else value for key, value in state.items()}


def scatter_optimizer_state(saved: dict[str, Any], parameters: Sequence[Tensor]) -> dict[str, Any]:
    """An optimizer's saved state with those of its tensors in parts that belong to such parameters."""
    states = {
        place: {
            key: _part(value, parameters[place]) if isinstance(value, Tensor) and place < len(parameters) else value
            for key, value in of_parameter.items()
        }
        for place, of_parameter in saved["state"].items()
    }
    return {**saved, "state": states}


def _part(whole: Tensor, like: Tensor) -> Tensor:
    if isinstance(whole, DTensor) or not isinstance(like, DTensor) or whole.shape != like.shape:
        return whole
    mesh = like.device_mesh
    parts = torch.chunk(whole, mesh.size())
    mine = parts[mesh.get_local_rank()] if mesh.get_local_rank() < len(parts) else whole[:0]
    local = mine.to(local_shard(like).device, copy=True)  # no view: it would hold the whole
    found: Tensor = DTensor.from_local(
        local, mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
    return found


def meta_copy(model: nn.Module) -> nn.Module:
    """A copy of a model without the memory of its parameters and buffers, to be unsharded_copy in later."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = buffer.to("meta")
    return deepcopy(model, memo)


@torch.no_grad()
def unsharded_copy(model: nn.Module, empty: nn.Module) -> nn.Module:
    """A plain model with all that a sharded one has learned; all ranks call this.

    Args:
        model: The sharded model.
        empty: The `meta_copy` of the model before it was sharded.
    """
    device = next(iter(_tensors(model))).device
    whole = deepcopy(empty).to_empty(device=device)
    for target, source in zip(_tensors(whole), _tensors(model), strict=True):
        target.copy_(_whole(source))
    return whole.train(model.training)


@torch.no_grad()
def _whole(tensor: Tensor) -> Tensor:
    found: Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return found


def _tensors(model: nn.Module) -> Iterable[Tensor]:
    yield from model.parameters()
    yield from model.buffers()
