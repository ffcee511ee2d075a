"""Child processes that end with their parent."""

import contextlib
import ctypes
import os
import signal

__all__ = ["end_with_parent"]

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int | None = None) -> None:
    """Have the system kill this process when its parent ends, for whatever reason (Linux only; a no-op elsewhere).

    Args:
        parent: The parent's process ID, if it may have ended already: then this process exits.
    """
    parent = parent or os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the parent ended before the request
