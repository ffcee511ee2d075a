"""Training with workers that hang or crash, and with a training process that is killed."""

import faulthandler
import os
import signal
import time

import pytest

from vcycle.runs.train import config_of
from vcycle.tasks.recognition.init_weights import build_model
from vcycle.tasks.recognition.task import RECOGNITION
from vcycle.train.callbacks import Callbacks
from vcycle.train.run import RunFolder
from vcycle.train.trainer import fit
from vcycle.utils.jsonl import JsonLines


@pytest.fixture
def train_on(make_training, noise, overdue):
    """Trains on noise. For a while one item crashes its process, and another hangs."""
    training = make_training("data.workers=2", "data.timeout=1000", "run.save_every=3", "run.bad_limit=1")

    def train_on(folder, tries, **how):
        class Deadly(type(noise)):
            def __getitem__(self, request):
                if request.index in (5, 9) and 40 < request.position < 120:
                    (tries / f"{request.position}-{os.getpid()}-{time.monotonic_ns()}").touch()
                    faulthandler.disable()
                    if request.index == 5:
                        os.kill(os.getpid(), signal.SIGSEGV)
                    overdue()
                    time.sleep(3600)
                return super().__getitem__(request)

            def name(self, index):
                return f"noise {index}"

        tries.mkdir()
        return fit(
            plan=training.plan,
            model=build_model(training.recipe, 4),
            dataset=Deadly(),
            objective=RECOGNITION.objective(training.recipe, 4),
            config=config_of(training.recipe),
            run=RunFolder(folder),
            **how,
        )

    return train_on


def test_a_killed_run_goes_on_with_the_replacements_that_it_had_journalled(train_on, record_of, tmp_path):
    said = []
    whole = train_on(tmp_path / "whole", tmp_path / "tries-whole", callbacks=Callbacks(on_message=said.append))
    journal = list(JsonLines(RunFolder(tmp_path / "whole").bad_samples).read())
    assert {line["path"]: line["cause"] for line in journal} == {
        "noise 5": "killed its process (signal 11)",
        "noise 9": "did not finish within 1000 s",
    }
    assert whole.replaced == len({line["position"] for line in journal}) >= 4
    bad = [text for text in said if text.startswith("bad video")]
    assert sorted(bad) == [
        "bad video noise 5: killed its process (signal 11); another takes its place",
        "bad video noise 9: did not finish within 1000 s; another takes its place",
    ]

    def kill(report):
        if report.step.index == 22:
            os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if pid == 0:
        try:
            train_on(tmp_path / "run", tmp_path / "tries-first", callbacks=Callbacks(on_step=kill))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    written = {line["position"] for line in JsonLines(RunFolder(tmp_path / "run").bad_samples).read()}
    assert written
    train_on(tmp_path / "run", tmp_path / "tries-again", resume=True)
    tried_again = {int(file.name.split("-")[0]) for file in (tmp_path / "tries-again").iterdir()}
    assert not tried_again & written
    assert record_of(tmp_path / "run") == record_of(tmp_path / "whole")


def test_an_exception_in_training_ends_the_workers(train_on, tmp_path, processes):
    def stop(report):
        raise InterruptedError

    with pytest.raises(InterruptedError) as caught:
        train_on(tmp_path / "run", tmp_path / "tries", callbacks=Callbacks(on_step=stop))
    # The traceback still holds the loop's variables; its processes are gone all the same.
    assert caught.traceback
    assert processes() == set()
