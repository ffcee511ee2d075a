"""Sharded data parallel (FSDP): weights, gradients and optimizer state in shards, with PyTorch's `fully_shard`.

Each rank holds a shard of every parameter, and so of its gradient and optimizer state. Parameters are gathered block by
block when a block computes, and resharded afterwards. Buffers, such as running statistics, are complete on every rank.
Evaluations compute on the sharded model too (`vcycle.train.uneven_inputs`). Checkpoints are sharded.
"""

from collections.abc import Mapping, Sequence
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
    "scatter_optimizer_state",
    "scatter_state",
    "set_reshard",
    "shard",
]

_LEAST = 2**20
"""The fewest parameters of a block that is gathered by itself: smaller ones cost more messages than they save
memory."""
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
_CONTAINERS = (nn.Sequential, nn.ModuleList)


def shard(*models: nn.Module, device: torch.device, compress: Literal["fp16", "bf16"] | None = None) -> None:
    """Shard the parameters of models over all ranks, in place; call this before making their optimizer.

    Args:
        models: The models, equal on all ranks, on any device. All use the blocks of the first.
        device: The device of this rank, to which the models move.
        compress: Dtype that gradients are rounded to when ranks exchange them.

    Raises:
        VcycleError: if a parameter cannot be sharded.
    """
    for name, parameter in models[0].named_parameters():
        if parameter.ndim == 0:
            raise VcycleError(
                f"run.shard is true, but parameter {name} is a scalar, which cannot be sharded: set run.shard=false"
            )
    if device.type == "cuda":
        torch.cuda.set_device(device)
    mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
    policy = MixedPrecisionPolicy(reduce_dtype=None if compress is None else _DTYPES[compress])
    for model in models:
        for parameter in model.parameters():
            parameter.data = parameter.data.contiguous()  # channels last cannot be sharded
        for module in [*blocks_of(model), model]:
            # Reshard even the outermost layer between forward and backward.
            fully_shard(module, mesh=mesh, reshard_after_forward=True, mp_policy=policy)


def blocks_of(model: nn.Module, least: int | None = None) -> list[nn.Module]:
    """The blocks of a model that are gathered one at a time, inner ones first.

    Blocks are repeated modules: children of one class in a sequence or a list, such as a network's residual blocks, or
    its stages if the blocks are small. Of repeated modules, only sequences and lists are searched for inner blocks.
    Parameters that several modules share belong to the whole model.

    Args:
        model: Any module.
        least: The fewest parameters of a block, without those of blocks inside it; by default a million.
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
        """Make a module a block if it is large enough; return whether it is."""
        sizes = {id(p): p.numel() for p in block.parameters() if id(p) not in taken}
        if sum(sizes.values()) < max(least, 1) or shared & sizes.keys():
            return False
        blocks.append(block)
        taken.update(sizes)
        return True

    visit(model)
    return [block for block in blocks if block is not model]


def _shared_parameters(model: nn.Module) -> set[int]:
    """The ids of parameters that several modules share, or that belong to a module used in several places."""
    seen: set[int] = set()
    shared: set[int] = set()
    for _, parameter in model.named_parameters(remove_duplicate=False):
        (shared if id(parameter) in seen else seen).add(id(parameter))
    return shared


def is_sharded(model: nn.Module) -> bool:
    """Whether a model is sharded over ranks."""
    return isinstance(model, FSDPModule)


def set_reshard(model: nn.Module, *, parted: bool, last: bool) -> None:
    """Set when the next forward and backward pass reshard parameters and reduce gradients.

    Ranks may use different numbers of micro-batches in a step, but must gather parameters and reduce gradients the same
    number of times: once each. With several micro-batches, parameters and gradients stay unsharded during the step.

    Args:
        model: The sharded model.
        parted: Whether any rank splits the step into several micro-batches.
        last: Whether this is this rank's last micro-batch.
    """
    if isinstance(model, FSDPModule):
        model.set_reshard_after_forward(not parted)
        model.set_reshard_after_backward(last)
        model.set_requires_gradient_sync(last)


def local_shard(tensor: Tensor) -> Tensor:
    """This rank's shard of a tensor, on the same memory; the tensor itself if it is not sharded."""
    if not isinstance(tensor, DTensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()


def gather_state(state: Any, *, keep: bool) -> Any:
    """Gather the sharded tensors of a state in main memory; all ranks call this with their own state.

    Args:
        state: Tensors and plain values in dictionaries and lists.
        keep: Whether this rank keeps the result; other ranks get None in place of sharded tensors.
    """
    if isinstance(state, DTensor):
        with torch.no_grad():
            whole = state.full_tensor()
        return whole.cpu() if keep else None
    if isinstance(state, Mapping):
        return {key: gather_state(value, keep=keep) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(gather_state(value, keep=keep) for value in state)
    return state


def scatter_state(state: Mapping[str, Any], like: Mapping[str, Tensor]) -> dict[str, Any]:
    """Shard the tensors of a state that are sharded in `like`; tensors of another shape stay as they are."""
    return {key: _part(value, like[key]) if key in like else value for key, value in state.items()}


def scatter_optimizer_state(saved: dict[str, Any], parameters: Sequence[Tensor]) -> dict[str, Any]:
    """Shard the tensors of an optimizer's saved state whose parameters are sharded."""
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
    local = mine.to(local_shard(like).device, copy=True)  # a copy: a view would keep the full tensor alive
    found: Tensor = DTensor.from_local(
        local, mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
    return found
