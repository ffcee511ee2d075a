"""The plan as a scheduler of PyTorch: the LRs that `apply` sets, with a state that names the plan."""

import gc
import io
import warnings

import pytest
import torch
from torch import nn

import vcycle
from vcycle.errors import CheckpointError, PlanError
from vcycle.plan import Baseline, CosineDecay, RampWarmup, Role, cascade

BASELINE = Baseline(
    batch=4,
    frames=8,
    size=32,
    clips=12,
    epochs=16,
    lr=0.1,
    decay=CosineDecay(),
    warmup=RampWarmup(length=2, start_lr=0.01),
    roles={"head": Role(multiplier=4.0), "body": Role(frozen_until=6)},
)
PLAN = cascade(BASELINE)
OTHER = cascade(BASELINE.with_(lr=0.2))


def made(lr=9.0):
    """A model and its optimizer, with roles and factors of the LR."""
    layers = [nn.Linear(1, 1) for _ in range(4)]
    more = ({}, {"role": "head"}, {"role": "body", "lr_scale": 0.5}, {"lr_scale": 3.0})
    groups = [{"params": layer.parameters(), **given} for layer, given in zip(layers, more, strict=True)]
    return nn.ModuleList(layers), torch.optim.AdamW(groups, lr=lr)


def rates(optimizer):
    return [float(group["lr"]) for group in optimizer.param_groups]


@pytest.fixture(scope="module")
def applied():
    """The LRs of every step, as `apply` sets them."""
    model, optimizer = made()
    found = []
    for step in PLAN:
        vcycle.apply(step, model, optimizer)
        found.append(rates(optimizer))
    assert len({tuple(row) for row in found}) > 5
    assert 0.0 in [row[2] for row in found]
    return found


def test_the_scheduler_sets_the_lrs_that_apply_sets_and_reports_them(applied):
    _, optimizer = made()
    scheduler = vcycle.PlanLR(optimizer, PLAN)
    for expected in applied:
        assert rates(optimizer) == scheduler.get_last_lr() == expected
        optimizer.step()
        scheduler.step()
    assert rates(optimizer) == applied[-1]  # after the last step nothing changes


def test_an_lr_that_is_a_tensor_is_filled_and_not_replaced(applied):
    _, optimizer = made(torch.tensor(9.0, dtype=torch.float64))
    scheduler = vcycle.PlanLR(optimizer, PLAN)
    held = [group["lr"] for group in optimizer.param_groups]
    optimizer.step()
    scheduler.step()
    assert all(group["lr"] is lr for group, lr in zip(optimizer.param_groups, held, strict=True))
    assert rates(optimizer) == applied[1]


def test_more_steps_than_the_plan_has_are_refused():
    _, optimizer = made()
    scheduler = vcycle.PlanLR(optimizer, PLAN)
    for _ in PLAN:
        optimizer.step()
        scheduler.step()
    with pytest.raises(PlanError, match=rf"called more than {len(PLAN)} times, .* once after each step of the plan"):
        scheduler.step()
    with pytest.raises(PlanError, match=r"PlanLR\.step\(epoch=3\): it follows the steps of the plan"):
        scheduler.step(3)
    with pytest.raises(PlanError, match=r"start=-1: the plan has steps 0 to"):
        vcycle.PlanLR(optimizer, PLAN, start=-1)


@pytest.mark.parametrize("scheduler_first", [True, False])
def test_it_resumes_at_every_step_from_plain_values(applied, scheduler_first):
    _, optimizer = made()
    scheduler = vcycle.PlanLR(optimizer, PLAN)
    for index in range(len(PLAN)):
        file = io.BytesIO()
        torch.save({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, file)
        file.seek(0)
        state = torch.load(file, weights_only=True)
        assert state["scheduler"] == {"last_epoch": index, "plan": PLAN.fingerprint}
        _, new = made()
        resumed = vcycle.PlanLR(new, PLAN)
        for part, name in [(resumed, "scheduler"), (new, "optimizer")][:: 1 if scheduler_first else -1]:
            part.load_state_dict(state[name])
        assert rates(new) == resumed.get_last_lr() == applied[index]
        new.step()
        resumed.step()
        assert rates(new) == applied[min(index + 1, len(PLAN) - 1)]
        _, started = made()
        assert vcycle.PlanLR(started, PLAN, start=index).get_last_lr() == rates(started) == applied[index]
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"last_epoch": 3, "plan": OTHER.fingerprint}, f"plan {OTHER.fingerprint}, .* has {PLAN.fingerprint}"),
        ({"last_epoch": 3, "_last_lr": [0.1]}, "lacks 'plan': it is not of a PlanLR"),
        ({"last_epoch": len(PLAN) + 1, "plan": PLAN.fingerprint}, rf"is at step {len(PLAN) + 1} of a plan of"),
        ({"last_epoch": None, "plan": PLAN.fingerprint}, "is at step None"),
        (None, "is NoneType, not what state_dict"),
    ],
)
def test_a_state_of_another_scheduler_is_refused_and_changes_nothing(state, words):
    _, optimizer = made()
    scheduler = vcycle.PlanLR(optimizer, PLAN, start=5)
    before = scheduler.state_dict(), rates(optimizer)
    with pytest.raises(CheckpointError, match=words):
        scheduler.load_state_dict(state)
    assert (scheduler.state_dict(), rates(optimizer)) == before


