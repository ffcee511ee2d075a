"""Processor time of a training in a process of its own, and of the processes that it starts, from Linux's /proc.

Trainings are forked, so that one process imports what they need. A training waits after some steps until it is told to
go on. What it has loaded ahead is counted once: processor time is read when all its processes sleep, and they have then
loaded as far ahead as they do.
"""

import multiprocessing
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Process", "Spent", "ffmpeg_of_pyav"]

_WAITING, _RESULT = "waiting", "ended"
_TICKS = os.sysconf("SC_CLK_TCK")
_OURS: list[Connection] = []
"""Ends of all trainings' connections."""
_QUIET = 10
"""Readings of sleeping processes in a row, 20 ms apart, until they count as idle."""


class Spent(NamedTuple):
    """Seconds of a part of a training."""

    main: float
    """Processor time of the training's own process."""
    loading: float
    """Processor time of the processes that it has started: workers."""
    wall: float
    """By the clock."""

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(*(mine - its for mine, its in zip(self, other, strict=True)))


class _Stat(NamedTuple):
    """What /proc tells of a process."""

    parent: int
    own: float
    waited_for: float
    """Processor time of its children that have ended."""


@dataclass(frozen=True)
class Gate:
    """The training's end of the connection."""

    connection: Connection
    waiting: list[int]
    """The number of steps until it stops next."""

    def begin(self, about: Any = None) -> None:
        """Wait for the first part.

        Args:
            about: Becomes the `about` of the process.
        """
        self._stop((_WAITING, about))

    def after_step(self) -> None:
        """Count a step, and wait if it was a part's last."""
        self.waiting[0] -= 1
        if self.waiting[0] == 0:
            self._stop()

    def _stop(self, message: tuple[str, Any] = (_WAITING, None)) -> None:
        self.connection.send(message)
        try:
            self.waiting[0] = self.connection.recv()
        except EOFError:
            raise SystemExit from None  # nothing more is asked of this training


class Process:
    """A training in its own process."""

    def __init__(self, train: Callable[..., Any], *arguments: Any) -> None:
        """Start it; it waits before its first part.

        Args:
            train: Called in the process with a `Gate` and the arguments; what it returns is the result.
            arguments: Its other arguments.
        """
        ours, theirs = multiprocessing.Pipe()
        self._connection = ours
        _OURS.append(ours)
        self._process = multiprocessing.get_context("fork").Process(target=_run, args=(theirs, train, arguments))
        self._process.start()
        theirs.close()

    @cached_property
    def about(self) -> Any:
        """What the training tells before its first part; read it before that."""
        return self._expect(_WAITING)

    def go(self, steps: int, *, last: bool = False) -> Spent:
        """Run some steps, and return what they took once all processes are idle.

        Args:
            steps: Number of steps.
            last: Whether they are the training's last: it then runs to its end, which does not count.
        """
        before, began = self._spent(), time.perf_counter()
        self._connection.send(steps)
        self._expect(_WAITING)
        wall = time.perf_counter() - began
        spent = (self._spent() - before)._replace(wall=wall)
        if last:
            self._connection.send(0)
        return spent

    def result(self) -> Any:
        """What the training returns, after its end."""
        found = self._expect(_RESULT)
        self._process.join()
        return found

    def stop(self) -> None:
        """End the training where it waits."""
        self._connection.close()

    def _expect(self, kind: str) -> Any:
        try:
            told, found = self._connection.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"the training ended with exit code {self._process.exitcode}") from None
        if told != kind:
            raise RuntimeError(f"expected the training to be {kind}, it is {told}")
        return found

    def _spent(self) -> Spent:
        """The processor time so far, when all is idle."""
        pid = self._process.pid
        if pid is None:
            raise RuntimeError("the training has not started")
        quiet, last = 0, -1.0
        while True:
            table = _table()
            children = _descendants(pid, table)
            main = table[pid]
            loading = main.waited_for + sum(table[child].own + table[child].waited_for for child in children)
            asleep = all(_asleep(each) for each in (pid, *children))
            quiet = quiet + 1 if asleep and main.own + loading == last else 0
            if quiet == _QUIET:
                return Spent(main.own, loading, 0.0)
            last = main.own + loading
            time.sleep(0.02)


def _run(connection: Connection, train: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    for inherited in _OURS:
        inherited.close()  # or no training would notice that the process that started them has ended
    with redirect_stdout(sys.stderr):
        result = train(Gate(connection, [0]), *arguments)
    connection.send((_RESULT, result))


def _table() -> dict[int, _Stat]:
    """All processes."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            text = (folder / "stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue  # it has ended
        parts = text.rpartition(")")[2].split()
        own, waited_for = (sum(int(part) for part in parts[at : at + 2]) / _TICKS for at in (11, 13))
        found[int(folder.name)] = _Stat(int(parts[1]), own, waited_for)
    return found


def _descendants(pid: int, table: dict[int, _Stat]) -> list[int]:
    """The children of a process, and theirs."""
    own = [child for child, stat in table.items() if stat.parent == pid]
    return own + [each for child in own for each in _descendants(child, table)]


def _asleep(pid: int) -> bool:
    """Whether no thread of a process runs, or could."""
    states = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            states.append(path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0])
        except OSError:
            return False
    return all(state in "SZ" for state in states)


def ffmpeg_of_pyav(folder: Path) -> None:
    """Start this program again so that it finds PyAV's FFmpeg libraries by their usual names, unless it does.

    TorchCodec brings none.
    """
    paths = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    if str(folder) in paths:
        return
    import av

    folder.mkdir(parents=True, exist_ok=True)
    for library in (Path(av.__file__).parents[1] / "av.libs").glob("lib[as][vw]*.so.*"):
        name = re.sub(r"(-[0-9a-f]{8})?(\.so\.\d+).*", r"\2", library.name)  # libavutil-1a2b3c4d.so.60.26.102
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(library)
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join([str(folder), *filter(None, paths)])
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
