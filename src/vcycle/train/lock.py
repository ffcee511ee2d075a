"""A run's folder is one process's at a time: two that train in it would overwrite each other."""

import errno
import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vcycle.errors import VcycleError
from vcycle.reading import resolved

__all__ = ["LOCK", "claimed"]

LOCK = "lock"
"""The name of its file."""
_WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
"""What file systems answer that know no locks, or whose server does not answer for them."""

_held: set[tuple[int, Path]] = set()
"""Folders that a process has claimed: it is not in its own way. A forked one inherits this, but no claim."""


@contextmanager
def claimed(folder: Path, on_message: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Within: no other process claims the folder. Claims may be nested.

    The claim is a lock of the system's and ends with this process, however that ends. It is of the kind that forked
    processes do not inherit: workers that outlive their parent for a moment keep nobody out.

    Args:
        folder: A folder that is there.
        on_message: Told of a file system without locks, where nobody is kept out.

    Raises:
        VcycleError: if another process has claimed it, naming that; or if it cannot be written to.
    """
    key = os.getpid(), resolved(folder)
    if key in _held:
        yield
        return
    file = folder / LOCK
    try:
        descriptor = _locked(file)
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise VcycleError(f"{file} cannot be written: {error.strerror}") from error
        on_message(
            f"{folder} lies on a file system without locks ({error.strerror}): that no second process trains there is "
            "not checked"
        )
        descriptor = None
    try:
        if descriptor is not None:
            _held.add(key)
            _sign(descriptor)
        yield
    finally:
        if descriptor is not None:
            _held.remove(key)
            with suppress(OSError):
                file.unlink()  # while it is still locked: see `_locked`
            os.close(descriptor)


def _locked(file: Path) -> int:
    """A descriptor of a file that is locked.

    Raises:
        OSError: if it cannot be had.
        VcycleError: if another process has it.
    """
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is(file, descriptor):
                return descriptor
        except (BlockingIOError, PermissionError):  # the two answers that POSIX allows
            holder = _read(descriptor)
            os.close(descriptor)
            raise VcycleError(
                f"{holder} is training in {file.parent}: wait until it has ended, or choose another --out"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # whoever had it before has just ended and deleted it


def _is(file: Path, descriptor: int) -> bool:
    """Whether a descriptor is that of the file that now has its name."""
    try:
        return os.path.samestat(os.stat(file), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _sign(descriptor: int) -> None:
    """Say who has the lock, for the message of whoever is refused; a full disk is no reason not to have it."""
    text = json.dumps({"process": os.getpid(), "host": socket.gethostname()})
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode() + b"\n", 0)


def _read(descriptor: int) -> str:
    """Who has the lock, in words."""
    try:
        found = json.loads(os.pread(descriptor, 1000, 0))
        return f"process {int(found['process'])} on {found['host']}"
    except (OSError, ValueError, TypeError, KeyError):
        return "another process"
