"""What else may be wrong around a training: a dataset that may not be written to, a clock that is set back."""

import ast
import shutil
import time
from pathlib import Path

import vcycle
from vcycle.runs.experiment import Experiment
from vcycle.runs.train import train
from vcycle.tasks.recipes import load_recipe
from vcycle.train.run import RunFolder


def test_a_dataset_that_may_only_be_read_is_enough(training, digit_videos, tmp_path):
    data, work = tmp_path / "data", tmp_path / "work"
    shutil.copytree(digit_videos, data)
    for path in (data, *data.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)

    def state():  # the superuser may write all the same
        return {path: path.stat().st_mtime_ns for path in (data, *data.rglob("*"))}

    before = state()
    recipe = load_recipe(str(training.file), [f"data={data}", "data.workers=1", "training.warmup=null"])
    experiment = Experiment(recipe, work)
    train(experiment, experiment.plan(), RunFolder(work / "run"))
    assert state() == before
    assert (work / "run" / "checkpoints" / "step-000000029.pt").exists()
    for path in (data, *data.rglob("*")):  # so that it can be deleted
        path.chmod(0o755)


def test_a_clock_that_jumps_changes_nothing(training, record_of, tmp_path, monkeypatch):
    training.run(tmp_path / "steady")
    true, jumps = time.time, iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: true() - 3600 * next(jumps))
    fitted = training.run(tmp_path / "jumping")
    monkeypatch.undo()
    assert record_of(tmp_path / "jumping") == record_of(tmp_path / "steady")
    assert 0 < fitted.data_seconds <= fitted.seconds < 600


def test_no_duration_is_taken_from_a_clock_that_can_be_set():
    for file in Path(vcycle.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in {("time", "time"), ("datetime", "now")}, file
