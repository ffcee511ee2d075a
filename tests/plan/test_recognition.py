"""Long and short cycles agree with the reference's epoch tables, to within its rounding.

The reference (PySlowFast, June 2020) lays its schedule out in epochs and rounds every edge to a whole one; a plan
counts steps and rounds those. Hence each edge may differ by up to one epoch, and the total by what the rounding is
worth: 0.03 % for the 239 epochs of Kinetics, up to 1.9 % for recipes of 22 to 57 epochs.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest

from vcycle.plan import (
    LONG_SHAPES,
    Baseline,
    ConstantRate,
    CosineDecay,
    CurveDecay,
    NoDecay,
    Plan,
    RampWarmup,
    Scale,
    Stage,
    StepDecay,
    cascade,
    constant,
    control,
    multigrid,
)
from vcycle.plan.rates import CosineRate, CurveRate, Rate
from vcycle.plan.shape import FULL

# What running the reference's code gave: the epochs at which its stages end. The last but one is the middle of the
# fine-tuning phase, an entry of its SOLVER.STEPS; a stage of the reference may round to no epoch at all (SSv2).
REFERENCE = {
    "kinetics_slowfast_8x8_r50": (73, 110, 142, 158, 205, 228, 248, 259, 291, 308, 322, 329, 343, 358),
    "ssv2_slowfast_16x8_r50": (11, 16, 21, 24, 27, 28, 30, 30, 31, 33),
    "charades_slowfast_16x8_r50": (31, 47, 60, 67, 73, 76, 79, 80, 83, 86),
    "kinetics_i3d_paper": (33, 49, 63, 70, 103, 119, 133, 140, 149, 159),
    "kinetics_i3d_one_gpu": (16, 23, 30, 33, 44, 49, 53, 55, 57, 60),
}

# Mean batch factor of each long shape under the short cycle: (16, 8, 8), (8, 4, 4), (8, 4, 2), (4, 2, 1).
MEANS = (Fraction(32, 3), Fraction(16, 3), Fraction(14, 3), Fraction(7, 3))


def stage_ends(plan: Plan) -> list[float]:
    """The epochs at which the stages of a plan end."""
    return [plan.epochs_before(step) for step in accumulate(stage.steps for stage in plan.stages)]


def lr_at_epoch(plan: Plan, epoch: float) -> float:
    """The LR of the first step that begins at or past an epoch."""
    samples = epoch * plan.baseline.clips
    return plan[bisect_left(range(len(plan)), samples, key=plan.samples_before)].lr


def reference_saving(ends: tuple[int, ...], epochs: int) -> Fraction:
    """How many times fewer iterations the reference takes than the baseline, from its epoch table."""
    lengths = [b - a for a, b in zip((0, *ends), ends, strict=False)]
    means = [*MEANS * ((len(ends) - 2) // len(MEANS)), MEANS[-1], MEANS[-1]]
    return epochs / sum(Fraction(n) / mean for n, mean in zip(lengths, means, strict=True))


@pytest.mark.parametrize("name", REFERENCE)
def test_each_edge_lies_within_one_epoch_of_the_references(references: dict[str, Plan], name: str) -> None:
    assert stage_ends(references[name]) == pytest.approx(REFERENCE[name], abs=1)


# Savings as measured on the reference; those of the two I3D recipes, which it does not ship, follow from its epochs.
@pytest.mark.parametrize(
    ("name", "saving", "tolerance"),
    [
        ("kinetics_slowfast_8x8_r50", 3.42, 0.001),
        ("ssv2_slowfast_16x8_r50", 3.38, 0.02),
        ("charades_slowfast_16x8_r50", 3.46, 0.02),
        ("kinetics_i3d_paper", 3.28, 0.02),
        ("kinetics_i3d_one_gpu", 3.50, 0.02),
    ],
)
def test_the_total_of_steps_differs_from_the_references_by_its_rounding_alone(
    references: dict[str, Plan], name: str, saving: float, tolerance: float
) -> None:
    plan = references[name]
    theirs = reference_saving(REFERENCE[name], round(plan.baseline.length))
    assert float(theirs) == pytest.approx(saving, abs=0.005)
    assert plan.saving().steps == pytest.approx(float(theirs), rel=tolerance)


def test_kinetics_takes_the_references_iterations_and_saves_what_the_paper_says(
    references: dict[str, Plan],
) -> None:
    plan = references["kinetics_slowfast_8x8_r50"]
    assert plan.baseline.total_steps == 896_250
    assert len(plan) == pytest.approx(261_864, rel=0.001)
    assert round(plan.saving().steps, 2) == 3.42
    assert round(plan.saving().work, 2) == 3.43
    assert plan.epochs == pytest.approx(1.5 * 239, rel=1e-4)


@pytest.mark.parametrize(
    ("epoch_factor", "ends"),
    [
        (1.0, (49, 73, 95, 105, 136, 152, 166, 172, 194, 205, 215, 219, 229, 239)),
        (2.0, (98, 146, 189, 211, 273, 304, 331, 345, 388, 410, 429, 439, 458, 478)),
    ],
)
def test_other_epoch_factors_agree_with_the_reference_too(
    kinetics: Baseline, epoch_factor: float, ends: tuple[int, ...]
) -> None:
    assert stage_ends(multigrid(kinetics, epoch_factor=epoch_factor)) == pytest.approx(ends, abs=1)


def test_batches_come_from_nominal_fractions(plans: dict[str, Plan]) -> None:
    # 64·8·2 = 1024 for a quarter of the frames and half of the area, although 158² is not half of 224² (that would
    # give 515); the two short sizes multiply by 4 and 2, or by 2 where the base is S/√2 itself.
    plan = plans["kinetics_slowfast_8x8_r50"]
    assert [[c.batch for c in stage.pattern] for stage in plan.stages[:4]] == [
        [1024, 512, 512],
        [512, 256, 256],
        [512, 256, 128],
        [256, 128, 64],
    ]


def test_the_short_cycle_never_exceeds_the_base_size(plans: dict[str, Plan]) -> None:
    plan = plans["kinetics_slowfast_8x8_r50"]
    assert [[c.size for c in stage.pattern] for stage in plan.stages[:4]] == [
        [112, 158, 158],
        [112, 158, 158],
        [112, 158, 224],
        [112, 158, 224],
    ]
    assert [[c.frames for c in stage.pattern] for stage in plan.stages[:4]] == [[8] * 3, [16] * 3, [16] * 3, [32] * 3]


def test_batchnorm_groups_grow_with_the_short_cycle_only(plans: dict[str, Plan], kinetics: Baseline) -> None:
    plan = plans["kinetics_slowfast_8x8_r50"]
    assert [[c.bn_batch for c in stage.pattern] for stage in plan.stages[:4]] == [
        [16, 8, 8],
        [16, 8, 8],
        [32, 16, 8],
        [32, 16, 8],
    ]
    few = multigrid(kinetics.with_(batch=4))  # a batch below 8 is its own group
    assert [c.bn_batch for c in few.stages[3].pattern] == [16, 8, 4]
    assert few.stages[0].base.batch == 32


def test_other_sizes_and_frames_scale_alike(kinetics: Baseline) -> None:
    large = multigrid(kinetics.with_(size=320))
    assert [[c.size for c in s.pattern] for s in large.stages[:4]] == [[160, 226, 226]] * 2 + [[160, 226, 320]] * 2
    brief = multigrid(kinetics.with_(frames=16))
    assert [s.base.frames for s in brief.stages[:4]] == [4, 8, 8, 16]
    usual = multigrid(kinetics)
    assert stage_ends(large) == stage_ends(usual) == stage_ends(brief)


def test_a_step_costs_what_a_step_of_the_baseline_costs(plans: dict[str, Plan]) -> None:
    # The reference: 0.997 or 0.998 voxels per iteration for all four base shapes.
    plan = plans["kinetics_slowfast_8x8_r50"]
    for stage in plan.stages:
        mean = sum(c.voxels for c in stage.pattern) / len(stage.pattern) / plan.baseline_shape.voxels
        assert 0.9965 < mean < 0.9985


def test_the_short_cycle_runs_over_global_steps(references: dict[str, Plan]) -> None:
    plan = references["kinetics_slowfast_8x8_r50"]
    first = plan.stages[0].steps  # 25,741 = 3·8,580 + 1: the second stage begins inside a short cycle
    assert first % 3 == 1
    assert [plan[first + i].shape.size for i in range(4)] == [158, 158, 112, 158]
    assert [plan[k].shape.size for k in range(3)] == [112, 158, 158]
    assert [plan[len(plan) - len(plan) % 3 - 3 + i].shape.size for i in range(3)] == [112, 158, 224]


def test_the_lr_follows_the_long_cycle_and_the_warmup_keeps_its_samples(references: dict[str, Plan]) -> None:
    plan = references["kinetics_slowfast_8x8_r50"]
    # The reference's LR by epoch: a ramp over 34 epochs to the LR of eight times the batch.
    assert plan[0].lr == pytest.approx(0.01)
    assert lr_at_epoch(plan, 17) == pytest.approx(0.405, rel=0.001)
    assert lr_at_epoch(plan, 34) == pytest.approx(0.8)
    factors = (8, 4, 2, 1, 0.8, 0.4, 0.2, 0.1, 0.08, 0.04, 0.02, 0.01, 0.01, 0.001)
    ends = stage_ends(plan)
    for begin, end, factor in zip([34.0, *ends], ends, factors, strict=False):
        assert lr_at_epoch(plan, (begin + end) / 2) == pytest.approx(0.1 * factor)


def test_the_short_cycle_leaves_the_lr_alone(plans: dict[str, Plan]) -> None:
    plan = plans["kinetics_i3d_paper"]
    assert len({plan[k].batch for k in range(3)}) == 2
    assert len({plan[k].lr for k in range(plan.stages[0].steps)}) == 1


def test_a_larger_batch_scales_the_stated_lr(kinetics: Baseline) -> None:
    # The paper's 512 clips at 0.8 are the recipe's 64 at 0.1.
    large = kinetics.with_(batch=512, lr_batch=64)
    assert large.peak_lr == pytest.approx(0.8)
    assert multigrid(large).stages[0].rate.at(0) == pytest.approx(6.4)
    assert multigrid(large).stages[0].base.batch == 4096
    # So is the LR that the ramp starts at.
    assert (constant(large)[0].lr, constant(kinetics)[0].lr) == (pytest.approx(0.08), pytest.approx(0.01))


def test_the_fine_tuning_phase_is_shortened_in_steps_like_the_cycles_before_it(kinetics: Baseline) -> None:
    plan = multigrid(kinetics)
    halves = [s for s in plan.stages if s.name.startswith("fine-tuning")]
    assert [s.base for s in halves] == [plan.baseline_shape] * 2
    assert abs(halves[0].steps - halves[1].steps) <= 1
    saved = (896_250 - 43 * 3750) / sum(s.steps for s in plan.stages[:-2])  # LR stages 1 to 3
    assert 43 * 3750 / sum(s.steps for s in halves) == pytest.approx(saved, rel=1e-4)


def test_the_short_cycle_alone_takes_three_sevenths_of_the_steps_and_no_fine_tuning(kinetics: Baseline) -> None:
    # The reference multiplies its milestones by 1.5: 141, 231, 294, 358.
    plan = multigrid(kinetics, long_shapes=())
    assert plan.name == "short"
    assert stage_ends(plan) == pytest.approx((141, 231, 294, 358.5), abs=0.01)
    expected = [1.5 * epochs * 3750 * 3 / 7 for epochs in (94, 60, 42, 43)]
    assert [s.steps for s in plan.stages] == pytest.approx(expected, abs=1)
    assert [s.rate.at(0) for s in plan.stages] == pytest.approx([0.1, 0.01, 0.001, 0.0001])


def test_the_long_cycle_alone_has_one_shape_per_stage(kinetics: Baseline) -> None:
    plan = multigrid(kinetics, short_sizes=())
    assert plan.name == "long"
    assert [s.base.batch for s in plan.stages[:4]] == [512, 256, 128, 64]
    assert all(len(s.pattern) == 1 and s.base.bn_batch == 8 for s in plan.stages)
    # Factors 8, 4, 2, 1 sum to 15: a stage of N steps takes 4·N/15 in iterations, before the epoch factor.
    cycles = plan.stages[:-2]
    assert sum(s.steps for s in cycles) / sum(s.steps * s.base.batch / 64 for s in cycles) == pytest.approx(
        4 / 15, rel=1e-4
    )


@pytest.mark.parametrize("shapes", [LONG_SHAPES[1:], LONG_SHAPES[2:], LONG_SHAPES[:1], LONG_SHAPES[::3]])
def test_any_part_of_the_long_cycle_will_do(kinetics: Baseline, shapes: tuple[Scale, ...]) -> None:
    plan = multigrid(kinetics, long_shapes=shapes)
    assert len(plan.stages) == 3 * len(shapes) + 2
    assert plan.epochs == pytest.approx(358.5, rel=1e-4)


def test_neither_cycle_is_the_baseline_at_another_length(kinetics: Baseline) -> None:
    plan = multigrid(kinetics, long_shapes=(), short_sizes=(), epoch_factor=1)
    assert plan == constant(kinetics)
    assert len(plan) == kinetics.total_steps


def test_without_fine_tuning_the_last_lr_stage_is_a_long_cycle_too(kinetics: Baseline) -> None:
    plan = multigrid(kinetics, fine_tune=False)
    assert len(plan.stages) == 16
    assert plan.stages[-1].rate.at(0) == pytest.approx(1e-4)
    assert plan.epochs == pytest.approx(358.5, rel=1e-4)


@pytest.mark.parametrize("decay", [NoDecay(), CosineDecay(), StepDecay()])
def test_a_law_without_drops_has_three_cycles_over_82_percent_of_the_samples(
    kinetics: Baseline, decay: NoDecay | CosineDecay | StepDecay
) -> None:
    plan = multigrid(kinetics.with_(decay=decay))
    assert [s.name[:7] for s in plan.stages] == ["cycle 1"] * 4 + ["cycle 2"] * 4 + ["cycle 3"] * 4 + ["fine-tu"]
    shares = [end / plan.epochs for end in stage_ends(plan)]
    assert [shares[3], shares[7], shares[11]] == pytest.approx([0.82 / 3, 0.82 * 2 / 3, 0.82], abs=1e-4)
    assert (plan.stages[-1].name, plan.stages[-1].base) == ("fine-tuning", plan.baseline_shape)
    assert plan.name == "long+short"


def test_a_cosine_is_walked_by_samples_under_the_batch_factor(kinetics: Baseline) -> None:
    plan = multigrid(kinetics.with_(decay=CosineDecay(), warmup=None))
    whole = constant(kinetics.with_(decay=CosineDecay(), warmup=None))
    for k in range(0, len(plan), 9_973):
        step = plan[k]
        same = whole[round(step.first_sample / plan.samples * len(whole))]
        assert step.lr == pytest.approx(plan.stages[step.stage].lr_factor * same.lr, rel=1e-3, abs=1e-6)


def triangle(fraction: float) -> float:
    """A curve that no other law gives: up to 1 at a quarter of the training, down to 0.2 at its end."""
    return 4 * fraction if fraction < 0.25 else 1 - 0.8 * (fraction - 0.25) / 0.75


def test_a_curve_of_ones_own_is_followed_by_samples_under_the_batch_factor(kinetics: Baseline) -> None:
    baseline = kinetics.with_(decay=CurveDecay.sampled(triangle), warmup=None)
    for plan in (constant(baseline), multigrid(baseline), multigrid(baseline, long_shapes=())):
        for step in (plan[k] for k in range(0, len(plan), 9_973)):
            factor = 0.1 * plan.stages[step.stage].lr_factor
            assert step.lr == pytest.approx(factor * triangle(step.first_sample / plan.samples), abs=1e-6)
        assert Plan.from_json(plan.to_json()) == plan


def test_a_cascade_runs_a_curve_of_ones_own_from_its_start_to_its_end_at_the_full_shape(kinetics: Baseline) -> None:
    plan = cascade(kinetics.with_(decay=CurveDecay.sampled(lambda fraction: (1 - fraction) ** 2), warmup=None))
    *coarse, full = plan.stages
    assert [stage.rate.at(f) for stage in coarse for f in (0, 1)] == pytest.approx([0.8, 0.8, 0.4, 0.4, 0.2, 0.2])
    assert full.base == plan.baseline_shape
    for fraction in (0, 0.3, 0.5, 0.9, 1):
        assert full.rate.at(fraction) == pytest.approx(0.1 * (1 - fraction) ** 2, abs=1e-6)
    assert control(plan).stages[-1].rate.at(0.5) == pytest.approx(0.025, abs=1e-6)


def test_a_curve_of_a_cosine_gives_the_plans_of_the_cosine(kinetics: Baseline) -> None:
    curve = CurveDecay.sampled(lambda fraction: (1 + math.cos(math.pi * fraction)) / 2)
    for plan_of in (constant, multigrid, cascade):
        curved, cosine = (plan_of(kinetics.with_(decay=decay)) for decay in (curve, CosineDecay()))
        assert len(curved) == len(cosine)
        steps = range(0, len(cosine), 9_973)
        assert [curved[k].lr for k in steps] == pytest.approx([cosine[k].lr for k in steps], abs=1e-5)


def test_a_ramp_aims_at_the_step_where_it_ends_and_no_later_than_at_the_last() -> None:
    ramp = RampWarmup(length=0.25, start_lr=0.01)
    baseline = Baseline(batch=8, frames=4, size=16, clips=80, epochs=1, lr=0.1, decay=CosineDecay(), warmup=ramp)
    whole = constant(baseline)  # 10 steps
    for ends in (16, 20, 73, 79):  # where a step starts, within a step, and within the last
        plan = replace(whole, warmup_samples=ends)
        due = 0.05 * (1 + math.cos(math.pi * min(-(-ends // 8), 9) / 10))
        assert plan[1].lr == pytest.approx(0.01 + (due - 0.01) * 8 / ends, rel=1e-9)


def test_a_ramp_that_ends_where_a_stage_begins_aims_at_the_start_of_its_schedule() -> None:
    baseline = Baseline(batch=8, frames=4, size=16, clips=160, epochs=1, lr=0.1, warmup=RampWarmup(length=0.5))
    pattern = (baseline.at(FULL),)
    stages = (
        Stage(name="flat", steps=10, pattern=pattern, rate=ConstantRate(lr=0.1)),
        Stage(name="cosine", steps=10, pattern=pattern, rate=CosineRate(peak=0.4)),
    )
    plan = Plan(name="mine", baseline=baseline, stages=stages, warmup_samples=80)
    assert [plan[k].lr for k in range(11)] == pytest.approx([0.04 * k for k in range(11)])


def test_a_warmup_may_outlast_a_shape(kinetics: Baseline) -> None:
    # The first shape holds 22 epochs. The ramp aims at the LR due where it ends and ignores the edge, as the
    # reference's does.
    short = kinetics.with_(epochs=60, decay=StepDecay(milestones=(30,)))
    plan = multigrid(short)
    due = plan.stages[1].rate.at(0)
    assert stage_ends(plan)[0] < 34 < stage_ends(plan)[1]
    assert due == pytest.approx(0.4)
    for epoch in (5, 17, 30):
        assert lr_at_epoch(plan, epoch) == pytest.approx(0.01 + (due - 0.01) * epoch / 34, rel=0.002)
    assert lr_at_epoch(plan, 34) == pytest.approx(due)


@pytest.mark.parametrize("decay", [NoDecay(), CosineDecay(), StepDecay(milestones=(94, 154, 196))])
def test_a_cascade_decays_at_the_full_shape_only(kinetics: Baseline, decay: NoDecay | CosineDecay | StepDecay) -> None:
    plan = cascade(kinetics.with_(decay=decay))
    coarse = plan.stages[:3]
    assert [(s.base.frames, s.base.size, s.base.batch) for s in coarse] == [
        (16, 112, 512),
        (32, 112, 256),
        (32, 158, 128),
    ]
    assert [s.rate.at(f) for s in coarse for f in (0, 1)] == pytest.approx([0.8, 0.8, 0.4, 0.4, 0.2, 0.2])
    full = plan.stages[3:]
    assert {s.base for s in full} == {plan.baseline_shape}
    assert full[0].rate.at(0) == pytest.approx(0.1)
    assert full[-1].rate.at(1) == pytest.approx({NoDecay: 0.1, CosineDecay: 0, StepDecay: 1e-4}[type(decay)])
    assert [s.steps for s in coarse] == [59_750] * 3
    assert sum(s.steps for s in full) == 59_750
    assert plan.epochs == 239


def test_a_cascade_takes_weights_and_the_lr_other_scalings(kinetics: Baseline) -> None:
    plan = cascade(kinetics, weights=(4, 3, 2, 1), lr_scaling="sqrt")
    steps = [*(s.steps for s in plan.stages[:3]), sum(s.steps for s in plan.stages[3:])]
    assert [n / steps[-1] for n in steps] == pytest.approx([4, 3, 2, 1], rel=1e-4)
    assert plan.stages[0].rate.at(0) == pytest.approx(0.1 * 8**0.5)
    assert multigrid(kinetics, lr_scaling="none").stages[0].rate.at(0) == pytest.approx(0.1)


def test_a_cascade_whose_batch_grows_less_makes_more_and_cheaper_updates_of_as_many_samples(kinetics: Baseline) -> None:
    whole, part, none = (cascade(kinetics, batch_growth=growth, lr_scaling="sqrt") for growth in (1, 2 / 3, 0))
    assert [s.base.batch for s in part.stages[:4]] == [256, 161, 102, 64]  # 64 times 8, 4, 2 and 1, to the power 2/3
    assert [s.base.batch for s in none.stages] == [64] * len(none.stages)
    assert [s.rate.at(0) / 0.1 for s in part.stages[:4]] == pytest.approx([2, 4 ** (1 / 3), 2 ** (1 / 3), 1])
    assert [s.rate.at(0) for s in none.stages[:4]] == pytest.approx([0.1] * 4)
    assert {s.base.bn_batch for s in part.stages} == {8}
    for plan in (part, none):
        assert plan.samples == pytest.approx(whole.samples, rel=1e-3)
        assert [s.base.shape for s in plan.stages] == [s.base.shape for s in whole.stages]
    assert len(whole) < len(part) < len(none)
    assert len(none) == kinetics.total_steps
    assert control(part).stages[0].rate.at(0) == pytest.approx(0.1)


def test_a_cascade_can_end_with_a_cosine_whatever_the_law(kinetics: Baseline) -> None:
    plan = cascade(kinetics, finish="cosine")
    last = plan.stages[3:]
    assert [(s.steps, s.base) for s in last] == [(59_750, plan.baseline_shape)]
    assert [last[0].rate.at(f) for f in (0, 0.5, 1)] == pytest.approx([0.1, 0.05, 0])
    assert plan.stages[:3] == cascade(kinetics).stages[:3]
    assert control(plan).stages[-1].rate == last[0].rate


def test_drops_may_have_factors_of_their_own_and_name_their_stages(kinetics: Baseline) -> None:
    def names(decay: StepDecay | NoDecay) -> list[str]:
        return [stage.name for stage in constant(kinetics.with_(decay=decay), shape=LONG_SHAPES[0]).stages]

    drops = StepDecay(milestones=(94, 154), factors=(0.3, 0.01))
    plan = constant(kinetics.with_(decay=drops))
    assert [stage.rate.at(0.5) for stage in plan.stages] == pytest.approx([0.1, 0.03, 0.001])
    assert [stage.name for stage in plan.stages] == ["LR ×1", "LR ×0.3", "LR ×0.01"]
    assert names(drops) == ["T/4·S/√2, LR ×1", "T/4·S/√2, LR ×0.3", "T/4·S/√2, LR ×0.01"]
    assert names(StepDecay(milestones=(94,))) == ["T/4·S/√2, LR ×1", "T/4·S/√2, LR ×0.1"]
    assert names(NoDecay()) == ["T/4·S/√2"]
    assert {s.lr_factor for s in constant(kinetics, shape=LONG_SHAPES[0]).stages} == {8}
    assert constant(kinetics.with_(decay=NoDecay())).stages[0].name == "full"
    coarse_to_fine = cascade(kinetics.with_(decay=StepDecay(milestones=(94,))))
    assert [stage.name for stage in coarse_to_fine.stages[-2:]] == ["T·S, LR ×1", "T·S, LR ×0.1"]


RATES = (
    ConstantRate(lr=0.1),
    CosineRate(peak=0.1, floor=0.01, begin=0.1, end=0.7),
    CurveRate(lr=0.1, points=((0, 0.1), (0.3, 1), (0.9, 0.2), (1, 0.01)), begin=0.1, end=1),
)


@pytest.mark.parametrize("rate", RATES)
def test_a_part_of_a_rate_is_that_stretch_of_it_under_any_factor(rate: Rate) -> None:
    for fraction in (0, 0.3, 0.7, 1):
        assert rate.part(0.25, 0.75).scaled(3).at(fraction) == pytest.approx(3 * rate.at(0.25 + 0.5 * fraction))


def test_a_curve_is_straight_between_its_points() -> None:
    curve = CurveRate(lr=2, points=((0, 0.1), (0.3, 1), (0.9, 0.2), (1, 0)))
    places = (0, 0.15, 0.3, 0.6, 0.9, 0.95, 1)
    assert [curve.at(place) for place in places] == pytest.approx([0.2, 1.1, 2, 1.2, 0.4, 0.2, 0])


@pytest.mark.parametrize("build", [constant, multigrid, cascade])
def test_a_budget_in_steps_is_kept_exactly(kinetics: Baseline, build: Callable[..., Plan]) -> None:
    for steps in (14, 100, 99_999):
        assert len(build(kinetics, steps=steps)) == steps


def test_a_warmup_shrinks_with_a_training_shorter_than_the_baseline(kinetics: Baseline) -> None:
    # The ramp's 34 epochs are 14 % of the baseline; a plan with less than its samples keeps the share.
    assert constant(kinetics, epoch_factor=2).warmup_samples == 34 * 240_000
    assert constant(kinetics, epoch_factor=0.5).warmup_samples == 17 * 240_000
    brief = multigrid(kinetics, steps=20_000)
    assert brief.warmup_samples / brief.samples == pytest.approx(34 / 239, rel=1e-3)


def test_images_are_videos_of_one_frame(kinetics: Baseline) -> None:
    plan = multigrid(kinetics.with_(frames=1), long_shapes=(Scale.of(1, 0.5), Scale.of(1, 0.7071), Scale.of(1, 1)))
    assert {cell.frames for cell in plan.shapes} == {1}
    assert [s.base.batch for s in plan.stages[:3]] == [256, 128, 64]


def test_the_control_has_the_plans_lr_curve_without_its_batch_factors(kinetics: Baseline) -> None:
    plan = multigrid(kinetics)
    alike = control(plan)
    assert alike.shapes == (plan.baseline_shape,)
    assert (alike.name, alike.stages[0].name) == ("control of long+short", "as cycle 1, T/4·S/√2")
    assert len(alike) == kinetics.total_steps
    # The stages of a cycle differ in their batch factors alone, so that they become one: the drops remain.
    assert [s.rate.at(0) for s in alike.stages] == pytest.approx([0.1, 0.01, 0.001, 0.0001])
    drops = [stage_ends(plan)[k] / plan.epochs for k in (3, 7, 12)]
    assert [end / alike.epochs for end in stage_ends(alike)[:-1]] == pytest.approx(drops, abs=1e-5)
    assert alike.warmup_samples / alike.samples == pytest.approx(plan.warmup_samples / plan.samples)
    assert alike[0].lr == pytest.approx(0.01)


def test_the_control_of_a_constant_plan_is_that_plan(kinetics: Baseline) -> None:
    plan, alike = constant(kinetics), control(constant(kinetics))
    assert [s.steps for s in alike.stages] == [s.steps for s in plan.stages]
    near = kinetics.with_(lr=1e-6, decay=StepDecay(milestones=(94, 154, 196), gamma=0.6), warmup=None)
    assert len(control(constant(near)).stages) == 4
    for k in range(0, len(plan), 50_021):
        assert alike[k].lr == pytest.approx(plan[k].lr)


def test_a_plan_of_ones_own_has_no_warmup_by_default_and_a_control_of_its_lr(kinetics: Baseline) -> None:
    stage = Stage(name="all", steps=100, pattern=(kinetics.at(FULL),), rate=ConstantRate(lr=0.3))
    plan = Plan(name="mine", baseline=kinetics, stages=(stage,))  # with no samples of the baseline's ramp
    assert plan[0].lr == control(plan)[0].lr == 0.3
    assert not plan.mirrored


def test_the_control_has_a_budget_of_its_own(kinetics: Baseline) -> None:
    assert len(control(cascade(kinetics), epoch_factor=0.5)) == kinetics.total_steps // 2


def test_decimals_stand_for_simple_fractions() -> None:
    assert Scale.of(0.25, 0.7071).batch_factor == 8
    assert Scale.of(0.25, 0.5**0.5).batch_factor == 8
    assert Scale.of(0.75, 0.5).batch_factor == Fraction(16, 3)
    assert Scale.of(1, 0.02).size(224) == 4  # no simple fraction is near
    assert [str(s) for s in LONG_SHAPES] == ["T/4·S/√2", "T/2·S/√2", "T/2·S", "T·S"]
    assert str(Scale.of(0.75, 0.75)) == "0.75T·0.75S"


def test_a_batch_that_does_not_scale_to_a_whole_number_is_rounded(kinetics: Baseline) -> None:
    plan = multigrid(kinetics.with_(batch=5), long_shapes=(Scale.of(0.75, 1),), short_sizes=())
    assert plan.stages[0].base.batch == 7  # 5·4/3 = 6.67
    assert plan.stages[0].lr_factor == pytest.approx(4 / 3)  # the LR keeps to the nominal factor
    assert plan.stages[0].base.frames == 24


def test_training_starts_at_the_ramps_start_or_at_the_full_lr(kinetics: Baseline) -> None:
    assert constant(kinetics.with_(warmup=None))[0].lr == pytest.approx(0.1)
    assert constant(kinetics.with_(warmup=RampWarmup(length=34)))[0].lr == 0


def test_shapes_may_be_written_as_recipes_write_them() -> None:
    scales = (Scale.of(1, 0.5), Scale.of(1, 0.7071), Scale.of(1, 1))
    pairs = [(1, 0.5), [1, 0.7071], (1.0, 1)]
    baseline = Baseline(batch=8, frames=16, size=64, clips=800, epochs=10, lr=0.1)
    assert cascade(baseline, shapes=pairs) == cascade(baseline, shapes=scales)
    assert multigrid(baseline, long_shapes=pairs) == multigrid(baseline, long_shapes=scales)


def test_numbers_of_numpy_and_fractions_are_numbers() -> None:
    plain = Baseline(batch=8, frames=16, size=64, clips=800, epochs=10, lr=0.5)
    odd = Baseline(batch=np.int64(8), frames=np.int32(16), size=64, clips=np.int64(800), epochs=10, lr=Fraction(1, 2))
    assert cascade(odd).to_json() == cascade(plain).to_json()
