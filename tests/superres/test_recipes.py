"""Recipes of super-resolution: their plans, the real networks, and what is refused."""

import shutil

import pytest
import torch

from vcycle.errors import CheckpointError, PlanError, RecipeError, VcycleError
from vcycle.plan import Plan
from vcycle.tasks.recipes import dump_recipe, load_recipe, parse_recipe, recipe_names
from vcycle.tasks.recognition.models import build_model as build_recognition
from vcycle.tasks.superres.data import find_clips, split_of
from vcycle.tasks.superres.init_weights import build_model, initialise
from vcycle.tasks.superres.models import MODELS
from vcycle.tasks.superres.notices import check_clips
from vcycle.tasks.superres.plans import PLANS
from vcycle.tasks.superres.task import SUPERRESOLUTION

SHIPPED = recipe_names("superresolution")

PARAMETERS = {"basicvsr": 6_291_311, "basicvsr_m": 4_075_631, "edvr_m": 3_300_131, "edvr_m_wotsa": 2_996_259}


# Plans ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_every_plan_of_a_recipe_suits_its_model(name):
    recipe = load_recipe(name)
    assert recipe.description
    for plan in PLANS.names():
        for chosen in (plan, f"control:{plan}"):
            SUPERRESOLUTION.check_plan(
                recipe, SUPERRESOLUTION.plan(recipe, name=chosen)
            )  # a window of 5 is too short to be shortened


@pytest.mark.parametrize("name", SHIPPED)
def test_a_plan_is_the_same_after_it_was_written_and_read(name):
    plan = SUPERRESOLUTION.plan(load_recipe(name))
    assert Plan.from_json(plan.to_json()) == plan


def test_the_baseline_and_the_ablations_come_from_the_same_file():
    def lengths(*overrides):
        plan = SUPERRESOLUTION.plan(load_recipe("reds/basicvsr_m", overrides))
        return plan.baseline.batch, plan.baseline.peak_lr, len(plan), plan.baseline.warmup and plan.baseline.warmup.law

    assert lengths() == (64, pytest.approx(8e-4), 75_000, "linear")
    assert lengths("plan=baseline") == (16, 2e-4, 300_000, None)
    assert lengths("training.minibatch.scale_lr=false") == (64, 2e-4, 75_000, "linear")
    assert lengths("training.minibatch.shorten=false") == (64, pytest.approx(8e-4), 300_000, "linear")
    assert lengths("training.warmup=null") == (64, pytest.approx(8e-4), 75_000, None)
    assert lengths("training.warmup.law=constant") == (64, pytest.approx(8e-4), 75_000, "constant")


def test_a_baseline_without_a_larger_minibatch_keeps_its_warm_up():
    recipe = load_recipe("reds/basicvsr_m", ["training.minibatch.factor=1"])
    assert SUPERRESOLUTION.plan(recipe, name="baseline") == SUPERRESOLUTION.plan(recipe, name="constant")
    assert SUPERRESOLUTION.plan(recipe, name="baseline").baseline.warmup is not None


def test_the_flow_network_is_frozen_for_as_many_steps_whatever_the_minibatch():
    plan = SUPERRESOLUTION.plan(load_recipe("vimeo90k/basicvsr"))
    assert [plan[step].lr_of("flow") for step in (0, 4_999)] == [0, 0]
    assert plan[5_000].lr_of("flow") == plan[5_000].lr / 8


def test_the_batch_may_grow_as_the_shape_shrinks():
    plan = SUPERRESOLUTION.plan(load_recipe("reds/basicvsr_m"), name="hierarchical+scaled")
    assert [stage.base.batch for stage in plan.stages] == [548, 349, 256, 137, 87, 64]
    assert plan.samples == pytest.approx(4_800_000, abs=548)
    linear = SUPERRESOLUTION.plan(
        load_recipe("reds/basicvsr_m", ["plans.hierarchical.lr_scaling=linear"]), name="hierarchical+scaled"
    )
    assert linear.stages[0].rate.at(0) == pytest.approx(8e-4 * 548 / 64)


