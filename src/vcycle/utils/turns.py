"""What only one process at a time may do, and the others wait for."""

import fcntl
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["in_turn"]


@contextmanager
def in_turn(file: Path) -> Iterator[None]:
    """Within: no other process is, that names the same file. Whoever comes later waits, and is told so.

    The turn ends with the process, however that ends. Where a file system knows no locks, nobody waits.

    Args:
        file: Made if missing, in a folder that is there, and left there.

    Raises:
        OSError: if it cannot be written.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            warnings.warn(f"waiting for another process that writes to {file.with_suffix('')}", stacklevel=3)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:  # no locks here
            pass
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked process may have the descriptor as well
        os.close(descriptor)
