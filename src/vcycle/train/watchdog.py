"""A training that stands still says where: at which step, waiting for what, and in which lines of code.

It is not ended: what it waits for may come back. Said is what a user needs to find out what does not.
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

DATA = "waits for data: does the disk or the network that the videos lie on answer?"
COMPUTING = "computes, or waits for the device or, where there are several, for another rank."
OTHERS = "waits for the other ranks: what do they say?"
EVALUATING = "evaluates, and waits for data or the device."
SAVING = "writes to the run's folder: does its disk, or the network that it lies on, answer?"

_STDERR = 2


def trying(cell: BatchShape) -> str:
    """What it does while a batch shape is tried."""
    return f"tries whether {cell} fits into memory, and waits for the device or, where there are several, another rank."


def preparing(cell: BatchShape) -> str:
    """What it does while a batch shape is compiled or recorded."""
    return f"makes {cell} ready: compiling may take minutes for each batch shape."


class Watchdog:
    """Watches over a training's signs of life from a thread of its own.

    The thread needs Python's global lock: code that keeps it for itself while it stands still is not seen.
    """

    def __init__(self, folder: Path, plan: Plan, *, minutes: float | None, rank: int = 0, world: int = 1) -> None:
        """Prepare to watch.

        Args:
            folder: The run's; what is said on standard error is also written there.
            plan: What is trained.
            minutes: How long nothing may happen; None watches nothing.
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
        """Give a sign of life, and say what comes next.

        Args:
            step: Steps done.
            doing: Words such as `DATA`.
        """
        self._at, self._doing = step, doing
        self._since = time.monotonic()

    @contextmanager
    def fed_by(self, *models: nn.Module) -> Iterator[None]:
        """Within: each forward pass of a model is a sign of life."""

        def live(*_: Any) -> None:
            self._since = time.monotonic()

        hooks = [model.register_forward_pre_hook(live) for model in models]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def look(self, now: float) -> float:
        """Speak up if it is time to, once for each standstill: how many seconds there are until the next look."""
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
            f"{self._who}nothing has happened for {seconds / 60:.3g} min, {where}: it {self._doing} "
            "It keeps waiting; every thread is here:\n"
        )
        # Standard error first, and by its number: the folder's disk may be what does not answer.
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
            self._thread.join(timeout=1)  # it may be writing to what does not answer
