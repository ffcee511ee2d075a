"""Requests to a dataset: which item, at which shape, and the key of all its random choices."""

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
    """A request for one clip: ``dataset[SampleRequest(index, shape, key)]``.

    The key determines the clip: the same request gives the same clip on any rank, in any worker, in a resumed run and
    in an uninterrupted one.

    Example:
        >>> from vcycle.plan import Shape
        >>> request = SampleRequest(7, Shape(8, 112, 112), (0, 2, 507))
        >>> draws = [float(request.generator().random()) for _ in range(2)]
        >>> draws[0] == draws[1]
        True
    """

    index: int
    """Index of the item in the dataset."""

    shape: "Shape"
    """Frames, height and width of the clip."""

    key: tuple[int, int, int]
    """Seed of the run, epoch, and position in the sample stream."""

    avoid: tuple[int, ...] = ()
    """Items that hung or killed a process when read for this sample; they are not read again for it."""

    @property
    def position(self) -> int:
        """The position of the sample in the training stream."""
        return self.key[2]

    def generator(self, purpose: int = 0) -> "np.random.Generator":
        """Return a fresh generator for a purpose; different purposes give independent numbers.

        The 128-bit Philox key is a hash of fixed-width fields, so different (key, purpose) pairs have different keys.
        """
        import numpy as np

        fields = struct.pack("<4q", *self.key, purpose)
        digest = hashlib.blake2b(fields, digest_size=16, person=b"vcycle sample").digest()
        return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


def answer(name: str, load: Callable[[], _Answer]) -> _Answer:
    """Return the value of ``load``; a ``StopIteration`` that escapes it becomes a ``RuntimeError``.

    Datasets are called by iterators, and a ``for`` loop reads ``StopIteration`` as the end of the data: a bare
    ``next(...)`` in a dataset would silently end the training early. PEP 479 does the same for generators.

    Args:
        name: What is loaded, for the message.
        load: Calls code that may be the user's.

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
