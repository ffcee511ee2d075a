from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from vcycle.errors import RecipeError
from vcycle.tasks.recipes import dump_recipe, load_recipe, recipe_names, recipe_text, with_absolute_paths
from vcycle.tasks.recognition.recipe import RecognitionRecipe
from vcycle.tasks.recognition.task import RECOGNITION

TEXT = """
sampling: {short_side: [16, 20]}
model: r3d_tiny
training: {batch: 4, frames: 8, size: 16, steps: 100, lr: 0.1}
"""


@pytest.fixture
def load(tmp_path):
    """Loads a recipe's text, with overrides."""

    def load(text=TEXT, *overrides):
        file = tmp_path / "recipe.yaml"
        file.write_text(text, encoding="utf-8")
        return load_recipe(str(file), overrides)

    return load


@pytest.fixture
def refusal(load, tmp_path):
    """The message with which a recipe is refused, without the file's name."""

    def refusal(text=TEXT, *overrides):
        with pytest.raises(RecipeError) as caught:
            load(text, *overrides)
        assert "\n" not in str(caught.value)
        return str(caught.value).removeprefix(f"{tmp_path / 'recipe.yaml'}: ")

    return refusal


# Shipped recipes ---------------------------------------------------------------------------------------------


def test_the_shipped_recipes_are_found():
    assert {"demo/digits", "kinetics/slowfast_8x8_r50"} <= set(recipe_names())


@pytest.mark.parametrize("name", recipe_names("recognition"))
def test_every_shipped_recipe_plans_and_suits_its_model_under_every_plan(name):
    recipe = load_recipe(name)
    clips = recipe.data.digits.train_clips if recipe.data.digits is not None else recipe.data.clips or 1000
    assert recipe.description
    RECOGNITION.check_plan(recipe, RECOGNITION.plan(recipe, clips))
    for plan in RECOGNITION.plans.names():
        for chosen in (plan, f"control:{plan}"):
            RECOGNITION.check_plan(recipe, RECOGNITION.plan(recipe, clips, chosen))


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_is_the_same_after_it_was_written_and_read(name, tmp_path):
    recipe = load_recipe(name)
    (tmp_path / "recipe.yaml").write_text(dump_recipe(recipe), encoding="utf-8")
    assert load_recipe(str(tmp_path / "recipe.yaml")) == recipe
    # The folder of a run is a recipe too.
    assert load_recipe(str(tmp_path)) == recipe


def test_a_recipe_is_named_by_its_name_its_file_or_a_run(tmp_path):
    assert recipe_text("demo/digits")[1] == "demo/digits"
    with pytest.raises(RecipeError, match=r"no recipe 'demo/digit': .*\(did you mean 'demo/digits'\?\)"):
        load_recipe("demo/digit")
    with pytest.raises(RecipeError, match=r"not a file, a run folder or a shipped recipe.*; `vcycle recipes` lists"):
        load_recipe(str(tmp_path))


def test_the_last_part_of_a_name_will_do_where_no_other_recipe_has_it():
    assert recipe_text("digits")[1] == "demo/digits"
    with pytest.raises(RecipeError, match=r"no recipe 'smal': .*\(did you mean 'small'\?\)"):
        load_recipe("smal")
    with pytest.raises(RecipeError, match=r"recipe 'slowfast_16x8_r50' is ambiguous: charades/.*, ssv2/"):
        load_recipe("slowfast_16x8_r50")


# What a file may say ------------------------------------------------------------------------------------------


def test_a_section_may_be_its_main_value_alone(load):
    recipe = load(TEXT + "data: videos\noptimizer: adamw\n", "training.decay=cosine")
    assert (recipe.model.name, recipe.data.path, recipe.optimizer.name) == ("r3d_tiny", "videos", "adamw")
    assert recipe.training.decay.law == "cosine"


def test_a_number_may_be_written_as_yaml_reads_text(load):
    assert load(TEXT, "optimizer.weight_decay=1e-4").optimizer.weight_decay == 1e-4


