"""Spatial and temporal cycles with LR restarts agree with the tables of Lin et al. 2022, as it must be read.

The paper's equation 1 lacks π and mislabels its second case; the values below are the reading in which the LR
anneals: half a cosine per stage, over the whole training's length for every stage but the last.
"""

from collections.abc import Callable

import pytest

from vcycle.errors import PlanError
from vcycle.plan import (
    Baseline,
    CosineDecay,
    FactorWarmup,
    Plan,
    RampWarmup,
    Role,
    cascade,
    constant,
    control,
    large_minibatch,
    multigrid,
    superresolution,
)


def grids(plan: Plan) -> list[tuple[int, int]]:
    """The (size, frames) of each stage."""
    return [(stage.base.size, stage.base.frames) for stage in plan.stages]


@pytest.fixture
def reds(baselines: dict[str, Baseline]) -> Baseline:
    return baselines["reds"]


def without_warmup(baseline: Baseline, floor: float) -> Plan:
    fast = large_minibatch(baseline.with_(decay=CosineDecay(floor=floor)), 4, warmup=None)
    return superresolution(fast)


# Six stages of 12,500 steps from 8e-4.
@pytest.mark.parametrize(
    ("step", "floor_0", "floor_1e_7"),
    [
        (0, 8e-4, 8e-4),
        (2_500, 7.978088e-4, 7.978090e-4),
        (6_250, 7.863703e-4, 7.863720e-4),
        (12_499, 7.464185e-4, 7.464252e-4),
        (12_500, 8e-4, 8e-4),
        (62_499, 7.464185e-4, 7.464252e-4),
        (62_500, 8e-4, 8e-4),
        (65_625, 6.828427e-4, 6.828574e-4),
        (68_750, 4.0e-4, 4.0005e-4),
        (71_875, 1.171573e-4, 1.172426e-4),
        (74_999, 1.263309e-11, 1.000126e-7),
    ],
)
def test_the_lr_restarts_at_every_stage_and_anneals_in_the_last(
    reds: Baseline, step: int, floor_0: float, floor_1e_7: float
) -> None:
    assert without_warmup(reds, 0.0)[step].lr == pytest.approx(floor_0, rel=1e-6)
    assert without_warmup(reds, 1e-7)[step].lr == pytest.approx(floor_1e_7, rel=1e-6)


def test_the_mean_lr_is_nine_tenths_of_the_peak(reds: Baseline) -> None:
    plan = without_warmup(reds, 0.0)
    sampled = [plan[k].lr for k in range(0, len(plan), 25)]
    assert sum(sampled) / len(sampled) / 8e-4 == pytest.approx(0.898, abs=5e-4)


# Counted from 1, iteration i has the factor i / 5,000 on the law, which gives 7.912625e-4 at i = 5,000.
@pytest.mark.parametrize(
    ("iteration", "lr"), [(1, 1.6e-7), (2_500, 3.9890e-4), (4_999, 7.9110e-4), (5_000, 7.912625e-4)]
)
def test_the_warmup_multiplies_the_law(reds: Baseline, iteration: int, lr: float) -> None:
    plan = superresolution(large_minibatch(reds.with_(decay=CosineDecay()), 4))
    assert plan[iteration - 1].lr == pytest.approx(lr, rel=2e-5)


def test_the_warmup_comes_once(reds: Baseline) -> None:
    fast = superresolution(large_minibatch(reds, 4))
    assert fast[12_500].lr == pytest.approx(8e-4)


def test_a_constant_warmup_holds_its_factor(reds: Baseline) -> None:
    held = FactorWarmup(steps=5_000, law="constant", factor=0.1)
    plan = superresolution(large_minibatch(reds, 4, warmup=held))
    law = without_warmup(reds, 1e-7)
    assert plan[4_999].lr == pytest.approx(0.1 * law[4_999].lr)
    assert plan[5_000].lr == law[5_000].lr


def test_reds_goes_from_32_to_64_pixels_and_in_each_from_7_to_15_frames(plans: dict[str, Plan]) -> None:
    plan = plans["reds_basicvsr_m"]
    assert grids(plan) == [(32, 7), (32, 11), (32, 15), (64, 7), (64, 11), (64, 15)]
    assert [stage.steps for stage in plan.stages] == [12_500] * 6
    assert {stage.base.batch for stage in plan.stages} == {64}
    assert plan.samples == 4_800_000
    assert plan.epochs == pytest.approx(180, abs=0.5)
    assert plan.saving().work == pytest.approx(2.18, abs=0.005)


def test_mirrored_clips_have_even_lengths(plans: dict[str, Plan]) -> None:
    plan = plans["vimeo_basicvsr"]
    assert grids(plan) == [(32, 6), (32, 10), (32, 14), (64, 6), (64, 10), (64, 14)]
    assert plan.mirrored
    assert [stage.steps for stage in plan.stages] == [25_000] * 6


