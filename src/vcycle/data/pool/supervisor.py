"""The supervisor: hands samples to workers in stream order, and restarts workers that hang or die.

It is forked from the main process once, when an iteration starts, has one thread, and is the only process that forks
workers. So a worker can be restarted at any moment without forking a process that has threads, locks and a device.
"""

import contextlib
import gc
import mmap
import os
import pickle
import secrets
import select
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass, field

from vcycle.data.pool import worker as worker_process
from vcycle.data.pool.arena import Arena
from vcycle.data.pool.channel import Channel, Closed, pair
from vcycle.data.pool.handle import Job, Worker, exit_reason
from vcycle.data.pool.items import pack_error
from vcycle.data.pool.work import Spent, Work
from vcycle.errors import DataError

__all__ = ["BATCH", "END", "ERROR", "serve"]

BATCH, ERROR, END = b"B", b"X", b"E"
"""Kind of a message to the main process, in its first byte."""

_TICK = 0.25
"""Seconds between checks of the workers' time."""
_STOPPED = 2.0
"""A tick that is late by this many seconds shows that this process was stopped, and perhaps its workers too."""
_LOSSES = 16
"""Maximum number of workers lost in a row without a sample loaded."""
_MESSAGE = 0.004
"""Seconds of work per message: quick samples are sent in groups."""
_GROUP = 32
_GRACE = 1.0
"""Seconds workers may take to finish their current sample when loading ends."""


@dataclass(slots=True, eq=False)
class _Batch:
    """A batch being filled."""

    block: int
    room: int
    """Maximum size of a sample in bytes."""
    size: int
    """Size of a sample's slot in bytes."""
    results: list[bytes]
    left: int
    """Number of samples still missing."""
    spent: Spent = field(default_factory=Spent)
    error: tuple[int, bytes] | None = None
    """The first sample that raised, and its error."""


@dataclass(slots=True)
class _Queue:
    """Samples that are not assigned yet, and their batches."""

    jobs: deque[Job] = field(default_factory=deque)
    batches: deque[_Batch] = field(default_factory=deque)


def serve(end: socket.socket, arena: Arena, work: Work, *, workers: int, timeout: float, parent: int) -> None:
    """Run the supervisor, until the main process closes its end.

    Args:
        end: The socket to the main process.
        arena: The shared memory, all of it free.
        work: The work to load.
        workers: Number of worker processes.
        timeout: Timeout of a sample in seconds.
        parent: Process id of the main process.
    """
    code = 1
    try:
        for number in worker_process.IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, worker_process.IGNORED)
        gc.freeze()  # keeps inherited pages shared with the main process: the collector does not write to them
        _Supervisor(Channel(end), arena, work, workers=workers, timeout=timeout, parent=parent).run()
        code = 0
    finally:
        worker_process.leave(code)


