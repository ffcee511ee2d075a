"""What `--resume` refuses: anything that would make another training of the rest of a run, before it shows a plan."""

import json
import shutil

import pytest


@pytest.fixture
def run(trained, here):
    """A copy of a finished run."""
    return shutil.copytree(trained[0], here / "run")


@pytest.fixture
def moved(videos, here):
    """A copy of the videos in another folder."""
    return shutil.copytree(videos, here / "moved")


def refused(ran, *parts):
    """The command ended with one line of error that has all the parts, and printed nothing on standard output."""
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("error: ") == 1
    for part in parts:
        assert part in ran.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("training.lr=0.01", ["started with training.lr 0.02, not 0.01", "recipe.yaml"]),
        ("plan=constant", ["started with plan cascade, not constant"]),
        ("plans.cascade.finish=cosine", ["started with plans.cascade.finish law, not cosine"]),
        ("model.options.widths=[4, 8, 12]", ["started with model.options.widths [4, 8, 8], not [4, 8, 12]"]),
        ("sampling.flip=true", ["started with sampling.flip false, not true"]),
        ("data.cache=20", ["started with data.cache null, not 20"]),
        ("run.seed=1", ["started with run.seed 0, not 1"]),
        ("evaluation.size=32", ["started with evaluation.size null, not 32"]),
        ("optimizer=adamw", ["started with optimizer.name sgd, not adamw"]),
    ],
)
def test_another_recipe(vcycle, run, override, parts):
    refused(vcycle("train", run, override, "--resume"), f"{run} was ", *parts)


def test_other_names(vcycle, run, moved):
    (moved / "train/left/0.mp4").rename(moved / "train/left/00.mp4")
    refused(vcycle("train", run, f"data={moved}", "--resume"), "other train data", f"{moved}: their names differ")


def test_other_labels(vcycle, run, moved):
    for split in ("train", "val", "test"):
        (moved / split / "left").rename(moved / split / "up")
    refused(vcycle("train", run, f"data={moved}", "--resume"), "other train data", "their names and labels differ")


def test_another_number_of_videos(vcycle, run, moved):
    shutil.copy(moved / "train/left/0.mp4", moved / "train/left/9.mp4")
    refused(vcycle("train", run, f"data={moved}", "--resume"), "found 17 videos, the run has 16")


def test_another_split_for_validation(vcycle, run, moved):
    (moved / "val/left/0.mp4").unlink()
    refused(vcycle("train", run, f"data={moved}", "--resume"), "other val data")


@pytest.mark.parametrize("name", ["plan.json", "videos.json"])
@pytest.mark.parametrize("content", ["{", "[" * 99_999])
def test_a_damaged_note_of_what_was_begun(vcycle, run, name, content):
    (run / name).write_text(content)
    refused(vcycle("train", run, "--resume"), f"{run / name} cannot be read: ")


def test_a_note_of_videos_with_other_values(vcycle, run):
    (run / "videos.json").write_text('{"train": {"videos": "x"}}')
    refused(vcycle("train", run, "--resume"), "train data", "found 16 videos, the run has 'x'")


def test_a_damaged_recipe_of_a_run(vcycle, run):
    (run / "recipe.yaml").write_bytes(b"\x80")
    refused(vcycle("train", run, "--resume"), f"{run / 'recipe.yaml'}: cannot be read as a recipe: ")


def test_a_resume_that_is_refused_leaves_the_run_as_it_was(vcycle, run, moved):
    (moved / "train/left/0.mp4").unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert vcycle("train", run, f"data={moved}", "--resume").code == 2
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_videos_that_have_moved_are_taken_and_remembered(vcycle, run, moved):
    free = ["data.workers=0", "run.save_every=3", "run.validate_stage_shape=true"]
    ran = vcycle("train", run, f"data={moved}", *free, "--resume", "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["steps"] > 0
    assert f"path: {moved}" in (run / "recipe.yaml").read_text()
    assert vcycle("train", run, "--resume", "--json").code == 0


def test_a_run_that_is_not_there(vcycle, here, trained):
    refused(vcycle("train", "runs/small-cascade", "--resume"), "runs/small-cascade: no run to resume")
    shutil.copytree(trained[0], here / "runs/tiny-cascade")
    refused(vcycle("train", "runs/tiny-cascada", "--resume"), "did you mean 'runs/tiny-cascade'?")
