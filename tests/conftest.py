"""What all tests share: one thread for arithmetic, steady property tests, the real videos where they are."""

import contextlib
import gc
import multiprocessing
import os
import pickle
import queue
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, settings

# Read when the libraries load, which is after this file; child processes inherit them. One thread gives the
# same results on every machine, and the small arrays of tests lose nothing by it.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# xdist sets the width of a terminal that is not there, a run in the background ignores Ctrl-C, and one under nohup
# ignores SIGHUP. The commands that tests start would inherit all three.
os.environ.pop("COLUMNS", None)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# No deadline, as the machine may be busy; the same examples on every run.
settings.register_profile("steady", max_examples=60, deadline=None, derandomize=True, database=None)
settings.load_profile("steady")
# For mutation testing (`[tool.mutmut]`), which needs to know that a test fails but not the simplest example.
settings.register_profile(
    "mutants", settings.get_profile("steady"), phases=[Phase.explicit, Phase.generate], max_examples=10
)

# Frames that FFmpeg has resized hold its threads: a forked process that collected those of this one would wait forever
# for these threads, which it does not have.
os.register_at_fork(after_in_child=gc.freeze)

PATIENCE = 480.0
"""Seconds that a test waits for what another process does on a busy machine; its own time limit is longer."""

FORKED = "with a GPU, neither CUDA nor autograd's threads survive a fork"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of a GPU where there is none, and those that fork this process where there is one."""
    marked = [(item, name) for item in items for name in ("gpu", "forked") if item.get_closest_marker(name)]
    if marked:
        import torch

        why = {"forked": FORKED} if torch.cuda.is_available() else {"gpu": "there is no GPU"}
        for item, name in marked:
            if name in why:
                item.add_marker(pytest.mark.skip(reason=why[name]))


def pytest_collection_finish() -> None:
    """Leave what is loaded by now out of every later search for garbage, which otherwise takes half a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begin each test at the same random numbers and with one thread, whichever tests its process has run before.

    A forked process that computes with several threads waits forever where its parent has done so.
    """
    random.seed(0)
    if "numpy.random" in sys.modules:  # one that a test imports itself begins at the same numbers by itself
        sys.modules["numpy.random"].seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        # Without a device, torch.manual_seed formats a stack for each kind of accelerator.
        (torch if torch.cuda.is_initialized() else torch.default_generator).manual_seed(0)
        if torch.get_num_threads() != (threads := int(os.environ["OMP_NUM_THREADS"])):
            torch.set_num_threads(threads)


@pytest.fixture
def own_models(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leaves the registries of models and layouts, `sys.path` and the imported modules as they were."""
    from vcycle.tasks.base import tasks
    from vcycle.tasks.models import models_of

    for task in ("recognition", "superresolution"):
        models_of(task).names()
        for registry in (models_of(task), tasks[task].layouts):
            monkeypatch.setattr(registry, "_values", dict(registry._values))
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    here = str(Path.cwd())
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(here):
            del sys.modules[name]


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Beside(NamedTuple):
    """What runs in another process."""

    process: Any
    errors: Path
    """What it has said on standard error so far."""


@pytest.fixture
def vcycle(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """The command in this process: its exit code, standard output and standard error."""
    from vcycle.cli.app import app
    from vcycle.console import process

    def run(*arguments: str | Path) -> Ran:
        capsys.readouterr()
        code = process.run(app, [str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def as_torchrun(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Ran]]:
    """Runs a function in processes that find each other as under torchrun, as each of them ended.

    They are forked from this process, as torch takes seconds to import.
    """
    import torch

    if torch.cuda.is_available():
        pytest.skip(FORKED)

    def run(count: int, function: Callable[[], int | None]) -> list[Ran]:
        folder = tmp_path_factory.mktemp("ranks")
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}

        def rank(number: int) -> None:
            os.environ.update(meeting, WORLD_SIZE=str(count), RANK=str(number), LOCAL_RANK=str(number))
            sys.stdout, sys.stderr = ((folder / f"{number}.{name}").open("w") for name in ("out", "err"))
            sys.exit(function())

        ranks = [multiprocessing.get_context("fork").Process(target=rank, args=(number,)) for number in range(count)]
        for each in ranks:
            each.start()
        try:
            for each in ranks:
                each.join()
        finally:
            for each in ranks:
                each.kill()
        return [
            Ran(each.exitcode, *((folder / f"{number}.{name}").read_text() for name in ("out", "err")))
            for number, each in enumerate(ranks)
        ]

    return run


@pytest.fixture
def vcycle_on(as_torchrun: Callable[..., list[Ran]]) -> Callable[..., list[Ran]]:
    """The command on several ranks, as each of them ended."""
    from vcycle.cli.app import app
    from vcycle.console import process

    return lambda count, *arguments: as_torchrun(count, lambda: process.run(app, [str(each) for each in arguments]))


@pytest.fixture
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Callable[[], Any]], Beside]]:
    """Runs a function in a process of its own that leads a process group, as a command does under a shell.

    It is forked from this process, as torch takes seconds to import. None of a group is left when the test has ended.
    """
    started = []

    def start(function: Callable[[], Any]) -> Beside:
        errors = tmp_path_factory.mktemp("beside") / "err"
        errors.touch()

        def work() -> None:
            os.setsid()
            for number, file in ((1, Path(os.devnull)), (2, errors)):
                with file.open("ab") as opened:
                    os.dup2(opened.fileno(), number)
            sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, closefd=False) for number in (1, 2))
            sys.exit(function())

        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        started.append(process)
        return Beside(process, errors)

    yield start
    for process in started:
        if process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()