def test_an_unknown_key_is_refused_with_a_suggestion(refusal):
    said = refusal(TEXT.replace("batch", "bacth"))
    assert said.startswith("unknown key 'training.bacth' (did you mean 'batch'?); known here: batch, frames, size")
    assert refusal(TEXT + "optimiser: sgd\n").startswith("unknown key 'optimiser' (did you mean 'optimizer'?)")
    said = refusal(TEXT + "plans: {long+short: {cyles: 2}}\n")
    assert said.startswith("unknown key 'plans.long+short.cyles' (did you mean 'cycles'?); known here: short_sizes")
    assert refusal(TEXT + "seeds: 1\n").startswith("unknown key 'seeds' (did you mean 'run.seed'?); known here: task")
    said = refusal(TEXT + "size: 1\n")
    assert said.startswith("unknown key 'size' (did you mean 'training.size' or 'evaluation.size'?)")
    said = refusal(TEXT + "evaluation: {batch: 1}\n")
    assert said.startswith("unknown key 'evaluation.batch' (did you mean 'training.batch'?)")
    assert refusal(TEXT + "zzz: 1\n").startswith("unknown key 'zzz'; known here: task, import, description, data")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("training.batch=many", "key 'training.batch' is 'many': input should be a valid integer"),
        ("training.batch=0", "key 'training.batch' is 0: input should be greater than 0"),
        ("training.batch=2.5", "key 'training.batch' is 2.5: input should be a valid integer"),
        ("training.batch=yes", "key 'training.batch' is True: true and false are accepted only for switches"),
        (
            "plans.cascade.shapes=[[1, 1, true], [1, 1]]",
            "key 'plans.cascade.shapes' is [[1, 1, True], [1, 1]]: true and false are accepted only for switches",
        ),
        ("training.lr=.nan", "key 'training.lr' is nan: input should be a finite number"),
        ("training.lr=.inf", "key 'training.lr' is inf: input should be a finite number"),
        ("training=5", "key 'training' is 5: must be a section with keys such as batch, frames, size"),
        ("sampling.short_side=16", "key 'sampling.short_side' is 16: input should be a valid tuple"),
        ("sampling.flip=maybe", "key 'sampling.flip' is 'maybe': input should be a valid boolean"),
        ("run.device=gpu", "key 'run.device' is 'gpu': input should be 'auto', 'cpu' or 'cuda'"),
        ("run.seed=-1", "key 'run.seed' is -1: input should be greater than or equal to 0"),
        ("data=", "the value is missing; accepted: data=VALUE, data=null for none"),
        ("training.warmup=", "the value is missing; accepted: training.warmup=VALUE, training.warmup=null"),
        ("model={}", "key 'model.name' is missing"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_its_key_and_where_it_came_from(refusal, override, said):
    assert refusal(TEXT, override).startswith(f"override {override!r}: {said}")


def test_a_fault_of_the_file_is_the_files(refusal, tmp_path):
    assert refusal(TEXT.replace("lr: 0.1", "lr: fast")).startswith(
        "key 'training.lr' is 'fast': input should be a valid"
    )


def test_a_missing_key_is_named_and_further_faults_are_counted(refusal):
    assert refusal(TEXT.replace(", lr: 0.1", "")) == "key 'training.lr' is missing"
    assert refusal("model: r3d_tiny\n") == "key 'training' is missing (and 1 more)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not valid YAML: "),
        ("a:\n\tb: 1", "not valid YAML: "),
        ("", "the file is empty; a recipe is a mapping of sections"),
        ("[1, 2]", "a recipe is a mapping of sections, got list"),
        ("just words", "a recipe is a mapping of sections, got str"),
        ("1: 2\n" + TEXT, "key '1' is 1: keys should be strings"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_what_is_no_recipe_is_refused(refusal, text, said):
    assert refusal(text).startswith(said)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match=r"x.yaml: cannot be read as a recipe"):
        load_recipe(str(tmp_path / "x.yaml"))