class _Supervisor:
    def __init__(self, main: Channel, arena: Arena, work: Work, *, workers: int, timeout: float, parent: int) -> None:
        self._main, self._arena, self._work = main, arena, work
        self._timeout, self._parent = timeout, parent
        self._free = deque(range(arena.blocks))
        self._todo = iter(work.batches())
        self._queue = _Queue()
        table = memoryview(mmap.mmap(-1, workers * worker_process.COLUMNS * 8)).cast("q")
        columns = worker_process.COLUMNS
        self._rows = [table[number * columns : (number + 1) * columns] for number in range(workers)]
        self._workers: dict[int, Worker] = {}  # by row
        self._dying: list[int] = []
        self._sizes: dict[int, int] = {}  # actual sample size in bytes, by maximum size
        self._losses = 0
        self._pace = 0.0  # recent seconds per sample
        self._seen = time.monotonic()
        self._gaps: deque[tuple[float, float]] = deque(maxlen=16)  # when and for how long this process was stopped
        self._done = False

    def run(self) -> None:
        try:
            self._serve()
        except Closed:
            pass
        except Exception as error:
            self._tell(ERROR + pack_error(error, "nothing"))
        finally:
            self._end_workers()

    def _serve(self) -> None:
        while True:
            if not self._done:
                self._take_batches()
                self._hand_out()
                self._deliver()
            self._wait()
            self._watch()

    # Work in and out --------------------------------------------------------------------------------

    def _take_batches(self) -> None:
        """Start batches while there are free blocks."""
        while self._free:
            tasks = next(self._todo, None)
            if tasks is None:
                return
            room = self._work.sample_bytes(tasks[0]) if tasks else 0
            batch = _Batch(
                block=self._free.popleft(),
                room=room,
                size=self._sizes.get(room, room),
                results=[b""] * len(tasks),
                left=len(tasks),
            )
            self._queue.batches.append(batch)
            self._queue.jobs.extend(Job(batch=batch, place=place, task=task) for place, task in enumerate(tasks))

    def _hand_out(self) -> None:
        """Keep each worker busy with one message of samples, and another one queued."""
        jobs = self._queue.jobs
        for ahead in range(2):
            for row in range(len(self._rows)):
                if not jobs:
                    return
                found = self._workers.get(row)
                if found is None:
                    found = self._start(row)
                    if found is None:
                        continue
                if len(found.messages) <= ahead:
                    group = [jobs.popleft() for _ in range(min(self._group(), len(jobs)))]
                    try:
                        found.give(group, self._message(group))
                    except Closed:
                        self._lost(found)

    def _group(self) -> int:
        share = len(self._queue.jobs) // (2 * len(self._rows))
        return max(1, min(_GROUP, share, int(_MESSAGE / self._pace) if self._pace else 1))

    def _message(self, group: list[Job]) -> bytes:
        places = []
        for job in group:
            first = job.batch.block * self._arena.block_bytes + job.place * job.batch.size
            places.append((first, job.batch.size, job.task))
        return pickle.dumps(places, pickle.HIGHEST_PROTOCOL)

    def _deliver(self) -> None:
        """Send complete batches, in order."""
        batches = self._queue.batches
        while batches and not batches[0].left:
            batch = batches.popleft()
            if batch.error is not None:
                self._finish(ERROR + batch.error[1])
                return
            content = batch.block, batch.size, batch.results, batch.spent
            self._main.put(BATCH + pickle.dumps(content, pickle.HIGHEST_PROTOCOL))
        if not batches and self._free:  # then there was no batch to start either
            self._finish(END)

    def _finish(self, message: bytes) -> None:
        """Finish: nothing is left to load, but the main process may still read."""
        self._main.put(message)
        self._done = True
        self._queue.jobs.clear()
        self._queue.batches.clear()
        self._end_workers()

    def _tell(self, message: bytes) -> None:
        with contextlib.suppress(Closed):
            self._main.put(message)
            self._main.send_all()

    # Events ------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Wait for a message or a tick, and handle it."""
        poll = select.poll()
        poll.register(self._main.fileno(), select.POLLIN | (select.POLLOUT if self._main.unsent else 0))
        by_descriptor = {}
        for found in self._workers.values():
            by_descriptor[found.channel.fileno()] = found
            poll.register(found.channel.fileno(), select.POLLIN | (select.POLLOUT if found.channel.unsent else 0))
        events = poll.poll(_TICK * 1000)
        now = time.monotonic()
        late = now - self._seen - _TICK
        self._seen = now
        if late > _STOPPED:
            self._gaps.append((now, late))
        for descriptor, _ in events:
            if descriptor == self._main.fileno():
                for message in self._main.take():
                    self._free.append(int.from_bytes(message, "little"))
                self._main.flush()
            else:
                self._answer(by_descriptor[descriptor])

    def _answer(self, found: Worker) -> None:
        try:
            for message in found.channel.take():
                outcomes, spent = pickle.loads(message)
                group = found.finish()
                self._losses = 0
                each = spent.seconds / len(group)
                self._pace = 0.8 * self._pace + 0.2 * each if self._pace else each
                for job, (well, data, wanted) in zip(group, outcomes, strict=True):
                    self._learn(job.batch, wanted)
                    self._settle(job, data if well else None, b"" if well else data)
                group[0].batch.spent += spent
            found.channel.flush()
        except Closed:
            self._lost(found)

    def _learn(self, batch: _Batch, wanted: int) -> None:
        """Adapt the slot size to the actual samples, so a batch is contiguous. What does not fit is sent otherwise."""
        if 0 < wanted <= batch.room:
            self._sizes[batch.room] = max(wanted, self._sizes.get(batch.room, 0))

    def _settle(self, job: Job, data: bytes | None, error: bytes) -> None:
        batch = job.batch
        batch.left -= 1
        if data is not None:
            batch.results[job.place] = data
        elif batch.error is None or job.place < batch.error[0]:
            batch.error = job.place, error

    # Faults ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Check for workers that take too long, died unnoticed, or are not reaped yet."""
        if os.getppid() != self._parent:
            raise Closed
        self._dying = [pid for pid in self._dying if os.waitpid(pid, os.WNOHANG)[0] == 0]
        now = time.monotonic()
        for found in list(self._workers.values()):
            since = found.busy_since()
            if since is None:
                continue
            excused = sum(gap for when, gap in self._gaps if when > since)
            overdue = now - since - excused > self._timeout
            if overdue and found.overdue == since and not found.traced():
                self._lost(found, hung=True)
            found.overdue = since if overdue else None  # checked twice: the two numbers are not read atomically

    def _lost(self, found: Worker, *, hung: bool = False) -> None:
        """Handle a worker that died, or kill one that hangs; its samples go to others."""
        self._workers = {row: other for row, other in self._workers.items() if other is not found}
        suspect, item = found.current_job(), found.item()
        status = found.reap(at_once=hung)
        if status is None:
            self._dying.append(found.pid)
        what = f"did not finish within {self._timeout:g} s" if hung else exit_reason(status)
        self._losses += bool(found.messages)  # the end of an idle worker is no evidence
        if self._losses >= _LOSSES:
            last = f" at {self._work.name(suspect.task)}" if suspect is not None else ""
            raise DataError(
                f"{_LOSSES} workers in a row were lost before any of them loaded a sample; the last one{last} {what}"
            )
        if suspect is not None:
            self._try_again(suspect, what, item, hung=hung)
        # One by one for a while, the culprit last: else good samples in its group are never done.
        self._pace = _MESSAGE
        self._queue.jobs.extendleft(reversed([job for job in found.jobs() if job is not suspect]))

    def _try_again(self, suspect: Job, what: str, item: int | None, *, hung: bool) -> None:
        """Retry a sample that a worker was lost on, or load another in its place."""
        if not hung and not suspect.died:
            # The first loss may be the worker's fault; the second is the sample's.
            suspect.died = True
            self._queue.jobs.appendleft(suspect)
            return
        try:
            task = self._work.instead(suspect.task, what, item)
        except DataError as error:
            self._settle(suspect, None, pack_error(error, self._work.name(suspect.task)))
            return
        self._queue.jobs.appendleft(Job(batch=suspect.batch, place=suspect.place, task=task))

    # Workers -----------------------------------------------------------------------------------------

    def _start(self, row: int) -> Worker | None:
        numbers = self._rows[row]
        for column in range(len(numbers)):
            numbers[column] = 0
        seed = [secrets.randbits(32) for _ in range(3)]
        channel, theirs = pair()
        try:
            pid = os.fork()
        except OSError as error:
            channel.close()
            theirs.close()
            if self._workers:
                return None  # the others continue; retried later
            raise DataError(f"cannot start a worker process: {error.strerror}; lower data.workers") from None
        if pid == 0:
            code = 1
            try:
                worker_process.run(theirs, numbers, self._arena.bytes, self._work, seed)
                code = 0
            finally:
                worker_process.leave(code)
        theirs.close()
        found = self._workers[row] = Worker(pid=pid, channel=channel, row=numbers)
        return found

    def _end_workers(self) -> None:
        """Let workers finish their current sample for a moment, then kill them."""
        left = list(self._workers.values())
        self._workers = {}
        for found in left:
            found.channel.close()
        until = time.monotonic() + _GRACE
        while left and time.monotonic() < until:
            left = [found for found in left if not found.ended()]
            if left:
                time.sleep(0.002)
        for found in left:
            found.kill()
        for found in left:
            found.reap(at_once=True)
