"""The catalog names models, says what they need without torch, and refuses what it does not know."""

import subprocess
import sys

import pytest

from vcycle.errors import RecipeError
from vcycle.plan import ShapeConstraints
from vcycle.tasks.recognition.models import MODELS, build_model, names, needs
from vcycle.tasks.superres.models import MODELS as SUPERRES


def test_what_a_model_needs_is_told_without_importing_torch():
    code = (
        "import sys; from vcycle.tasks.models import models_of; "
        "[models.needs(name) for task in ('recognition', 'superresolution') "
        "for models in [models_of(task)] for name in models.names()]; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'torchvision', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("r3d_tiny", {}, ShapeConstraints()),
        ("slowfast_tiny", {}, ShapeConstraints(min_frames=4, frames_multiple=4)),
        ("slowfast_4x16_r50", {}, ShapeConstraints(min_frames=8, frames_multiple=8)),
        ("slowfast_8x8_r50", {"alpha": 2}, ShapeConstraints(min_frames=2, frames_multiple=2)),
        ("slowfast_16x8_r101_50_50", {}, ShapeConstraints(min_frames=4, frames_multiple=4)),
        ("i3d_r50", {}, ShapeConstraints(min_frames=2)),
        ("i3d_r50", {"temporal_pool": 1}, ShapeConstraints()),
        ("i3d_r50", {"temporal_strides": [2, 1, 1, 1]}, ShapeConstraints(min_frames=3)),
        ("i3d_nl_r50", {}, ShapeConstraints(min_frames=2, min_size=17)),
        ("i3d_nl_r50", {"nonlocal_every": [0, 2, 0, 0]}, ShapeConstraints(min_frames=2, min_size=9)),
        ("slow_r50", {}, ShapeConstraints()),
        ("mvit_v2_s", {}, ShapeConstraints()),
    ],
)
def test_needs_follow_the_model_and_its_options(name, options, expected):
    assert needs(name, **options) == expected


@pytest.mark.parametrize("ask", [needs, MODELS.find, lambda name: build_model(name, 2)])
def test_an_unknown_model_is_refused_with_the_nearest_and_all_names(ask):
    with pytest.raises(RecipeError, match=r"'slowfast_tyni' is unknown \(did you mean 'slowfast_tiny'\?\)") as caught:
        ask("slowfast_tyni")
    assert all(name in str(caught.value) for name in names())


def test_an_unknown_option_is_refused_with_the_nearest_and_all_options():
    with pytest.raises(RecipeError, match=r"'width' of model 'r3d_tiny' is unknown \(did you mean 'widths'\?\)"):
        needs("r3d_tiny", width=(8, 16, 32))


def test_a_name_near_nothing_gets_no_suggestion():
    with pytest.raises(RecipeError, match="'zzz' is unknown; accepted"):
        needs("zzz")


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("r3d_tiny", "widths", 16),
        ("r3d_tiny", "widths", []),
        ("r3d_tiny", "widths", [16, 0, 8]),
        ("r3d_tiny", "temporal_kernels", [3, 2, 3]),
        ("i3d_r50", "temporal_kernels", [3, [3, 2], 3, 3]),
        ("i3d_r50", "temporal_kernels", [3, [], 3, 3]),
        ("i3d_nl_r50", "nonlocal_every", [0, -1, 2, 0]),
        ("i3d_nl_r50", "nonlocal_form", True),
        ("r3d_tiny", "stem_kernel", [3, 3]),
        ("r3d_tiny", "dropout", 1),
        ("r3d_tiny", "dropout", "half"),
        ("r3d_tiny", "zero_gamma", 1),
        ("slowfast_tiny", "alpha", 2.0),
        ("slowfast_tiny", "alpha", True),
        ("slowfast_tiny", "block", 3),
        ("r3d_18", "weights", True),
    ],
)
def test_a_value_that_an_option_does_not_take_is_refused_by_name(name, option, value):
    with pytest.raises(RecipeError, match=f"option '{option}' of model '{name}' is .*; accepted"):
        needs(name, **{option: value})


@pytest.mark.parametrize("classes", [0, -1, 2.0, True, "10"])
def test_a_number_of_classes_that_is_none_is_refused(classes):
    with pytest.raises(RecipeError, match="classes is"):
        build_model("r3d_tiny", classes)


def test_nested_lists_from_a_recipe_build_as_tuples_do():
    options = {"stem_width": 4, "widths": [4, 4], "blocks": [2, 2], "nonlocal_every": [0, 0]}
    lists = build_model("i3d_r50", 2, **options, temporal_kernels=[3, [1, 3]])
    assert str(lists) == str(build_model("i3d_r50", 2, **options, temporal_kernels=(3, (1, 3))))


def test_lists_from_a_recipe_build_as_tuples_do():
    assert str(build_model("r3d_tiny", 2, widths=[4, 8], blocks=[1, 1], temporal_kernels=[3, 1])) == str(
        build_model("r3d_tiny", 2, widths=(4, 8), blocks=(1, 1), temporal_kernels=(3, 1))
    )


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (
            "r3d_tiny",
            {"widths": [8, 16]},
            "blocks (1, 1, 1) and temporal_kernels (3, 3, 3) differ in length",
        ),
        ("r3d_tiny", {"temporal_strides": [1]}, "temporal_strides (1,) differ in length"),
        ("i3d_nl_r50", {"nonlocal_every": [0, 2]}, "nonlocal_every (0, 2) differ in length"),
        ("i3d_nl_r50", {"nonlocal_form": "gaussian"}, "is 'gaussian'; accepted: dot, softmax"),
        ("r3d_tiny", {"block": "dense"}, "is 'dense'; accepted: basic, bottleneck"),
        ("slowfast_tiny", {"fast_kernels": [3]}, "fast_kernels (3,) differ in length"),
        ("slowfast_tiny", {"beta_inverse": 7}, "width 16 is not a multiple of beta_inverse 7"),
        ("slowfast_8x8_r50", {"widths": [64, 128]}, "differ in length"),
        ("slowfast_tiny", {"block": "dense"}, "is 'dense'; accepted: basic, bottleneck"),
        ("r3d_tiny", {"widths": [1 << 17] * 3}, "a list of whole numbers from 1 to 65,536"),
        ("r3d_tiny", {"blocks": [10**9] * 3}, "a list of whole numbers from 1 to 1,000"),
        ("r3d_tiny", {"channels_in": 10**30}, "a whole number from 1 to 65,536"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_anything_is_built(name, options, said):
    with pytest.raises(RecipeError) as asked:
        needs(name, **options)
    with pytest.raises(RecipeError) as built:
        build_model(name, 3, **options)
    assert said in str(asked.value)
    assert str(built.value) == str(asked.value)


def test_so_are_those_of_super_resolution():
    with pytest.raises(RecipeError, match="option 'flow' of model 'basicvsr' is 'raft'; accepted: spynet, none"):
        SUPERRES.needs("basicvsr", flow="raft")
    with pytest.raises(RecipeError, match="channels is 64, groups is 7; accepted: groups that divide the channels"):
        SUPERRES.needs("edvr_m", groups=7)
