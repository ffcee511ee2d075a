"""Loggers beside the JSON lines: the same numbers to each, on the first rank alone, and never the end of a training."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from vcycle.data.config import LoadingSection
from vcycle.errors import RecipeError, VcycleError
from vcycle.plan import Baseline, constant
from vcycle.tasks.recognition import Recognition, RecognitionMetrics
from vcycle.train.callbacks import Callbacks
from vcycle.train.config import RunSection, TrainConfig
from vcycle.train.ranks import Ranks
from vcycle.train.run import RunFolder
from vcycle.train.trainer import fit
from vcycle.utils.jsonl import JsonLines

PLAN = constant(Baseline(batch=4, frames=4, size=8, clips=24, steps=12, lr=0.02, bn_batch=2))
STEP = {"loss", "grad_norm", "lr", "frames", "size", "batch", "samples", "epoch", "clips_per_second"}


def found(value):
    return RecognitionMetrics(top1=value, top5=1.0, loss=0.5, samples=8, unreadable=0, protocol="none")


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 4)

    def forward(self, clips):
        return self.head(clips.mean((2, 3, 4)))


def train(noise, folder, *loggers, resume=False, callbacks=None, ranks=None, **run):
    torch.manual_seed(0)
    folder.mkdir(exist_ok=True)
    return fit(
        TrainConfig(run=RunSection(device="cpu", loggers=loggers, **run), loading=LoadingSection(workers=0)),
        plan=PLAN,
        model=Mean(),
        dataset=noise,
        objective=Recognition(classes=4),
        run=RunFolder(folder),
        validate=lambda model, device: found(0.5),
        evaluation=RecognitionMetrics,
        callbacks=callbacks or Callbacks(),
        resume=resume,
        ranks=ranks or Ranks(),
    )


@pytest.fixture
def recorded(monkeypatch):
    """A module of the user's, with a logger that remembers all."""
    module, runs = ModuleType("my_logging"), []

    class Recorder:
        def __init__(self, run):
            self.run, self.lines, self.closed = run, [], False
            runs.append(self)

        def log(self, numbers, step):
            self.lines.append((step, dict(numbers)))

        def close(self):
            self.closed = True

    module.Recorder = Recorder
    monkeypatch.setitem(sys.modules, "my_logging", module)
    return runs


def test_a_logger_of_the_users_own_is_given_every_step_and_validation(noise, tmp_path, recorded):
    train(noise, tmp_path, "my_logging:Recorder")
    (logger,) = recorded
    steps = [(step, numbers) for step, numbers in logger.lines if "loss" in numbers]
    assert [step for step, _ in steps] == list(range(12))
    for index, numbers in steps:
        assert numbers.keys() >= STEP
        assert (numbers["frames"], numbers["size"], numbers["batch"]) == (4, 8, 4)
        assert (numbers["samples"], numbers["epoch"]) == (4 * (index + 1), pytest.approx((index + 1) / 6))
    validations = [(step, numbers) for step, numbers in logger.lines if "val_top1" in numbers]
    assert [(step, numbers["val_top1"]) for step, numbers in validations] == [(5, 0.5), (11, 0.5)]
    assert logger.closed
    assert (logger.run.folder, logger.run.start, logger.run.recipe) == (tmp_path, 0, None)


def _on_rank(rank, world, noise, folder):
    lines = []

    class Recorder:
        def __init__(self, run):
            lines.append(run.start)

        def log(self, numbers, step):
            lines.append(step)

        def close(self):
            pass

    module = ModuleType("my_logging")
    module.Recorder = Recorder
    sys.modules["my_logging"] = module
    train(noise, folder, "my_logging:Recorder", ranks=Ranks(rank=rank, world=world))
    return lines


def test_only_the_first_rank_logs(on_ranks, noise, tmp_path):
    first, second = on_ranks(2, _on_rank, noise, tmp_path)
    assert len(first) > 12
    assert second == []


def test_a_logger_that_fails_is_left_out_and_said_once(noise, tmp_path, recorded, monkeypatch):
    def log(self, numbers, step):
        raise ConnectionError("the service does not answer\nat all")

    monkeypatch.setattr(sys.modules["my_logging"].Recorder, "log", log)
    said = []
    result = train(noise, tmp_path, "my_logging:Recorder", callbacks=Callbacks(on_message=said.append))
    assert result.steps == 12
    place = f"tests/train/test_loggers.py:{log.__code__.co_firstlineno + 1}"
    assert said == [
        f"logger my_logging:Recorder failed (ConnectionError: the service does not answer at all ({place})): the "
        "training continues without it"
    ]
    assert recorded[0].closed


