"""Locks a run folder: two processes that train in it would overwrite each other's files."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vcycle.errors import VcycleError
from vcycle.utils.locks import file_lock

__all__ = ["LOCK", "training_lock"]

LOCK = "lock"
"""The name of the lock file."""


@contextmanager
def training_lock(folder: Path, on_message: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Lock the folder of a run or a comparison; the thread that holds it may take it again.

    Args:
        folder: An existing folder.
        on_message: Called with a message if the file system has no locks, so that other processes are not kept out.

    Raises:
        VcycleError: if another process holds the lock, with its name; or if the folder cannot be written.
    """

    def refusal(holder: str) -> VcycleError:
        return VcycleError(f"{holder} is training in {folder}: wait until it has ended, or choose another --out")

    def warn(error: OSError) -> None:
        on_message(
            f"{folder} is on a file system without locks ({error.strerror}): vcycle cannot check whether another "
            "process trains there"
        )

    file = folder / LOCK
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(file, reentrant=True, refusal=refusal, on_unsupported=warn))
        except OSError as error:
            raise VcycleError(f"{file} cannot be written: {error.strerror}") from error
        yield
