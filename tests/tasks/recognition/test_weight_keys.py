"""Names of weights are translated one to one: ours, PySlowFast's and pytorchvideo's."""

import json
from functools import cache

import pytest
import torch

from vcycle.tasks.recognition.models import MODELS, build_model, names
from vcycle.tasks.recognition.weights.keys import dialect_of, foreign_keys, to_ours

OURS = tuple(name for name in names() if MODELS.find(name).key_map is not None)
CHECKPOINTS = {
    "pyslowfast_slowfast_4x16_r50": "slowfast_4x16_r50",
    "pyslowfast_slowfast_8x8_r50": "slowfast_8x8_r50",
    "pyslowfast_slowfast_8x8_r101": "slowfast_8x8_r101",
    "pyslowfast_slowfast_16x8_r101_50_50": "slowfast_16x8_r101_50_50",
    "pyslowfast_i3d_8x8_r50": "i3d_r50",
    "pyslowfast_i3d_nln_8x8_r50": "i3d_nl_r50",
    "pyslowfast_slow_8x8_r50": "slow_r50",
    "pytorchvideo_slowfast_r50": "slowfast_8x8_r50",
    "pytorchvideo_slowfast_r101": "slowfast_8x8_r101",
    "pytorchvideo_i3d_r50": "i3d_r50",
    "pytorchvideo_slow_r50": "slow_r50",
}
"""Lists of names and shapes in public checkpoints of 400 classes, and our model."""
POOLED = ("i3d_r50", "i3d_r101", "i3d_nl_r50", "c2d_r50")


@cache
def state_of(name):
    with torch.device("meta"):
        return build_model(name, 400).state_dict()


@pytest.fixture
def checkpoint(shared_data):
    """Reads the names and shapes of a public checkpoint."""
    folder = shared_data.parent / "facts" / "keys"
    if not folder.is_dir():
        pytest.skip(f"no lists of names at {folder}")
    return lambda file: {key: tuple(shape) for key, shape in json.loads((folder / f"{file}.json").read_text())}


@pytest.mark.parametrize(("file", "name"), CHECKPOINTS.items())
def test_every_name_of_a_public_checkpoint_is_one_of_ours_and_shapes_are_equal(file, name, checkpoint):
    theirs, ours = checkpoint(file), {key: tuple(value.shape) for key, value in state_of(name).items()}
    dialect = file.partition("_")[0]
    mapped = to_ours(theirs)
    assert dialect_of(theirs) == dialect
    assert mapped.keys() == theirs.keys()
    assert {mapped[key]: shape for key, shape in theirs.items()} == ours
    assert foreign_keys(ours, dialect, temporal_pool=name in POOLED) == {ours: key for key, ours in mapped.items()}


@pytest.mark.parametrize("dialect", ["pyslowfast", "pytorchvideo"])
@pytest.mark.parametrize("name", OURS)
def test_every_model_goes_there_and_back(name, dialect):
    keys = list(state_of(name))
    foreign = foreign_keys(keys, dialect, temporal_pool=name in POOLED)
    there = [key for key in keys if "nonlocal" not in key or dialect == "pyslowfast"]
    assert list(foreign) == there
    assert dialect_of(keys) == "vcycle"
    assert to_ours(keys) == {key: key for key in keys}
    assert dialect_of(foreign.values()) == dialect
    assert to_ours(foreign.values()) == {theirs: ours for ours, theirs in foreign.items()}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("s1.pathway0_stem.conv.weight", "stem.0.0.weight"),
        ("s5.pathway0_res2.branch2.c_bn.running_var", "stages.3.2.branch.2.1.running_var"),
        ("s4.pathway0_res0.branch1.weight", "stages.2.0.shortcut.0.weight"),
        ("s3.pathway0_nonlocal3.conv_phi.bias", "stages.1.nonlocal3.phi.bias"),
        ("s3.pathway0_nonlocal3.bn.num_batches_tracked", "stages.1.nonlocal3.norm.num_batches_tracked"),
        ("s4.pathway1_res22.branch2.b.weight", "fast_stages.2.22.branch.1.0.weight"),
        ("s3_fuse.conv_f2s.weight", "fusions.2.0.weight"),
        ("blocks.0.multipathway_fusion.norm.bias", "fusions.0.1.bias"),
        ("blocks.4.multipathway_blocks.1.res_blocks.2.branch2.norm_a.weight", "fast_stages.3.2.branch.0.1.weight"),
        ("blocks.2.res_blocks.0.branch1_norm.bias", "stages.1.0.shortcut.1.bias"),
    ],
)
def test_a_name_says_where_a_tensor_sits(theirs, ours):
    assert to_ours([theirs]) == {theirs: ours}


def test_pooling_in_time_shifts_the_names_of_pytorchvideo():
    layer = "res_blocks.0.branch1_conv.weight"
    ours = [f"stages.{stage}.0.shortcut.0.weight" for stage in range(4)]
    slow = [f"blocks.{block}.{layer}" for block in (1, 2, 3, 4)]
    pooled = [f"blocks.{block}.{layer}" for block in (1, 3, 4, 5)]
    assert list(to_ours([*slow, "blocks.5.proj.bias"]).values()) == [*ours, "head.projection.bias"]
    assert list(to_ours([*pooled, "blocks.6.proj.bias"]).values()) == [*ours, "head.projection.bias"]


def test_the_names_of_an_image_network_become_the_slow_pathways_beside_a_fast_one():
    keys = ["s1.pathway0_stem.conv.weight", "s2.pathway0_res0.branch2.a.weight"]
    assert list(to_ours(keys).values()) == ["stem.0.0.weight", "stages.0.0.branch.0.0.weight"]
    assert [to_ours([*keys, "s1.pathway1_stem.conv.weight"])[key] for key in keys] == [
        "slow_stem.0.0.weight",
        "slow_stages.0.0.branch.0.0.weight",
    ]


def test_what_has_no_place_is_left_out():
    keys = ["s1.pathway0_stem.conv.weight", "s9.pathway0_res0.branch1.weight", "head.act.scale"]
    assert list(to_ours(keys)) == keys[:1]


@pytest.mark.parametrize("keys", [[], ["conv1.weight", "layer1.0.conv1.weight", "fc.bias"], ["head.projection.weight"]])
def test_nobodys_names_are_not_recognised(keys):
    assert dialect_of(keys) is None
    assert to_ours(keys) is None
