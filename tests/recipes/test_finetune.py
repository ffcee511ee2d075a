"""`finetune`: trained weights on a folder of your own videos."""

import json

import pytest
import torch

from vcycle.errors import RecipeError
from vcycle.tasks.loaded_model import load_model
from vcycle.tasks.recipes import load_recipe, recipe_text
from vcycle.tasks.recognition.data import check_videos, find_videos
from vcycle.tasks.recognition.models import build_model
from vcycle.tasks.recognition.task import RECOGNITION
from vcycle.tasks.recognition.weights.keys import foreign_keys

WIDTHS = {"stem_width": 4, "widths": [4, 4, 8, 8], "blocks": [1, 1, 1, 1]}
SMALL = [
    *(f"model.options.{key}={value}" for key, value in WIDTHS.items()),
    *("training.frames=4", "training.size=32", "sampling.short_side=[36, 48]", "training.batch=2"),
    *("training.epochs=1", "training.min_steps=14", "training.warmup=null", "data.workers=0", "run.device=cpu"),
]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A checkpoint of `slow_r50` for seven classes under the names of pytorchvideo."""
    state = build_model("slow_r50", 7, **WIDTHS).state_dict()
    names = foreign_keys(state, "pytorchvideo")
    file = tmp_path_factory.mktemp("weights") / "SLOW_8x8_R50.pyth"
    torch.save({"model_state": {names[key]: tensor for key, tensor in state.items()}}, file)
    return file


@pytest.mark.parametrize("freeze", ["none", "batchnorm", "backbone"])
def test_the_classes_are_the_folders_and_what_is_frozen_stays_as_the_weights_have_it(
    vcycle, weights, digit_videos, tmp_path, freeze
):
    folder = tmp_path / "run"
    given = [f"data={digit_videos}", f"init={weights}", f"training.freeze={freeze}", "--out", folder, "--json"]
    code, out, err = vcycle("train", "finetune", *SMALL, *given)
    assert code == 0, err
    assert json.loads(out)["steps"] == 7
    opened = load_model(folder)
    assert opened.classes == ("2-left", "2-right", "7-left", "7-right")
    state = opened.model.state_dict()
    assert state["head.projection.weight"].shape[0] == 4
    theirs = torch.load(weights, weights_only=True)["model_state"]
    names = foreign_keys(state, "pytorchvideo")
    same = {key: torch.equal(state[key], theirs[names[key]]) for key in names if not key.startswith("head.")}
    norms = {key for key in same if key.rpartition(".")[2].startswith(("running", "num")) or state[key].ndim == 1}
    kept = {"none": set(), "batchnorm": norms, "backbone": set(same)}[freeze]
    assert all(same[key] for key in kept)
    assert not any(same[key] for key in same if key.endswith("weight") and key not in kept and state[key].ndim > 1)


def test_without_weights_nothing_is_trained_unless_that_is_said(vcycle, digit_videos, tmp_path):
    code, _, err = vcycle("train", "finetune", *SMALL, f"data={digit_videos}", "--out", tmp_path / "run")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("error: the recipe begins with trained weights, and names none: give their file with init=")
    assert not (tmp_path / "run").exists()
    for enough in ("init.needed=false", "model.options={weights: KINETICS400_V1}"):
        recipe = load_recipe("finetune", ["model=r3d_18", f"data={digit_videos}", enough])
        check_videos(recipe, find_videos(recipe, tmp_path))


@pytest.mark.parametrize("name", ["ssv2/slowfast_16x8_r50", "charades/slowfast_16x8_r50", "kinetics/i3d_r50"])
def test_recipes_that_begin_with_weights_say_so(name, digit_videos, tmp_path):
    recipe = load_recipe(name, [f"data={digit_videos}", "data.layout=auto", "training.multi_label=false"])
    with pytest.raises(RecipeError, match="init=FILE"):
        check_videos(recipe, find_videos(recipe, tmp_path))


@pytest.mark.parametrize(("clips", "epochs"), [(40, 200), (400, 20), (10_000, 20)])
def test_few_videos_are_seen_more_often_than_many(clips, epochs):
    plan = RECOGNITION.plan(load_recipe("finetune"), clips)
    assert plan.baseline.epochs == pytest.approx(epochs)
    assert plan.epochs == pytest.approx(epochs, rel=0.01)
    assert plan.baseline.total_steps >= 1000


def test_the_weights_own_grid_is_kept_in_time_and_reached_in_space():
    plan = RECOGNITION.plan(load_recipe("finetune"), 1000)
    assert {stage.base.frames for stage in plan.stages} == {8}
    assert (plan.stages[-1].base.size, plan.stages[-1].base.batch) == (224, 8)


def test_it_is_named_by_its_last_part():
    assert recipe_text("finetune")[1] == "videos/finetune"