@pytest.fixture
def vcycle_beside(beside: Callable[[Callable[[], Any]], Beside]) -> Callable[..., Beside]:
    """Starts the command in such a process."""
    from vcycle.cli.app import app
    from vcycle.console import process

    return lambda *arguments: beside(lambda: process.run(app, [str(argument) for argument in arguments]))


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., None]:
    """Waits until a condition holds, however long a busy machine takes to get there.

    What never happens fails the test before its own time is up, with what `said` gives. `meanwhile` is called after
    each look.
    """

    def wait(
        condition: Callable[[], object],
        said: Callable[[], str] = str,
        *,
        meanwhile: Callable[[], None] = lambda: None,
        every: float = 0.02,
    ) -> None:
        until = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < until, said()
            meanwhile()
            time.sleep(every)

    return wait


@pytest.fixture
def wait_for_steps(wait_until: Callable[..., None]) -> Callable[..., None]:
    """Waits until the run of a process has logged so many steps: at any moment after, the test may strike."""

    def wait(process: Any, folder: Path, steps: int, said: Callable[[], str] = str, *, every: float = 0.02) -> None:
        from vcycle.train.run import RunFolder

        log = RunFolder(folder).log

        def logged() -> bool:
            assert process.is_alive(), said()
            return log.exists() and log.read_bytes().count(b'"event": "step"') >= steps

        wait_until(logged, said, every=every)

    return wait


@pytest.fixture
def children() -> Callable[[int], list[int]]:
    """Lists the children of a process that live, without those that were there when the test began."""

    def living() -> dict[int, int]:
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(stat.parent.name)] = int(fields[1])
        return parents

    # An earlier test may have started what lasts, such as multiprocessing's resource tracker.
    before = {pid for pid, parent in living().items() if parent == os.getpid()}
    return lambda parent: [pid for pid, of in living().items() if of == parent and pid not in before]


@pytest.fixture
def processes(children: Callable[[int], list[int]]) -> Callable[[], set[int]]:
    """Lists this process's children, and theirs, that were not there when the test began."""

    def found() -> set[int]:
        mine = children(os.getpid())
        return {*mine, *(pid for child in mine for pid in children(child))}

    return found


