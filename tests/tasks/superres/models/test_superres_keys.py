"""BasicSR's and mmagic's names lead to ours and back, each to one.

The expected names are written out from the patterns of the facts on super-resolution, section 3.2.
"""

import pytest
import torch

from vcycle.tasks.superres.models.basicvsr.flow import SpyNet
from vcycle.tasks.superres.models.basicvsr.network import BasicVSR
from vcycle.tasks.superres.models.edvr.network import EDVR
from vcycle.tasks.superres.weights.keys import dialect_of, foreign_keys, to_ours


def both(*layers):
    return [f"{layer}.{leaf}" for layer in layers for leaf in ("weight", "bias")]


def blocks(prefix, count):
    return both(*(f"{prefix}.{i}.conv{k}" for i in range(count) for k in (1, 2)))


def spynet(prefix, dialect):
    """Five convolutions on each of six levels; BasicSR counts the activations between them."""
    ends = [str(2 * k) for k in range(5)] if dialect == "basicsr" else [f"{k}.conv" for k in range(5)]
    layers = both(*(f"{prefix}basic_module.{level}.basic_module.{end}" for level in range(6) for end in ends))
    return [f"{prefix}mean", f"{prefix}std", *layers]


def head(dialect):
    ups = ["upconv1", "upconv2"] if dialect == "basicsr" else [f"upsample{k}.upsample_conv" for k in (1, 2)]
    return both(*ups, "conv_hr", "conv_last")


def basicvsr(dialect, depth=3):
    keys = [*spynet("spynet.", dialect), *both("fusion"), *head(dialect)]
    for way in ("backward", "forward"):
        trunk = f"{way}_{'trunk' if dialect == 'basicsr' else 'resblocks'}.main"
        keys += [*both(f"{trunk}.0"), *blocks(f"{trunk}.2", depth)]
    return keys


def edvr(dialect, *, attention):
    conv = "" if dialect == "basicsr" else ".conv"
    pcd = "pcd_align" if dialect == "basicsr" else "pcd_alignment"
    keys = both("conv_first") + blocks("feature_extraction", 5) + blocks("reconstruction", 10) + head(dialect)
    if dialect == "basicsr":
        keys += both("conv_l2_1", "conv_l2_2", "conv_l3_1", "conv_l3_2")
    else:
        keys += both(*(f"feat_l{level}_conv{k}.conv" for level in (2, 3) for k in (1, 2)))
    plain = [f"offset_conv{k}.l{level}" for k in (1, 2, 3) for level in (1, 2, 3) if (k, level) != (3, 3)]
    plain += ["feat_conv.l1", "feat_conv.l2", "cas_offset_conv1", "cas_offset_conv2"]
    keys += both(*(f"{pcd}.{layer}{conv}" for layer in plain))
    for layer in ("dcn_pack.l1", "dcn_pack.l2", "dcn_pack.l3", "cas_dcnpack"):
        keys += both(f"{pcd}.{layer}", f"{pcd}.{layer}.conv_offset")
    if not attention:
        return keys + both("fusion")
    bare = ["temporal_attn1", "temporal_attn2", "spatial_attn5", "spatial_attn_add2"]
    wrapped = ["feat_fusion", *(f"spatial_attn{k}" for k in (1, 2, 3, 4)), "spatial_attn_add1"]
    wrapped += [f"spatial_attn_l{k}" for k in (1, 2, 3)]
    return keys + both(*(f"fusion.{layer}" for layer in bare), *(f"fusion.{layer}{conv}" for layer in wrapped))


CASES = {
    "basicvsr": (lambda: BasicVSR(blocks=3), basicvsr),
    "edvr": (lambda: EDVR(), lambda dialect: edvr(dialect, attention=True)),
    "edvr without attention": (lambda: EDVR(attention=False), lambda dialect: edvr(dialect, attention=False)),
    "flow alone": (SpyNet, lambda dialect: spynet("", dialect)),
}


@pytest.mark.parametrize("dialect", ["basicsr", "mmagic"])
@pytest.mark.parametrize("case", CASES)
def test_names_lead_to_ours_and_back_one_to_one(case, dialect):
    build, names = CASES[case]
    with torch.device("meta"):
        ours = list(build().state_dict())
    theirs = names(dialect)
    there = foreign_keys(ours, dialect)
    assert set(there) == set(ours)
    assert sorted(there.values()) == sorted(theirs)
    assert to_ours(theirs) == {name: key for key, name in there.items()}
    assert dialect_of(ours) == "vcycle"
    if case != "edvr without attention":
        assert dialect_of(theirs) == dialect


@pytest.mark.parametrize("case", CASES)
def test_our_own_names_stay(case):
    with torch.device("meta"):
        ours = list(CASES[case][0]().state_dict())
    assert to_ours(ours) == {key: key for key in ours}


def test_what_wrappers_put_before_names_is_looked_through():
    generator = [f"generator.{key}" for key in basicvsr("mmagic")]
    averaged = [f"generator_ema.{key}" for key in basicvsr("mmagic")]
    keys = [*generator, *averaged, "step_counter", "generator.step_counter"]
    assert set(to_ours(keys)) == set(generator)
    assert set(to_ours(keys, ema=True)) == set(averaged)
    assert set(to_ours(generator, ema=True)) == set(generator)
    assert dialect_of(keys) == "mmagic"
    module = [f"module.{key}" for key in basicvsr("basicsr")]
    assert set(to_ours(module)) == set(module)
    assert dialect_of(module) == "basicsr"


def test_weights_under_foreign_names_give_the_same_frames(video):
    model, other = BasicVSR(blocks=1, zero_last=False), BasicVSR(blocks=1)
    names = foreign_keys(model.state_dict(), "mmagic")
    file = {f"generator.{names[key]}": value for key, value in model.state_dict().items()}
    ours = to_ours(file)
    other.load_state_dict({ours[key]: value for key, value in file.items()})
    clip = video(1, 2, 16, 16)
    with torch.no_grad():
        assert torch.equal(other(clip), model(clip))


def test_names_of_other_networks_are_nobodys():
    keys = ["stages.0.0.branch.0.0.weight", "layer1.0.conv1.weight"]
    assert dialect_of(keys) is None
    assert to_ours(keys) is None
