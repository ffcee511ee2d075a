"""File locks between processes."""

import errno
import json
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from vcycle.utils.reading import resolved

__all__ = ["file_lock"]

_WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
"""Errors of file systems without locks, or whose lock server does not answer."""


@contextmanager
def file_lock(
    file: Path,
    *,
    reentrant: bool = False,
    refusal: Callable[[str], Exception] | None = None,
    on_unsupported: Callable[[OSError], object] = lambda _: None,
) -> Iterator[None]:
    """Hold an exclusive lock against other processes and threads.

    The operating system frees the lock when the process ends, however it ends. Forked processes do not inherit it.

    Args:
        file: The lock file, in an existing folder. It names its holder and is deleted on release.
        reentrant: Whether the thread that holds the lock may acquire it again.
        refusal: Makes the error to raise if another process holds the lock, from that process's name. By default,
            this process waits, with a warning.
        on_unsupported: Called on a file system without locks. Unless it raises, the block runs without a lock.

    Raises:
        OSError: if the file cannot be written.
    """
    lock = FileLock(
        resolved(file.parent) / file.name, is_singleton=reentrant, fallback_to_soft=False, on_acquired=_sign
    )
    try:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            holder = _holder(file)
            if refusal is not None:
                raise refusal(holder) from None
            warnings.warn(f"waiting for {holder}, which writes to {file.with_suffix('')}", stacklevel=3)
            lock.acquire()
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        on_unsupported(error)
    try:
        yield
    finally:
        if lock.is_locked:
            if lock.lock_counter == 1:
                with suppress(OSError):
                    file.unlink()  # before its release: waiters then reopen the path
            lock.release()


def _sign(descriptor: int) -> None:
    """Write the holder's name into the lock file; a full disk does not prevent locking."""
    text = json.dumps({"process": os.getpid(), "host": socket.gethostname()})
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode() + b"\n", 0)


def _holder(file: Path) -> str:
    """Return the name of the process that holds the lock, for messages."""
    try:
        found = json.loads(file.read_bytes()[:1000])
        return f"process {int(found['process'])} on {found['host']}"
    except (OSError, ValueError, TypeError, KeyError):
        return "another process"