@pytest.mark.parametrize("where", ["file", "override"])
def test_nothing_in_a_recipe_is_executed(refusal, tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    harm = "!!python/object/apply:os.system ['touch harmed']"
    said = refusal(f"description: {harm}\n{TEXT}") if where == "file" else refusal(TEXT, f"description={harm}")
    assert "YAML" in said
    assert not (tmp_path / "harmed").exists()


# Overrides ---------------------------------------------------------------------------------------------------


def test_overrides_reach_any_key_and_the_last_one_counts(load):
    recipe = load(
        TEXT, "training.batch=8", "plans.long+short.cycles=2", "training.batch=16", "training.warmup.length=3"
    )
    assert (recipe.training.batch, recipe.plans.long_short.cycles, recipe.training.warmup.length) == (16, 2, 3)


def test_an_override_of_a_section_sets_its_main_key_and_keeps_the_others(load):
    recipe = load(TEXT + "data: {path: old, workers: 3}\n", "data=new: folder, with signs", "model=r3d_small")
    assert (recipe.data.path, recipe.data.workers, recipe.model.name) == ("new: folder, with signs", 3, "r3d_small")
    recipe = load(TEXT, "model.options.dropout=0.5", "optimizer=adamw")
    assert (recipe.model.name, recipe.model.options, recipe.optimizer.name) == ("r3d_tiny", {"dropout": 0.5}, "adamw")
    assert load(TEXT, "data={path: x, workers: 0}").data.workers == 0
    text = TEXT.replace("lr: 0.1", "lr: 0.1, decay: cosine")
    assert load(text, "training.decay.floor=0.01").training.decay.law == "cosine"


@pytest.mark.parametrize("override", ["training.batch", "=3", "--seeds", ""])
def test_an_override_without_key_or_value_is_refused(refusal, override):
    said = f"override {override!r} is not of the form key=value, such as training.batch=32"
    assert refusal(TEXT, override) == said


def test_an_override_that_is_not_yaml_is_refused(refusal):
    assert refusal(TEXT, "training.batch=[1") == "override 'training.batch=[1': the value is not valid YAML"
    assert refusal(TEXT, "data.digits.clips={train:40}") == (
        "override 'data.digits.clips={train:40}': YAML needs a space after a colon: {train: 40}"
    )


def test_paths_are_made_absolute_so_that_a_run_can_be_used_from_anywhere(load, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = with_absolute_paths(load(TEXT, "data={path: a.csv, val: b/c.csv, root: /videos}"))
    assert recipe.data.path == str(tmp_path / "a.csv")
    assert recipe.data.val == str(tmp_path / "b" / "c.csv")
    assert (recipe.data.root, recipe.data.test) == ("/videos", None)
    assert with_absolute_paths(load()) == load()


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "batch": st.integers(1, 4096),
            "lr": st.floats(1e-6, 10, allow_nan=False),
            "bn_batch": st.integers(1, 64),
            "label_smoothing": st.floats(0, 0.99),
            "decay": st.sampled_from(["cosine", {"law": "steps", "milestones": [10.5, 20]}]),
            "warmup": st.builds(lambda length: {"length": length}, st.floats(0.01, 1e3)),
        },
    )
)
def test_any_recipe_is_the_same_after_it_was_written_and_read(training):
    data = yaml.safe_load(TEXT)
    data["training"] |= training
    recipe = RecognitionRecipe.model_validate(data)
    assert RecognitionRecipe.model_validate(yaml.safe_load(dump_recipe(recipe))) == recipe


def test_every_key_is_documented():
    def sections(model, path=""):
        for name, field in model.model_fields.items():
            yield f"{path}{name}", field
            if hasattr(field.annotation, "model_fields"):
                yield from sections(field.annotation, f"{path}{name}.")

    found = dict(sections(RecognitionRecipe))
    assert len(found) > 60
    assert [key for key, field in found.items() if not field.description] == []


def test_a_recipe_lists_no_file_twice():
    names = recipe_names()
    assert len(set(names)) == len(names)
    assert all(Path(name).suffix == "" for name in names)


@pytest.mark.parametrize("overrides", [["model=r3d_18"], ["model.name=r3d_18"]])
def test_another_model_lays_aside_the_options_of_the_recipes_own(overrides):
    assert load_recipe("videos/small").model.options
    assert load_recipe("videos/small", overrides).model.options == {}


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_another_model_keeps_the_options_given_with_it_in_either_order(order):
    overrides = ["model=slowfast_tiny", "model.options.dropout=0.2"][order]
    assert load_recipe("videos/small", overrides).model.options == {"dropout": 0.2}


def test_naming_the_recipes_own_model_keeps_its_options():
    assert load_recipe("videos/small", ["model=r3d_small"]) == load_recipe("videos/small")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training: {epochs: 3}\nbase: videos/small\ntraining: {batch: 8}\n",
         r"own\.yaml: not valid YAML: key 'training' is given twice \(first in line 1\) in .*, line 3"),
        ("base: videos/small\ntraining:\n  batch: 8\n  lr: 1\n  batch: 4\n",
         r"own\.yaml: not valid YAML: key 'batch' is given twice \(first in line 3\) in .*, line 5"),
    ],
)  # fmt: skip
def test_of_a_key_that_is_given_twice_neither_value_is_lost_in_silence(tmp_path, text, message):
    (tmp_path / "own.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError, match=message):
        load_recipe(str(tmp_path / "own.yaml"))


def test_a_refused_value_of_a_mapping_says_what_is_accepted():
    with pytest.raises(
        RecipeError, match=r"is \{'漢字': 0\}: input should be 'balanced', or input should be greater than 0"
    ):
        load_recipe("videos/small", ["training.class_weights={漢字: 0}"])
    assert load_recipe("videos/small", ["training.class_weights={7: 2}"]).training.class_weights == {"7": 2.0}
