"""The shipped recipes and the tables of Lin et al. 2022: their schedules, and three steps of each recipe and plan.

The paper's numbers are those of the facts on super-resolution, sections 1.3 and 3.5.
"""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from vcycle.runs.experiment import Experiment
from vcycle.runs.train import train
from vcycle.tasks.recipes import load_recipe, recipe_names
from vcycle.tasks.superres.plans import PLANS
from vcycle.tasks.superres.task import SUPERRESOLUTION
from vcycle.train.callbacks import Callbacks
from vcycle.train.run import RunFolder

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
PAGE = ROOT / "docs" / "published.md"
SHIPPED = recipe_names("superresolution")
PUBLISHED = [name for name in SHIPPED if name.partition("/")[0] in ("reds", "vimeo90k")]

# Stage tables that tests/plan derives from the paper's own numbers.
COMPARED = {
    "reds/basicvsr_m": "reds_basicvsr_m",
    "reds/edvr_m": "reds_edvr_m",
    "vimeo90k/basicvsr": "vimeo_basicvsr",
}
SIX = [(32, 7), (32, 11), (32, 15), (64, 7), (64, 11), (64, 15)]
"""(size, frames) of the paper's schedule."""

# What the paper trains: recipe, what is changed, batch, LR, steps, (size, frames) of the stages.
ROWS = {
    # Tables 1 to 3. LR and steps of BasicVSR and EDVR-M are not stated: BasicSR's, by the linear rule.
    "BasicVSR, baseline": ("reds/basicvsr", ["plan=baseline"], 32, 2e-4, 300_000, [(64, 15)]),
    "BasicVSR, large minibatch": ("reds/basicvsr", ["plan=constant"], 64, 4e-4, 150_000, [(64, 15)]),
    "BasicVSR, S": ("reds/basicvsr", ["plan=spatial"], 64, 4e-4, 150_000, [(32, 15), (64, 15)]),
    "BasicVSR, T": ("reds/basicvsr", ["plan=temporal"], 64, 4e-4, 150_000, [(64, 7), (64, 11), (64, 15)]),
    "BasicVSR, S and T": ("reds/basicvsr", [], 64, 4e-4, 150_000, SIX),
    "BasicVSR, Vimeo": ("vimeo90k/basicvsr", [], 64, 4e-4, 150_000, [(s, t) for s in (32, 64) for t in (6, 10, 14)]),
    "EDVR-M, baseline": ("reds/edvr_m", ["plan=baseline"], 32, 4e-4, 600_000, [(64, 5)]),
    "EDVR-M, S": ("reds/edvr_m", [], 64, 8e-4, 300_000, [(32, 5), (64, 5)]),
    "EDVR-M, Vimeo": ("vimeo90k/edvr_m", [], 64, 8e-4, 300_000, [(32, 5), (64, 5)]),
    # Table 4.
    "baseline": ("reds/basicvsr_m", ["plan=baseline"], 16, 2e-4, 300_000, [(64, 15)]),
    "batch 32": ("reds/basicvsr_m", ["plan=constant", "training.minibatch.factor=2"], 32, 4e-4, 150_000, [(64, 15)]),
    "batch 48": ("reds/basicvsr_m", ["plan=constant", "training.minibatch.factor=3"], 48, 6e-4, 100_000, [(64, 15)]),
    "batch 64": ("reds/basicvsr_m", ["plan=constant"], 64, 8e-4, 75_000, [(64, 15)]),
    "no LR scaling": (
        *("reds/basicvsr_m", ["plan=constant", "training.minibatch.scale_lr=false"]),
        *(64, 2e-4, 75_000, [(64, 15)]),
    ),
    # Tables 5 and 6.
    "S 2": ("reds/basicvsr_m", ["plan=spatial"], 64, 8e-4, 75_000, [(32, 15), (64, 15)]),
    "S 3": (
        *("reds/basicvsr_m", ["plan=spatial", "plans.spatial.sizes=[32, 48, 64]"]),
        *(64, 8e-4, 75_000, [(32, 15), (48, 15), (64, 15)]),
    ),
    "S 4": (
        *("reds/basicvsr_m", ["plan=spatial", "plans.spatial.sizes=[32, 40, 48, 64]"]),
        *(64, 8e-4, 75_000, [(32, 15), (40, 15), (48, 15), (64, 15)]),
    ),
    "T 2": (
        *("reds/basicvsr_m", ["plan=temporal", "plans.temporal.frames=[7, 15]"]),
        *(64, 8e-4, 75_000, [(64, 7), (64, 15)]),
    ),
    "T 3": ("reds/basicvsr_m", ["plan=temporal"], 64, 8e-4, 75_000, [(64, 7), (64, 11), (64, 15)]),
    "T 4": (
        *("reds/basicvsr_m", ["plan=temporal", "plans.temporal.frames=[7, 9, 11, 15]"]),
        *(64, 8e-4, 75_000, [(64, 7), (64, 9), (64, 11), (64, 15)]),
    ),
    "synchronous 2": (
        *("reds/basicvsr_m", ["plan=synchronous"]),
        *(64, 8e-4, 75_000, [(32, 7), (64, 15)]),
    ),
    "synchronous 3": (
        *("reds/basicvsr_m", ["plan=synchronous", "plans.synchronous.sizes=[32, 48, 64]"]),
        *(64, 8e-4, 75_000, [(32, 7), (48, 11), (64, 15)]),
    ),
    "hierarchical 4": (
        *("reds/basicvsr_m", ["plans.hierarchical.frames=[7, 15]"]),
        *(64, 8e-4, 75_000, [(32, 7), (32, 15), (64, 7), (64, 15)]),
    ),
    "hierarchical 6": ("reds/basicvsr_m", [], 64, 8e-4, 75_000, SIX),
    # Figure 3.
    "32 pixels throughout": (
        *("reds/basicvsr_m", ["plan=baseline", "training.size=32"]),
        *(16, 2e-4, 300_000, [(32, 15)]),
    ),
    "7 frames throughout": (
        *("reds/basicvsr_m", ["plan=baseline", "training.frames=7"]),
        *(16, 2e-4, 300_000, [(64, 7)]),
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_what_the_paper_trains_can_be_said(row):
    name, overrides, batch, lr, steps, grids = ROWS[row]
    recipe = load_recipe(name, overrides)
    plan = SUPERRESOLUTION.plan(recipe)
    SUPERRESOLUTION.check_plan(recipe, plan)
    assert (plan.baseline.batch, len(plan)) == (batch, steps)
    assert plan.baseline.peak_lr == pytest.approx(lr)
    assert [(stage.base.size, stage.base.frames) for stage in plan.stages] == grids
    assert {stage.base.batch for stage in plan.stages} == {batch}
    assert max(stage.steps for stage in plan.stages) - min(stage.steps for stage in plan.stages) <= 1


@pytest.mark.parametrize("name", COMPARED)
def test_a_recipes_plan_is_the_published_one(name):
    plan = SUPERRESOLUTION.plan(load_recipe(name))
    golden = json.loads((GOLDEN / f"{COMPARED[name]}.json").read_text(encoding="utf-8"))
    assert [(s.name, s.steps) for s in plan.stages] == [(s["name"], s["steps"]) for s in golden["stages"]]
    assert [[(c.frames, c.size, c.batch) for c in s.pattern] for s in plan.stages] == [
        [(c["frames"], c["size"], c["batch"]) for c in s["pattern"]] for s in golden["stages"]
    ]
    assert [s.rate.at(x) for s in plan.stages for x in (0, 1)] == pytest.approx(
        [lr for s in golden["stages"] for lr in s["lr"]], rel=1e-11
    )
    assert plan.samples == golden["samples"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_networks_are_drawn_as_published(name):
    assert load_recipe(name).model.options == {"zero_last": False}


@pytest.mark.parametrize("name", [name for name in PUBLISHED if "edvr" in name])
def test_edvr_begins_its_small_crops_at_half_the_lr_of_the_baseline(name):
    recipe = load_recipe(name)
    assert [stage.rate.at(0) for stage in SUPERRESOLUTION.plan(recipe).stages] == pytest.approx([2e-4, 8e-4])
    equal = load_recipe(name, ["plans.spatial.stage_lrs=null"])
    assert [stage.rate.at(0) for stage in SUPERRESOLUTION.plan(equal).stages] == pytest.approx([8e-4, 8e-4])


def test_the_second_phase_of_edvr_trains_its_attention_alone_at_first():
    plan = SUPERRESOLUTION.plan(load_recipe("reds/edvr_m_two_phase"))
    assert [plan[step].lr_of("backbone") for step in (0, 49_999)] == [0, 0]
    assert plan[50_000].lr_of("backbone") == plan[50_000].lr > 0


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        *((name, None) for name in PUBLISHED),
        *(("reds/basicvsr_m", plan) for plan in (*PLANS.names(), "hierarchical+scaled", "control:synchronous")),
    ],
)
def test_three_steps_train_at_reduced_width(name, plan, clips, tmp_path):
    full = load_recipe(name)
    edvr = full.model.name.startswith("edvr")
    if edvr:
        pytest.importorskip("torchvision")
    width = (
        "model.options={window: 3, channels: 8, groups: 2, front_blocks: 1, back_blocks: 1, head_channels: 4}"
        if edvr
        else "model.options={blocks: 1, channels: 4, head_channels: 4}"
    )
    sizes = [f"plans.{kind}.sizes=[8, 16]" for kind in ("spatial", "hierarchical", "synchronous")]
    frames = [] if edvr else [f"plans.{kind}.frames=[2, 4]" for kind in ("temporal", "hierarchical", "synchronous")]
    recipe = load_recipe(
        name,
        [
            *(f"data={clips}", "data.layout=clips", "data.epoch=null", "data.workers=0", "init.needed=false"),
            *("training.batch=1", f"training.frames={3 if edvr else 4}", "training.size=16", "training.warmup=null"),
            *("training.minibatch.factor=2", "evaluation.validation_clips=1", "run.device=cpu", width, *sizes, *frames),
            # Each recipe is trained with its flow network, which is most of the work; the plans are without.
            *([] if plan is None else ["model.options.flow=none", "training.flow=null"]),
        ],
    )
    experiment = Experiment(recipe, tmp_path)
    planned = experiment.plan(plan)
    experiment.check(planned, fresh=True)
    roles = {name: replace(role, frozen_until=2) for name, role in planned.baseline.roles.items()}
    first = replace(
        planned,
        baseline=replace(planned.baseline, roles=roles),
        stages=tuple(
            replace(stage, steps=1) for stage in (*planned.stages, planned.stages[-1], planned.stages[-1])[:3]
        ),
    )
    seen = []
    run = RunFolder(tmp_path / "run")
    fitted = train(experiment, first, run, callbacks=Callbacks(on_step=lambda report: seen.append(report.step.shape)))
    assert seen == [step.shape for step in first]
    assert fitted.steps == 3
    assert math.isfinite(fitted.curve[-1].evaluation.psnr)
    assert fitted.curve[-1].evaluation.samples == 1


def test_every_recipe_on_the_page_exists_and_every_published_one_is_on_it():
    named = set(re.findall(r"\b((?:reds|vimeo90k)/[a-z0-9_]+)", PAGE.read_text(encoding="utf-8")))
    assert named == set(PUBLISHED)
