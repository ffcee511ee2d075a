"""Progress: by work, so that the time left knows that later grids cost more."""

import io

import pytest
from rich.console import Console

from vcycle.console import output, progress
from vcycle.plan import Baseline, RampWarmup, multigrid
from vcycle.train.outcome import StepReport

PLAN = multigrid(
    Baseline(batch=8, frames=8, size=32, clips=100, epochs=20, lr=0.1, warmup=RampWarmup(length=10, start_lr=0.01))
)


def report(index):
    step = PLAN[index]
    work = progress.work_before(PLAN, index + 1) - progress.work_before(PLAN, index)
    return StepReport(step=step, work=work, data_seconds=0.0, seconds=0.1, loss=0.8375)


def test_the_work_before_a_step_is_the_sum_of_its_predecessors():
    one = [step.batch * step.shape.voxels / PLAN.baseline_shape.voxels for step in PLAN]
    for index in range(len(PLAN) + 1):
        assert progress.work_before(PLAN, index) == pytest.approx(sum(one[:index]))


@pytest.fixture
def terminal(monkeypatch):
    """A terminal that remembers what was shown."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown = Terminal()
    console = Console(file=shown, force_terminal=True, width=120)
    monkeypatch.setattr(output, "errors", console)
    monkeypatch.setattr(progress, "errors", console)
    return shown


def test_a_bar_starts_where_an_earlier_process_stopped(terminal):
    half = len(PLAN) // 2
    with progress.progress() as bar:
        bar.begin("long+short", PLAN)
        bar.step(report(half))
        training = bar._training
        assert training.done == pytest.approx(progress.work_before(PLAN, half + 1))
        assert training.total == pytest.approx(PLAN.work())
        bar.end()


def test_a_bar_shows_other_work_too(terminal):
    with progress.progress() as bar:
        for done in range(3):
            bar.count("decoding", done + 1, 3)
    assert "decoding" in terminal.getvalue()


def test_without_a_terminal_a_line_is_written_now_and_then(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with progress.progress() as lines:
        lines.count("decoding train videos once", 1, 9)
        lines.begin("long+short", PLAN)
        for index in range(len(PLAN)):
            now += 5
            lines.step(report(index))
        lines.end()
    written = capsys.readouterr().err.splitlines()
    assert len(written) == (len(PLAN) - 1) * 5 // 30
    assert written[0].startswith("long+short: ")
    step = PLAN[5]
    shape = f"{step.batch}×{step.shape.frames}×{step.shape.size}²"
    assert f"of the work  step 6/{len(PLAN)}  loss 0.838  lr 0.339  {shape}  320 clips/s  about " in written[0]
    done = progress.work_before(PLAN, len(written) * 6) / PLAN.work()
    assert written[-1].startswith(f"long+short: {done:.0%} of the work  step {len(written) * 6:,}/")


def test_the_time_left_counts_work_and_not_steps(capsys, monkeypatch):
    # Every step takes as long as its work: the estimate is right from the first line on.
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with progress.progress() as lines:
        lines.begin("long+short", PLAN)
        for index in range(len(PLAN) // 3):
            now += 10 * report(index).work
            lines.step(report(index))
    left = 10 * (PLAN.work() - progress.work_before(PLAN, len(PLAN) // 3))
    last = capsys.readouterr().err.splitlines()[-1]
    minutes, seconds = last.partition("about ")[2].split()[0], last.partition(" min ")[2].split()[0]
    assert int(minutes) * 60 + int(seconds) == pytest.approx(left, abs=31)


def test_work_of_the_same_name_is_timed_anew(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with progress.progress() as lines:
        for clock, done in ((0.0, 1), (40.0, 2), (80.0, 3), (1000.0, 1), (1040.0, 2)):
            now = clock
            lines.count("preparing", done, 3)
    written = capsys.readouterr().err.splitlines()
    assert written[-2:] == ["preparing: 1 of 3", "preparing: 2 of 3, about 40 s left"]


@pytest.mark.parametrize(("seconds", "words"), [(7.4, "7 s"), (61, "1 min 01 s"), (3720, "1 h 02 min")])
def test_durations_are_short(seconds, words):
    assert progress._duration(seconds) == words


def test_numbers_that_are_not_finite_become_null(capsys):
    output.print_json({"loss": float("nan"), "list": [1.0, float("inf")]})
    assert capsys.readouterr().out == '{"loss": null, "list": [1.0, null]}\n'