@pytest.mark.parametrize("name", ["constant", "baseline", "hierarchical", "spatial+scaled", "control:temporal"])
def test_a_plans_length_is_a_factor_behind_its_name(name):
    recipe = load_recipe("reds/basicvsr_m")
    whole, half = SUPERRESOLUTION.plan(recipe, name=name), SUPERRESOLUTION.plan(recipe, name=f"{name}@0.5")
    assert len(half) == pytest.approx(len(whole) / 2, abs=1)
    assert [stage.base for stage in half.stages] == [stage.base for stage in whole.stages]


# Networks and three steps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS.names())
def test_the_networks_by_name_have_the_published_parameters(name):
    if name.startswith("edvr"):
        pytest.importorskip("torchvision")
    with torch.device("meta"):
        assert sum(p.numel() for p in MODELS.build(name).parameters()) == PARAMETERS[name]


def test_a_model_is_one_of_its_task():
    with pytest.raises(RecipeError, match=r"model 'basicvsr' is not one of recognition; accepted: r3d_tiny, "):
        build_recognition("basicvsr", 4)
    with pytest.raises(RecipeError, match=r"model 'r3d_tiny' is not one of superresolution; accepted: basicvsr, "):
        MODELS.needs("r3d_tiny")
    with pytest.raises(RecipeError, match=r"model 'basicvs' is unknown \(did you mean 'basicvsr'\?\)"):
        MODELS.build("basicvs")


# Files ----------------------------------------------------------------------------------------------------------


TEXT = "task: superresolution\nmodel: basicvsr\ntraining: {batch: 2, frames: 4, size: 16, steps: 9, lr: 1e-3}\n"


def load(*overrides):
    return parse_recipe(TEXT, "x.yaml", overrides)


def test_a_recipe_is_of_one_task():
    assert load().task == "superresolution"
    assert load_recipe("demo/digits").task == "recognition"
    assert load_recipe("reds/edvr_m").task == "superresolution"
    with pytest.raises(
        RecipeError,
        match=r"^override 'task=denoising': key 'task' is 'denoising': must be recognition or superresolution",
    ):
        load("task=denoising")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("training.epochs=3", r"unknown key 'training.epochs'.*known here: batch, frames, size, steps, lr"),
        ("training.minibach=3", r"unknown key 'training.minibach' \(did you mean 'minibatch'\?\)"),
        ("training.minibatch=4", r"key 'training.minibatch' is 4: must be a section with keys such as factor"),
        ("plans.spatial.frames=[2, 4]", r"unknown key 'plans.spatial.frames'"),
        ("sampling.mirrored=3", r"key 'sampling.mirrored' is 3"),
        ("data.degradation=bicubical", r"key 'data.degradation' is 'bicubical': input should be 'bicubic' or 'bd'"),
        ("training.ema=1", r"key 'training.ema' is 1"),
    ],
)
def test_a_wrong_key_is_named_with_what_is_accepted(override, said):
    with pytest.raises(RecipeError, match=said):
        load(override)


def test_a_recipe_is_the_same_after_it_was_written_and_read():
    recipe = load("plans.hierarchical.sizes=[8, 16]", "training.flow={}")
    assert parse_recipe(dump_recipe(recipe), "y.yaml") == recipe


# Refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "error", "said"),
    [
        (["plan=spatail"], RecipeError, r"plan 'spatail' is unknown \(did you mean 'spatial'\?\)"),
        (
            ["plan=constant+scaled"],
            RecipeError,
            r"plan 'constant\+scaled' is unknown.*: constant, .*, spatial\+scaled, ",
        ),
        (["plan=spatial@none"], RecipeError, r"plan 'spatial@none': the epoch factor 'none' after @ must be a number"),
        (["sampling.mirrored=true", "training.frames=7"], RecipeError, r"training.frames is 7, but sampling.mirrored"),
        (["sampling.mirrored=true", "plans.hierarchical.frames=[3, 4]"], PlanError, "mirrored clips have even numbers"),
        (["model=edvr_m"], PlanError, r"4 frames, the model takes a window of 5"),
        (["model=edvr_m", "training.frames=7", "plan=constant"], PlanError, r"7 frames, the model takes a window of 5"),
        (["model=edvr_m", "training.flow={}"], RecipeError, "model edvr_m has no flow network"),
        (
            ["model=edvr_m_wotsa", "training.backbone={}"],
            RecipeError,
            "model edvr_m_wotsa has no attention to train on",
        ),
        (["model.options.flow=none", "training.flow={}"], RecipeError, "model basicvsr has no flow network"),
        (["training.warmup={}"], RecipeError, r"training.warmup.steps is 5,000, not below the training"),
        (["training.minibatch.factor=2"], PlanError, r"9 steps do not divide by the minibatch factor 2"),
        (["plans.hierarchical.stage_lrs=[1e-4, 2e-4]"], PlanError, "2 stage LRs for 1 stages"),
        (["model=r3d_tiny"], RecipeError, r"model 'r3d_tiny' is not one of superresolution"),
        (["model.options.depth=3"], RecipeError, r"option 'depth' of model 'basicvsr' is unknown"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(overrides, error, said):
    recipe = load(*overrides)

    def planned():
        SUPERRESOLUTION.check_plan(recipe, SUPERRESOLUTION.plan(recipe, 10))

    with pytest.raises(error, match=said):
        planned()


def test_without_clips_an_epoch_is_not_known():
    with pytest.raises(RecipeError, match=r"give the clips \(data=FOLDER\) or the samples per epoch"):
        SUPERRESOLUTION.plan(load())
    assert SUPERRESOLUTION.plan(load("data.epoch=100")).baseline.clips == 100


def test_a_frozen_flow_network_without_weights_is_refused_unless_asked_for(clips):
    found = find_clips(load(f"data={clips}"))
    frozen = ["training.flow={frozen_steps: 3}"]
    with pytest.raises(
        RecipeError, match=r"training.flow.frozen_steps=3 freezes a flow network without pretrained weights"
    ):
        check_clips(load(*frozen), found)
    backbone = ["model=edvr_m", "training.frames=5", "training.backbone={}"]
    with pytest.raises(RecipeError, match=r"training.backbone.frozen_steps=50000 freezes all but the fusion of a mod"):
        check_clips(load(*backbone), found)
    for accepted in (["training.flow={frozen_steps: 0}"], [*frozen, "init.needed=false"], [*frozen, "init=x.pth"]):
        check_clips(load(*accepted), found)


def test_a_split_that_is_not_there_is_named(clips):
    with pytest.raises(RecipeError, match=r"has no folder val: give one with data.val=FOLDER"):
        _ = find_clips(load(f"data={clips / 'train'}")).val
    with pytest.raises(RecipeError, match="the recipe names no clips: give their folder with data=PATH"):
        _ = find_clips(load()).train
    with pytest.raises(RecipeError, match="split 'dev' is unknown: train, val, test"):
        split_of(load(f"data={clips}"), "dev")


@pytest.mark.parametrize("layout", ["reds", "vimeo90k"])
def test_a_folder_that_is_not_the_set_that_the_recipe_names_is_refused(clips, layout):
    with pytest.raises(RecipeError, match=rf"not have the layout data.layout={layout} says .*; data.layout=auto takes"):
        _ = find_clips(load(f"data={clips}", f"data.layout={layout}")).train


def test_the_sets_of_the_field_are_recognised(clips, make_clip, tmp_path):
    reds, vimeo, vid4 = tmp_path / "REDS", tmp_path / "vimeo", tmp_path / "Vid4"
    for number in range(3):
        make_clip(vimeo / "sequences" / "00001" / f"000{number}", seed=number, frames=3)
    (vimeo / "sep_trainlist.txt").write_text("00001/0000\n00001/0001\n")
    (vimeo / "sep_testlist.txt").write_text("00001/0002\n")
    found = find_clips(load(f"data={vimeo}"))
    assert (len(found.train), len(found.val), len(found.test)) == (2, 1, 1)
    shutil.copytree(clips / "test", vid4 / "GT")
    assert len(find_clips(load(f"data={vimeo}", f"data.test={vid4}")).test) == 3
    for name in ("archpeople", "archwall"):
        make_clip(tmp_path / "UDM10" / name / "truth", seed=1, frames=2)
    blurred = find_clips(load(f"data={vimeo}", f"data.test={tmp_path / 'UDM10'}", "data.degradation=bd")).test
    assert (list(blurred.high.names), blurred.degradation.kind, blurred.low) == (["archpeople", "archwall"], "bd", None)
    for number in range(240):
        (reds / "train_sharp" / f"{number:03d}").mkdir(parents=True)
    for number in range(30):
        (reds / "val_sharp" / f"{number:03d}").mkdir(parents=True)
    found = find_clips(load(f"data={reds}"))
    assert (len(found.train), list(found.val.high.names)) == (266, ["000", "011", "015", "020"])


# First weights --------------------------------------------------------------------------------------------------


SMALL = "model.options={blocks: 1, channels: 4, head_channels: 4}"


def check_init(recipe):
    """Check the first weights without building the model, as before a training."""
    with torch.device("meta"):
        model = build_model(recipe)
    initialise(model, recipe)


def test_a_flow_network_alone_or_a_whole_network_is_taken(tmp_path):
    from vcycle.tasks.superres.weights.keys import foreign_keys

    theirs = build_model(load(SMALL, "run.seed=7"))
    flow = {f"flow.{key}": value for key, value in theirs.flow.state_dict().items()}
    named = foreign_keys(flow, "basicsr")
    torch.save({"params": {named[k].removeprefix("spynet."): v for k, v in flow.items()}}, tmp_path / "spynet.pth")
    torch.save({"params": theirs.state_dict()}, tmp_path / "whole.pth")
    for file, taken in (("spynet.pth", "flow."), ("whole.pth", "")):
        recipe = load(SMALL, f"init={tmp_path / file}")
        check_init(recipe)
        model, said = build_model(recipe), []
        initialise(model, recipe, said.append)
        for key, value in model.state_dict().items():
            assert key.startswith(taken) is torch.equal(value, theirs.state_dict()[key]) or not value.any()
        assert str(tmp_path / file) in said[0]


def test_weights_of_something_else_are_refused(tmp_path):
    other = build_model(load("model.options={blocks: 2, channels: 4, head_channels: 4}"))
    torch.save(other.state_dict(), tmp_path / "other.pth")
    with pytest.raises(CheckpointError, match=r"are not of the network of model basicvsr: tensors 8 that do not fit"):
        check_init(load(SMALL, f"init={tmp_path / 'other.pth'}"))
    torch.save({"weight": torch.zeros(3)}, tmp_path / "odd.pth")
    with pytest.raises(
        CheckpointError,
        match="unknown tensor names; accepted: the names of the model itself, of vcy",
    ):
        check_init(load(SMALL, f"init={tmp_path / 'odd.pth'}"))
    torch.save(other.flow.state_dict(), tmp_path / "flow.pth")
    with pytest.raises(VcycleError, match="are for a flow network; model basicvsr has none"):
        check_init(load("model.options={blocks: 1, channels: 4, flow: none}", f"init={tmp_path / 'flow.pth'}"))


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (lambda value: value * torch.nan, "head.last.bias holds numbers that are not finite: the training behind them"),
        (lambda value: value.long(), "head.last.bias is int64; accepted: dense tensors of real numbers"),
    ],
)
def test_numbers_that_none_can_compute_with_are_refused(tmp_path, spoilt, said):
    state = build_model(load(SMALL, "run.seed=7")).state_dict()
    torch.save(state | {"head.last.bias": spoilt(state["head.last.bias"])}, tmp_path / "bad.pth")
    recipe = load(SMALL, f"init={tmp_path / 'bad.pth'}")
    with pytest.raises(CheckpointError, match=said):
        check_init(recipe)
    with pytest.raises(CheckpointError, match=said):
        initialise(build_model(recipe), recipe)


def test_attention_is_trained_on_top_of_an_edvr_without(tmp_path):
    pytest.importorskip("torchvision")
    options = "model.options={channels: 8, groups: 2, front_blocks: 1, back_blocks: 1, head_channels: 4}"
    without = build_model(load("model=edvr_m_wotsa", options, "run.seed=3"))
    torch.save(without.state_dict(), tmp_path / "wotsa.pth")
    recipe = load("model=edvr_m", options, f"init={tmp_path / 'wotsa.pth'}")
    model, said = build_model(recipe), []
    initialise(model, recipe, said.append)
    assert torch.equal(model.first.weight, without.first.weight)
    assert "tensors of the fusion are drawn" in said[0]
