import json
import re
import subprocess
import sys

import pytest

from vcycle.errors import PlanError, RecipeError, VcycleError
from vcycle.plan import StepDecay
from vcycle.tasks.classification.plans import baseline_of, lengthened
from vcycle.tasks.plans import control_name
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.recipe import RecognitionRecipe
from vcycle.tasks.recognition.task import RECOGNITION
from vcycle.tasks.superres.task import SUPERRESOLUTION

KINETICS = "kinetics/slowfast_8x8_r50"
DEMO = "demo/digits"


def test_the_kinetics_recipe_saves_3_43_times_the_steps():
    # Wu et al. 2020, table 2: 3.4 times; exactly 3.43 by whole steps.
    plan = RECOGNITION.plan(load_recipe(KINETICS))
    assert round(plan.saving().steps, 2) == 3.43
    assert plan.baseline.total_steps == 112_000 * 512 // 64
    assert plan.baseline.decay == StepDecay(
        milestones=tuple(drop * 512 / 240_000 for drop in (44_000, 72_000, 92_000)), gamma=0.1
    )


def test_the_papers_batch_brings_the_papers_rate_by_one_override():
    small, large = (RECOGNITION.plan(load_recipe(KINETICS, overrides)) for overrides in ([], ["training.batch=512"]))
    assert small.baseline.peak_lr == pytest.approx(0.1)
    assert large.baseline.peak_lr == pytest.approx(0.8)
    last = large.stages[-1]
    assert (last.base.batch, last.rate.at(0.0)) == (512, pytest.approx(0.8 * 0.001))
    assert round(large.saving().steps, 2) == 3.43
    # On the long cycle's first shape the batch and the rate are eight times those.
    assert large.stages[0].base.batch == 4096
    assert large.stages[0].rate.at(0.0) == pytest.approx(6.4)


@pytest.mark.parametrize("name", RECOGNITION.plans.names())
def test_each_plan_is_of_its_kind(name):
    recipe = load_recipe(DEMO)
    plan = RECOGNITION.plan(recipe, 1200, name)
    cascade = len(recipe.plans.cascade.shapes or ())
    distinct = {"constant": 1, "long": 4, "short": 3, "long+short": 8, "cascade": cascade}
    assert len({cell.shape for cell in plan.shapes}) == distinct[name]
    control = RECOGNITION.plan(load_recipe(DEMO), 1200, control_name(name))
    assert {cell for cell in control.shapes} == {control.baseline_shape}
    assert len(control) == control.baseline.total_steps


def test_a_factor_after_the_name_sets_the_length():
    recipe = load_recipe(DEMO)
    one, half = (RECOGNITION.plan(recipe, 1200, f"cascade@{factor}") for factor in (1, 0.5))
    assert half.samples == pytest.approx(one.samples / 2, rel=0.01)
    whole, half = (RECOGNITION.plan(recipe, 1200, f"control:cascade@{factor}") for factor in (1, 0.5))
    assert len(half) == pytest.approx(len(whole) / 2, abs=1)
    assert RECOGNITION.plan(load_recipe(DEMO, ["plan=control:cascade@0.5"]), 1200) == half


def test_the_recipes_options_reach_their_plans():
    def stages(name, *overrides):
        return RECOGNITION.plan(load_recipe(DEMO, overrides), 1200, name).stages

    assert len(stages("long", "plans.long.long_shapes=[[0.5, 1], [1, 1]]")) < len(stages("long"))
    two = ("plans.cascade.shapes=[[1, 0.5], [1, 1]]", "plans.cascade.weights=[1, 3]")
    assert len(stages("cascade", *two, "plans.cascade.finish=cosine")) == 2
    law = ("plans.cascade.finish=law", "training.decay={law: steps, milestones: [2, 3, 4]}")
    assert len(stages("cascade", *two, *law)) == 2 + 3  # the law's drops
    (cell, *_), *_ = (stage.pattern for stage in stages("short", "plans.short.short_sizes=[0.25]"))
    assert cell.size == 12
    steps = RECOGNITION.plan(load_recipe(DEMO, ["plans.long+short.steps=500"]), 1200, "long+short")
    assert len(steps) == 500
    long = RECOGNITION.plan(load_recipe(DEMO, ["plans.constant.epoch_factor=2"]), 1200, "constant")
    assert len(long) == 2 * long.baseline.total_steps
    control = RECOGNITION.plan(load_recipe(DEMO, ["plans.cascade.control_epoch_factor=0.5"]), 1200, "control:cascade")
    assert len(control) == pytest.approx(control.baseline.total_steps / 2, abs=1)


@pytest.mark.parametrize(
    "key", ["long.short_sizes=[0.5]", *(f"short.{key}" for key in ("long_shapes=[[1, 1]]", "cycles=2"))]
)
def test_an_option_of_the_other_cycle_is_refused(key):
    with pytest.raises(RecipeError, match=rf"unknown key 'plans\.{key.partition('=')[0]}'"):
        load_recipe(DEMO, [f"plans.{key}"])


