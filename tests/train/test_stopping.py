"""A signal ends a training at the edge of a step, which is saved: what resumes it cannot tell."""

import os
import signal
import threading

import pytest

from vcycle.data import VideoDataset
from vcycle.tasks.classification.evaluate import VideoEvaluator
from vcycle.train import stopping
from vcycle.train.stopping import Stop, Stopped, signals

EVERY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def strike(number=signal.SIGINT):
    os.kill(os.getpid(), number)


@pytest.fixture(scope="module")
def rarely(make_training):
    """The training, with validations, and no checkpoint but the last."""
    return make_training("data.cache=24", "run.save_every=100")


@pytest.fixture(scope="module")
def whole(rarely, record_of, tmp_path_factory):
    """What the run that is never interrupted does."""
    folder = tmp_path_factory.mktemp("whole")
    rarely.run(folder)
    return record_of(folder)


def interrupted(training, folder, **how):
    """Train until a signal ends it: which, and what was said."""
    said = []
    with pytest.raises(Stopped) as caught, signals(on_stop_request=lambda _: None):
        training.run(folder, on_message=said.append, **how)
    return caught.value.signal, said


def ends(work):
    """The signal by which some work, given the wishes to end, is ended."""
    with pytest.raises(Stopped) as caught, signals(on_stop_request=lambda _: None) as stop:
        work(stop)
    return caught.value.signal


def at_step(step, number=signal.SIGINT):
    return lambda report: strike(number) if report.step.index == step else None


@pytest.mark.parametrize(("step", "number"), [(0, EVERY[0]), (9, EVERY[1]), (28, EVERY[2])])
def test_a_signal_in_a_step_ends_the_run_after_it_and_resuming_gives_the_same_run(
    rarely, whole, record_of, newest, tmp_path, step, number
):
    ended, said = interrupted(rarely, tmp_path, on_step=at_step(step, number))
    assert ended == number
    assert said[-1] == f"stopped after step {step + 1} of 29; checkpoint saved"
    assert newest(tmp_path).step == step + 1
    rarely.run(tmp_path, resume=True)
    assert record_of(tmp_path) == whole


def cutting_short(monkeypatch, validation):
    """Make a signal come in the middle of the given validation, counted from 1."""
    original, begun = VideoEvaluator.each, []

    def cut(self, *args, **more):
        begun.append(1)
        if len(begun) == validation:
            strike()
        return original(self, *args, **more)

    monkeypatch.setattr(VideoEvaluator, "each", cut)


def test_a_validation_that_is_cut_short_is_done_by_the_resumed_run(
    rarely, whole, record_of, newest, tmp_path, monkeypatch
):
    cutting_short(monkeypatch, 3)
    interrupted(rarely, tmp_path)
    monkeypatch.undo()
    kept = newest(tmp_path)
    assert kept.totals["unevaluated"]
    assert len(kept.totals["curve"]) == 2
    rarely.run(tmp_path, resume=True)
    assert record_of(tmp_path) == whole


def test_the_last_validation_is_no_exception(rarely, whole, record_of, newest, tmp_path, monkeypatch):
    cutting_short(monkeypatch, len(whole["totals"]["curve"]))
    interrupted(rarely, tmp_path)
    assert newest(tmp_path).step == 29
    monkeypatch.undo()
    cutting_short(monkeypatch, 1)  # and once more
    interrupted(rarely, tmp_path, resume=True)
    monkeypatch.undo()
    rarely.run(tmp_path, resume=True)
    assert record_of(tmp_path) == whole


def test_precise_statistics_are_computed_again_as_well(make_training, record_of, newest, tmp_path, monkeypatch):
    training = make_training("data.cache=24", "run.save_every=100", "training.precise_bn=8")
    training.run(tmp_path / "whole")
    cutting_short(monkeypatch, 2)
    interrupted(training, tmp_path / "cut")
    monkeypatch.undo()
    training.run(tmp_path / "cut", resume=True)
    assert record_of(tmp_path / "cut") == record_of(tmp_path / "whole")


def test_a_wait_for_data_is_cut_short(rarely, whole, record_of, newest, tmp_path, monkeypatch):
    original, loaded = VideoDataset.__getitem__, []

    def load(self, request):
        loaded.append(request)
        if len(loaded) == 60:
            strike()
        return original(self, request)

    monkeypatch.setattr(VideoDataset, "__getitem__", load)
    _, said = interrupted(rarely, tmp_path)
    monkeypatch.undo()
    step = newest(tmp_path).step
    assert 0 < step < 29
    assert said[-1] == f"stopped after step {step} of 29; checkpoint saved"
    rarely.run(tmp_path, resume=True)
    assert record_of(tmp_path) == whole


def test_ctrl_c_twice_ends_at_once_and_saves_nothing(rarely, newest, tmp_path):
    steps = []

    def twice(report):
        strike()
        steps.append(report.step.index)
        strike()
        steps.append("too late")

    interrupted(rarely, tmp_path, on_step=twice)
    assert steps == [0]
    assert newest(tmp_path).step == 0


def test_a_scheduler_may_send_its_signal_more_than_once(rarely, newest, tmp_path):
    def thrice(report):
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM):
            strike(number)

    ended, _ = interrupted(rarely, tmp_path, on_step=thrice)
    assert ended == signal.SIGTERM
    assert newest(tmp_path).step == 1


def test_torchrun_hands_a_second_ctrl_c_on_as_sigterm(rarely, newest, tmp_path):
    def twice(report):
        strike()
        strike(signal.SIGTERM)

    ended, _ = interrupted(rarely, tmp_path, on_step=twice)
    assert ended == signal.SIGINT
    assert newest(tmp_path).step == 0


def test_outside_of_a_training_a_signal_ends_at_once():
    for number in EVERY:
        done = []
        assert ends(lambda _, number=number, done=done: [strike(number), done.append(0)]) == number
        assert done == []


def test_the_first_signal_that_has_to_wait_is_told_of():
    told = []

    def work(_):
        with signals(on_stop_request=told.append) as stop, stop.deferred():
            strike(signal.SIGUSR1)
            strike(signal.SIGTERM)

    assert ends(work) == signal.SIGUSR1
    assert told == [signal.SIGUSR1]


def test_what_several_processes_do_together_is_cut_short_by_none_of_them():
    done = []

    def work(stop):
        with stop.deferred(together=True):
            with stop.allowed():
                strike()
                done.append("the validation")
            assert stop.wanted

    ends(work)
    assert done == ["the validation"]


def test_a_wish_that_was_there_before_is_fulfilled_where_it_is_allowed():
    done = []

    def work(stop):
        with stop.deferred():
            strike()
            done.append("the step")
            with stop.allowed():
                done.append("the validation")

    ends(work)
    assert done == ["the step"]


def test_handlers_are_as_before_afterwards_and_those_of_others_are_never_touched(rarely, tmp_path):
    before = [signal.getsignal(number) for number in EVERY]
    with signals():
        assert [signal.getsignal(number) for number in EVERY] != before
    assert [signal.getsignal(number) for number in EVERY] == before
    rarely.run_until(1, tmp_path)  # a library's user calls fit without it
    assert [signal.getsignal(number) for number in EVERY] == before


def test_signals_that_are_to_be_ignored_stay_ignored():
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with signals() as stop:
            strike(signal.SIGUSR1)
            assert not stop.wanted
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_thread_has_no_handlers_to_set():
    found = []

    def work():
        with signals() as stop:
            found.append((stopping.current() is not stop, isinstance(stop, Stop)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(True, True)]