def test_a_logger_that_cannot_be_opened_ends_the_run_before_it_starts(noise, tmp_path, recorded, monkeypatch):
    def refuse(run):
        raise ConnectionError("no such project")

    sys.modules["my_logging"].Other = refuse
    with pytest.raises(VcycleError, match=r"run\.loggers: my_logging:Other cannot be opened: .*no such project"):
        train(noise, tmp_path, "my_logging:Recorder", "my_logging:Other")
    assert recorded[0].closed
    with pytest.raises(RecipeError, match=r"run\.loggers: module 'my_logging' has no 'Nothing'"):
        train(noise, tmp_path / "2", "my_logging:Nothing")


def test_an_unknown_logger_is_refused_where_the_recipe_is_read(make_training):
    with pytest.raises(RecipeError, match=r"'run\.loggers' is \['wandbb'\].*\(did you mean 'wandb'\?\)"):
        make_training("run.loggers=[wandbb]")


def test_tensorboard_has_the_recipe_as_text_and_no_step_twice(noise, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def stop(report):
        if report.step.index == 8:
            raise InterruptedError

    (tmp_path / "run").mkdir()
    with pytest.raises(InterruptedError):
        train(noise, tmp_path / "run", "tensorboard", callbacks=Callbacks(on_step=stop), save_every=5)
    (tmp_path / "run" / "recipe.yaml").write_text("task: recognition\n")
    train(noise, tmp_path / "run", "tensorboard", resume=True, save_every=5)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("grad_norm")] == list(range(12))
    assert "recipe/text_summary" in events.Tags()["tensors"]


# Services, by modules that stand in for theirs --------------------------------------------------------


@pytest.fixture
def wandb(monkeypatch):
    """Weights & Biases: its runs, as they were begun and what they were given."""
    module, runs = ModuleType("wandb"), []

    def init(**how):
        run = SimpleNamespace(id=how["id"] or f"id{len(runs)}", how=how, lines=[], finished=False)
        run.log = lambda numbers, step: run.lines.append((step, numbers))
        run.finish = lambda: setattr(run, "finished", True)
        runs.append(run)
        return run

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    return runs


def test_wandb_resumes_the_run_that_the_folder_names(noise, tmp_path, wandb):
    (tmp_path / "run").mkdir()
    train(noise, tmp_path / "run", "wandb")
    (tmp_path / "run" / "recipe.yaml").write_text("task: recognition\n")
    train(noise, tmp_path / "run", "wandb", resume=True)
    first, second = wandb
    assert (first.how["id"], first.how["name"], first.how["dir"]) == (None, "run", str(tmp_path / "run"))
    assert (second.how["id"], second.how["resume"]) == (first.id, "allow")
    assert second.how["config"] == {"recipe": "task: recognition\n"}
    assert {step for step, numbers in first.lines if numbers.keys() >= STEP} == set(range(12))
    assert first.finished
    assert json.loads((tmp_path / "run" / "loggers.json").read_text()) == {"wandb": "id0"}


@pytest.fixture
def mlflow(monkeypatch):
    """MLflow: what its functions were called with."""
    module, calls = ModuleType("mlflow"), []

    def start_run(*, run_id, run_name):
        calls.append(("start_run", run_id, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id or "abc"))

    module.start_run = start_run
    module.log_metrics = lambda numbers, step: calls.append(("log_metrics", numbers, step))
    module.log_text = lambda text, file: calls.append(("log_text", text, file))
    module.end_run = lambda: calls.append(("end_run",))
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return calls


def test_mlflow_has_the_numbers_and_the_recipe_and_resumes_its_run(noise, tmp_path, mlflow):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "plan.json").write_text("{}")
    (tmp_path / "run" / "recipe.yaml").write_text("task: recognition\n")
    train(noise, tmp_path / "run", "mlflow")
    assert mlflow[:2] == [("start_run", None, "run"), ("log_text", "task: recognition\n", "recipe.yaml")]
    assert [call[2] for call in mlflow if call[0] == "log_metrics" and "loss" in call[1]] == list(range(12))
    assert mlflow[-1] == ("end_run",)
    mlflow.clear()
    train(noise, tmp_path / "run", "mlflow", resume=True)
    assert mlflow == [("start_run", "abc", None), ("end_run",)]


@pytest.mark.parametrize("name", ["wandb", "mlflow", "tensorboard"])
def test_what_is_not_installed_is_named(noise, tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    said = rf"run\.loggers=\[{name}\] needs {name}, which is not installed: pip install 'vcycle\[{name}\]'"
    with pytest.raises(VcycleError, match=said):
        train(noise, tmp_path, name)


def test_loggers_are_closed_whatever_closing_the_log_raises(noise, tmp_path, recorded, monkeypatch):
    def interrupted(lines):
        if lines.path == RunFolder(tmp_path).log:
            raise KeyboardInterrupt

    monkeypatch.setattr(JsonLines, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(noise, tmp_path, "my_logging:Recorder")
    assert [run.closed for run in recorded] == [True]
