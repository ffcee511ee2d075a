"""A loop that never sets the LR of a plan is told so, once; one that sets an LR in any way is not."""

import warnings

import pytest
import torch
from torch.optim.lr_scheduler import StepLR

import vcycle
from vcycle.data.rate_watch import _WATCHES

PLAN = vcycle.cascade(vcycle.Baseline(batch=4, frames=4, size=16, clips=12, steps=160, lr=0.1))
ITEMS = [(torch.zeros(3, 4, 16, 16), 0)] * 12
STREAM = [(torch.zeros(4, 3, 4, 16, 16), torch.zeros(4))]


class ScheduleFree(torch.optim.SGD):
    """Has the modes of schedule-free optimizers, whose LR stays."""

    def train(self):
        """Go to the weights to train."""

    def eval(self):
        """Go to the weights to evaluate."""


def train(pairs, set_rate=None, *, schedule=None, tensor=False, ahead=0, kind=torch.optim.SGD):
    layer = torch.nn.Linear(1, 1)
    optimizer = kind(layer.parameters(), lr=torch.tensor(0.1) if tensor else 0.1)
    scheduler = schedule and schedule(optimizer)
    waiting = []
    for pair in pairs:
        waiting.append(pair)
        if len(waiting) <= ahead:
            continue
        step, _ = waiting.pop(0)
        if set_rate is not None:
            set_rate(step, layer, optimizer)
        layer(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("pairs", [lambda: vcycle.steps(ITEMS, PLAN), lambda: vcycle.follow(STREAM, PLAN)])
def test_a_loop_without_apply_is_told_once_where_it_asks_for_a_batch(pairs, tensor):
    changed = next(step for step in PLAN if step.lr != PLAN[0].lr)
    with pytest.warns(UserWarning, match="the LR of the plan") as told:
        train(pairs(), tensor=tensor)
    (warning,) = told
    assert warning.filename == __file__
    assert str(warning.message).startswith(
        f"the LR of the plan has changed from {PLAN[0].lr:g} (step 0) to {changed.lr:g} (step {changed.index}), but "
        "that of SGD is still what it was: call vcycle.apply(step, model, optimizer, clips)"
    )


def by_hand(step, layer, optimizer):
    optimizer.param_groups[0]["lr"] = 3 * step.lr


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(lambda pairs: train(pairs, vcycle.apply), id="apply"),
        pytest.param(lambda pairs: train(pairs, vcycle.apply, tensor=True), id="apply-tensor"),
        pytest.param(lambda pairs: train(pairs, vcycle.apply, ahead=6), id="apply-batches-taken-ahead"),
        pytest.param(lambda pairs: train(pairs, by_hand), id="by-hand"),
        pytest.param(lambda pairs: train(pairs, schedule=lambda o: vcycle.PlanLR(o, PLAN)), id="PlanLR"),
        pytest.param(lambda pairs: train(pairs, schedule=lambda o: StepLR(o, 1000)), id="own-scheduler"),
        pytest.param(lambda pairs: train(pairs, kind=ScheduleFree), id="schedule-free"),
        pytest.param(lambda pairs: train(zip(PLAN, vcycle.loader(ITEMS, PLAN), strict=True)), id="loader-alone"),
        pytest.param(list, id="no-training"),
    ],
)
def test_a_loop_that_sets_an_lr_or_trains_nothing_is_told_nothing(loop):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop(vcycle.steps(ITEMS, PLAN))


def test_two_loops_at_once_are_told_nothing_and_disturb_each_other_in_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = vcycle.steps(ITEMS, PLAN), vcycle.steps(ITEMS, PLAN)
        next(second)
        train(first, vcycle.apply)
        train(second, vcycle.apply)


def test_an_optimizer_whose_first_update_comes_after_a_change_is_not_judged_by_it():
    """As where `GradScaler` skips the first update."""
    edge = next(step.index for step in PLAN if step.lr != PLAN[0].lr)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pairs = vcycle.steps(ITEMS, PLAN, start=edge - 1)
        next(pairs)
        train(pairs, vcycle.apply)


def test_a_loop_that_was_left_is_watched_no_longer():
    before = len(_WATCHES)
    pairs = vcycle.steps(ITEMS, PLAN)
    next(pairs)
    assert len(_WATCHES) == before + 1
    del pairs
    assert len(_WATCHES) == before
