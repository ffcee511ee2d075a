import pytest
import torch
from torch import nn

from vcycle.errors import RecipeError
from vcycle.nn import convert_batchnorm
from vcycle.tasks.recognition.models import build_model
from vcycle.train.optimizer import OptimizerSpec, parameter_groups


def named(model, groups):
    """The groups with the names of their parameters."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [({**group, "params": [names[id(p)] for p in group["params"]]}) for group in groups]


@pytest.mark.parametrize("name", ["r3d_tiny", "slowfast_tiny"])
def test_norms_and_biases_do_not_decay_and_every_parameter_is_there_once(name):
    model = build_model(name, 4)
    groups = named(model, parameter_groups(model, weight_decay=0.01))
    assert [(group["weight_decay"], group["role"]) for group in groups] == [(0.0, None), (0.01, None)]
    free, decayed = (group["params"] for group in groups)
    assert sorted(free + decayed) == sorted(name for name, _ in model.named_parameters())
    sizes = {name: parameter.ndim for name, parameter in model.named_parameters()}
    assert {sizes[name] for name in free} == {1}
    assert {sizes[name] for name in decayed} == {2, 5}


def test_the_groups_are_the_same_whether_batchnorm_was_converted_or_not():
    plain, converted = build_model("r3d_tiny", 4), convert_batchnorm(build_model("r3d_tiny", 4), 8)
    groups = [named(model, parameter_groups(model, weight_decay=0.01)) for model in (plain, converted)]
    assert groups[0] == groups[1]


def test_other_norms_do_not_decay_either():
    model = nn.Sequential(
        nn.Linear(4, 4), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4), nn.InstanceNorm1d(4, affine=True)
    )
    free, decayed = (group["params"] for group in named(model, parameter_groups(model, weight_decay=0.01)))
    assert decayed == ["0.weight"]
    assert free == ["0.bias", "1.weight", "1.bias", "2.weight", "2.bias", "3.weight", "4.weight", "4.bias"]


def test_a_shared_parameter_is_trained_once_and_a_frozen_one_not_at_all():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    model[2].weight.requires_grad_(False)
    (group,) = parameter_groups(model, weight_decay=0.01)
    assert [id(p) for p in group["params"]] == [id(model[0].weight)]


def test_roles_have_groups_of_their_own():
    model = nn.ModuleDict({"flow": nn.Linear(4, 4), "trunk": nn.Linear(4, 4)})
    groups = parameter_groups(
        model, weight_decay=0.01, role_of=lambda name: "flow" if name.startswith("flow") else None
    )
    found = {(g["role"], g["weight_decay"]): g["params"] for g in named(model, groups)}
    assert found == {
        (None, 0.0): ["trunk.bias"],
        (None, 0.01): ["trunk.weight"],
        ("flow", 0.0): ["flow.bias"],
        ("flow", 0.01): ["flow.weight"],
    }


def test_the_constants_reach_the_optimizer():
    model = nn.Linear(4, 4)
    sgd = OptimizerSpec(momentum=0.8, nesterov=True, weight_decay=0.3).build(model)
    assert isinstance(sgd, torch.optim.SGD)
    assert [(g["momentum"], g["nesterov"], g["weight_decay"]) for g in sgd.param_groups] == [
        (0.8, True, 0.0),
        (0.8, True, 0.3),
    ]
    with pytest.raises(RecipeError, match=r"optimizer\.nesterov is true, and optimizer\.momentum is 0"):
        OptimizerSpec(momentum=0, nesterov=True)
    adamw = OptimizerSpec(name="adamw", betas=(0.8, 0.9)).build(model)
    assert isinstance(adamw, torch.optim.AdamW)
    assert adamw.param_groups[0]["betas"] == (0.8, 0.9)
    adam = OptimizerSpec(name="adam", betas=(0.9, 0.99), weight_decay=0).build(model)
    assert type(adam) is torch.optim.Adam
    assert adam.param_groups[0]["betas"] == (0.9, 0.99)
    with pytest.raises(RecipeError, match="optimizer 'adan' is unknown: sgd, adam or adamw"):
        OptimizerSpec(name="adan").build(model)
