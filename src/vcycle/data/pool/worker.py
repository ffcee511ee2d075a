"""A worker process: loads samples one after another, records when it starts each, and ends with its supervisor."""

import contextlib
import os
import pickle
import random
import signal
import socket
import sys
import time

import numpy.random
import torch
from torch import Tensor

from vcycle.data.dataset import trying
from vcycle.data.pool.channel import Channel, Closed
from vcycle.data.pool.items import encode, pack_error
from vcycle.data.pool.work import Spent, Work
from vcycle.utils.processes import end_with_parent

__all__ = ["BEGUN", "COLUMNS", "DONE", "IGNORED", "ITEM", "SINCE", "run"]

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals handled by the main process, which often reach its children too."""

COLUMNS = 8
"""Numbers in a worker's row of the table shared with the supervisor; one cache line."""
BEGUN, DONE, SINCE, ITEM = 0, 1, 2, 4
"""Columns: samples started and samples done; from ``SINCE`` on, alternating, their start times (monotonic ns); the
dataset item read for the current sample, -1 if unknown."""


def run(end: socket.socket, row: memoryview, memory: Tensor, work: Work, seed: list[int]) -> None:
    """Load samples as the supervisor asks, until it closes its end.

    Args:
        end: The socket to the supervisor.
        row: This worker's row of the shared table, as int64.
        memory: All of the shared memory.
        work: The work to load.
        seed: Seeds the global generators, so that unkeyed draws of a dataset differ between workers.
    """
    _settle(seed)
    trying.set(lambda item: row.__setitem__(ITEM, item))
    channel = Channel(end)
    begun = 0
    try:
        while True:
            channel.wait()
            for message in channel.take():
                clock = _Clock()
                outcomes = []
                jobs = pickle.loads(message)
                for first, size, task in jobs:
                    row[SINCE + begun % 2] = time.monotonic_ns()
                    row[ITEM] = -1
                    begun += 1
                    row[BEGUN] = begun
                    outcomes.append(_load(work, task, memory[first : first + size]))
                    row[DONE] = begun
                channel.put(pickle.dumps((outcomes, clock.spent(len(jobs))), pickle.HIGHEST_PROTOCOL))
                channel.send_all()
    except Closed:
        return


def _load(work: Work, task: object, slot: Tensor) -> tuple[bool, bytes, int]:
    """Return whether loading succeeded, the sample or the error, and the slot size in bytes that it needs."""
    try:
        return True, *encode(work.load(task, slot), slot)
    except BaseException as error:  # even sys.exit() in a dataset is reported to the main process
        return False, pack_error(error, work.name(task)), 0


def _settle(seed: list[int]) -> None:
    end_with_parent()
    # Workers run in parallel: more than one thread in each would compete for the cores.
    torch.set_num_threads(1)
    torch.default_generator.manual_seed(seed[0])
    numpy.random.seed(seed[1])
    random.seed(seed[2])


class _Clock:
    """Measures wall-clock time, CPU time and time spent waiting for the CPU."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time(), _queued()

    def spent(self, samples: int) -> Spent:
        wall, cpu, queued = self._start
        return Spent(
            samples=samples,
            seconds=time.perf_counter() - wall,
            cpu_seconds=time.process_time() - cpu,
            queued_seconds=_queued() - queued,
        )


def _queued() -> float:
    """Return the seconds that this process was ready but not running; 0 if the kernel does not count them."""
    try:
        with open("/proc/self/schedstat", "rb", buffering=0) as file:
            return int(file.read(64).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def leave(code: int) -> None:
    """Exit a forked process without its parent's exit handlers, but with its output flushed."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