@pytest.mark.parametrize("key", ["long.long_shapes", "short.short_sizes", "long+short.short_sizes", "cascade.shapes"])
def test_a_plan_of_no_shapes_is_refused(key):
    with pytest.raises(RecipeError, match=rf"plans\.{re.escape(key)}.*at least 1 item"):
        load_recipe(DEMO, [f"plans.{key}=[]"])


@pytest.mark.parametrize("key", ["fine_tune=false", "lr_scaling=sqrt"])
def test_the_short_cycle_alone_has_no_phase_at_the_end_and_no_lr_that_follows_a_batch(key):
    with pytest.raises(RecipeError, match=rf"unknown key 'plans\.short\.{key.partition('=')[0]}'"):
        load_recipe(DEMO, [f"plans.short.{key}"])


@pytest.mark.parametrize(
    "name", ["cascad", "control:", "control:cascad", "long_short", "", "@2", "control:control:long"]
)
def test_an_unknown_plan_is_refused_with_those_there_are(name):
    with pytest.raises(
        RecipeError, match=r"plan .* is unknown.*: constant, long\+short, long, short, cascade, or control:PLAN"
    ):
        RECOGNITION.plan(load_recipe(DEMO), 1200, name)


@pytest.mark.parametrize("factor", ["", "x", "0", "-1", "nan", "inf"])
def test_a_factor_that_is_no_length_is_refused(factor):
    with pytest.raises(RecipeError, match=r"the epoch factor '.*' after @ must be a number above 0"):
        RECOGNITION.plan(load_recipe(DEMO), 1200, f"cascade@{factor}")


def test_the_length_of_the_training_set_must_be_known():
    with pytest.raises(RecipeError, match=r"the length of the training set is unknown: .*data=FOLDER.*data.clips=N"):
        baseline_of(load_recipe(KINETICS, ["data.clips=null"]))


def test_a_shape_that_the_model_cannot_take_is_named_with_its_step():
    recipe = load_recipe(KINETICS, ["training.frames=8"])
    with pytest.raises(PlanError, match=r"model 'slowfast_8x8_r50' cannot take the shape 2×.* at step 0: 2 frames"):
        RECOGNITION.check_plan(recipe, RECOGNITION.plan(recipe))
    with pytest.raises(RecipeError, match="option 'width' of model 'r3d_tiny' is unknown"):
        RECOGNITION.check_plan(load_recipe(DEMO, ["model.options.width=3"]), RECOGNITION.plan(load_recipe(DEMO), 1200))


def test_planning_needs_no_torch():
    code = (
        "import sys, json\n"
        "from vcycle.tasks.recipes import load_recipe\n"
        "from vcycle.tasks.recognition.task import RECOGNITION\n"
        f"recipe = load_recipe({KINETICS!r})\n"
        "RECOGNITION.check_plan(recipe, RECOGNITION.plan(recipe))\n"
        "print(json.dumps(sorted({'torch', 'av', 'scipy'} & set(sys.modules))))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize(
    ("name", "meant"), [("cascada", "cascade"), ("control:cascad", "cascade"), ("long_short@2", "long+short")]
)
def test_a_misspelt_plan_is_told_the_one_that_is_meant(name, meant):
    with pytest.raises(RecipeError, match=rf"did you mean '{re.escape(meant)}'"):
        RECOGNITION.plan(load_recipe("videos/small", ["data.clips=200"]), name=name)


@pytest.mark.parametrize("change", ["training.warmup.length=0", "training.warmup=null", "training.warmup.length=0.2"])
def test_a_short_training_needs_a_shorter_warm_up_or_none(change):
    with pytest.raises(RecipeError, match=r"training\.warmup\.length is 2 epochs, .*training\.warmup=null"):
        RECOGNITION.plan(load_recipe("videos/small", ["data.clips=200", "training.epochs=2"]))
    assert RECOGNITION.plan(load_recipe("videos/small", ["data.clips=200", "training.epochs=2", change])).epochs >= 2


def test_a_warm_up_of_no_length_is_none():
    none, zero = (
        RECOGNITION.plan(load_recipe("videos/small", ["data.clips=200", change]))
        for change in ("training.warmup=null", "training.warmup.length=0")
    )
    assert none == zero


def test_milestones_past_the_end_name_their_key_and_values_that_would_do():
    changes = ["data.clips=200", "training.epochs=3", "training.decay={law: steps, milestones: [4, 6]}"]
    with pytest.raises(RecipeError, match=r"training\.decay\.milestones: milestone 6 .*milestones=\[1\.6, 2\.4\]"):
        RECOGNITION.plan(load_recipe("videos/small", changes))
    assert RECOGNITION.plan(load_recipe("videos/small", [*changes, "training.decay.milestones=[1.6, 2.4]"]))


