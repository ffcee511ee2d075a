"""One call brings a model and its optimizer to a step of the plan."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import vcycle.nn
from vcycle.nn import apply, convert_batchnorm
from vcycle.nn import steps as steps_module

RATES = {None: 0.5, "head": 2.0, "backbone": 0.0}


def step(bn_batch=8):
    return SimpleNamespace(bn_batch=bn_batch, lr_of=RATES.__getitem__)


def test_each_group_gets_the_rate_of_its_role_times_its_scale():
    layers = [nn.Linear(2, 2) for _ in range(4)]
    groups = [
        {"params": layers[0].parameters()},
        {"params": layers[1].parameters(), "role": "head"},
        {"params": layers[2].parameters(), "role": "head", "lr_scale": 0.25},
        {"params": layers[3].parameters(), "role": "backbone"},
    ]
    optimizer = torch.optim.SGD(groups, lr=9.0)
    apply(step(), nn.ModuleList(layers), optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 2.0, 0.5, 0.0]


def test_a_rate_that_a_group_was_given_gives_way_to_the_steps():
    layers = [nn.Linear(2, 2) for _ in range(2)]
    groups = [{"params": layers[0].parameters(), "lr": 0.001}, {"params": layers[1].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=9.0)
    apply(step(), nn.ModuleList(layers), optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.5]


def test_a_rate_that_is_a_tensor_is_filled_and_not_replaced():
    layer = nn.Linear(2, 2)
    lr = torch.tensor(1.0)
    optimizer = torch.optim.Adam(layer.parameters(), lr=lr)
    held = optimizer.param_groups[0]["lr"]
    apply(step(), layer, optimizer)
    assert optimizer.param_groups[0]["lr"] is held
    assert held == 0.5


def test_the_sub_batch_is_set_in_every_layer():
    model = convert_batchnorm(nn.Sequential(nn.BatchNorm3d(2), nn.BatchNorm3d(2)))
    apply(step(bn_batch=32), model, torch.optim.SGD(model.parameters(), lr=1.0))
    assert [layer.bn_batch for layer in model] == [32, 32]


def test_layers_of_different_sub_batches_all_get_the_steps():
    model = nn.Sequential(convert_batchnorm(nn.BatchNorm3d(2), 8), convert_batchnorm(nn.BatchNorm3d(2), 4))
    apply(step(bn_batch=8), model, torch.optim.SGD(model.parameters(), lr=1.0))
    assert [layer.bn_batch for layer in model] == [8, 8]


def test_layers_are_left_alone_while_the_sub_batch_stays(monkeypatch):
    model = convert_batchnorm(nn.Sequential(nn.BatchNorm3d(2)), bn_batch=16)
    monkeypatch.setattr(steps_module, "set_bn_batch", lambda *_: pytest.fail("nothing has changed"))
    apply(step(bn_batch=16), model, torch.optim.SGD(model.parameters(), lr=1.0))


def test_a_model_that_was_not_converted_keeps_its_batchnorm():
    model = nn.Sequential(nn.BatchNorm3d(2))
    apply(step(), model, torch.optim.SGD(model.parameters(), lr=1.0))
    assert type(model[0]) is nn.BatchNorm3d


def test_the_room_exports_what_it_says():
    for name in vcycle.nn.__all__:
        assert callable(getattr(vcycle.nn, name))
    assert set(vcycle.nn.__all__) <= set(dir(vcycle.nn))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        vcycle.nn.nothing  # noqa: B018
