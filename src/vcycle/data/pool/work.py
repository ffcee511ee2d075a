"""The work of a pool: the order of samples, how to load one, and what replaces one that cannot be loaded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

__all__ = ["Room", "Spent", "Work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Shared memory needed by batches."""

    batch_bytes: int
    """Size of the largest batch."""
    fewest: int
    """Number of samples of the smallest batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Time spent loading, summed over the samples of a batch."""

    samples: int = 0
    seconds: float = 0.0
    """Wall-clock time in the workers."""
    cpu_seconds: float = 0.0
    """The part of it spent on the CPU."""
    queued_seconds: float = 0.0
    """The part of it spent ready to run, waiting for the CPU."""
    main_seconds: float = 0.0
    """Wall-clock time in the main process, spent collating."""

    def __add__(self, other: "Spent") -> "Spent":
        """Return the sum."""
        return Spent(
            samples=self.samples + other.samples,
            seconds=self.seconds + other.seconds,
            cpu_seconds=self.cpu_seconds + other.cpu_seconds,
            queued_seconds=self.queued_seconds + other.queued_seconds,
            main_seconds=self.main_seconds + other.main_seconds,
        )


class Work(Protocol):
    """Batches of tasks. A task is one sample to load, and can be pickled."""

    def __len__(self) -> int:
        """Return the number of batches."""
        ...

    def batches(self) -> Iterator[Sequence[Any]]:
        """Yield the tasks of each batch, in order."""
        ...

    def load(self, task: Any, memory: Tensor | None) -> Any:
        """Load a sample, in any process. Its tensors may be written to ``memory``, uint8, from its beginning."""
        ...

    def instead(self, task: Any, cause: str, item: int | None) -> Any:
        """Return the task that replaces one that hung or killed its process.

        Args:
            task: The failed task.
            cause: How it failed.
            item: The dataset item that was being read for it, if known.

        Raises:
            DataError: if there is no replacement.
        """
        ...

    def name(self, task: Any) -> str:
        """Return what the task loads, for messages."""
        ...

    def sample_bytes(self, task: Any) -> int:
        """Return the maximum size of a sample in shared memory; the same for all tasks of a batch."""
        ...

    def room(self) -> Room:
        """Return the shared memory that batches need."""
        ...

    def collate(self, items: list[Any], memory: Tensor | None) -> Any:
        """Collate the results of ``load``; tensors in ``memory`` may stay there."""
        ...
