"""What else may be wrong around a training: a dataset that may not be written to, a clock that is set back."""

import ast
import multiprocessing
import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
import torch

import vcycle
from vcycle.recipes import load_recipe
from vcycle.recipes.build import datasets_of, train
from vcycle.recipes.plans import plan_of
from vcycle.recipes.videos import find_videos
from vcycle.train.run import RunFolder

NOBODY = 65534


@pytest.fixture
def open_folder():
    """A folder that any user may enter and write to."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a process that uses CUDA cannot be forked")
def test_a_dataset_that_may_only_be_read_is_enough(training, digit_videos, open_folder):
    data = open_folder / "data"
    shutil.copytree(digit_videos, data)
    for path in (data, *data.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    recipe = load_recipe(str(training.file), [f"data={data}", "data.workers=1", "training.warmup=null"])
    work = open_folder / "work"

    def run():
        if os.geteuid() == 0:  # who may write everywhere
            os.setgroups([])
            os.setresuid(NOBODY, NOBODY, NOBODY)
        with pytest.raises(OSError, match="denied"):
            (data / "new").touch()
        found = find_videos(recipe, work)
        train(recipe, plan_of(recipe, len(found.train)), datasets_of(recipe, found, work), RunFolder(work / "run"))

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == 0
    for path in (data, *data.rglob("*")):  # so that it can be deleted
        path.chmod(0o755)
    assert (work / "run" / "checkpoints" / "step-000000029.pt").exists()


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
