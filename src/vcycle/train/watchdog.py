"""A watchdog for stalled training: reports the step, what training waits for, and where every thread is.

It does not end the run, because the storage or the peer that it waits for may come back.
"""

import faulthandler
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from torch import nn

from vcycle.plan import BatchShape, Plan

__all__ = ["COMPUTING", "DATA", "EVALUATING", "OTHERS", "SAVING", "Watchdog", "preparing", "trying"]

DATA = "is waiting for data: check the storage that holds the videos."
COMPUTING = "is computing, or waiting for the device or another rank."
OTHERS = "is waiting for the other ranks: check their output."
EVALUATING = "is evaluating, or waiting for data or the device."
SAVING = "is writing to the run folder: check the storage that holds it."

_STDERR = 2


def trying(cell: BatchShape) -> str:
    """The activity while a batch shape is tried."""
    return f"is trying whether {cell} fits into memory, or waiting for the device or another rank."


def preparing(cell: BatchShape) -> str:
    """The activity while a batch shape is compiled or recorded."""
    return f"is preparing {cell}: compiling may take minutes for each batch shape."


class Watchdog:
    """Monitors the progress of training from a separate thread.

    The thread needs Python's global lock: it cannot report code that stalls while holding the lock.
    """

    def __init__(self, folder: Path, plan: Plan, *, minutes: float | None, rank: int = 0, world: int = 1) -> None:
        """Create the watchdog; entering it starts its thread.

        Args:
            folder: The run folder. Reports go to standard error and to a file here.
            plan: The plan of the run.
            minutes: Minutes without progress before a report; None disables the watchdog.
            rank: This rank.
            world: The number of ranks.
        """
        self.file = folder / (f"stalls.{rank}.txt" if rank else "stalls.txt")
        self._plan = plan
        self._limit = None if minutes is None else 60 * minutes
        self._who = f"rank {rank} of {world}: " if world > 1 else ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="vcycle watchdog", daemon=True)
        self._at, self._doing, self._told = 0, COMPUTING, -1.0
        self._since = time.monotonic()

    def sign(self, step: int, doing: str) -> None:
        """Report progress, and name the next activity.

        Args:
            step: Steps done.
            doing: The activity, such as `DATA`.
        """
        self._at, self._doing = step, doing
        self._since = time.monotonic()

    @contextmanager
    def fed_by(self, *models: nn.Module) -> Iterator[None]:
        """Count each forward pass of a model as progress while the context is open."""

        def live(*_: Any) -> None:
            self._since = time.monotonic()

        hooks = [model.register_forward_pre_hook(live) for model in models]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def look(self, now: float) -> float:
        """Report a stall if there is one, once per stall; return the seconds until the next check."""
        since, limit = self._since, self._limit or 0.0
        if now - since < limit:
            return limit - (now - since)
        if since != self._told:
            self._told = since
            self._speak(now - since)
        return limit

    def _watch(self) -> None:
        pause = self._limit or 0.0
        while not self._ended.wait(pause):
            pause = self.look(time.monotonic())

    def _speak(self, seconds: float) -> None:
        where = f"after {self._at:,} of {len(self._plan):,} steps"
        if self._at < len(self._plan):
            step = self._plan[self._at]
            where += f" (next: {step.batch}×{step.shape.frames}×{step.shape.size}²)"
        text = (
            f"{self._who}no progress for {seconds / 60:.3g} min, {where}: training {self._doing} "
            "It keeps waiting; stack of every thread:\n"
        )
        # Standard error first, by its descriptor: the storage of the folder may be what does not respond.
        with suppress(OSError):
            os.write(_STDERR, text.encode())
            faulthandler.dump_traceback(_STDERR)
        with suppress(OSError), open(self.file, "a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            faulthandler.dump_traceback(file)

    def __enter__(self) -> Self:
        if self._limit is not None:
            self._since = time.monotonic()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1)  # it may be writing to storage that does not respond
