"""Models that are not vcycle's: registered, named as module:Class, or offered by an installed package."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

import vcycle
from vcycle.errors import RecipeError
from vcycle.plan import ShapeConstraints
from vcycle.tasks.model_options import ModelOptions, Share, Wholes, check_per_stage
from vcycle.tasks.models import ModelSpec, models_of
from vcycle.tasks.recognition.models import MODELS, build_model

NETS = """
import torch
from torch import nn
import vcycle


class Plain(nn.Module):
    needs = {"frames_multiple": 2, "size_multiple": 8}

    def __init__(self, classes, width=8):
        super().__init__()
        self.body = nn.Conv3d(3, width, 3, padding=1)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3, 4)))


class Wrong(nn.Module):
    needs = 4


class Misspelt(nn.Module):
    needs = {"min_frame": 4}


def function(classes):
    raise AssertionError("a plain function is not called")


@vcycle.register_model("named", needs=lambda options: {"min_frames": options.get("width", 8)})
def named(classes, width=8):
    return Plain(classes, width)


@vcycle.register_model("derived from", needs={"min_frames": 3})
class Base(Plain):
    pass


class Derived(Base):
    pass


@vcycle.register_model("no module")
def no_module(classes):
    return classes


@vcycle.register_model("enlarges", task="superresolution")
class Enlarges(nn.Module):
    window = None
"""


@pytest.fixture
def nets(tmp_path, monkeypatch, own_models):
    """A file of networks in the current folder."""
    (tmp_path / "nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_network_in_a_file_of_the_current_folder_is_built_by_module_and_class(nets):
    model = build_model("nets:Plain", 5, width=4)
    assert model(torch.zeros(2, 3, 2, 8, 8)).shape == (2, 5)
    assert MODELS.needs("nets:Plain") == ShapeConstraints(frames_multiple=2, size_multiple=8)


def test_a_decorated_function_is_a_model_under_its_name_and_under_module_and_attribute(nets):
    assert MODELS.needs("nets:named", width=3).min_frames == 3  # imports the module
    assert MODELS.needs("named").min_frames == 8
    assert build_model("named", 5, width=4)(torch.zeros(1, 3, 2, 8, 8)).shape == (1, 5)
    assert "named" in MODELS.names()


def test_a_class_derived_from_a_registered_one_is_built_itself_with_its_needs(nets):
    assert type(build_model("nets:Derived", 5)).__name__ == "Derived"
    assert MODELS.needs("nets:Derived").min_frames == 3


def test_a_module_that_is_imported_again_registers_its_names_again(nets):
    build_model("nets:Plain", 5)
    del sys.modules["nets"]
    build_model("nets:named", 5)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nets:Plian", r"module 'nets' has no 'Plian' \(did you mean 'Plain'\?\)"),
        ("nests:Plain", "module 'nests' cannot be imported: not found among installed packages or in the cur"),
        ("broken:Net", r"module 'broken' cannot be imported: ZeroDivisionError: division by zero"),
        ("nets:function", "model 'nets:function' is function; accepted: a class derived from torch.nn.Module, what "),
        ("subprocess:run", "model 'subprocess:run' is run; accepted: a class derived from torch.nn.Module"),
        ("os:system", "model 'os:system' is system; accepted: a class derived from torch.nn.Module"),
        ("nets:Wrong", "its attribute 'needs' is 4; accepted: a mapping"),
        (
            "nets:Misspelt",
            r"needs 'min_frame', which is unknown \(did you mean 'min_frames'\?\); accepted: min_frames, ",
        ),
        ("nets:Enlarges", "model 'nets:Enlarges' is not one of recognition; accepted: "),
        ("edvr_m", "model 'edvr_m' is not one of recognition; accepted: "),
        ("slowfast_tyni", r"'slowfast_tyni' is unknown \(did you mean 'slowfast_tiny'\?\); accepted: "),
        (":", "cannot be imported"),
    ],
)
def test_a_name_that_is_no_model_is_refused_when_a_run_is_planned(nets, name, said):
    (nets / "broken.py").write_text("1 / 0")
    with pytest.raises(RecipeError, match=said):
        MODELS.needs(name)


def test_options_of_a_network_without_a_class_of_options_are_checked_by_name(nets):
    with pytest.raises(RecipeError, match=r"'widht' of model 'nets:Plain' is unknown \(did you mean 'width'\?\)"):
        MODELS.needs("nets:Plain", widht=4)


def test_arguments_that_a_network_lacks_or_does_not_know_are_an_error_of_one_line(nets):
    (nets / "asking.py").write_text(NETS.replace("width=8):\n        super", "width):\n        super"))
    with pytest.raises(
        RecipeError, match="'asking:Plain' cannot be built: missing a required argument: 'width'; its si"
    ):
        build_model("asking:Plain", 5)


def test_what_is_built_must_be_a_network(nets):
    MODELS.needs("nets:no_module")
    with pytest.raises(RecipeError, match=r"'no module' was built as int; accepted: a torch\.nn\.Module"):
        build_model("no module", 5)


def test_a_network_of_super_resolution_has_the_attributes_of_a_restorer(nets):
    with pytest.raises(
        RecipeError, match="model 'nets:Enlarges' has no attribute 'outputs'; accepted: a network with "
    ):
        models_of("superresolution").build("nets:Enlarges")


def test_a_registered_name_is_not_taken_twice(nets):
    with pytest.raises(RecipeError, match="model 'r3d_tiny' is already registered: choose another name"):
        vcycle.register_model("r3d_tiny")(nn.Linear)
    with pytest.raises(RecipeError, match="a registered name has no colon"):
        vcycle.register_model("a:b")
    with pytest.raises(RecipeError, match="must not be empty"):
        vcycle.register_model("")(nn.Linear)
    with pytest.raises(RecipeError, match="accepted: a class derived from ModelOptions"):
        vcycle.register_model("x", options=dict)


class Options(ModelOptions):
    """Options of a user's network."""

    widths: Wholes = (4, 8)
    blocks: Wholes = (1, 1)
    dropout: Share = 0.0

    def model_post_init(self, _):
        check_per_stage(widths=self.widths, blocks=self.blocks)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"widths": [4, 0]},
            r"option 'widths' of model 'mine' is \[4, 0\]; accepted: a list of whole numbers from 1 to 65,536",
        ),
        ({"dropout": "half"}, "option 'dropout' of model 'mine' is 'half'; accepted: a number from 0 to below 1"),
        (
            {"dropuot": 0.5},
            r"option 'dropuot' of model 'mine' is unknown \(did you mean 'dropout'\?\); accepted: widths",
        ),
    ],
)
def test_a_class_of_options_checks_names_types_and_ranges(nets, given, said):
    built = []
    vcycle.register_model("mine", options=Options, preset={"dropout": 0.25})(
        lambda classes, **options: built.append(options) or nn.Linear(1, classes)
    )
    build_model("mine", 2, widths=[2, 2])
    assert built == [{"widths": (2, 2), "blocks": (1, 1), "dropout": 0.25}]
    with pytest.raises(RecipeError, match=said):
        MODELS.needs("mine", **given)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (
            "r3d_tiny",
            {"widths": [8, 16]},
            r"model 'r3d_tiny': widths \(8, 16\), blocks .* differ in length; accepted: one",
        ),
        ("slowfast_tiny", {"fast_kernels": [3]}, r"fast_kernels \(3,\) differ in length"),
        ("i3d_nl_r50", {"nonlocal_every": [0, 2]}, r"nonlocal_every \(0, 2\) differ in length"),
        ("slowfast_tiny", {"stem_width": 18}, "width 18 is not a multiple of beta_inverse 4"),
    ],
)
def test_options_that_contradict_each_other_are_refused_when_a_run_is_planned(name, options, said):
    with pytest.raises(RecipeError, match=said):
        MODELS.needs(name, **options)


