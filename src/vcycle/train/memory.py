"""Memory: detects out-of-memory errors, configures allocators, and undoes trial steps."""

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
"""Messages of torch's CPU allocator, which has no exception class; the last one is from C++ libraries."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From malloc.h. Blocks of more than 32 MB are always mapped separately."""
_ON_CUDA = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""Messages of CUDA libraries that bypass torch's allocator."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means out of memory, on the device or, on a CPU, in this process.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"))
    True
    >>> is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    False
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(said in str(error) for said in _ON_CPU + _ON_CUDA)


def release(device: torch.device) -> None:
    """Free unused memory. Call this outside of the `except` that caught the error.

    While an error is handled, its traceback keeps the activations of the step alive.
    """
    gc.collect(1)  # young generations: objects of the step that has just failed
    if device.type == "cuda":
        torch.cuda.empty_cache()


def grow_in_place() -> None:
    """Enable torch's expandable segments on a GPU, unless the user has configured the allocator.

    Memory freed by batches of one shape is then usable for any other shape. No effect once a GPU has been used.
    """
    if not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & os.environ.keys():
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"


def keep_freed() -> None:
    """Make the C library keep freed memory, up to 2 GB, for the next step on a CPU.

    By default, glibc returns it to the system and maps it again page by page: 1,100 to 1,900 page faults in a step of a
    small network, a tenth of its time or more. This does nothing if the user has configured malloc
    (`MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`, `GLIBC_TUNABLES`), if the address space is limited, as heap
    that is kept is not available for anything else, or with another C library. Processes forked later, such as data
    workers, inherit the setting.
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
    """Total memory in bytes, of a device or, on a CPU, for this process."""
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
    """Restore weights, buffers, optimizer and random generators bit for bit at exit; clear gradients.

    The copies are in main memory, so that a GPU holds no more than in training.

    Args:
        model: Its parameters and buffers are restored, and its gradients cleared.
        optimizer: Its state and the options of its groups are restored.
        device: Its random generator is restored, and that of the CPU.
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
            # New group objects, as from a checkpoint: apply then does not see the restored LR as a change.
            optimizer.param_groups[:] = [
                {**group, **values} for group, values in zip(optimizer.param_groups, groups, strict=True)
            ]
            if scaler is not None and scale is not None:
                scaler.load_state_dict(scale)
