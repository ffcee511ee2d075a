"""What is asked of a dataset: which item, at which shape, and the key of every random choice it makes."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np

    from vcycle.plan import Shape

__all__ = ["SampleRequest", "answer"]

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One clip to be sampled: ``dataset[SampleRequest(index, shape, key)]``.

    The key fixes the clip: the same request gives the same clip on any rank, in any worker, in an
    interrupted run and in one that was not.

    Example:
        >>> from vcycle.plan import Shape
        >>> request = SampleRequest(7, Shape(8, 112, 112), (0, 2, 507))
        >>> draws = [float(request.generator().random()) for _ in range(2)]
        >>> draws[0] == draws[1]
        True
    """

    index: int
    """Which item of the dataset."""

    shape: Shape
    """Frames, height and width that the clip is sampled at."""

    key: tuple[int, int, int]
    """Seed of the run, epoch, and position in the sample stream."""

    avoid: tuple[int, ...] = ()
    """Items that hung or killed a process when they were read for this sample: not to be read again for it."""

    @property
    def position(self) -> int:
        """Position of the sample in the training stream."""
        return self.key[2]

    def generator(self, purpose: int = 0) -> np.random.Generator:
        """A fresh generator for one purpose; another purpose gives independent numbers.

        The 128-bit Philox key is a hash of fixed-width fields, so that no two (key, purpose) share one.
        """
        import numpy as np

        fields = struct.pack("<4q", *self.key, purpose)
        digest = hashlib.blake2b(fields, digest_size=16, person=b"vcycle sample").digest()
        return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


def answer(name: str, load: Callable[[], _Answer]) -> _Answer:
    """What ``load`` returns; a ``StopIteration`` that leaves it becomes a ``RuntimeError``.

    Iterators call datasets, and a ``for`` loop reads ``StopIteration`` as the end of the data: without this, a bare
    ``next(...)`` in a dataset would end the training early and without a word. PEP 479 does the same for generators.

    Args:
        name: What is loaded, for the message.
        load: Calls code that a user may have written.

    Raises:
        RuntimeError: if ``load`` raises ``StopIteration``.
    """
    try:
        return load()
    except StopIteration as error:
        raise RuntimeError(
            f"{name} raised StopIteration, which would end the loop over the data: call next() with a default in the "
            "dataset, or catch StopIteration there"
        ) from error
