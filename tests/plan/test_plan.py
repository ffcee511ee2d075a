"""A plan is a sequence that needs no history, is equal by value, and knows nothing of torch."""

import json
import pickle
import subprocess
import sys

import pytest

from vcycle.data import PlanBatchSampler
from vcycle.errors import PlanError
from vcycle.plan import (
    Baseline,
    BatchShape,
    CosineDecay,
    Plan,
    RampWarmup,
    Role,
    Shape,
    Step,
    StepDecay,
    cascade,
    constant,
    multigrid,
)

ALONE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in present:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

present = {"vcycle", *sys.stdlib_module_names}
sys.meta_path.insert(0, Missing())
import vcycle

plan = vcycle.multigrid(vcycle.Baseline(batch=64, frames=32, size=224, clips=240_000, epochs=239, lr=0.1))
print(plan)
print(vcycle.Plan.from_json(plan.to_json()) == plan, sum(row["batch"] for row in plan.rows()) == plan.samples)

present.add("numpy")
from vcycle.data import PlanBatchSampler

request = next(iter(PlanBatchSampler(plan, 1000)))[0]
print(request.index, request.shape, request.generator().random())
"""


def test_plans_need_the_standard_library_alone_and_batches_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *table, same, drawn = done.stdout.splitlines()
    plan = multigrid(Baseline(batch=64, frames=32, size=224, clips=240_000, epochs=239, lr=0.1))
    assert table == str(plan).splitlines()
    assert same == "True True"
    request = next(iter(PlanBatchSampler(plan, 1000)))[0]
    assert drawn == f"{request.index} {request.shape} {request.generator().random()}"


def test_a_plan_of_a_billion_steps_answers_for_any_step() -> None:
    # Lookup and memory depend on the number of stages alone: walking these steps would take an hour.
    decay = StepDecay(milestones=(0.4, 0.7, 0.9))
    endless = Baseline(batch=64, frames=32, size=224, clips=64 * 10**9, epochs=1, lr=0.1, decay=decay)
    plan = multigrid(endless, steps=10**9)
    assert len(plan) == 10**9
    steps = [plan[k] for k in range(0, 10**9, 10**6)]
    firsts = [step.first_sample for step in steps]
    assert firsts == sorted(firsts)
    last = plan[-1]
    assert last.first_sample + last.batch == plan.samples
    assert next(plan.iterate(10**9 - 1)) == last
    assert len(plan.to_json()) < 10_000
    assert plan.saving().steps == pytest.approx(1.0)


def test_positions_outside_the_plan_are_index_errors(kinetics: Baseline) -> None:
    plan = constant(kinetics, steps=10)
    assert plan[-10] == plan[0]
    for outside in (10, -11):
        with pytest.raises(IndexError, match="of a plan of 10 steps"):
            plan[outside]
    assert list(plan.iterate(10)) == []
    for outside in (11, -1):
        with pytest.raises(IndexError, match="in a plan of 10 steps"):
            plan.iterate(outside)


def test_a_slice_is_the_list_of_its_steps(kinetics: Baseline) -> None:
    plan = constant(kinetics, steps=10)
    steps = list(plan)
    for part in (slice(3), slice(-2, None), slice(None, None, -3), slice(8, 20), slice(4, 4)):
        assert plan[part] == steps[part]


def test_a_position_that_is_no_whole_number_is_refused(kinetics: Baseline) -> None:
    for odd in ("3", 3.0, None):
        with pytest.raises(PlanError, match=f"^step is {odd!r}: a whole number is needed$"):
            constant(kinetics, steps=10)[odd]  # type: ignore[call-overload]


def test_plans_are_equal_by_value(kinetics: Baseline) -> None:
    plan, same, other = multigrid(kinetics), multigrid(kinetics), multigrid(kinetics, epoch_factor=1.4)
    assert plan == same
    assert len({plan, same, other}) == 2
    assert plan.fingerprint == same.fingerprint != other.fingerprint
    assert len(plan.fingerprint) == 12


def test_the_way_a_number_is_written_does_not_change_the_fingerprint(kinetics: Baseline) -> None:
    written = kinetics.with_(epochs=239.0, decay=StepDecay(milestones=(94.0, 154.0, 196.0)))
    assert multigrid(written) == multigrid(kinetics)
    assert multigrid(written).fingerprint == multigrid(kinetics).fingerprint


def test_the_order_of_roles_does_not_matter(kinetics: Baseline) -> None:
    roles = {"b": Role(multiplier=0.5), "a": Role(frozen_until=3)}
    plan = constant(kinetics.with_(roles=roles))
    turned = constant(kinetics.with_(roles=dict(reversed(roles.items()))))
    assert plan == turned
    assert plan.fingerprint == turned.fingerprint
    assert plan[5] == turned[5]


def test_everything_of_a_baseline_survives_json() -> None:
    baseline = Baseline(
        batch=12,
        frames=16,
        size=112,
        clips=999,
        lr=0.2,
        lr_batch=64,
        steps=500,
        decay=StepDecay(milestones=(100, 250.5), factors=(0.3, 0.01)),
        warmup=RampWarmup(length=40, start_lr=0.001),
        bn_batch=4,
        roles={"kind": Role(multiplier=0.125, frozen_until=50)},
    )
    plan = multigrid(baseline)
    again = Plan.from_json(plan.to_json())
    assert again.baseline == baseline
    assert again == plan
    assert json.loads(plan.to_json())["kind"] == "Plan"
    assert plan.to_json(indent=1).startswith('{\n "baseline": {\n  "batch": 12,')
    assert again[60].lr_of("kind") == plan[60].lr * 0.125


def test_a_plan_can_be_sent_to_another_process(kinetics: Baseline) -> None:
    plan = multigrid(kinetics.with_(decay=CosineDecay()))
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert again[1234] == plan[1234]


def test_a_step_knows_its_samples_and_the_plan_its_epochs(kinetics: Baseline) -> None:
    plan = multigrid(kinetics)
    assert plan[0].samples == range(1024)
    assert plan[1].samples == range(1024, 1536)
    assert plan.epochs_before(2) == 1536 / 240_000
    assert plan.samples_before(len(plan)) == plan.samples


def test_a_step_has_a_batch_shape_and_can_be_tried_at_another(kinetics: Baseline) -> None:
    plan = cascade(kinetics, shapes=[(1, 1, 0.5), (0.5, 0.5), (1, 1)])
    step, last = plan[0], plan[-1]
    assert step.cell == plan.shapes[0] == BatchShape(frames=32, size=224, batch=128, bn_batch=8, tokens=0.5)
    other = BatchShape(frames=16, size=112, batch=512, bn_batch=4)
    for cell in (last.cell, other):
        assert step.at(cell).cell == cell
    tried = step.at(other)
    assert (tried.index, tried.lr, tried.first_sample) == (step.index, step.lr, step.first_sample)
    plain = Step(index=0, stage=0, shape=Shape(8, 32, 32), batch=4, lr=0.1, bn_batch=2, first_sample=0)
    assert plain.cell == BatchShape(frames=8, size=32, batch=4, bn_batch=2)  # all tokens
    assert plain.role_factors == ()


def test_shapes_that_no_step_before_has_used_count_zero(kinetics: Baseline) -> None:
    plan = multigrid(kinetics)
    assert list(plan.counts_before(2).values()) == [1, 1] + [0] * (len(plan.shapes) - 2)


def test_without_fine_tuning_a_long_cycle_runs_through_each_stage_of_the_lr(kinetics: Baseline) -> None:
    plan = multigrid(kinetics, fine_tune=False)
    assert [stage.name.partition(",")[0] for stage in plan.stages] == [f"cycle {k // 4 + 1}" for k in range(16)]
    assert plan.stages[-1].base == plan.baseline_shape
    smooth = multigrid(kinetics.with_(decay=CosineDecay()), fine_tune=False, cycles=2)
    assert [stage.name.partition(",")[0] for stage in smooth.stages] == ["cycle 1"] * 4 + ["cycle 2"] * 4
    assert smooth[-1].lr < 1e-5 * smooth[0].lr


def test_work_can_be_counted_in_anything(kinetics: Baseline) -> None:
    # A model whose cost grows with the square of the frames gains more from short clips.
    plan = multigrid(kinetics)
    assert plan.saving(lambda cell: cell.batch * cell.frames**2 * cell.size**2).work > plan.saving().work
    assert plan.saving(lambda cell: 1.0).work == plan.saving().steps


def test_the_distinct_shapes_are_few_and_in_order(kinetics: Baseline) -> None:
    shapes = multigrid(kinetics).shapes
    assert [str(cell) for cell in shapes][:3] == ["1024×8×112²", "512×8×158²", "256×16×158²"]
    assert len(shapes) == len(set(shapes)) <= 12
