"""What a pool works on: the order of samples, how one is loaded, and what takes the place of one that cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

__all__ = ["Room", "Spent", "Work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much shared memory batches need."""

    batch_bytes: int
    """Of the largest batch."""
    fewest: int
    """Samples of the smallest batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What loading took, summed over the samples of a batch."""

    samples: int = 0
    seconds: float = 0.0
    """On the clock, in the workers."""
    cpu_seconds: float = 0.0
    """Of it, in the processor."""
    queued_seconds: float = 0.0
    """Of it, ready to run while other processes had the processor."""
    main_seconds: float = 0.0
    """On the clock, in the main process: what it took to make a batch of them."""

    def __add__(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(
            samples=self.samples + other.samples,
            seconds=self.seconds + other.seconds,
            cpu_seconds=self.cpu_seconds + other.cpu_seconds,
            queued_seconds=self.queued_seconds + other.queued_seconds,
            main_seconds=self.main_seconds + other.main_seconds,
        )


class Work(Protocol):
    """Batches of tasks; a task is one sample to be loaded, and can be pickled."""

    def __len__(self) -> int:
        """Number of batches."""
        ...

    def batches(self) -> Iterator[Sequence[Any]]:
        """The tasks of each batch, in order."""
        ...

    def load(self, task: Any, memory: Tensor | None) -> Any:
        """Load a sample. Called in any process. Its tensors may be put into ``memory``, uint8, from its beginning."""
        ...

    def instead(self, task: Any, cause: str, item: int | None) -> Any:
        """The task that takes the place of one that hung or killed its process.

        Args:
            task: That one.
            cause: What it did.
            item: The item of the dataset that was being read for it, where that is known.

        Raises:
            DataError: if there is none.
        """
        ...

    def name(self, task: Any) -> str:
        """What the task loads, for messages."""
        ...

    def sample_bytes(self, task: Any) -> int:
        """Shared memory that a sample may need; the same for all of the task's batch."""
        ...

    def room(self) -> Room:
        """How much shared memory batches need."""
        ...

    def collate(self, items: list[Any], memory: Tensor | None) -> Any:
        """A batch of what ``load`` gave; tensors in ``memory`` may stay there."""
        ...
