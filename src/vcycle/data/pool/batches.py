"""The main process's side of a pool: an iterator of batches, in order."""

import contextlib
import os
import pickle
import signal
import sys
import time
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

from vcycle.data.forking import signals_wait
from vcycle.data.pool.arena import Arena
from vcycle.data.pool.channel import Channel, Closed, pair
from vcycle.data.pool.items import decode, unpack_error
from vcycle.data.pool.supervisor import BATCH, ERROR, serve
from vcycle.data.pool.work import Spent, Work
from vcycle.data.pool.worker import IGNORED
from vcycle.errors import DataError

__all__ = ["Batches", "InProcess", "PoolBatches"]

_ALIVE = 1.0
"""Seconds between checks that the supervisor is alive."""
_DEVICE = 0.005
"""Seconds between checks that a device is done with a block."""
_TO_END = 10.0
"""Seconds the supervisor may take to exit."""
_LENT = 2
"""Batches held without a copy: the current one, and the next while the current one is still referenced."""


class Batches(Iterator[Any]):
    """An iterator of batches. It ends early on ``close``, or when it is deleted."""

    spent = Spent()
    """Time spent loading the latest batch."""

    def __iter__(self) -> Self:
        """Return the iterator itself."""
        return self

    def close(self) -> None:
        """Stop, and end the worker processes."""


class InProcess(Batches):
    """Loads in the main process."""

    def __init__(self, work: Work) -> None:
        """Create the iterator for some work."""
        self._work = work
        self._todo = iter(work.batches())

    def __next__(self) -> Any:
        """Return the next batch."""
        tasks = next(self._todo)
        began = time.perf_counter()
        items = []
        try:
            for task in tasks:
                try:
                    items.append(self._work.load(task, None))
                except Exception as error:
                    error.add_note(f"while loading {self._work.name(task)}")
                    raise
            batch = self._work.collate(items, None)
        except BaseException:  # Ctrl-C included: the next batch would not be the plan's
            self.close()
            raise
        self.spent = Spent(samples=len(items), main_seconds=time.perf_counter() - began)
        return batch

    def close(self) -> None:
        """Stop the iteration."""
        self._todo = iter(())


class PoolBatches(Batches):
    """Loads in a pool of worker processes."""

    def __init__(self, work: Work, *, workers: int, timeout: float, prefetch: int, pin_memory: bool) -> None:
        """Start the processes.

        Args:
            work: The work to load.
            workers: Number of worker processes, at least 1.
            timeout: Timeout of a sample in seconds.
            prefetch: Number of samples to load ahead at the smallest batch size. Other sizes load ahead the
                same number of batches, at least two.
            pin_memory: Whether to pin the shared memory if there is a CUDA device.

        Raises:
            DataError: if memory or processes are not available.
        """
        self._work = work
        room = work.room()
        filling = max(2, 1 + -(-prefetch // max(room.fewest, 1)))
        self._arena = Arena(filling=filling, lending=_LENT + pin_memory, block_bytes=room.batch_bytes)
        self._channel, theirs = pair()
        with signals_wait(IGNORED):  # the child ignores them
            self._pid = _fork(self._arena, work, theirs, workers=workers, timeout=timeout, channel=self._channel)
            self._shut = weakref.finalize(self, _shut, self._pid, self._channel, os.getpid())
        self._messages: list[bytes] = []
        if pin_memory:
            self._arena.pin()  # after the fork: the children do not need it

    def __next__(self) -> Any:
        """Return the next batch, once it is complete.

        Raises:
            DataError: on a user error: in the data, or because workers keep dying.
            RuntimeError: if the dataset raises; includes the worker's traceback.
        """
        if not self._shut.alive:
            raise StopIteration
        try:
            message = self._next_message()
            if message[:1] == BATCH:
                return self._batch(message)
            if message[:1] == ERROR:
                raise unpack_error(message[1:])
        except BaseException:  # Ctrl-C included: a message may be half read
            self.close()
            raise
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Stop, and end the processes."""
        self._shut()

    def _next_message(self) -> bytes:
        self._give_back()
        while not self._messages:
            if self._channel.wait(_DEVICE if self._arena.awaits_device else _ALIVE):
                try:
                    self._messages = self._channel.take()[::-1]
                except Closed:
                    raise self._abandoned() from None
            elif _ended(self._pid) and not self._channel.wait(0):
                raise self._abandoned()
            self._give_back()  # a device may be done with a block by now, or the channel may have room again
        return self._messages.pop()

    def _give_back(self) -> None:
        with contextlib.suppress(Closed):  # the supervisor's last messages are still unread
            for block in self._arena.reclaim():
                self._channel.put(block.to_bytes(4, "little"))
            self._channel.flush()

    def _batch(self, message: bytes) -> Any:
        began = time.perf_counter()
        block, size, results, spent = pickle.loads(memoryview(message)[1:])
        memory = self._arena.lend(block, size * len(results))
        items = [decode(data, memory[place * size : (place + 1) * size]) for place, data in enumerate(results)]
        batch = self._work.collate(items, memory)
        self.spent = replace(spent, main_seconds=time.perf_counter() - began)
        return batch

    def _abandoned(self) -> DataError:
        return DataError("the process that supervises the workers was killed: resume the run")


def _fork(arena: Arena, work: Work, theirs: Any, *, workers: int, timeout: float, channel: Channel) -> int:
    parent = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()  # else both processes would print the buffered output
    try:
        with warnings.catch_warnings():
            # About threads and locks in the child: it uses nothing that other threads may hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            serve(theirs, arena, work, workers=workers, timeout=timeout, parent=parent)  # does not return
    except OSError as error:
        channel.close()
        raise DataError(f"cannot start a process to load data: {error.strerror}; lower data.workers") from None
    finally:
        theirs.close()
    return pid


def _ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:  # its exit status was already collected
        return True


def _shut(pid: int, channel: Channel, owner: int) -> None:
    """End the supervisor, and with it the workers."""
    if os.getpid() != owner:
        return
    channel.close()
    until = time.monotonic() + _TO_END
    pause = 0.0005
    while not _ended(pid):
        if time.monotonic() > until:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)  # the workers die with it
                os.waitpid(pid, 0)
            return
        time.sleep(pause)
        pause = min(2 * pause, 0.01)
