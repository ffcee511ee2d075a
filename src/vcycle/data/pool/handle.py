"""Workers as the supervisor sees them: what each was given, since when it is at it, and how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from vcycle.data.pool.channel import Channel
from vcycle.data.pool.worker import BEGUN, DONE, ITEM, SINCE

__all__ = ["Job", "Worker", "death"]

_PATIENCE, _PAUSE = 400, 0.0005
"""How often, and after how many seconds each, a dying process is looked at. One that the kernel cannot end after that
is stuck in it, and does not touch memory any more."""


@dataclass(slots=True, eq=False)
class Job:
    """A sample to be loaded into its place in a batch."""

    batch: Any
    place: int
    task: Any
    died: bool = False
    """Whether a worker died at it."""


@dataclass(slots=True, eq=False, kw_only=True)
class Worker:
    """A worker process."""

    pid: int
    channel: Channel
    row: memoryview
    """Its row of the shared table."""
    messages: deque[list[Job]] = field(default_factory=deque)
    """The samples of each message that it has not answered, in order."""
    answered: int = 0
    """Samples in the messages that it has answered."""
    given: float = 0.0
    """When it had nothing to do and was given something (monotonic)."""
    overdue: float | None = None
    """The beginning of the sample that was seen to take too long."""

    def give(self, group: list[Job], message: bytes) -> None:
        """Send it samples.

        Raises:
            Closed: if it is dead; the samples are among its jobs all the same.
        """
        if not self.messages:
            self.given = time.monotonic()
        self.messages.append(group)
        self.channel.put(message)

    def finish(self) -> list[Job]:
        """The samples of the message that it has answered now."""
        group = self.messages.popleft()
        self.answered += len(group)
        self.given = time.monotonic()
        return group

    def jobs(self) -> list[Job]:
        """All that it was given and has not answered."""
        return [job for group in self.messages for job in group]

    def busy_since(self) -> float | None:
        """When it began what it is at, by its own clock; if it has not begun, when it could have."""
        if not self.messages:
            return None
        begun = self.row[BEGUN]
        if begun > self.answered:
            return float(self.row[SINCE + (begun - 1) % 2] / 1e9)
        return self.given

    def guilty(self) -> Job | None:
        """The sample that it was at: the one to blame when it hangs or has died."""
        begun, done, jobs = self.row[BEGUN], self.row[DONE], self.jobs()
        place = begun - 1 - self.answered
        return jobs[place] if begun > done and 0 <= place < len(jobs) else None

    def item(self) -> int | None:
        """The item of the dataset that it was reading for that sample, where it is known."""
        item = self.row[ITEM]
        return item if item >= 0 else None

    def traced(self) -> bool:
        """Whether a debugger holds it."""
        try:
            with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as file:
                return any(line.startswith("TracerPid:") and line.split()[1] != "0" for line in file)
        except OSError:
            return False

    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return os.waitpid(self.pid, os.WNOHANG)[0] != 0

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def bury(self, *, at_once: bool) -> int | None:
        """Wait for its end: its exit code, negative for a signal; None if it does not die yet.

        Args:
            at_once: Kill it now. One that closed its end is on its way out, and how it ends by itself is worth
                knowing: it is killed only when that takes long.
        """
        self.channel.close()
        if at_once:
            self.kill()
        for turn in range(_PATIENCE):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if turn == _PATIENCE // 2:
                self.kill()
            time.sleep(_PAUSE)
        return None


def death(status: int | None) -> str:
    """How a process ended, for a message."""
    if status is None or status >= 0:
        return f"ended its process (exit code {status})"
    often = ": probably out of memory" if -status == signal.SIGKILL else ""
    return f"killed its process (signal {-status}{often})"