def test_edvrs_fixed_window_leaves_the_spatial_cycle(plans: dict[str, Plan]) -> None:
    plan = plans["reds_edvr_m"]
    assert grids(plan) == [(32, 5), (64, 5)]
    assert [stage.steps for stage in plan.stages] == [150_000] * 2
    assert plan.saving().work == pytest.approx(1.6)


def test_a_stage_may_have_an_lr_of_its_own(plans: dict[str, Plan]) -> None:
    plan = plans["reds_edvr_m"]
    assert [stage.rate.at(0) for stage in plan.stages] == pytest.approx([2e-4, 8e-4])
    assert plan.stages[-1].rate.at(1) == pytest.approx(1e-7)


def test_a_window_of_five_frames_has_no_temporal_stages_by_default(baselines: dict[str, Baseline]) -> None:
    assert grids(superresolution(baselines["edvr"])) == [(32, 5), (64, 5)]


def test_a_small_crop_is_not_shrunk_below_32_pixels(reds: Baseline) -> None:
    assert {size for size, _ in grids(superresolution(reds.with_(size=48)))} == {32, 48}
    assert {size for size, _ in grids(superresolution(reds.with_(size=24)))} == {24}


@pytest.mark.parametrize(
    ("nesting", "expected", "work"),
    [
        ("spatial", [(32, 15), (64, 15)], 1.6),
        ("temporal", [(64, 7), (64, 11), (64, 15)], 1.36),
        ("synchronous", [(32, 7), (64, 15)], 1.79),  # the first row of table 6a
    ],
)
def test_other_nestings(reds: Baseline, nesting: str, expected: list[tuple[int, int]], work: float) -> None:
    plan = superresolution(reds, nesting=nesting)
    assert grids(plan) == expected
    assert plan.saving().work == pytest.approx(work, abs=0.005)
    assert {stage.steps for stage in plan.stages} == {300_000 // len(expected)}


def test_synchronous_stages_change_both_axes_at_the_same_step(reds: Baseline) -> None:
    def stages(**lists: tuple[int, ...]) -> list[tuple[int, int]]:
        return grids(superresolution(reds, nesting="synchronous", **lists))

    rows = [(32, 7), (64, 15)], [(32, 7), (48, 11), (64, 15)]  # all of table 6a
    assert stages() == stages(frames=(7, 15)) == stages(sizes=(32, 64)) == rows[0]
    assert stages(sizes=(32, 48, 64)) == stages(frames=(7, 11, 15)) == rows[1]
    assert stages(sizes=(32, 32, 64), frames=(7, 11, 15)) == [(32, 7), (32, 11), (64, 15)]  # where it is asked for
    with pytest.raises(PlanError, match=r"sizes \[32, 64\] and frames \[7, 11, 15\]: synchronous stages change both"):
        stages(sizes=(32, 64), frames=(7, 11, 15))


# Tables 5 and 6 of the paper, with the most that its FLOPs save over the depths of BasicVSR. Voxels say nearly the
# same; 40 and 48 pixels cost more than their area, as the flow network works on multiples of 32.
@pytest.mark.parametrize(
    ("nesting", "sizes", "frames", "flops"),
    [
        ("spatial", (32, 48, 64), None, 1.62),
        ("spatial", (32, 40, 48, 64), None, 1.74),
        ("temporal", None, (7, 15), 1.37),
        ("temporal", None, (7, 9, 11, 15), 1.435),
        ("synchronous", (32, 64), (7, 15), 1.79),
        ("synchronous", (32, 48, 64), (7, 11, 15), 1.93),
        ("hierarchical", (32, 64), (7, 15), 2.19),
    ],
)
def test_any_list_of_sizes_will_do(
    reds: Baseline, nesting: str, sizes: tuple[int, ...] | None, frames: tuple[int, ...] | None, flops: float
) -> None:
    plan = superresolution(reds, nesting=nesting, sizes=sizes, frames=frames)
    assert plan.saving().work == pytest.approx(flops, rel=0.05)
    assert plan.stages[-1].base == plan.baseline_shape


# Table 4 and its text: batch, LR and iterations of the baseline, and of the fast run.
@pytest.mark.parametrize(
    ("name", "factor", "batch", "lr", "steps"),
    [
        ("reds", 4, 64, 8e-4, 75_000),
        ("reds", 3, 48, 6e-4, 100_000),
        ("reds", 2, 32, 4e-4, 150_000),
        ("vimeo", 2, 64, 4e-4, 150_000),
        ("edvr", 2, 64, 8e-4, 300_000),
    ],
)
def test_a_large_minibatch_keeps_the_samples(
    baselines: dict[str, Baseline], name: str, factor: int, batch: int, lr: float, steps: int
) -> None:
    before = baselines[name]
    after = large_minibatch(before, factor)
    assert (after.batch, after.steps) == (batch, steps)
    assert after.peak_lr == pytest.approx(lr)
    assert after.warmup == FactorWarmup(steps=5_000)
    assert after.batch * after.total_steps == before.batch * before.total_steps


def test_each_part_of_a_large_minibatch_can_be_left_out(reds: Baseline) -> None:
    assert large_minibatch(reds, 4, scale_lr=False).peak_lr == pytest.approx(2e-4)
    assert large_minibatch(reds, 4, shorten=False).total_steps == 300_000
    assert large_minibatch(reds, 4, warmup=None).warmup is None
    assert large_minibatch(reds.with_(lr_batch=32), 4).peak_lr == pytest.approx(4e-4)


def test_a_scaled_batch_keeps_the_work_of_a_step_and_the_samples_of_a_stage(reds: Baseline) -> None:
    plan, usual = superresolution(reds, batch="scaled"), superresolution(reds)
    assert [stage.base.batch for stage in plan.stages] == [137, 87, 64, 34, 21, 16]
    assert (plan.name, usual.name) == ("hierarchical+scaled", "hierarchical")
    for stage, other in zip(plan.stages, usual.stages, strict=True):
        assert 0.96 < stage.base.voxels / plan.baseline_shape.voxels <= 1
        assert stage.steps * stage.base.batch == pytest.approx(other.steps * other.base.batch, abs=137)
    assert plan.samples == pytest.approx(usual.samples, abs=137)
    assert plan.saving().work == pytest.approx(usual.saving().work, rel=1e-3)
    assert plan.saving().steps == pytest.approx(usual.saving().work, rel=0.02)


@pytest.mark.parametrize(("scaling", "gain"), [("sqrt", 2.0), ("linear", 4.0), ("none", 1.0)])
def test_the_lr_follows_a_scaled_batch(reds: Baseline, scaling: str, gain: float) -> None:
    plan = superresolution(reds, batch="scaled", nesting="spatial", lr_scaling=scaling)
    assert [stage.base.batch for stage in plan.stages] == [64, 16]
    assert [stage.rate.at(0) for stage in plan.stages] == pytest.approx([gain * 2e-4, 2e-4])
    constant_shape, usual = control(plan), control(superresolution(reds, nesting="spatial"))
    assert [constant_shape[k].lr for k in range(0, 300_000, 997)] == pytest.approx(
        [usual[k].lr for k in range(0, 300_000, 997)]
    )


def test_a_scaled_batch_warms_up_and_freezes_for_as_many_samples(plans: dict[str, Plan]) -> None:
    usual = plans["vimeo_basicvsr"]
    plan = superresolution(usual.baseline, batch="scaled", mirrored=True, lr_scaling="none")
    assert plan.stages[0].base.batch == 597
    for step in (0, 1, 300, 535, 536, 537, 538, 900):
        same = plan[step].first_sample // 64
        assert usual[same].lr * (1 - 1e-5) <= plan[step].lr <= usual[same + 1].lr * (1 + 1e-5)
        assert (plan[step].lr_of("flow") == 0) is (usual[same].lr_of("flow") == 0)
    assert plan[537].lr_of("flow") > 0 == plan[536].lr_of("flow")


def test_a_plan_may_be_shorter_or_longer(reds: Baseline) -> None:
    plan = superresolution(reds, epoch_factor=0.5)
    assert [stage.steps for stage in plan.stages] == [25_000] * 6
    assert [stage.rate for stage in plan.stages] == [stage.rate for stage in superresolution(reds).stages]
    assert plan.baseline == reds
    in_epochs = superresolution(reds.with_(steps=None, epochs=180))
    assert sum(stage.steps for stage in in_epochs.stages) == 180 * 26_600 / 16


def test_the_flow_network_is_frozen_by_the_step_and_then_learns_slowly(plans: dict[str, Plan]) -> None:
    plan = plans["vimeo_basicvsr"]
    assert [plan[k].lr_of("flow") for k in (0, 4_999)] == [0, 0]
    assert plan[5_000].lr_of("flow") == pytest.approx(0.125 * plan[5_000].lr)
    assert plan[5_000].lr_of(None) == plan[5_000].lr
    assert plan.baseline.roles == {"flow": Role(multiplier=0.125, frozen_until=5_000)}


def test_the_control_restarts_the_lr_at_the_full_shape(plans: dict[str, Plan]) -> None:
    plan = plans["reds_basicvsr_m"]
    alike = control(plan)
    assert alike.shapes == (plan.baseline_shape,)
    assert [alike[k].lr for k in range(0, 75_000, 997)] == [plan[k].lr for k in range(0, 75_000, 997)]


# Of other lengths --------------------------------------------------------------------------------------------


@pytest.fixture
def fast(reds: Baseline) -> Baseline:
    """Lin et al. 2022: 75,000 steps (table 4a), of which 5,000 are a warm-up and the flow network waits as long."""
    return large_minibatch(reds.with_(roles={"flow": Role(multiplier=0.125, frozen_until=5_000)}), 4)


@pytest.mark.parametrize("factor", [0.25, 0.5, 1.0, 2.0])
def test_the_control_warms_up_and_freezes_for_the_same_fraction_at_every_length(fast: Baseline, factor: float) -> None:
    plan = superresolution(fast)
    alike = control(plan, epoch_factor=factor)
    assert len(alike) == factor * len(plan)
    for fraction in (0.01, 0.02, 0.05, 0.066, 0.068, 0.1, 0.3, 0.9):
        step, other = plan[int(fraction * len(plan))], alike[int(fraction * len(alike))]
        assert other.lr == pytest.approx(step.lr, rel=5e-3)
        assert other.lr_of("flow") == pytest.approx(step.lr_of("flow"), rel=5e-3)
    assert alike[int(0.05 * len(alike))].lr == pytest.approx(5.96e-4, rel=2e-3)


def test_the_control_of_a_plan_of_another_length_has_that_plans_curve(fast: Baseline) -> None:
    for plan in (superresolution(fast, epoch_factor=0.25), multigrid(fast, epoch_factor=1.5)):
        alike = control(plan)
        for fraction in (0.01, 0.03, 0.05, 0.08):
            step = next(s for s in plan if s.first_sample >= fraction * plan.samples)
            gain = plan.stages[step.stage].lr_factor
            other = alike[int(step.first_sample / plan.samples * len(alike))]
            assert other.lr == pytest.approx(step.lr / gain, rel=1e-2)  # a step's worth at the start
            assert (other.lr_of("flow") == 0) is (step.lr_of("flow") == 0)


@pytest.mark.parametrize("build", [constant, superresolution, multigrid, cascade])
def test_a_warmup_and_a_freeze_shrink_with_the_training_and_do_not_grow(
    fast: Baseline, build: Callable[..., Plan]
) -> None:
    assert build(fast, epoch_factor=1).baseline == fast
    assert build(fast, epoch_factor=2).baseline == fast
    short = build(fast, epoch_factor=0.1).baseline
    assert short.warmup == FactorWarmup(steps=500)
    assert short.roles == {"flow": Role(multiplier=0.125, frozen_until=500)}
    assert (short.steps, short.batch) == (fast.steps, fast.batch)
    ramp = fast.with_(warmup=RampWarmup(length=5_000))
    assert [build(ramp, epoch_factor=f).warmup_samples for f in (0.1, 1, 2)] == [32_000, 320_000, 320_000]


def test_a_budget_in_steps_shrinks_them_as_well(fast: Baseline) -> None:
    assert constant(fast, steps=7_500).baseline == constant(fast, epoch_factor=0.1).baseline
    assert constant(fast, steps=75_000).baseline == fast


def test_of_a_very_short_training_no_step_is_left_to_warm_up(fast: Baseline) -> None:
    plan = constant(fast, steps=7)
    assert plan.baseline.warmup is None
    assert plan[0].lr == pytest.approx(8e-4)
    assert plan[0].lr_of("flow") == pytest.approx(0.125 * 8e-4)


@pytest.mark.parametrize(
    ("frames", "mirrored", "expected"),
    [(12, False, [6, 9, 12]), (14, False, [7, 10, 14]), (14, True, [6, 10, 14]), (8, False, [6, 8])],
)
def test_default_frames_are_half_to_all_at_least_six_and_even_where_mirrored(
    reds: Baseline, frames: int, mirrored: bool, expected: list[int]
) -> None:
    plan = superresolution(reds.with_(frames=frames), nesting="temporal", mirrored=mirrored)
    assert [stage.base.frames for stage in plan.stages] == expected
    assert (plan.mirrored, plan.notes) == (mirrored, ())
    assert Plan.from_json(plan.to_json()).mirrored is mirrored


def test_default_frames_that_a_model_cannot_take_are_rounded_with_a_note_and_odd_sides_are_taken(
    reds: Baseline,
) -> None:
    plan = superresolution(reds.with_(frames=20, size=65), frames_multiple=4)
    assert sorted(set(grids(plan))) == [(32, 8), (32, 16), (32, 20), (65, 8), (65, 16), (65, 20)]
    assert plan.notes[:2] == (
        "frames 10 is rounded to 8, a multiple of 4",
        "frames 15 is rounded to 16, a multiple of 4",
    )
