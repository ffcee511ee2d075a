import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import vcycle
from vcycle.data.engines import local
from vcycle.data.engines.jobs import Job, OutputError
from vcycle.data.engines.local import ProcessPool
from vcycle.errors import DataError

pytestmark = pytest.mark.usefixtures("fresh_interpreters")

FUNCTIONS = """
import os, signal, threading, time
from vcycle.data import VideoError
from vcycle.data.engines.jobs import OutputError

def work(task, tell):
    if task == "hang":
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            signal.pause()
    if task == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if task == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if task == "crash once" and not os.path.exists(__file__ + ".crashed"):
        open(__file__ + ".crashed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "exit":
        os._exit(3)
    if task == "bad video":
        raise VideoError("a/b.mp4", "no frames")
    if task == "mistake":
        raise KeyError("something\\nelse")
    if task == "disk":
        raise OutputError("out: No space left on device")
    if task == "not sent back":
        return threading.Lock()
    if task == "slow":
        step = 0
        while not os.path.exists(__file__ + ".enough"):
            time.sleep(0.05)
            tell(step / (step + 1))
            step += 1
    return task * 2
"""

UNGUARDED = """
from vcycle.data.engines.jobs import Job
from vcycle.data.engines.local import ProcessPool
from vcycle.data.prepare.extents import compare_extents

print("main", flush=True)
with ProcessPool(1) as engine:
    print(*[outcome.result for outcome in engine.run(compare_extents, [Job(payload=(), size=1)])])
"""


KILLED = """
import os, signal
from vcycle.data.engines import local
from vcycle.data.engines.jobs import Job
from vcycle.data.prepare.extents import compare_extents

local.wait = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
list(local.ProcessPool(1).run(compare_extents, [Job(payload=(), size=1)]))
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    (tmp_path / "pool_functions.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    import pool_functions

    return pool_functions.work


def run(work, payloads, *, workers=2, patience=20.0, **options):
    with ProcessPool(workers, patience=patience) as engine:
        # A large file may be silent for longer, so on a busy machine none is given up but those that never end.
        jobs = [Job(payload=payload, size=1 if payload in ("hang", "stop") else 2_000_000_000) for payload in payloads]
        outcomes = list(engine.run(work, jobs, **options))
        assert len(outcomes) == len(payloads)
        return {outcome.job.payload: outcome.cause or outcome.result for outcome in outcomes}


def workers_of(children):
    return [pid for pid in children(os.getpid()) if "popen_loky" in Path(f"/proc/{pid}/cmdline").read_text()]


def test_every_job_is_done_once(work, children):
    assert run(work, range(20), workers=3) == {number: 2 * number for number in range(20)}
    assert workers_of(children) == []


def test_a_result_that_cannot_be_sent_back_leaves_no_worker_behind(work, children):
    with pytest.raises(Exception, match="pickle"):
        run(work, ["not sent back"])
    assert workers_of(children) == []


def test_a_crash_a_hang_and_an_error_cost_their_own_job_alone(work):
    payloads = [1, "crash", 2, "hang", 3, "exit", 4, "bad video", 5, "mistake", 6, "stop", 7]
    assert run(work, payloads, patience=3.0) == {
        **{number: 2 * number for number in range(1, 8)},
        "crash": "its decoder killed the process (signal 11)",
        "hang": "its decoder made no progress for 3 s and was stopped",
        "stop": "its decoder made no progress for 3 s and was stopped",
        "exit": "its decoder killed the process (exit code 3)",
        "bad video": "no frames",
        "mistake": r"KeyError: 'something\nelse'",
    }


def test_a_job_whose_process_was_killed_is_tried_once_more(work):
    with ProcessPool(1) as engine:
        (outcome,) = engine.run(work, [Job(payload="crash once", size=1)])
    assert (outcome.result, outcome.cause) == ("crash oncecrash once", "")
    assert outcome.redone == "its decoder killed the process (signal 9, perhaps out of memory)"


def test_a_worker_that_dies_between_two_jobs_costs_nothing(work, children):
    with ProcessPool(1) as engine:
        assert [outcome.result for outcome in engine.run(work, [Job(payload=1, size=1)])] == [2]
        (worker,) = workers_of(children)
        os.kill(worker, signal.SIGKILL)
        assert [outcome.result for outcome in engine.run(work, [Job(payload=2, size=1)])] == [4]


def test_a_script_without_a_guard_of_its_main_part_can_prepare(tmp_path):
    (tmp_path / "script.py").write_text(UNGUARDED)
    environment = os.environ | {"PYTHONPATH": str(Path(vcycle.__file__).parents[1])}
    done = subprocess.run([sys.executable, tmp_path / "script.py"], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("main\nTrue\n", "")


def test_a_job_that_makes_progress_is_not_given_up(work, monkeypatch, tmp_path):
    now, shares = 0.0, []

    def listen(_, share):
        nonlocal now
        now += 1000  # its patience, and that for the start of an interpreter, are over two shares later
        shares.append(share)
        if len(shares) == 4:
            (tmp_path / "pool_functions.py.enough").touch()

    monkeypatch.setattr(local, "time", SimpleNamespace(monotonic=lambda: now))
    with ProcessPool(1, patience=1100) as engine:
        (outcome,) = engine.run(work, [Job(payload="slow", size=1)], listen)
    assert (outcome.result, outcome.cause) == ("slowslow", "")
    assert shares == sorted(shares)
    assert len(shares) >= 4


def test_the_first_job_of_a_worker_has_time_to_load(work):
    jobs = [
        Job(payload=1, size=2_000_000_000),
        Job(payload="hang", size=1, loading=600, by="worker"),  # by now it has loaded
        Job(payload="hang", size=1, loading=1, by="worker"),
    ]
    with ProcessPool(1, patience=1.0) as engine:
        causes = [outcome.cause for outcome in engine.run(work, jobs)]
    assert causes == ["", *(f"its worker made no progress for {seconds} s and was stopped" for seconds in (1, 2))]


def test_what_cannot_be_written_ends_the_work(work):
    with pytest.raises(OutputError, match="No space left"):
        run(work, [1, "disk", *range(2, 50)])


def test_an_interpreter_that_cannot_start_is_an_error_and_not_a_bad_file(work, monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(DataError, match=r"failed to start \(exit code 1\)"):
        run(work, [1])


def test_a_worker_whose_parent_is_killed_while_it_starts_ends_too(tmp_path, wait_until):
    mark = f"MARK={tmp_path}"
    environment = os.environ | {"PYTHONPATH": str(Path(vcycle.__file__).parents[1]), "MARK": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", KILLED], env=environment).returncode == -signal.SIGKILL

    def living():
        for file in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark.encode() in file.read_bytes():
                    yield file.parent.name
            except OSError:
                continue

    wait_until(lambda: not list(living()))