def test_every_registered_model_can_be_imported():
    for task in ("recognition", "superresolution"):
        for name in models_of(task).names():
            spec = models_of(task).find(name)
            module, attribute = spec.build.split(":")
            assert callable(getattr(__import__(module, fromlist=[attribute]), attribute))
            assert spec.task == task
            assert isinstance(spec, ModelSpec)


def test_installed_packages_offer_models_by_entry_points(tmp_path):
    (tmp_path / "theirs.py").write_text(
        textwrap.dedent("""
        import torch
        from vcycle import register_model
        from vcycle.tasks.models import ModelSpec

        @register_model("their_net", needs={"min_frames": 7})
        class Net(torch.nn.Linear):
            def __init__(self, classes):
                super().__init__(2, classes)

        BIG = ModelSpec(build=Net, task="superresolution")
        number = 3
        """)
    )
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[vcycle.models.recognition]\ntheir_net = theirs:Net [fast]\nodd = theirs:number\ngone = nowhere:x\n"
        "[vcycle.models.superresolution]\nbig = theirs:BIG\n"
    )
    code = textwrap.dedent("""
    import sys
    from vcycle.errors import RecipeError
    from vcycle.tasks.recognition.models import MODELS, build_model
    from vcycle.tasks.superres.models import MODELS as ENLARGING
    assert MODELS.needs("r3d_tiny").min_frames == 1
    assert "theirs" not in sys.modules, "a package is imported though none of its models is asked for"
    assert MODELS.needs("their_net").min_frames == 7
    assert build_model("their_net", 5).out_features == 5
    assert "their_net" in MODELS.names() and "big" not in MODELS.names()
    assert "big" in ENLARGING.names() and "their_net" not in ENLARGING.names()
    assert not {"odd", "gone"} & {*MODELS.names(), *ENLARGING.names()}
    for name, said in {
        "big": "is not one of recognition",
        "odd": "model 'odd' is int; accepted: a class derived from torch.nn.Module",
        "gone": "model 'gone': module 'nowhere' cannot be imported",
        "their_nte": "did you mean 'their_net'?",
    }.items():
        try:
            MODELS.needs(name)
        except RecipeError as error:
            assert said in str(error), error
        else:
            raise AssertionError(name)
    """)
    source = Path(vcycle.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{tmp_path}"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
