"""How many threads compute: as the recipe says, else as the machine allows; kept on resume, watched during training."""

import pytest
import torch

from vcycle.train import threads as module
from vcycle.train.run import RunFolder
from vcycle.train.threads import ThreadsWatch, slowdown, threads_to_use, use_threads
from vcycle.utils import cores as counting
from vcycle.utils.jsonl import JsonLines


@pytest.fixture
def machine(monkeypatch):
    """Makes a machine of so many cores, of which so many are idle, and where several threads take so much longer."""

    def make(cores, idle, ratio=0.6):
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(module, "cores", lambda: cores)
        monkeypatch.setattr(module, "_idle", lambda: idle)
        monkeypatch.setattr(module, "slowdown", lambda threads: ratio)

    return make


@pytest.mark.parametrize(
    ("cores", "idle", "workers", "local_ranks", "threads"),
    [
        (8, 8.0, 0, 1, 8),
        (8, 7.8, 2, 1, 6),
        (8, 8.0, 8, 1, 4),  # loaders wait where computing is slow
        (16, 16.0, 2, 4, 2),
        (16, 4.2, 0, 1, 4),
        (2, 0.1, 2, 1, 1),
        (4, None, 0, 1, 4),  # a system that does not tell
    ],
)
def test_idle_cores_are_shared_by_loaders_and_ranks(machine, cores, idle, workers, local_ranks, threads):
    machine(cores, idle)
    assert threads_to_use("auto", workers=workers, local_ranks=local_ranks) == threads


def test_one_thread_computes_where_several_are_slower_and_that_is_said(machine):
    machine(8, 8.0, ratio=12.0)
    said = []
    assert threads_to_use("auto", on_message=said.append) == 1
    assert said == ["using 1 thread: 8 threads are 12.0× slower here; run.threads sets another number"]
    said.clear()
    assert threads_to_use(8, on_message=said.append) == 8  # it is what was asked for
    assert said == [
        "8 threads are 12.0× slower than one here, as other programs use the cores: run.threads=1 is faster"
    ]


def test_a_busy_machine_is_told_of(machine):
    machine(8, 2.9)
    said = []
    assert threads_to_use("auto", on_message=said.append) == 3
    assert said == ["using 3 threads: other programs use 5 of 8 cores; run.threads sets another number"]


def test_the_environment_counts_more_than_the_machine_and_the_recipe_more_than_both(machine, monkeypatch):
    machine(8, 8.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    torch.set_num_threads(3)  # as torch does when it is loaded
    assert threads_to_use("auto", kept=5) == 3
    assert threads_to_use(2, kept=5) == 2


def test_a_resumed_run_keeps_its_number_where_there_are_as_many_cores(machine):
    machine(8, 2.0)
    assert threads_to_use("auto", kept=6) == 6
    assert threads_to_use("auto", kept=12) == 2


@pytest.fixture
def unused(monkeypatch):
    """Numbers of threads that are set and not used: on a busy machine, two take many times longer than one."""
    numbers = [torch.get_num_threads()]
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: numbers[-1])
    return numbers


def test_a_recipe_sets_the_threads_and_a_resume_keeps_them(machine, unused, training, make_training, tmp_path):
    def threads_of(run):
        return [line["threads"] for line in JsonLines(RunFolder(run).environment).read()]

    machine(8, 8.0)
    make_training("data.cache=24", "run.threads=3").run_until(1, tmp_path / "run")
    assert unused[-1] == 3
    machine(8, 1.0)  # others have come
    training.run_until(2, tmp_path / "run", resume=True)
    assert unused[-1] == 3
    make_training("data.cache=24", "run.threads=2").run_until(3, tmp_path / "run", resume=True)
    training.run_until(4, tmp_path / "run", resume=True)
    assert threads_of(tmp_path / "run") == [3, 3, 2, 2]
    training.run_until(1, tmp_path / "other")
    assert threads_of(tmp_path / "other") == [1]


@pytest.mark.parametrize("text", ["", "{}\n", '{"threads": "many"}\n', "damaged\n{}\n"])
def test_a_run_without_a_record_of_threads_can_be_resumed(machine, tmp_path, text):
    machine(4, 4.0)
    RunFolder(tmp_path).environment.write_text(text)
    assert use_threads("auto", resumed=RunFolder(tmp_path)) == 4


def test_measuring_threads_changes_neither_their_number_nor_random_numbers():
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    assert slowdown(3) > 0
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), state)


def watched(ratio, *, threads=4):
    said, measured = [], []

    def measure(count):
        measured.append(count)
        return ratio

    watch = ThreadsWatch(threads, resume="vcycle train run --resume", on_message=said.append, measure=measure)
    return watch, said, measured


def test_a_process_that_does_not_get_its_cores_is_told_once_that_one_thread_is_faster():
    watch, said, measured = watched(12.0)
    for _ in range(1000):
        watch.count(1.0, 0.9)
    assert said == [
        "4 threads are 12.0× slower than one here, as other programs use the cores: "
        "`vcycle train run --resume run.threads=1` is faster"
    ]
    assert measured == [4]


def test_nothing_is_measured_where_threads_are_busy_and_little_where_they_are_not_slower():
    watch, said, measured = watched(12.0)
    for _ in range(1000):
        watch.count(1.0, 3.0)
    assert measured == said == []
    watch, said, measured = watched(0.7)
    for _ in range(1000):
        watch.count(1.0, 0.5)
    assert said == []
    assert 0 < len(measured) < 5
    watch, _, measured = watched(12.0, threads=1)
    for _ in range(1000):
        watch.count(1.0, 0.1)
    assert measured == []


def test_the_quota_of_a_container_counts_as_cores(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("0::/a/b\n")
    (tmp_path / "fs/a/b").mkdir(parents=True)
    assert counting._quota(tmp_path / "fs", own) is None
    (tmp_path / "fs/a/b/cpu.max").write_text("max 100000\n")
    assert counting._quota(tmp_path / "fs", own) is None
    (tmp_path / "fs/a/cpu.max").write_text("250000 100000\n")
    assert counting._quota(tmp_path / "fs", own) == 2.5
    (tmp_path / "fs/cpu/a/b").mkdir(parents=True)
    own.write_text("4:cpu,cpuacct:/a/b\n")
    (tmp_path / "fs/cpu/a/b/cpu.cfs_quota_us").write_text("150000\n")
    (tmp_path / "fs/cpu/a/b/cpu.cfs_period_us").write_text("100000\n")
    assert counting._quota(tmp_path / "fs", own) == 1.5
    assert counting.cores() >= 1


def test_idle_cores_are_counted_from_the_systems_ticks(monkeypatch):
    ticks = iter([{0: (100, 50), 1: (100, 50)}, {0: (120, 70), 1: (120, 55)}])
    monkeypatch.setattr(counting, "_times", lambda: next(ticks))
    monkeypatch.setattr(counting.os, "sched_getaffinity", lambda _: {0, 1})
    assert counting.idle_cores(0.0) == pytest.approx(1.25)
    monkeypatch.setattr(counting, "_times", lambda: None)
    assert counting.idle_cores(0.0) is None


def test_the_systems_ticks_are_read(tmp_path):
    (tmp_path / "stat").write_text("cpu 1 2 3 4 5 6 7 8 9 10\ncpu1 10 0 10 70 10 0 0 0 0 0\nintr 1 2\n")
    assert counting._times(tmp_path / "stat") == {1: (100, 80)}
    assert counting._times(tmp_path / "none") is None
