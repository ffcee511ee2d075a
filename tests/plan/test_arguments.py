"""Swapped or wrong-typed arguments of the Python API are refused in one short line, with what is accepted."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import vcycle
from vcycle import nn as nn_names
from vcycle.errors import DataError, PlanError
from vcycle.plan import rates

MADE_FOR = vcycle.Baseline(batch=4, frames=8, size=32, clips=16, epochs=4, lr=0.1)
PLAN = vcycle.cascade(MADE_FOR)
MODEL = nn.Linear(2, 2)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=1.0)
BATCH = PLAN.shapes[0]
ITEMS = [torch.zeros(3, 8, 32, 32)] * 16
APPLY = "the call is vcycle.apply(step, model, optimizer, clips)"


def steps(**changed):
    return vcycle.steps(ITEMS, PLAN, **changed)


CALLS = [
    *(
        (lambda name=name: MADE_FOR.with_(**{name: PLAN}), f"baseline {name} is Plan: a {kind}number is needed")
        for name, kind in (("clips", "whole "), ("batch", "whole "), ("lr_batch", "whole "), ("lr", ""), ("epochs", ""))
    ),
    (lambda: MADE_FOR.with_(decay=PLAN), "baseline decay is Plan: NoDecay()"),
    (lambda: MADE_FOR.with_(roles={"head": 0.1}), "baseline roles is {'head': 0.1}: a dict of Role(...) by name"),
    (lambda: MADE_FOR.with_(roles=PLAN), "baseline roles is Plan: a dict of Role(...) by name"),
    *(
        (lambda make=make: make(PLAN), f"baseline is Plan, not a vcycle.Baseline: the call is vcycle.{make.__name__}(")
        for make in (vcycle.constant, vcycle.multigrid, vcycle.cascade, vcycle.superresolution)
    ),
    (lambda: vcycle.large_minibatch(PLAN, 2), "baseline is Plan, not a vcycle.Baseline: the call is"),
    (lambda: vcycle.large_minibatch(MADE_FOR, PLAN), "minibatch factor is Plan: a whole number is needed"),
    (lambda: vcycle.control(MADE_FOR), "plan is Baseline, not a vcycle.Plan: the call is vcycle.control(plan)"),
    (lambda: vcycle.control(PLAN, epoch_factor="2"), "epoch_factor is '2': a number is needed"),
    (lambda: vcycle.cascade(MADE_FOR, batch_growth=PLAN), "batch_growth is Plan: a number is needed"),
    (lambda: vcycle.cascade(MADE_FOR, epoch_factor=PLAN), "epoch_factor is Plan: a number is needed"),
    (lambda: vcycle.cascade(MADE_FOR, steps=PLAN), "steps is Plan: a number is needed"),
    (lambda: vcycle.cascade(MADE_FOR, weights=PLAN), "weights is Plan: a list of numbers is needed"),
    (lambda: vcycle.cascade(MADE_FOR, weights=3), "weights is 3: a list of numbers is needed"),
    (lambda: vcycle.cascade(MADE_FOR, weights="1111"), "weights is '1111': a list of numbers is needed"),
    (lambda: vcycle.cascade(MADE_FOR, lr_scaling=PLAN), "lr_scaling Plan is unknown: linear"),
    (lambda: vcycle.cascade(MADE_FOR, finish=PLAN), "finish Plan is unknown: law"),
    (lambda: vcycle.cascade(MADE_FOR, frames_multiple=PLAN), "frames_multiple is Plan; accepted: a whole number"),
    (lambda: vcycle.cascade(MADE_FOR, shapes=0.5), "grid scales are 0.5: a list is needed"),
    (lambda: vcycle.cascade(MADE_FOR, shapes=PLAN), "grid scale Step: a pair of numbers is accepted"),
    (lambda: vcycle.constant(MADE_FOR, shape=0.5), "grid scale 0.5: a pair of numbers is accepted"),
    (lambda: vcycle.multigrid(MADE_FOR, cycles=2.0), "cycles is 2.0: a whole number is needed"),
    (lambda: vcycle.multigrid(MADE_FOR, short_sizes=0.5), "short_sizes is 0.5: a list of numbers is needed"),
    (lambda: vcycle.superresolution(MADE_FOR, nesting=PLAN), "nesting Plan is unknown: hierarchical"),
    (
        lambda: vcycle.superresolution(MADE_FOR.with_(decay=vcycle.CosineDecay()), sizes=32),
        "sizes is 32: a list of whole numbers is needed",
    ),
    (lambda: vcycle.Scale.of("1", 1), "grid scale: its time is '1': a number is needed"),
    (lambda: vcycle.StepDecay(milestones=94), "milestones is 94: a list of numbers is needed"),
    (lambda: vcycle.StepDecay(factors=0.1), "LR factors is 0.1: a list of numbers is needed"),
    (lambda: vcycle.StepDecay(gamma="0.1"), "gamma is '0.1': a number is needed"),
    (lambda: vcycle.CosineDecay(floor=PLAN), "cosine floor is Plan: a number is needed"),
    (lambda: vcycle.CurveDecay(points=0.5), "points 0.5 of an LR curve: pairs of numbers"),
    (lambda: vcycle.RampWarmup(length=PLAN), "warm-up length is Plan: a number is needed"),
    (lambda: vcycle.FactorWarmup(steps="5"), "warm-up steps is '5': a whole number is needed"),
    (lambda: vcycle.Role(multiplier="0.1"), "role multiplier is '0.1': a number is needed"),
    (lambda: steps(start=PLAN[3]), "start is Step, not the index of a step: give step.index, here 3"),
    (lambda: steps(stop=PLAN[3]), "stop is Step, not the index of a step: give step.index, here 3"),
    (lambda: steps(start=PLAN), "start is Plan: a whole number is needed"),
    (lambda: steps(start="3"), "start is '3': a whole number is needed"),
    (lambda: steps(start=1.0), "start is 1.0: a whole number is needed"),
    (lambda: steps(start=len(PLAN) + 1), "steps 5 to 4 are not in the plan, which has steps 0 to 4"),
    (lambda: steps(stop="3"), "stop is '3': a whole number is needed"),
    (lambda: steps(seed=PLAN), "seed is Plan: a whole number is needed"),
    (lambda: steps(seed=0.5), "seed is 0.5: a whole number is needed"),
    (lambda: steps(workers=PLAN), "workers is Plan: a whole number is needed"),
    (lambda: steps(workers="2"), "workers is '2': a whole number is needed"),
    (lambda: steps(timeout="60"), "timeout is '60': a number is needed"),
    (lambda: steps(prefetch=PLAN), "prefetch is Plan: a whole number is needed"),
    (lambda: steps(repeats=PLAN), "repeats=Plan: must be a whole number"),
    (lambda: steps(rank="0", world=1), "rank is '0': a whole number is needed"),
    (lambda: vcycle.follow([], PLAN, start=PLAN[3]), "start is Step, not the index of a step: give step.index, here 3"),
    (lambda: vcycle.apply(PLAN, MODEL, OPTIMIZER), f"step is Plan, not a vcycle.Step: {APPLY}"),
    (lambda: vcycle.apply(0, MODEL, OPTIMIZER), f"step is int, not a vcycle.Step: {APPLY}"),
    (lambda: vcycle.apply(PLAN[0], OPTIMIZER, MODEL), f"model is SGD, not a torch.nn.Module: {APPLY}"),
    (lambda: vcycle.apply(PLAN[0], MODEL, ITEMS[0]), f"optimizer is Tensor, not a torch.optim.Optimizer: {APPLY}"),
    (lambda: vcycle.PlanLR(PLAN, OPTIMIZER), "plan is SGD, not a vcycle.Plan: the call is vcycle.PlanLR(optimizer, pl"),
    (lambda: vcycle.PlanLR(MODEL, PLAN), "optimizer is Linear, not a torch.optim.Optimizer: the call is vcycle.PlanLR"),
    (lambda: vcycle.PlanLR(OPTIMIZER, PLAN, start=PLAN[3]), "start is Step, not the index of a step: give step.index"),
    *(
        (lambda call=call: call(OPTIMIZER), f"model is SGD, not a torch.nn.Module: the call is vcycle.{call.__name__}(")
        for call in (vcycle.convert_batchnorm, vcycle.revert_batchnorm, vcycle.any_shape, vcycle.shape_constraints)
    ),
    (
        lambda: vcycle.one_step(OPTIMIZER).__enter__(),
        "model is SGD, not a torch.nn.Module: the call is vcycle.one_step",
    ),
    (
        lambda: nn_names.freeze(OPTIMIZER, "backbone"),
        "model is SGD, not a torch.nn.Module: the call is vcycle.nn.freeze(",
    ),
    (
        lambda: nn_names.set_bn_batch(OPTIMIZER, 8),
        "model is SGD, not a torch.nn.Module: the call is vcycle.nn.set_bn_bat",
    ),
    (
        lambda: vcycle.BatchPartition.of(PLAN),
        "step is Plan, not a vcycle.Step: the call is vcycle.BatchPartition.of(step",
    ),
    (lambda: vcycle.GridSampler(frames="8", size=32), "frames is '8': a whole number is needed"),
    (lambda: PLAN.iterate(PLAN[3]), "start is Step, not the index of a step: give step.index, here 3"),
    (lambda: PLAN[0].lr_of(PLAN), "parameter role Plan is not in the plan: it has none"),
    (lambda: vcycle.Plan.from_json(3), "a plan is not valid JSON: the JSON object must be str"),
    (lambda: steps(balance=[0, 1] * 8), "balance is list, not a vcycle.data.Balance: give Balance(groups)"),
    (lambda: steps(layout=PLAN), "layout=Plan: must be CTHW, TCHW or THWC"),
    (lambda: steps(seed=2**63), "seed is 9223372036854775808: a signed number of 64 bits is needed"),
    (
        lambda: vcycle.CurveDecay(points=[(0.0, 1.0), *((0.5, 1.0),) * 1000]),
        "fractions [0.0, 0.5, 0.5, 0.5, 0.5, 0.5, ...] of an LR curve must increase",
    ),
    (lambda: vcycle.convert_batchnorm(MODEL, PLAN), "bn_batch is Plan; accepted: a whole number"),
    (lambda: steps(replaced=3), "replaced is 3: a dict of indices of the dataset by position is needed"),
    (lambda: steps(grids=3), "grids is int, not a vcycle.GridSampler: the call is vcycle.steps(dataset, plan, grids="),
    (lambda: steps(rank=PLAN), "rank=Plan, world=None: give both, or neither"),
    (lambda: next(steps(key=PLAN)), "item 9 is Tensor: with key=Plan, it must be a dict"),
    (lambda: PLAN["3"], "step is '3': a whole number is needed"),
    (lambda: PLAN[1.0], "step is 1.0: a whole number is needed"),
    (lambda: PLAN[PLAN[3]], "step is Step, not the index of a step: give step.index, here 3"),
    (lambda: PLAN["1":], "start of a slice is '1': a whole number is needed"),
    (lambda: PLAN[: PLAN[3]], "stop of a slice is Step, not the index of a step: give step.index, here 3"),
    (lambda: PLAN[::1.0], "step of a slice is 1.0: a whole number is needed"),
    (lambda: PLAN.samples_before("3"), "step is '3': a whole number is needed"),
    (lambda: PLAN.epochs_before(None), "step is None: a whole number is needed"),
    (lambda: PLAN.counts_before("3"), "step is '3': a whole number is needed"),
    (lambda: PLAN.work(3), "cost is 3: a function of a BatchShape, or None, is needed"),
    (lambda: PLAN.saving("flops"), "cost is 'flops': a function of a BatchShape, or None, is needed"),
    (lambda: PLAN.table(3), "cost is 3: a function of a BatchShape, or None, is needed"),
    (lambda: PLAN.figure(3), "cost is 3: a function of a BatchShape, or None, is needed"),
    (lambda: PLAN.require(MODEL), "needs is Linear, not a vcycle.plan.ShapeConstraints: the call is plan.require("),
    (lambda: PLAN.to_json(indent="2"), "indent is '2': a whole number is needed"),
    (lambda: PLAN[0].at(PLAN[1]), "cell is Step, not a vcycle.plan.BatchShape: the call is step.at(cell)"),
    (lambda: PLAN[0].lr_of([]), "parameter role [] is not in the plan: it has none"),
    (lambda: MADE_FOR.at(0.5), "scale is float, not a vcycle.Scale: the call is baseline.at(scale)"),
    (lambda: MADE_FOR.at(vcycle.Scale.of(1, 1), bn_factor="2"), "bn_factor is '2': a whole number is needed"),
    (lambda: MADE_FOR.at(vcycle.Scale.of(1, 1), growth=None), "growth is None: a number is needed"),
    (lambda: MADE_FOR.stretched("2"), "ratio is '2': a number is needed"),
    (lambda: MADE_FOR.with_(roles={1: vcycle.Role()}), "baseline roles is {1: Role("),
    (lambda: rates.ConstantRate(lr="0.1"), "rate lr is '0.1': a number is needed"),
    (lambda: rates.CosineRate(peak=0.1, end=None), "rate end is None: a number is needed"),
    (lambda: rates.CurveRate(lr=0.1, points=3), "points 3 of an LR curve: pairs of numbers"),
    (lambda: rates.CurveRate(lr=PLAN, points=((0, 1), (1, 0))), "rate lr is Plan: a number is needed"),
    *(
        (lambda rate=rate, name=name, given=given: getattr(rate, name)(*given), f"{argument} is {said} needed")
        for rate in (
            rates.ConstantRate(lr=0.1),
            rates.CosineRate(peak=0.1),
            rates.CurveRate(lr=0.1, points=((0, 1), (1, 0))),
        )
        for name, given, argument, said in (
            ("at", ("0",), "fraction", "'0': a number is"),
            ("scaled", ([],), "factor", "[]: a number is"),
            ("part", (0, "1"), "part", "(0, '1'): a list of numbers is"),
        )
    ),
    (lambda: vcycle.FactorWarmup(steps=3).at("1"), "step is '1': a number is needed"),
    (lambda: vcycle.Role().at("1"), "step is '1': a number is needed"),
    (lambda: vcycle.StepDecay(milestones=(1,)).factor("1"), "LR stage is '1': a whole number is needed"),
    (lambda: vcycle.StepDecay(milestones=(1,), factors=(0.5,)).factor(2), "LR stage 2 is not one of 2: 0 is the fi"),
    (lambda: vcycle.CurveDecay.sampled(0.5), "curve is 0.5: a function of the fraction of the training is needed"),
    (lambda: vcycle.CurveDecay.sampled(str), "points ((0.0, '0.0'), (0.001, '0.001'), "),
    (lambda: vcycle.Scale.of(1, 1).frames("8"), "full is '8': a number is needed"),
    (lambda: vcycle.Scale.of(1, 1).size(None), "full is None: a number is needed"),
    (lambda: vcycle.Scale.of(1, 1).grown("2"), "power is '2': a number is needed"),
    (
        lambda: vcycle.plan.BatchShape(frames="8", size=32, batch=4, bn_batch=4),
        "frames is '8': a whole number is needed",
    ),
    (lambda: replace(BATCH, batch=4.0), "batch is 4.0: a whole number is needed"),
    (lambda: replace(BATCH, tokens=None), "tokens is None: a number is needed"),
    (lambda: vcycle.plan.ShapeConstraints(window="8"), "a model's window is '8'; accepted: a whole number, at least 1"),
    (lambda: vcycle.plan.ShapeConstraints().violation((8, 32, 32)), "shape is tuple, not a vcycle.Shape: the call is"),
    (lambda: vcycle.plan.rank_slice("4", 2, 0, 1), "batch is '4': a whole number is needed"),
    (lambda: vcycle.plan.rank_slice(4, 2.0, 0, 1), "bn_batch is 2.0: a whole number is needed"),
    (lambda: vcycle.plan.rank_slice(4, 0, 0, 1), "batch 4 in groups of bn_batch 0: at least 1 of each is needed"),
    (lambda: vcycle.plan.rank_slice(4, 2, 0, None), "world is None: a whole number is needed"),
    *(
        (lambda changed=changed: replace(PLAN.stages[0], **changed), message)
        for changed, message in (
            ({"name": 1}, "stage name is 1: a string is needed"),
            ({"steps": "3"}, "stage steps is '3': a whole number is needed"),
            ({"pattern": BATCH}, "stage pattern is BatchShape: a tuple of BatchShape is needed"),
            ({"pattern": (PLAN[0],)}, "stage pattern is (Step("),
            ({"rate": 0.1}, "stage rate is 0.1: one of ConstantRate(...), CosineRate(...), CurveRate(...) is needed"),
            ({"lr_factor": None}, "stage lr_factor is None: a number is needed"),
        )
    ),
    *(
        (lambda changed=changed: replace(PLAN, **changed), message)
        for changed, message in (
            ({"name": None}, "plan name is None: a string is needed"),
            ({"baseline": PLAN}, "baseline is Plan, not a vcycle.Baseline: the call is vcycle.Plan("),
            ({"stages": PLAN}, "plan stages is Plan: a tuple of Stage is needed"),
            ({"stages": (BATCH,)}, "plan stages is (BatchShape("),
            ({"warmup_samples": "8"}, "plan warmup_samples is '8': a number is needed"),
            ({"mirrored": None}, "plan mirrored is None: True or False is needed"),
            ({"notes": 3}, "plan notes is 3: a tuple of str is needed"),
        )
    ),
]


@pytest.mark.parametrize(("call", "message"), CALLS, ids=[message[:50] for _, message in CALLS])
def test_an_argument_of_the_wrong_type_is_refused_by_its_name_in_one_short_line(call, message):
    with pytest.raises((PlanError, DataError), match=f"^{re.escape(message)}") as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_lists_are_taken_for_tuples_and_any_whole_number_for_a_step():
    stages = [replace(stage, pattern=list(stage.pattern)) for stage in PLAN.stages]
    assert replace(PLAN, stages=stages, notes=list(PLAN.notes)) == PLAN
    assert PLAN[np.int64(3)] == PLAN[torch.tensor(3)] == PLAN[3]
    assert PLAN[np.int64(1) : torch.tensor(3)] == [PLAN[1], PLAN[2]]


def test_numbers_of_numpy_are_numbers():
    plain = vcycle.cascade(MADE_FOR, weights=[1, 2, 3, 4], epoch_factor=1.5, batch_growth=0.5)
    weights, half = np.arange(1, 5), np.float32(0.5)
    assert vcycle.cascade(MADE_FOR, weights=weights, epoch_factor=3 * half, batch_growth=half) == plain
    assert vcycle.constant(MADE_FOR, shape=(half, 1)) == vcycle.constant(MADE_FOR, shape=vcycle.Scale.of(0.5, 1))
    (first, _), *_ = steps(start=np.int64(3), stop=np.int64(4), seed=np.int64(1))
    assert first == PLAN[3]
