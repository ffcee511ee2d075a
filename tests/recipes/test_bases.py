"""A recipe that names another as its base says only what differs."""

import pytest
import yaml

from vcycle.errors import RecipeError
from vcycle.tasks.recipes import dump_recipe, load_recipe

BASE = """
sampling: {short_side: [16, 20], flip: false}
model: {name: r3d_tiny, options: {dropout: 0.2}}
training:
  batch: 4
  frames: 8
  size: 16
  steps: 100
  lr: 0.1
  decay: {law: steps, milestones: [50, 80], gamma: 0.2}
  warmup: {length: 5}
plans:
  cascade: {shapes: [[1, 0.5], [1, 1]], weights: [1, 2]}
"""


@pytest.fixture
def load(tmp_path):
    """Loads a recipe over the base above, with overrides."""
    (tmp_path / "base.yaml").write_text(BASE, encoding="utf-8")

    def load(text, *overrides, base="base.yaml"):
        (tmp_path / "own.yaml").write_text(f"base: {base}\n{text}", encoding="utf-8")
        return load_recipe(str(tmp_path / "own.yaml"), overrides)

    return load


@pytest.fixture
def refusal(load, tmp_path):
    """The message with which a recipe is refused, with the folder left out."""

    def refusal(text, *overrides, **base):
        with pytest.raises(RecipeError) as caught:
            load(text, *overrides, **base)
        assert "\n" not in str(caught.value)
        return str(caught.value).replace(f"{tmp_path}/", "")

    return refusal


def test_what_is_not_said_is_the_bases(load, tmp_path):
    assert load("") == load_recipe(str(tmp_path / "base.yaml"))


def test_sections_are_merged_key_by_key_and_lists_are_replaced(load):
    recipe = load("training: {batch: 2, warmup: {start_lr: 0.01}}\nplans: {cascade: {shapes: [[0.5, 1], [1, 1]]}}")
    assert (recipe.training.batch, recipe.training.frames) == (2, 8)
    assert (recipe.training.warmup.length, recipe.training.warmup.start_lr) == (5, 0.01)
    assert recipe.plans.cascade.shapes == [(0.5, 1), (1, 1)]
    assert recipe.plans.cascade.weights == [1, 2]


def test_null_takes_back_what_the_base_has(load):
    recipe = load("training: {warmup: null, steps: null, epochs: 90}")
    assert (recipe.training.warmup, recipe.training.steps, recipe.training.epochs) == (None, None, 90)


def test_another_model_lays_aside_the_options_of_the_bases_and_the_same_keeps_them(load):
    assert load("model: r3d_small").model.options == {}
    assert load("model: {name: r3d_small, options: {zero_gamma: false}}").model.options == {"zero_gamma": False}
    assert load("model: r3d_tiny").model.options == {"dropout": 0.2}
    assert load("model: {options: {zero_gamma: false}}").model.options == {"dropout": 0.2, "zero_gamma": False}


def test_another_law_lays_aside_the_milestones_of_the_bases_and_the_same_keeps_them(load):
    cosine = load("training: {decay: cosine}").training.decay
    assert (cosine.law, cosine.milestones, cosine.gamma) == ("cosine", (), 0.1)
    steps = load("training: {decay: {milestones: [30]}}").training.decay
    assert (steps.law, steps.milestones, steps.gamma) == ("steps", (30,), 0.2)


def test_a_section_may_be_its_main_value_alone_in_either(load, tmp_path):
    recipe = load("data: videos\noptimizer: adamw")
    assert (recipe.data.path, recipe.optimizer.name) == ("videos", "adamw")
    (tmp_path / "middle.yaml").write_text("base: base.yaml\ndata: videos\n")
    recipe = load("data: {workers: 0}", base="middle.yaml")
    assert (recipe.data.path, recipe.data.workers) == ("videos", 0)


def test_the_command_line_goes_over_both(load):
    assert load("training: {batch: 2}", "training.batch=3").training.batch == 3
    assert load("model: r3d_small", "model=r3d_tiny").model.options == {}


def test_a_base_may_have_a_base_and_lie_anywhere(load, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "middle.yaml").write_text("base: ../base.yaml\ntraining: {batch: 2, lr: 1}\n")
    recipe = load("training: {lr: 2}", base="folder/middle.yaml")
    assert (recipe.training.batch, recipe.training.lr, recipe.training.frames) == (2, 2, 8)


def test_a_base_may_be_a_shipped_recipe_and_its_path_starts_from_the_recipe_not_from_here(load, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load("").training.batch == 4
    assert load("", base="demo/digits").model == load_recipe("demo/digits").model


def test_the_resolved_recipe_has_no_base(load):
    assert "base" not in yaml.safe_load(dump_recipe(load("")))


def test_a_base_that_is_not_there_is_named_with_who_names_it(refusal):
    said = refusal("", base="bse.yaml")
    assert said.startswith("own.yaml: key 'base': no recipe 'bse.yaml': not a file, ")
    assert "did you mean 'demo/digits'?" in refusal("", base="demo/digit")
    assert refusal("", base="[a, b]") == "own.yaml: key 'base' is ['a', 'b']: must be the name or path of a recipe"


def test_bases_that_go_round_in_a_circle_are_refused(refusal, tmp_path):
    assert refusal("", base="own.yaml") == "own.yaml: key 'base' is circular: own.yaml → own.yaml"
    (tmp_path / "other.yaml").write_text("base: own.yaml\n")
    said = refusal("", base="other.yaml")
    assert said == "own.yaml: key 'base' is circular: own.yaml → other.yaml → own.yaml"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "other.yaml").write_text("base: ../own.yaml\n")
    said = refusal("", base="folder/other.yaml")
    assert said.endswith("circular: own.yaml → folder/other.yaml → folder/../own.yaml")


def test_a_fault_is_blamed_on_whoever_says_it(refusal, tmp_path):
    (tmp_path / "bad.yaml").write_text(BASE.replace("batch: 4", "batch: -4"))
    assert refusal("", base="bad.yaml").startswith("bad.yaml: key 'training.batch' is -4: ")
    assert refusal("training: {batch: -5}", base="bad.yaml").startswith("own.yaml: key 'training.batch' is -5: ")
    assert refusal("", "training.batch=-6", base="bad.yaml").startswith("override 'training.batch=-6': key ")
    assert refusal("trainign: {batch: 3}").startswith("own.yaml: unknown key 'trainign' (did you mean 'training'?)")
    (tmp_path / "bad.yaml").write_text("training: [")
    assert refusal("", base="bad.yaml").startswith("bad.yaml: not valid YAML: ")
    (tmp_path / "bad.yaml").write_text("[1]")
    assert refusal("", base="bad.yaml") == "bad.yaml: a recipe is a mapping of sections, got list"