@pytest.fixture
def overdue(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Called in a worker of a loader, lets the time of its current sample be up at once.

    So a loader may have a time-out that no good sample reaches on a busy machine, and no test waits for it.
    """
    from vcycle.data.pool.handle import Worker

    marks = tmp_path_factory.mktemp("overdue")
    busy_since = Worker.busy_since

    def since(worker: Worker) -> float | None:
        found = busy_since(worker)
        return found - 3600 if found is not None and (marks / str(worker.pid)).exists() else found

    monkeypatch.setattr(Worker, "busy_since", since)
    return lambda: (marks / str(os.getpid())).touch()


def _as_rank(function: Callable[..., Any], rank: int, world: int, meeting: Path, results: Any, arguments: Any) -> None:
    from torch import distributed

    try:
        distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
        results.put((rank, pickle.dumps(function(rank, world, *arguments))))
        results.close()
        results.join_thread()
        distributed.barrier()
        distributed.destroy_process_group()
    except BaseException as error:
        results.put((rank, error))
        raise


@pytest.fixture(scope="session")
def sharding() -> None:
    """Skips tests of sharded models where the installed PyTorch is older than `run.shard` accepts."""
    from vcycle.train.config import SHARDS_FROM
    from vcycle.utils.versions import older

    if (found := older("torch", SHARDS_FROM)) is not None:
        pytest.skip(f"run.shard needs torch {SHARDS_FROM} or newer, and this is torch {found}")


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Any]]:
    """Runs `function(rank, world, *arguments)` in as many processes that share a gloo group: what each gives."""
    import torch

    if torch.cuda.is_available():
        pytest.skip(FORKED)
    context = multiprocessing.get_context("fork")

    def run(world: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        results = context.Queue()
        meeting = tmp_path_factory.mktemp("ranks") / "meeting"
        ranks = [
            context.Process(target=_as_rank, args=(function, rank, world, meeting, results, arguments))
            for rank in range(world)
        ]
        for process in ranks:
            process.start()
        try:
            found: dict[int, Any] = {}
            until = time.monotonic() + PATIENCE
            while len(found) < world:
                dead = [process.exitcode for process in ranks if process.exitcode]  # before what it has sent is read
                try:
                    number, result = results.get(timeout=0.2)
                    found[number] = result
                except queue.Empty:
                    if dead:
                        raise ChildProcessError(f"a rank ended with {dead[0]}") from None
                    assert time.monotonic() < until
            failed = [found[rank] for rank in range(world) if isinstance(found[rank], BaseException)]
            if failed:
                raise failed[0]
            for process in ranks:
                process.join(30)
        finally:
            for process in ranks:
                process.kill()
        return [pickle.loads(found[rank]) for rank in range(world)]

    return run


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Find the folder of real videos, which is no part of the repository.

    It is ``VCYCLE_TEST_DATA`` or, without that, ``shared/data`` beside the repository.
    """
    named = os.environ.get("VCYCLE_TEST_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real videos at {folder}: set VCYCLE_TEST_DATA to their folder")
    return folder


@pytest.fixture(scope="session")
def shared_cases(shared_data: Path) -> Path:
    """Find the folder of small files that have failed, beside the real videos."""
    folder = shared_data.parent / "cases"
    if not folder.is_dir():
        pytest.skip(f"no small files at {folder}")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Leaves out `fsync`, for which a short training waits a third of its time: no test turns the power off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: os.fstat(descriptor) and None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _forked_workers() -> Iterator[None]:
    """Forks the processes that prepare and check files, as most of the time of fresh interpreters is their imports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vcycle.data.engines.local.CONTEXT", multiprocessing.get_context("fork"))
        yield


@pytest.fixture(scope="module")
def few_turns() -> Iterator[None]:
    """Lets comparisons time each shape of steps in two turns instead of five, which take half of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vcycle.bench.study._TURNS", 2)
        yield


@pytest.fixture
def fresh_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts those processes as they are in use, for tests of how they start and end."""
    from loky.backend import get_context

    monkeypatch.setattr("vcycle.data.engines.local.CONTEXT", get_context("loky"))


@pytest.fixture(scope="session")
def digit_videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of tiny H.264 files in four classes: 24 videos to train on, 8 each to validate and test. Read only."""
    from vcycle.tasks.recognition.digits import render_digits
    from vcycle.tasks.recognition.recipe import DigitsSection

    settings = DigitsSection(
        motions=("left", "right"), clips={"train": 6, "val": 2, "test": 2}, frames=12, size=24, digit_size=12
    )
    return render_digits(tmp_path_factory.mktemp("digits") / "set", settings)


@pytest.fixture
def held_elsewhere() -> Iterator[Callable[[Callable[[], AbstractContextManager[Any]]], tuple[Any, Any]]]:
    """Enters a context in another process, until it gets a message or is killed: the process, and a pipe to it."""
    fork = multiprocessing.get_context("fork")
    started = []

    def hold(context: Callable[[], AbstractContextManager[Any]]) -> tuple[Any, Any]:
        mine, theirs = fork.Pipe()

        def work() -> None:
            with context():
                theirs.send("entered")
                theirs.recv()

        process = fork.Process(target=work)
        process.start()
        theirs.close()
        started.append(process)
        assert mine.recv() == "entered"
        return process, mine

    yield hold
    for process in started:
        process.kill()
        process.join()
