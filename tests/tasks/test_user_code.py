"""An exception in code that a user brought is one error that names what was called, and its line."""

import pytest

from vcycle.errors import PlanError, RecipeError, UserCodeError, user_code
from vcycle.tasks.models import models_of
from vcycle.tasks.plans import PlanSpec
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.models import MODELS
from vcycle.tasks.recognition.task import RECOGNITION

PLANS = RECOGNITION.plans

NETS = """
import vcycle
from torch import nn
from vcycle.tasks.model_options import ModelOptions


class Options(ModelOptions):
    width: int = 4

    def model_post_init(self, _):
        {}["options"]


@vcycle.register_model("needy", needs=lambda options: {"min_frames": options["frames"]})
def needy(classes):
    return nn.Linear(1, classes)


@vcycle.register_model("checked", options=Options)
def checked(classes, width):
    return nn.Linear(width, classes)


class Net(nn.Module):
    @staticmethod
    def needs(options):
        return {"size_multiple": options["patch"]}

    def __init__(self, classes, patch=16):
        super().__init__()


@vcycle.register_model("by attribute")
class Derived(Net):
    pass


class Odd(nn.Module):
    @staticmethod
    def needs(options):
        return 16


def plan(recipe, baseline, options, factor):
    return baseline.frames / 0


def no_plan(recipe, baseline, options, factor):
    return baseline
"""


@pytest.fixture
def nets(tmp_path, monkeypatch, own_models):
    """A module of a user's."""
    (tmp_path / "theirs.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PLANS, "_values", dict(PLANS._values))
    MODELS.find("theirs:Net")
    return __import__("theirs")


def test_a_class_says_what_it_needs_by_its_options(nets):
    assert MODELS.needs("theirs:Net", patch=14).size_multiple == 14
    assert MODELS.needs("by attribute", patch=8).size_multiple == 8


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("needy", r"needs of model 'needy': KeyError: 'frames' \(theirs\.py:14\)$"),
        ("checked", r"options of model 'checked': KeyError: 'options' \(theirs\.py:11\)$"),
        ("theirs:Odd", r"model 'theirs:Odd': its needs are 16; accepted: a mapping such as min_frames to 4$"),
    ],
)
def test_a_function_of_a_model_that_fails_names_the_model_and_the_line(nets, name, said):
    with pytest.raises(RecipeError, match=said):
        MODELS.needs(name)


def test_a_plan_of_ones_own_that_fails_names_the_plan_and_the_line(nets):
    PLANS.register("mine", PlanSpec(build=nets.plan, section="mine"))
    PLANS.register("none", PlanSpec(build=nets.no_plan, section="none"))
    recipe = load_recipe("demo/digits")
    said = r"plan 'mine' cannot be built: ZeroDivisionError: division by zero \(theirs\.py:45\)"
    with pytest.raises(UserCodeError, match=said) as caught:
        RECOGNITION.plan(recipe, 1200, "control:mine")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(RecipeError, match="was built as Baseline; accepted: "):
        RECOGNITION.plan(recipe, 1200, "none")


def test_errors_of_vcycle_and_exceptions_of_its_own_code_pass_unchanged():
    with pytest.raises(PlanError, match="as it is"), user_code("x"):
        raise PlanError("as it is")
    with pytest.raises(KeyError), user_code("x", models_of, "vcycle.tasks:any"):
        raise KeyError("internal")
    with pytest.raises(MemoryError), user_code("x", passing=lambda error: isinstance(error, MemoryError)):
        raise MemoryError
    said = r"^x: KeyError: 'theirs' \(.*test_user_code\.py:\d+\)$"
    with pytest.raises(UserCodeError, match=said), user_code("x", pytest):
        raise KeyError("theirs")


def test_a_long_message_is_cut_and_a_message_of_several_lines_is_one():
    with pytest.raises(UserCodeError) as caught, user_code("x"):
        raise ValueError("a\n  b " + 1000 * "c")
    assert str(caught.value).startswith("x: ValueError: a b ccc")
    assert len(str(caught.value)) < 600


def test_an_exception_whose_message_cannot_be_read_is_named():
    class BrokenError(Exception):
        def __str__(self):
            raise AttributeError("path")

    with pytest.raises(UserCodeError, match=r"^x: BrokenError: its message raises AttributeError"), user_code("x"):
        raise BrokenError
