"""One call brings a model and its optimizer to a step of the plan."""

import copy
import gc
import warnings
import weakref

import pytest
import torch
from torch import nn

from vcycle.nn import apply, convert_batchnorm, freeze
from vcycle.nn import steps as steps_module
from vcycle.plan import Shape, Step

FACTORS = (("backbone", 0.0), ("head", 4.0))


def step(bn_batch=8, batch=8):
    shape = Shape(8, 32, 32)
    return Step(
        index=0, stage=0, shape=shape, batch=batch, lr=0.5, bn_batch=bn_batch, first_sample=0, role_factors=FACTORS
    )


def optimizer_of(*layers, lr=1.0):
    return torch.optim.SGD([{"params": layer.parameters()} for layer in layers], lr=lr, momentum=0.9)


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


def test_groups_that_share_one_tensor_as_their_rate_each_get_their_own_rate():
    layers = [nn.Linear(2, 2) for _ in range(2)]
    groups = [{"params": layers[0].parameters(), "role": "head"}, {"params": layers[1].parameters()}]
    optimizer = torch.optim.Adam(groups, lr=torch.tensor(1.0))
    apply(step(), nn.ModuleList(layers), optimizer)
    assert [float(group["lr"]) for group in optimizer.param_groups] == [2.0, 0.5]


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


def test_a_batchnorm_that_is_not_converted_is_named_once_where_groups_are_smaller_than_the_batch():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm3d(2), nn.BatchNorm3d(2)))
    optimizer = optimizer_of(model)
    apply(step(batch=8), model, optimizer)  # one group: plain BatchNorm does the same
    with pytest.warns(
        UserWarning, match=r"layer '1\.0' is a BatchNorm that is not converted.*up to 64 clips, and not"
    ) as told:
        apply(step(batch=64), model, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        apply(step(batch=64), model, optimizer)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert "groups of 8" in str(told[0].message)
    assert "vcycle.convert_batchnorm(model)" in str(told[0].message)


@pytest.mark.parametrize(
    "model",
    [
        nn.Linear(2, 2),
        nn.Sequential(nn.Linear(2, 2), nn.GroupNorm(1, 2), nn.InstanceNorm3d(2, affine=True)),
        convert_batchnorm(nn.Sequential(nn.BatchNorm3d(2))),
        nn.Sequential(nn.BatchNorm3d(2)).eval(),
        freeze(nn.Sequential(nn.BatchNorm3d(2), nn.Linear(2, 2)), "batchnorm").train(),
    ],
    ids=["none", "other norms", "converted", "in evaluation mode", "frozen"],
)
def test_a_model_without_a_batchnorm_of_whole_batches_gives_no_warning(model, recwarn):
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)
    for _ in range(2):
        apply(step(batch=64), model, optimizer)
    assert not recwarn.list


def test_ranks_that_are_given_decide_how_many_clips_a_batchnorm_sees(recwarn):
    model = nn.Sequential(nn.BatchNorm3d(2))
    apply(step(batch=64), model, optimizer_of(model), rank=0, world=8)  # 8 clips: one group
    assert not recwarn.list
    with pytest.warns(UserWarning, match="not converted"):
        apply(step(batch=64), model, optimizer_of(model), rank=0, world=4)


def train_with(scheduler, layers, optimizer):
    for _ in range(4):
        apply(step(), nn.ModuleList(layers), optimizer)
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("tensor", [False, True])
def test_a_scheduler_that_is_left_in_is_told_of_once(tensor):
    layers = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = torch.optim.Adam([{"params": layer.parameters()} for layer in layers], lr=1.0)
    if tensor:
        optimizer = torch.optim.Adam(layers[0].parameters(), lr=torch.tensor(1.0))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    with pytest.warns(UserWarning, match=r"an LR scheduler's step\(\) or your loop overrides .*CurveDecay") as told:
        train_with(scheduler, layers, optimizer)
    assert [(len(told), warning.filename) for warning in told] == [(1, __file__)]


@pytest.mark.parametrize("tensor", [False, True])
def test_rates_of_the_plan_give_no_warning_by_role_scale_or_another_checkpoint(recwarn, tensor):
    layers = [nn.Linear(2, 2) for _ in range(3)]
    lr = torch.tensor(1.0) if tensor else 1.0
    groups = [
        {"params": layers[0].parameters(), "role": "head"},
        {"params": layers[1].parameters(), "role": "backbone"},
        {"params": layers[2].parameters(), "lr_scale": 2.0},
    ]
    optimizer = torch.optim.Adam(groups, lr=lr)
    model = nn.ModuleList(layers)
    saved = copy.deepcopy(optimizer.state_dict())
    for factor in (1.0, 0.5, 0.25):
        optimizer.param_groups[2]["lr_scale"] = factor
        apply(step(), model, optimizer)
        optimizer.step()
    assert optimizer.param_groups[2]["lr"] == 0.5 * 0.25
    optimizer.load_state_dict(saved)
    apply(step(), model, optimizer)
    optimizer.add_param_group({"params": nn.Linear(2, 2).parameters(), "lr": 7.0})
    apply(step(), model, optimizer)
    assert not recwarn.list


def test_apply_keeps_no_optimizer_alive():
    layer = nn.Linear(2, 2)
    optimizer = optimizer_of(layer)
    apply(step(), layer, optimizer)
    held = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert held() is None