def test_a_small_constant_shape_is_an_option_of_the_constant_plan():
    full = RECOGNITION.plan(load_recipe(KINETICS), name="constant")
    small = RECOGNITION.plan(load_recipe(KINETICS, ["plans.constant.shape=[0.25, 0.7071]"]), name="constant")
    assert [str(cell) for cell in small.shapes] == ["512×8×158²"]
    assert len(small) == pytest.approx(len(full) / 8, abs=1)
    assert [stage.rate.at(0) for stage in small.stages] == pytest.approx([0.8, 0.08, 0.008, 0.0008])
    assert small.stages[1].name == "T/4·S/√2, LR ×0.1"
    still = ["plans.constant.shape=[0.25, 0.7071]", "plans.constant.lr_scaling=none"]
    assert RECOGNITION.plan(load_recipe(KINETICS, still), name="constant").stages[0].rate.at(0) == pytest.approx(0.1)
    with pytest.raises(PlanError, match=r"grid scale \[2, 1\] is out of range"):
        RECOGNITION.plan(load_recipe(KINETICS, ["plans.constant.shape=[2, 1]"]), name="constant")


@pytest.mark.parametrize("name", RECOGNITION.plans.names())
def test_every_plan_takes_a_budget_in_steps_and_a_factor_after_its_name_goes_before_it(name):
    recipe = load_recipe(KINETICS, [f"plans.{name}.steps=5000"])
    assert len(RECOGNITION.plan(recipe, name=name)) == 5000
    assert RECOGNITION.plan(recipe, name=f"{name}@1") == RECOGNITION.plan(load_recipe(KINETICS), name=f"{name}@1")


# The least length of a training of few videos --------------------------------------------------------------------

FEW = ["training.min_steps=600", "training.epochs=10", "training.batch=4"]


def test_few_videos_are_seen_until_the_least_number_of_steps_is_reached():
    laws = ["training.warmup.length=1", "training.decay={law: steps, milestones: [4, 8]}"]
    recipe = load_recipe(DEMO, [*FEW, *laws])
    few, many = baseline_of(recipe, 40), baseline_of(recipe, 4000)
    assert few.total_steps == 600
    assert (few.epochs, few.warmup.length, few.decay.milestones) == (60, 6, (24, 48))
    assert many == baseline_of(load_recipe(DEMO, [*FEW, *laws, "training.min_steps=null"]), 4000)
    assert many.epochs == 10


def test_a_longer_training_is_told_with_its_cause():
    recipe = load_recipe(DEMO, FEW)
    said = lengthened(recipe, 40)
    assert said == (
        "training.min_steps=600: the baseline is 60 epochs long, because training.epochs=10 gives fewer steps with so "
        "little data; training.min_steps=null keeps 10 epochs"
    )
    assert lengthened(recipe, 240) is None
    assert lengthened(load_recipe(DEMO), 40) is None


def test_many_epochs_of_few_videos_are_told_with_their_number_their_cause_and_what_to_change():
    said = lengthened(load_recipe("videos/finetune"), 17)
    assert said.startswith("training.min_steps=1000: the baseline is 470.6 epochs long, each of 17 clips as often, ")
    assert said.endswith("; training.min_steps=null keeps 20 epochs")
    for keys in (["training.epochs=150"], ["training.epochs=null", "training.steps=750", "training.warmup=null"]):
        said = lengthened(load_recipe("videos/small", keys), 20)
        assert said.startswith(
            f"{keys[-2] if keys[1:] else keys[0]}: the baseline is 150 epochs long, each of 20 clips"
        )
        assert "init=FILE" in said
    assert lengthened(load_recipe("videos/small", ["training.epochs=150"]), 1000) is None
    assert lengthened(load_recipe("videos/small"), 20) is None
    assert lengthened(load_recipe("kinetics/slowfast_8x8_r50"), 240_000) is None


def test_a_length_in_steps_is_as_it_is_given():
    recipe = load_recipe(DEMO, [*FEW, "training.epochs=null", "training.steps=50", "training.decay=constant"])
    assert baseline_of(recipe, 40).total_steps == 50
    assert lengthened(recipe, 40) is None


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        (
            "videos/small",
            ["training.steps=100"],
            r"training\.epochs is .*training\.steps is 100: .*training\.epochs=null",
        ),
        (
            "videos/small",
            ["training.epochs=null"],
            r"training\.epochs is null and training\.steps is null: set exactly",
        ),
        ("videos/small", ["plans.cascade.shapes=[[1, 0.5], [1, 1]]"], r"plans\.cascade: 4 weights for 2 cascade"),
        ("demo/superresolution", ["plans.hierarchical.sizes=[64, 32]"], r"plans\.hierarchical: sizes \[64, 32\]"),
    ],
)
def test_what_makes_no_plan_is_named_by_its_key(recipe, changes, message):
    loaded = load_recipe(recipe, changes)
    with pytest.raises(VcycleError, match=message):
        (RECOGNITION.plan if isinstance(loaded, RecognitionRecipe) else SUPERRESOLUTION.plan)(loaded, 400)
