"""How long data is waited for, and what is said about it."""

import time

import pytest

from vcycle.data.pool.work import Spent
from vcycle.runs.train import config_of
from vcycle.tasks.recognition.init_weights import build_model
from vcycle.tasks.recognition.task import RECOGNITION
from vcycle.train import waiting
from vcycle.train.callbacks import Callbacks
from vcycle.train.outcome import Totals
from vcycle.train.run import RunFolder
from vcycle.train.trainer import fit
from vcycle.train.waiting import Waiting, cause_and_remedy
from vcycle.utils.jsonl import JsonLines


def spent(busy, cpu, queued=0.0, main=0.0):
    return Spent(samples=1, seconds=busy, cpu_seconds=cpu, queued_seconds=queued, main_seconds=main)


@pytest.mark.parametrize(
    ("cores", "idle", "cause", "remedy"),
    [
        (
            8,
            7.8,
            "the training process loads the data itself (data.workers is 0)",
            "data.workers=8 loads in parallel on idle cores",
        ),
        (8, 3.1, "(data.workers is 0)", "data.workers=3 loads in parallel on idle cores"),
        # One idle core is the training's own.
        (2, 1.0, "and there is no idle core to load in parallel", "`vcycle prepare` makes"),
        (2, 0.0, "and there is no idle core to load in parallel", "data.cache=SIDE"),
        (4, None, "(data.workers is 0)", "data.workers=4 loads in parallel"),
    ],
)
def test_idle_cores_are_named_only_if_there_are_some(cores, idle, cause, remedy):
    said = cause_and_remedy(spent(0, 0), seconds=10.0, waited=5.0, workers=0, cores=cores, idle=idle)
    assert said[0].endswith(cause)
    assert remedy in said[1]
    assert ("idle cores" in said[1]) == (idle is not None and idle > 1.5)


@pytest.mark.parametrize(
    ("what", "workers", "cores", "cause", "remedy"),
    [
        (spent(0, 0), 0, 8, "the training process loads the data itself", "data.workers=8"),
        (spent(19, 18), 2, 8, "decoding keeps 2 workers busy, and there are 8 cores", "data.workers=8"),
        (spent(19, 18), 2, 2, "decoding keeps all of 2 workers busy", "vcycle prepare"),
        (spent(9.5, 9), 1, 1, "the one worker", "data.cache=SIDE"),
        (spent(19, 2), 2, 8, "reading from the disk keeps 2 workers waiting", "data.workers=4"),
        (spent(19, 5, queued=13), 2, 2, "2 workers and the training share 2 cores", "vcycle prepare"),
        (spent(4, 4), 2, 8, "workers are idle 80% of the time", "data.prefetch"),
        (spent(4, 4, main=4), 2, 8, "the training process is slow to collate them", "vcycle.data.Sample"),
    ],
)
def test_the_cause_decides_the_remedy(what, workers, cores, cause, remedy):
    said = cause_and_remedy(what, seconds=10.0, waited=5.0, workers=workers, cores=cores)
    assert cause in said[0]
    assert remedy in said[1]


@pytest.mark.parametrize(
    ("workers", "idle", "cause", "remedy"),
    [
        (2, 5.8, "decoding keeps 2 workers busy, and 6 cores are idle", "data.workers=8"),
        (4, 1.2, "decoding keeps 4 workers busy, and 1 core is idle", "data.workers=5"),
        (4, 7.0, "decoding keeps 4 workers busy, and 4 cores are idle", "data.workers=8"),  # some idle in that moment
        (2, 0.3, "decoding keeps all of 2 workers busy, and no other core is idle", "vcycle prepare"),
    ],
)
def test_more_workers_are_advised_only_for_cores_that_nobody_uses(workers, idle, cause, remedy):
    busy = 9.5 * workers
    said = cause_and_remedy(spent(busy, busy), seconds=10.0, waited=5.0, workers=workers, cores=8, idle=idle)
    assert said[0] == cause
    assert remedy in said[1]


