"""Shared memory in blocks, one per batch: filled by workers, lent to the main process as a tensor without copying."""

import mmap
import warnings
import weakref
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vcycle.errors import DataError

__all__ = ["Arena"]

_cuda: Any = torch.cuda


class Arena:
    """Blocks of one anonymous shared mapping, which needs no file descriptor and is inherited by forked processes.

    A lent block is free again when no tensor uses its memory.
    """

    def __init__(self, *, filling: int, lending: int, block_bytes: int) -> None:
        """Reserve memory; pages are allocated only when written to.

        Args:
            filling: Blocks always available to workers, whatever the main process holds.
            lending: Blocks that the main process may hold.
            block_bytes: Size of a block.

        Raises:
            DataError: if the system cannot provide the memory.
        """
        self.blocks = filling + lending
        self.block_bytes = -(-max(block_bytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self.lending = lending
        size = self.blocks * self.block_bytes
        try:
            self._memory = mmap.mmap(-1, size)
        except OSError as error:
            raise DataError(
                f"{size / 2**30:.1f} GiB of shared memory for {self.blocks} batches cannot be allocated "
                f"({error.strerror}): lower data.prefetch, data.workers or the batch"
            ) from None
        self.bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
        """All of the memory."""
        self._returned: deque[int] = deque()  # any thread that drops the last tensor appends
        self._busy: list[tuple[Any, int]] = []  # returned, but a device may still be reading it
        self._lent = 0
        self.pinned = False

    def pin(self) -> None:
        """Pin the pages for faster copies to a CUDA device; without a device, or if CUDA refuses, nothing changes."""
        if self.pinned or not torch.cuda.is_available():
            return
        cudart = _cuda.cudart()
        address = self.bytes.data_ptr()
        code = int(cudart.cudaHostRegister(address, self.bytes.numel(), 0))
        if code:
            warnings.warn(f"{self.bytes.numel() >> 20} MiB cannot be pinned (CUDA error {code})", stacklevel=2)
            return
        self.pinned = True
        # The memory is an argument so that it outlives its registration.
        weakref.finalize(self, _unpin, self._memory, address).atexit = False

    def lend(self, block: int, size: int) -> Tensor:
        """Return the first bytes of a block; if too many are lent, a copy of them, and the block is free at once."""
        if self._lent >= self.lending:
            first = block * self.block_bytes
            copy = self.bytes[first : first + size].clone()
            self._returned.append(block)
            self._lent += 1
            return copy
        array = np.frombuffer(self._memory, np.uint8, size, block * self.block_bytes)
        self._lent += 1
        # The tensor's storage holds the array. The arena is an argument so that it outlives what it has lent.
        weakref.finalize(array, _give_back, self, block).atexit = False
        return torch.from_numpy(array)

    @property
    def awaits_device(self) -> bool:
        """Return whether a block becomes free as soon as a device is done with it."""
        return bool(self._busy)

    def reclaim(self) -> list[int]:
        """Return the blocks that are no longer in use."""
        returned = [self._returned.popleft() for _ in range(len(self._returned))]
        if self.pinned and returned:
            # The host may drop a tensor before its copy to the device starts.
            event = _cuda.Event()
            event.record()
            self._busy += [(event, block) for block in returned]
            returned = []
        if self._busy:
            returned = [block for event, block in self._busy if event.query()]
            self._busy = [(event, block) for event, block in self._busy if block not in returned]
        self._lent -= len(returned)
        return returned


def _give_back(arena: Arena, block: int) -> None:
    arena._returned.append(block)


def _unpin(_: mmap.mmap, address: int) -> None:
    _cuda.cudart().cudaHostUnregister(address)
