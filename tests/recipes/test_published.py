"""The shipped recipes of published results: their plans, their real models, and three steps of each.

The plans are committed; after a change that is meant, write them anew with

    VCYCLE_WRITE_GOLDEN=1 python -m pytest tests/recipes/test_published.py
"""

import json
import math
import os
import re
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from vcycle.plan import Plan
from vcycle.runs.experiment import Experiment
from vcycle.runs.train import train
from vcycle.tasks.recipes import dump_recipe, load_recipe, recipe_names
from vcycle.tasks.recognition.init_weights import build_model
from vcycle.tasks.recognition.task import RECOGNITION
from vcycle.train.callbacks import Callbacks
from vcycle.train.run import RunFolder

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
PAGE = ROOT / "docs" / "published.md"

PUBLISHED = [name for name in recipe_names() if name.partition("/")[0] in ("kinetics", "ssv2", "charades")]
FINE_TUNING = [name for name in recipe_names() if name.startswith("finetune/")]
CLASSES = {"kinetics": 400, "ssv2": 174, "charades": 157}

# Plans that were compared with the reference's own schedule, edge by edge, in tests/plan/test_recognition.py.
COMPARED = {
    "kinetics/slowfast_8x8_r50": "kinetics_slowfast_8x8_r50",
    "kinetics/slowfast_8x8_r50_pretrained": "kinetics_slowfast_8x8_r50",
    "kinetics/i3d_r50": "kinetics_i3d_paper",
    "kinetics/i3d_nl_r50": "kinetics_i3d_paper",
    "kinetics/i3d_r50_one_gpu": "kinetics_i3d_one_gpu",
    "ssv2/slowfast_16x8_r50": "ssv2_slowfast_16x8_r50",
    "charades/slowfast_16x8_r50": "charades_slowfast_16x8_r50",
    "charades/slowfast_16x8_r101_50_50": "charades_slowfast_16x8_r50",
}

# PySlowFast's schedule for other shapes: the same edges in epochs, the shapes of the table.
RESIZED = {
    "kinetics/slowfast_8x8_r50_320": [(8, 226), (16, 226), (16, 320), (32, 320)],
    "kinetics/slowfast_8x8_r50_t16": [(4, 158), (8, 158), (8, 224), (16, 224)],
    "kinetics/slowfast_8x8_r50_t64": [(16, 158), (32, 158), (32, 224), (64, 224)],
}


# The plans --------------------------------------------------------------------------------------------------------


def rounded(value: float) -> float:
    return float(f"{value:.12g}")


def as_lines(plan: Plan) -> list[str]:
    """A plan as a line per stage, with all that it is made of."""
    lines = [f"{len(plan)} steps, {plan.samples} samples, warm-up {plan.warmup_samples:.6g} samples"]
    for stage in plan.stages:
        cells = " ".join(f"{cell}/{cell.bn_batch}" for cell in stage.pattern)
        lines.append(f"{stage.name}: {stage.steps} steps of {cells}, LR {stage.rate.at(0):.9g}→{stage.rate.at(1):.9g}")
    return lines


