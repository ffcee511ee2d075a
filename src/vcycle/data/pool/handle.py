"""Workers as the supervisor sees them: their jobs, since when they are busy, and how they ended."""

import contextlib
import os
import signal
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from vcycle.data.pool.channel import Channel
from vcycle.data.pool.worker import BEGUN, DONE, ITEM, SINCE

__all__ = ["Job", "Worker", "exit_reason"]

_GRACE, _PATIENCE, _PAUSE = 200, 4000, 0.0005
"""Number of checks on a dying process before it is killed, of all checks, and the seconds before each. A process that
the kernel cannot end after that is stuck in it, and no longer touches memory."""


@dataclass(slots=True, eq=False)
class Job:
    """A sample to load into its place in a batch."""

    batch: Any
    place: int
    task: Any
    died: bool = False
    """Whether a worker died on it."""


@dataclass(slots=True, eq=False, kw_only=True)
class Worker:
    """A worker process."""

    pid: int
    channel: Channel
    row: memoryview
    """Its row of the shared table."""
    messages: deque[list[Job]] = field(default_factory=deque)
    """The samples of each unanswered message, in order."""
    answered: int = 0
    """Number of samples in answered messages."""
    given: float = 0.0
    """When it was given a message while idle (monotonic)."""
    overdue: float | None = None
    """Start time of the sample that was seen to be overdue."""

    def give(self, group: list[Job], message: bytes) -> None:
        """Send samples to the worker.

        Raises:
            Closed: if it is dead; the samples are still added to its jobs.
        """
        if not self.messages:
            self.given = time.monotonic()
        self.messages.append(group)
        self.channel.put(message)

    def finish(self) -> list[Job]:
        """Return the samples of the message that it has just answered."""
        group = self.messages.popleft()
        self.answered += len(group)
        self.given = time.monotonic()
        return group

    def jobs(self) -> list[Job]:
        """Return all samples that it was given and has not answered."""
        return [job for group in self.messages for job in group]

    def busy_since(self) -> float | None:
        """Return when it started its current sample, by its own clock; if it has not started, when it could have."""
        if not self.messages:
            return None
        begun = self.row[BEGUN]
        if begun > self.answered:
            return float(self.row[SINCE + (begun - 1) % 2] / 1e9)
        return self.given

    def current_job(self) -> Job | None:
        """Return the sample that it is working on: the one to blame when it hangs or dies."""
        begun, done, jobs = self.row[BEGUN], self.row[DONE], self.jobs()
        place = begun - 1 - self.answered
        return jobs[place] if begun > done and 0 <= place < len(jobs) else None

    def item(self) -> int | None:
        """Return the dataset item that it is reading for that sample, if known."""
        item = self.row[ITEM]
        return item if item >= 0 else None

    def traced(self) -> bool:
        """Return whether a debugger is attached to it."""
        try:
            with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as file:
                return any(line.startswith("TracerPid:") and line.split()[1] != "0" for line in file)
        except OSError:
            return False

    def ended(self) -> bool:
        """Return whether it has exited by itself."""
        return os.waitpid(self.pid, os.WNOHANG)[0] != 0

    def kill(self) -> None:
        """Kill it immediately."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def reap(self, *, at_once: bool) -> int | None:
        """Wait for its end. Return its exit code, negative for a signal; None if it does not die yet.

        Args:
            at_once: Kill it now. A worker that closed its end is about to exit by itself, and its exit code is worth
                knowing: it is killed only if that takes long.
        """
        self.channel.close()
        if at_once:
            self.kill()
        for turn in range(_PATIENCE):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if turn == _GRACE:
                self.kill()
            time.sleep(_PAUSE)
        return None


def exit_reason(status: int | None) -> str:
    """Describe how a process ended, for a message."""
    if status is None:
        return "closed its connection, and did not end when it was killed"
    if status >= 0:
        return f"ended its process (exit code {status})"
    often = ": probably out of memory" if -status == signal.SIGKILL else ""
    return f"killed its process (signal {-status}{often})"