@pytest.mark.parametrize("tensor", [False, True])
def test_apply_and_the_scheduler_agree_without_a_warning(applied, tensor):
    model, optimizer = made(torch.tensor(9.0, dtype=torch.float64) if tensor else 9.0)
    scheduler = vcycle.PlanLR(optimizer, PLAN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step, expected in zip(PLAN, applied, strict=True):
            vcycle.apply(step, model, optimizer)
            assert rates(optimizer) == scheduler.get_last_lr() == expected
            optimizer.step()
            scheduler.step()


def test_apply_refuses_a_scheduler_that_is_stepped_twice():
    model, optimizer = made()
    scheduler = vcycle.PlanLR(optimizer, PLAN)
    vcycle.apply(PLAN[0], model, optimizer)
    optimizer.step()
    for _ in range(2):  # as Accelerate does on two processes
        scheduler.step()
    with pytest.raises(PlanError, match=r"PlanLR is at step 2, ahead of step 1: call its step\(\) once"):
        vcycle.apply(PLAN[1], model, optimizer)


def test_apply_brings_a_scheduler_that_is_behind_to_the_step_and_its_lr_scale_too(applied):
    model, optimizer = made()
    scheduler = vcycle.PlanLR(optimizer, PLAN)
    vcycle.apply(PLAN[4], model, optimizer)
    assert scheduler.last_epoch == 4
    assert scheduler.get_last_lr() == rates(optimizer) == applied[4]
    optimizer.param_groups[0]["lr_scale"] = 2.0
    vcycle.apply(PLAN[4], model, optimizer)
    assert scheduler.get_last_lr() == rates(optimizer) == [2 * applied[4][0], *applied[4][1:]]


def test_apply_refuses_steps_of_another_plan_than_the_schedulers_while_that_exists():
    model, optimizer = made()
    scheduler = vcycle.PlanLR(optimizer, PLAN)
    with pytest.raises(PlanError, match=r"step 9 \(.*, LR .*\) is not a step of the plan 'cascade'"):
        vcycle.apply(OTHER[9], model, optimizer)
    assert rates(optimizer) == scheduler.get_last_lr()
    del scheduler
    gc.collect()
    vcycle.apply(OTHER[9], model, optimizer)
    assert optimizer.param_groups[0]["lr"] == OTHER[9].lr


def test_a_second_scheduler_is_still_told_of():
    model, optimizer = made()
    scheduler = vcycle.PlanLR(optimizer, PLAN)
    second = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    vcycle.apply(PLAN[0], model, optimizer)
    optimizer.step()
    scheduler.step()
    second.step()
    with pytest.warns(UserWarning, match=r"the LR that vcycle\.apply set has changed since"):
        vcycle.apply(PLAN[1], model, optimizer)


class Wrapped(torch.optim.Optimizer):
    """An optimizer around another one, as Accelerate and Fabric make it."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    @property
    def param_groups(self):
        return self.optimizer.param_groups


def test_a_scheduler_and_apply_find_each_other_through_a_wrapped_optimizer(applied):
    model, optimizer = made()
    scheduler = vcycle.PlanLR(optimizer, PLAN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for index in range(2):
            vcycle.apply(PLAN[index], model, Wrapped(optimizer))
            assert rates(optimizer) == applied[index]
            optimizer.step()
            scheduler.step()
    scheduler.step()
    with pytest.raises(PlanError, match="is at step 3, ahead of step 2"):
        vcycle.apply(PLAN[2], model, Wrapped(optimizer))


def test_a_role_that_the_plan_lacks_is_refused():
    layer = nn.Linear(1, 1)
    optimizer = torch.optim.SGD([{"params": layer.parameters(), "role": "neck"}], lr=1.0)
    with pytest.raises(PlanError, match="role 'neck' is not in the plan"):
        vcycle.PlanLR(optimizer, PLAN)