def test_the_plans_are_the_committed_ones():
    recipes = {name: load_recipe(name) for name in [*PUBLISHED, "videos/finetune", *FINE_TUNING]}
    plans = {name: as_lines(RECOGNITION.plan(recipe, recipe.data.clips or 1000)) for name, recipe in recipes.items()}
    file = GOLDEN / "recipes.json"
    if os.environ.get("VCYCLE_WRITE_GOLDEN"):
        file.write_text(json.dumps(plans, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert plans == json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", COMPARED)
def test_a_recipes_plan_is_the_one_that_was_compared_with_the_reference(name):
    plan = RECOGNITION.plan(load_recipe(name))
    golden = json.loads((GOLDEN / f"{COMPARED[name]}.json").read_text(encoding="utf-8"))
    assert [s.steps for s in plan.stages] == [s["steps"] for s in golden["stages"]]
    assert [[(c.frames, c.size, c.batch, c.bn_batch) for c in s.pattern] for s in plan.stages] == [
        [(c["frames"], c["size"], c["batch"], c["bn_batch"]) for c in s["pattern"]] for s in golden["stages"]
    ]
    assert [rounded(s.rate.at(0)) for s in plan.stages] == [s["lr"][0] for s in golden["stages"]]
    assert (plan.samples, rounded(plan.warmup_samples)) == (golden["samples"], golden["warmup_samples"])


@pytest.mark.parametrize("name", RESIZED)
def test_another_shape_has_the_same_steps_and_batches(name):
    plan, usual = RECOGNITION.plan(load_recipe(name)), RECOGNITION.plan(load_recipe("kinetics/slowfast_8x8_r50"))
    assert [(s.steps, s.base.batch, s.rate) for s in plan.stages] == [
        (s.steps, s.base.batch, s.rate) for s in usual.stages
    ]
    assert [(s.base.frames, s.base.size) for s in plan.stages[:4]] == RESIZED[name]


def test_the_zoos_multigrid_of_inflated_weights_has_two_cycles_and_keeps_its_last_phase():
    # PySlowFast with its flags for multigrid: ends in epochs; the last LR stage of its recipe begins at the end, so
    # that its own final phase has 0 epochs. The drop that would never be used is left out here.
    plan = RECOGNITION.plan(load_recipe("kinetics/i3d_r50_8x8"))
    assert plan.baseline.length == 118
    assert [stage.name.partition(",")[0] for stage in plan.stages] == ["cycle 1"] * 4 + ["cycle 2"] * 4 + [
        "fine-tuning 1",
        "fine-tuning 2",
    ]
    assert plan.epochs == pytest.approx(177, abs=0.1)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_baseline_and_the_plan_come_from_one_file(name):
    recipe = load_recipe(name)
    baseline = RECOGNITION.plan(recipe, name="constant")
    for plan in (RECOGNITION.plan(recipe, name=plan) for plan in RECOGNITION.plans.names()):
        assert plan.baseline == baseline.baseline
    assert len(baseline) == baseline.baseline.total_steps


# The models -------------------------------------------------------------------------------------------------------


def models_and_shapes():
    """The models of all published recipes, with every shape that their plans take them through."""
    found = {}
    for name in [*PUBLISHED, *FINE_TUNING]:
        recipe = load_recipe(name)
        plan = RECOGNITION.plan(recipe, recipe.data.clips or 1000)
        RECOGNITION.check_plan(recipe, plan)
        model = (recipe.model.name, json.dumps(recipe.model.options), CLASSES.get(name.partition("/")[0], 10))
        found.setdefault(model, (recipe, set()))[1].update(cell.shape for cell in plan.shapes)
    return found


MODELS = [(model, recipe, shapes) for model, (recipe, shapes) in models_and_shapes().items()]
IDS = [f"{name} {options}" for (name, options, _), _, _ in MODELS]


def telling(shapes):
    """Those of which the others follow, as no layer's extent in time depends on the side, nor the reverse."""
    shortest, narrowest = (min(map(measure, shapes)) for measure in (lambda s: s.frames, lambda s: s.height))
    least = {(shape.frames, narrowest, narrowest) for shape in shapes}
    return least | {(shortest, shape.height, shape.width) for shape in shapes}


@pytest.mark.parametrize(("model", "recipe", "shapes"), MODELS, ids=IDS)
def test_the_real_model_takes_every_length_and_side_of_its_plans(model, recipe, shapes):
    name, _, classes = model
    if name.startswith("videomae"):
        pytest.importorskip("transformers")
    with torch.device("meta"):
        built = build_model(recipe, classes).eval()
    for shape in telling(shapes):
        with torch.no_grad():
            assert built(torch.empty((1, 3, *shape), device="meta")).shape == (1, classes)


# Three steps ------------------------------------------------------------------------------------------------------

SMALL = [
    *("training.batch=2", "training.size=32", "sampling.short_side=[36, 48]", "data.layout=auto", "data.clips=null"),
    *("evaluation.size=null", "evaluation.short_side=null", "init.needed=false", "data.workers=0", "run.device=cpu"),
    *("model.options.stem_width=8", "model.options.widths=[8, 8, 8, 8]", "model.options.blocks=[1, 1, 1, 1]"),
]


def small(name, videos, multi_label_videos):
    """The recipe at reduced width, 2 clips of up to 16 frames and 32 pixels."""
    full = load_recipe(name)
    if name == "demo/digits" or name == "videos/small":
        overrides = ["training.batch=2", "training.size=16", "data.workers=0", "data.digits=null", "data.cache=null"]
        return load_recipe(name, [*overrides, f"data={videos}", "model.options.widths=[4, 4, 8]", "run.device=cpu"])
    overrides = [*SMALL, f"data={multi_label_videos if full.training.multi_label else videos}"]
    overrides.append(f"training.frames={min(full.training.frames, 16)}")
    if "nonlocal_form" in full.model.options:
        overrides.append("model.options.nonlocal_every=[0, 1, 1, 0]")
        overrides += ["training.size=48", "sampling.short_side=[54, 72]"]  # its pooling needs 17 pixels
    return load_recipe(name, overrides)


def first_three(plan):
    """Three steps at the first three shapes of a plan."""
    return replace(plan, stages=tuple(replace(stage, steps=1) for stage in plan.stages[:3]), warmup_samples=0.0)


@pytest.fixture(scope="session")
def labelled(digit_videos, tmp_path_factory):
    """The videos of the embedded set as Charades' lists have them: a digit, a motion, or nothing."""
    root = tmp_path_factory.mktemp("charades")
    (root / "Charades_v1").mkdir()
    (root / "Charades_v1_classes.txt").write_text("c000 Two\nc001 Seven\nc002 Left\nc003 Right\n")
    for split, there in (("train", "train"), ("val", "test")):
        rows = ["id,actions,length"]
        for digit, motion in product(("2", "7"), ("left", "right")):
            for number, file in enumerate(sorted((digit_videos / split / f"{digit}-{motion}").iterdir())):
                name = f"{split}{digit}{motion}{number}".upper()
                shutil.copy(file, root / "Charades_v1" / f"{name}.mp4")
                said = f"c00{'27'.index(digit)} 0 1;c00{2 + ('left', 'right').index(motion)} 0 1" if number else ""
                rows.append(f"{name},{said},0.5")
        (root / f"Charades_v1_{there}.csv").write_text("\n".join(rows) + "\n")
    return root


@pytest.fixture(scope="module")
def trained():
    """What was trained, by the recipe: some differ in nothing that is left at reduced width."""
    return {}


@pytest.mark.parametrize("name", [*PUBLISHED, "demo/digits", "videos/finetune", "videos/small"])
def test_three_steps_train_at_reduced_width(name, digit_videos, labelled, trained, tmp_path):
    recipe = small(name, digit_videos, labelled)
    experiment = Experiment(recipe, tmp_path)
    plan = first_three(experiment.plan())
    experiment.check(plan, fresh=True)
    key = dump_recipe(recipe.model_copy(update={"description": ""}))
    if key not in trained:
        run, seen = RunFolder(tmp_path / "run"), []
        fitted = train(
            experiment, plan, run, callbacks=Callbacks(on_step=lambda report: seen.append(report.step.shape))
        )
        trained[key] = fitted, seen
    fitted, seen = trained[key]
    assert fitted.steps == 3
    assert seen == [step.shape for step in plan]
    assert fitted.curve[-1].evaluation.samples == 8
    assert math.isfinite(fitted.curve[-1].evaluation.loss)


# The page ---------------------------------------------------------------------------------------------------------


def test_every_recipe_on_the_page_exists_and_every_published_one_is_on_it():
    named = set(re.findall(r"\b((?:kinetics|ssv2|charades)/[a-z0-9_]+)", PAGE.read_text(encoding="utf-8")))
    assert named == set(PUBLISHED)