def test_ranks_of_a_machine_share_its_cores(long_training, monkeypatch):
    monkeypatch.setattr(waiting, "cores", lambda: 16)
    monkeypatch.setattr(waiting, "idle_cores", lambda: 8.0)
    said, _ = told(long_training, lambda step: 0.5, local_ranks=4)
    assert said[0].endswith("decoding keeps 2 workers busy, and 2 cores are idle; data.workers=4")


def told(training, waits, **options):
    """What is said when each step takes a second, and waits as a function of the step says for data."""
    said, totals = [], Totals()
    watch = Waiting(totals, training.plan, workers=2, on_slow=lambda _, *text: said.append(": ".join(text)), **options)
    for step in training.plan:
        watch.count(step, spent(2, 2), data_seconds=waits(step), seconds=1.0)
    return said, totals


@pytest.fixture
def long_training(make_training):
    return make_training("training.steps=960")


def test_a_stage_that_waits_says_so_once(long_training):
    number, slow = max(enumerate(long_training.plan.stages), key=lambda stage: stage[1].steps)
    said, _ = told(long_training, lambda step: 0.5 if step.stage == number else 0.05)
    assert len(said) == 1
    assert said[0].startswith(f"stage {slow.name!r} ({slow.base}) waits for data 50% of the time: decoding keeps ")


def test_no_stage_says_anything_below_a_tenth_or_in_its_first_steps(long_training, training):
    assert told(long_training, lambda step: 0.09)[0] == []
    assert told(training, lambda step: 0.9)[0] == []  # its stages have a few steps each


def test_the_first_step_of_a_stage_does_not_count(long_training):
    firsts = {stage: next(s.index for s in long_training.plan if s.stage == stage) for stage in range(10)}
    assert told(long_training, lambda step: 100.0 if step.index in firsts.values() else 0.0)[0] == []


def test_time_is_counted_by_batch_shape(long_training):
    _, totals = told(long_training, lambda step: 0.25 if step.batch > 8 else 0.0)
    assert sum(row["steps"] for row in totals.waiting.values()) == len(long_training.plan)
    for shape, row in totals.waiting.items():
        assert row["seconds"] == row["steps"]
        assert row["data_seconds"] == row["steps"] * (0.25 if int(shape.split("×")[0]) > 8 else 0.0)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_training_tells_and_totals_its_waiting(make_training, noise, tmp_path, workers, monkeypatch):
    class Slow(type(noise)):
        def __getitem__(self, request):
            time.sleep(0.005)
            return super().__getitem__(request)

    training = make_training(f"data.workers={workers}")
    for limit in ("_STEPS", "_SHARE", "_SECONDS"):  # the least wait is too long: a busy machine computes for long too
        monkeypatch.setattr(waiting, limit, 0)
    said = []
    fitted = fit(
        plan=training.plan,
        model=build_model(training.recipe, 4),
        dataset=Slow(),
        objective=RECOGNITION.objective(training.recipe, 4),
        config=config_of(training.recipe),
        run=RunFolder(tmp_path),
        callbacks=Callbacks(on_message=said.append),
    )
    assert sum(row["steps"] for row in fitted.waiting.values()) == fitted.steps
    assert sum(row["data_seconds"] for row in fitted.waiting.values()) == pytest.approx(fitted.data_seconds)
    assert set(fitted.waiting) == {f"{s.batch}×{s.frames}×{s.size}²" for s in training.plan.shapes}
    lines = [line for line in JsonLines(RunFolder(tmp_path).log).read() if line["event"] == "slow_data"]
    assert all(" waits for data " in line["message"] for line in lines)
    assert [f"{line['wait']}: {line['advice']}" for line in lines] == [line["message"] for line in lines]
    assert [line["stage"] for line in lines] == sorted({line["stage"] for line in lines})
    assert len(lines) > 1
    firsts = {line["advice"]: line["message"] for line in reversed(lines)}
    assert sorted(said) == sorted(firsts.values())  # the log has every stage; the console has each advice once
