"""Running out of memory, and trying things without leaving a trace."""

import ctypes
import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vcycle.train.shards import local_shard

__all__ = ["grow_in_place", "is_out_of_memory", "keep_freed", "memory_of", "release", "undone"]

_ON_CPU = ("can't allocate memory", "not enough memory", "std::bad_alloc")
"""What torch's allocator on a CPU says, which has no error of its own; the last is that of libraries below it."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Of malloc.h. More than 32 MB is always mapped by itself."""
_ON_CUDA = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""What CUDA's libraries say that allocate past torch's allocator."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory has run out, the device's or, on a CPU, this process's.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"))
    True
    >>> is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    False
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(said in str(error) for said in _ON_CPU + _ON_CUDA)


def release(device: torch.device) -> None:
    """Give back what nothing holds any more. To be called outside of the `except` that caught the failure.

    An error that is being handled holds the frames that it came through, and with them the activations of the step.
    """
    gc.collect(1)  # the young: those of a step that has just failed
    if device.type == "cuda":
        torch.cuda.empty_cache()


def grow_in_place() -> None:
    """Have torch grow the memory that it holds of a GPU in place, unless the user has configured that himself.

    What batches of one shape leave behind is then of use for those of any other. Without an effect once a GPU has been
    used.
    """
    if not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & os.environ.keys():
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"


def keep_freed() -> None:
    """Have the C library of a CPU's process keep what it frees, up to 2 GB, for the next step.

    GNU's gives it back to the system and then has it mapped anew, page by page: 1,100 to 1,900 faults in a step of a
    small net, and a tenth of its time or more. Nothing is done where the user has configured that himself
    (`MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`, `GLIBC_TUNABLES`), where the address space is limited, in which
    what is kept as heap is not there for anything else, or where the library is another. Processes that are forked
    later, such as workers, do likewise.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    configured = os.environ.keys() & {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"}
    if limit != resource.RLIM_INFINITY or configured or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for which, size in ((_M_TRIM_THRESHOLD, 2**31 - 1), (_M_MMAP_THRESHOLD, 32 << 20)):
            mallopt(which, size)


def memory_of(device: torch.device) -> int:
    """How many bytes there are on a device or, on a CPU, for this process."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return there if limit == resource.RLIM_INFINITY else min(there, limit)


@contextmanager
def undone(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    scaler: torch.amp.GradScaler | None = None,
) -> Iterator[None]:
    """Undo at the end, bit for bit, what happens inside to weights, buffers, optimizer, gradients and torch's draws.

    What is restored lies in main memory meanwhile, so that a GPU holds no more than in training.

    Args:
        model: Its parameters and buffers are restored, and its gradients forgotten.
        optimizer: Its state and its groups' constants are restored.
        device: Its generator is restored, and that of the CPU.
        scaler: Its scale is restored.
    """
    scale = None if scaler is None else scaler.state_dict()
    learned: dict[Any, dict[str, Any]] = {parameter: dict(state) for parameter, state in optimizer.state.items()}
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [value for held in (*learned.values(), *groups) for value in held.values() if isinstance(value, Tensor)]
    tensors = [local_shard(tensor.detach()) for tensor in tensors]
    kept = [tensor.to("cpu", copy=True) for tensor in tensors]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            model.zero_grad()
            with torch.no_grad():
                for tensor, value in zip(tensors, kept, strict=True):
                    tensor.copy_(value)
            optimizer.state.clear()
            optimizer.state.update(learned)
            # New groups, as a checkpoint brings: their LR is not what apply set last.
            optimizer.param_groups[:] = [
                {**group, **values} for group, values in zip(optimizer.param_groups, groups, strict=True)
            ]
            if scaler is not None and scale is not None:
                scaler.load_state_dict(scale)
