"""What holds for any baseline and any options: sums, order, samples, laws."""

import math
from collections import Counter
from itertools import accumulate

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vcycle.errors import PlanError
from vcycle.plan import (
    LONG_SHAPES,
    SHORT_SIZES,
    Baseline,
    ConstantRate,
    CosineDecay,
    CurveDecay,
    NoDecay,
    Plan,
    RampWarmup,
    Role,
    Scale,
    StepDecay,
    cascade,
    constant,
    control,
    multigrid,
    superresolution,
)
from vcycle.plan.grids import Grids
from vcycle.plan.shape import FULL


@st.composite
def baselines(draw: st.DrawFn, *, steps: int = 1_500) -> Baseline:
    """A recipe of up to so many steps, its length in epochs or in steps."""
    batch = draw(st.integers(1, 40))
    clips = draw(st.integers(10, 3_000))
    length = draw(st.integers(steps // 10, steps))
    in_steps = draw(st.booleans())
    total = float(length) if in_steps else length * batch / clips
    fractions = sorted(draw(st.sets(st.integers(5, 95), max_size=3)))
    milestones = tuple(total * f / 100 for f in fractions)
    curve = CurveDecay(points=((0, 0.1), (0.3, 1), (1, 0.01)))
    laws = [NoDecay(), CosineDecay(), CosineDecay(floor=1e-4), StepDecay(milestones=milestones), curve]
    decay = draw(st.sampled_from(laws))
    warmup = draw(st.sampled_from([None, 0.02, 0.1, 0.5]))
    return Baseline(
        batch=batch,
        frames=draw(st.integers(4, 64)),
        size=draw(st.integers(16, 320)),
        clips=clips,
        lr=draw(st.floats(1e-3, 10)),
        epochs=None if in_steps else total,
        steps=length if in_steps else None,
        decay=decay,
        warmup=None if warmup is None else RampWarmup(length=total * warmup, start_lr=1e-4),
        roles=draw(st.sampled_from([{}, {"z": Role(multiplier=0.5), "a": Role(frozen_until=7)}])),
    )


@st.composite
def recognition_plans(draw: st.DrawFn, *, steps: int = 1_500) -> Plan:
    baseline = draw(baselines(steps=steps))
    factor = draw(st.sampled_from([0.25, 0.7, 1.0, 1.5, 3.0]))
    kind = draw(st.sampled_from(["constant", "cascade", "multigrid"]))
    scaling = draw(st.sampled_from(["linear", "sqrt", "none"]))
    try:
        if kind == "constant":
            shape = draw(st.sampled_from([FULL, *LONG_SHAPES]))
            return constant(baseline, shape=shape, epoch_factor=factor, lr_scaling=scaling)
        if kind == "cascade":
            growth = draw(st.sampled_from([1.0, 2 / 3, 0.0]))
            return cascade(baseline, epoch_factor=factor, lr_scaling=scaling, batch_growth=growth)
        longs = draw(st.sets(st.sampled_from(range(4))))
        shorts = draw(st.sets(st.sampled_from(range(2))))
        return multigrid(
            baseline,
            long_shapes=[LONG_SHAPES[k] for k in sorted(longs)],
            short_sizes=[SHORT_SIZES[k] for k in sorted(shorts)],
            epoch_factor=factor,
            cycles=draw(st.integers(1, 4)),
            fine_tune=draw(st.booleans()),
            lr_scaling=scaling,
        )
    except PlanError:  # too few steps for so many stages
        assume(False)
        raise


@st.composite
def superresolution_plans(draw: st.DrawFn) -> Plan:
    baseline = Baseline(
        batch=draw(st.integers(1, 16)),
        frames=2 * draw(st.integers(1, 10)),
        size=draw(st.integers(8, 80)),
        clips=draw(st.integers(10, 3_000)),
        steps=draw(st.integers(20, 1_500)),
        lr=1e-3,
        decay=CosineDecay(floor=1e-7),
    )
    try:
        return superresolution(
            baseline,
            nesting=draw(st.sampled_from(["hierarchical", "synchronous", "spatial", "temporal"])),
            mirrored=draw(st.booleans()),
            batch=draw(st.sampled_from(["constant", "scaled"])),
        )
    except PlanError:  # too few steps for so many stages
        assume(False)
        raise


any_plan = st.one_of(recognition_plans(), recognition_plans(), superresolution_plans())


@given(any_plan)
def test_stages_fill_the_plan_with_at_least_a_step_each(plan: Plan) -> None:
    assert all(stage.steps >= 1 for stage in plan.stages)
    assert sum(stage.steps for stage in plan.stages) == len(plan) == len(list(plan))


@given(any_plan)
def test_steps_lie_end_to_end_in_the_sample_stream(plan: Plan) -> None:
    expected = 0
    for index, step in enumerate(plan):
        assert step.index == index
        assert step.first_sample == expected
        assert plan.samples_before(index) == expected
        assert step.samples == range(expected, expected + step.batch)
        expected += step.batch
    assert plan.samples == plan.samples_before(len(plan)) == expected
    assert plan.epochs_before(len(plan)) == plan.epochs


@given(any_plan, st.data())
def test_a_step_is_the_same_however_it_is_reached(plan: Plan, data: st.DataObject) -> None:
    steps = list(plan)
    start = data.draw(st.integers(0, len(plan)))
    assert list(plan.iterate(start)) == steps[start:]
    for k in data.draw(st.lists(st.integers(-len(plan), len(plan) - 1), max_size=20)):
        assert plan[k] == steps[k]


@given(any_plan)
def test_each_step_uses_its_place_in_the_stages_pattern(plan: Plan) -> None:
    firsts = list(accumulate((stage.steps for stage in plan.stages), initial=0))
    for step in plan:
        pattern = plan.stages[step.stage].pattern
        cell = pattern[step.index % len(pattern)]
        assert (step.shape, step.batch, step.bn_batch) == (cell.shape, cell.batch, cell.bn_batch)
        assert firsts[step.stage] <= step.index < firsts[step.stage + 1]


@given(any_plan)
def test_work_and_shapes_are_those_of_the_steps(plan: Plan) -> None:
    one = plan.baseline_shape.voxels
    assert plan.work() == pytest.approx(sum(step.batch * step.shape.voxels for step in plan) / one)
    assert plan.work(lambda cell: 1.0) == len(plan)
    cells = dict.fromkeys((step.shape, step.batch, step.bn_batch) for step in plan)
    assert [(cell.shape, cell.batch, cell.bn_batch) for cell in plan.shapes] == list(cells)


@given(any_plan, st.floats(0, 1))
def test_counts_before_a_step_are_those_of_the_steps_before_it(plan: Plan, part: float) -> None:
    step = round(part * len(plan))
    before = Counter((k.shape, k.batch, k.bn_batch) for k in plan[:step])
    found = {(cell.shape, cell.batch, cell.bn_batch): count for cell, count in plan.counts_before(step).items()}
    assert {cell: count for cell, count in found.items() if count} == before
    assert len(found) == len(plan.shapes)


@given(any_plan)
def test_a_plan_survives_json(plan: Plan) -> None:
    again = Plan.from_json(plan.to_json(indent=2))
    assert again == plan
    assert hash(again) == hash(plan)
    assert again.fingerprint == plan.fingerprint
    assert list(again) == list(plan)


@given(any_plan)
def test_the_lr_is_positive_and_finite(plan: Plan) -> None:
    assert all(0 < step.lr < math.inf for step in plan)


@given(baselines(), st.sampled_from([0.25, 1.0, 1.5]))
def test_a_constant_plan_is_as_long_as_it_is_told_to_be(baseline: Baseline, factor: float) -> None:
    wanted = factor * baseline.length * float(baseline.unit)
    assert len(constant(baseline, epoch_factor=factor)) == pytest.approx(wanted, abs=0.5 + 1e-9)


@given(baselines(), st.sampled_from(LONG_SHAPES), st.sampled_from([0.25, 1.0, 1.5]))
def test_a_small_constant_shape_trades_steps_for_batch_and_scales_the_rate(
    baseline: Baseline, shape: Scale, factor: float
) -> None:
    try:
        small = constant(baseline, shape=shape, epoch_factor=factor)
        full = constant(baseline, epoch_factor=factor)
    except PlanError:  # too few steps for so many stages
        assume(False)
        raise
    fitted = Grids(baseline).fitted(shape)  # rounding to whole frames and pixels may change the shape by a lot
    gain = float(fitted.batch_factor)
    (cell,) = small.shapes
    assert cell == baseline.at(fitted)
    assert [stage.rate for stage in small.stages] == [stage.rate.scaled(gain) for stage in full.stages]
    assert control(small, epoch_factor=factor).shapes == full.shapes
    wanted = factor * baseline.length * float(baseline.unit) * baseline.batch
    assert abs(small.samples - wanted) <= cell.batch * len(small.stages)


@given(baselines(steps=200_000), st.sampled_from([0.25, 1.0, 1.5, 3.0]), st.booleans(), st.booleans())
def test_a_long_plans_samples_are_its_epoch_factor_times_the_baselines(
    baseline: Baseline, factor: float, long: bool, short: bool
) -> None:
    wanted = factor * baseline.length * float(baseline.unit) * baseline.batch
    plan = multigrid(
        baseline,
        long_shapes=LONG_SHAPES if long else (),
        short_sizes=SHORT_SIZES if short else (),
        epoch_factor=factor,
    )
    for built in (plan, cascade(baseline, epoch_factor=factor), constant(baseline, epoch_factor=factor)):
        # An edge is off by at most half a step, and a stage's last short cycle may be cut.
        off = sum(sum(cell.batch for cell in stage.pattern) for stage in built.stages)
        assert abs(built.samples - wanted) <= off


@given(baselines(), st.integers(16, 2_000))
def test_a_budget_in_steps_is_exact(baseline: Baseline, steps: int) -> None:
    for build in (constant, multigrid, cascade):
        plan = build(baseline, steps=steps)
        assert len(plan) == steps


@given(baselines(), st.integers(16, 100_000), st.integers(1, 4))
def test_cycles_hold_equal_samples_over_82_percent(baseline: Baseline, steps: int, cycles: int) -> None:
    assume(not isinstance(baseline.decay, StepDecay))
    steps = max(steps, 5_000)
    plan = multigrid(baseline, steps=steps, cycles=cycles)
    ends = list(accumulate(stage.steps for stage in plan.stages))
    for cycle in range(cycles):
        share = plan.samples_before(ends[4 * cycle + 3]) / plan.samples
        assert share == pytest.approx(0.82 * (cycle + 1) / cycles, abs=0.005)


@given(recognition_plans())
def test_a_cosine_is_the_same_function_of_samples_under_every_plan(plan: Plan) -> None:
    decay = plan.baseline.decay
    assume(isinstance(decay, CosineDecay) and plan.name != "cascade")
    assert isinstance(decay, CosineDecay)
    floor, peak = decay.floor, plan.baseline.peak_lr
    for step in plan:
        if step.first_sample >= plan.warmup_samples:
            phase = math.pi * step.first_sample / plan.samples
            law = floor + (peak - floor) * (1 + math.cos(phase)) / 2
            assert step.lr == pytest.approx(plan.stages[step.stage].lr_factor * law)


@given(recognition_plans())
def test_a_ramp_replaces_the_law_and_no_longer(plan: Plan) -> None:
    ramp = plan.baseline.warmup
    assume(isinstance(ramp, RampWarmup))
    assert isinstance(ramp, RampWarmup)
    after = next((s for s in plan if s.first_sample >= plan.warmup_samples), plan[-1])
    bare = Plan(name=plan.name, baseline=plan.baseline.with_(warmup=None), stages=plan.stages)
    assert [s.lr for s in plan.iterate(after.index + 1)] == [s.lr for s in bare.iterate(after.index + 1)]
    for step in (plan[k] for k in range(after.index)):
        done = step.first_sample / plan.warmup_samples
        due = bare[after.index].lr
        assert step.lr == pytest.approx(ramp.start_lr + (due - ramp.start_lr) * done)


@given(recognition_plans(), st.sampled_from([0.5, 1.0, 2.0]))
def test_the_control_has_the_plans_law_without_batch_factors(plan: Plan, factor: float) -> None:
    try:
        alike = control(plan, epoch_factor=factor)
    except PlanError:  # too few steps for so many stages
        assume(False)
        raise
    assert alike.shapes == (plan.baseline_shape,)
    bare = Plan(name="", baseline=plan.baseline.with_(warmup=None), stages=alike.stages)
    ends = [plan.samples_before(e) for e in accumulate(s.steps for s in plan.stages)]
    for stage, begin, end in zip(plan.stages, [0, *ends], ends, strict=False):
        steps = (end - begin) / plan.samples * len(bare)
        if steps < 20:  # too few for a point that is clear of both edges
            continue
        step = bare[round((begin + end) / 2 / plan.samples * len(bare))]
        middle = stage.rate.at(0.5) / stage.lr_factor
        rel = 1e-9 if isinstance(stage.rate, ConstantRate) else None
        abs_tol = 3 * plan.baseline.peak_lr * math.pi / steps
        assert step.lr == pytest.approx(middle, rel=rel, abs=0 if rel else abs_tol)


@given(superresolution_plans())
def test_superresolution_stages_see_equal_samples_and_end_at_the_full_shape(plan: Plan) -> None:
    largest = max(s.base.batch for s in plan.stages)
    assert abs(plan.samples - plan.baseline.steps * plan.baseline.batch) <= largest * len(plan.stages)
    if largest == plan.baseline.batch:
        assert len(plan) == plan.baseline.steps
        assert max(s.steps for s in plan.stages) - min(s.steps for s in plan.stages) <= 1
    assert (plan.stages[-1].base.frames, plan.stages[-1].base.size) == (plan.baseline.frames, plan.baseline.size)
    assert all(s.base.frames <= plan.baseline.frames and s.base.size <= plan.baseline.size for s in plan.stages)
    if plan.mirrored:
        assert all(s.base.frames % 2 == 0 for s in plan.stages)
