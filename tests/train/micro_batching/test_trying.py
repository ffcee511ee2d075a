"""Shapes are tried before the first step, and what was found out is written down."""

import json

import pytest
import torch

from vcycle.errors import VcycleError
from vcycle.plan import Baseline, cascade
from vcycle.train.config import OptimizerSection
from vcycle.train.memory import undone

CPU = torch.device("cpu")
BASELINE = Baseline(batch=4, frames=4, size=8, clips=24, steps=24, lr=0.05, bn_batch=4)
PLAN = cascade(BASELINE)
COARSE = PLAN[0]  # the most clips, in several blocks


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("before", [0, 3])
def test_trying_leaves_no_trace(tmp_path, name, before, trainer, net):
    trained = trainer(tmp_path, model=lambda: net(limit=9), optimizer=OptimizerSection(name=name))
    trained.search.try_shapes(0)  # so that the steps before do not find it out
    trained.steps(before)
    (tmp_path / "fit.json").unlink()
    trained.search._fits.clear()
    state = trained.everything()
    trained.search.try_shapes(0)
    assert len(trained.task.tried) > len(PLAN.shapes)
    assert trained.everything() == state


def test_what_is_undone_is_undone_when_it_fails_too(tmp_path, trainer, batch_of):
    trained = trainer(tmp_path)
    state = trained.everything()

    def fail():
        trained.train_step.attempt(PLAN[0], batch_of(PLAN[0]))
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"), undone(trained.model, trained.state.optimizer, CPU):
        fail()
    assert trained.everything() == state


def test_a_shape_that_does_not_fit_is_found_out_before_the_first_step_and_told(tmp_path, trainer, net):
    trained = trainer(tmp_path, model=lambda: net(limit=9))
    trained.search.try_shapes(0)
    assert COARSE.batch == 32
    assert trained.train_step.micro == {COARSE.cell: 8, PLAN.shapes[1]: 8}
    assert trained.told == [
        "batch shapes tried: 4; 32×2×4² is computed in micro-batches of 8 clips, with the same result; 16×4×4² is "
        "computed in micro-batches of 8 clips, with the same result"
    ]
    said = json.loads((tmp_path / "fit.json").read_text())
    assert said["devices"]["name"] == "CPU"
    assert said["devices"]["ranks"] == 1
    assert {(fit["shape"]["batch"], fit["micro"]) for fit in said["fits"]} == {(32, 8), (16, 8), (7, 7), (4, 4)}


def test_every_shape_is_tried_once_where_all_fit(tmp_path, trainer):
    trained = trainer(tmp_path)
    trained.search.try_shapes(0)
    assert sorted(trained.task.tried) == sorted((cell.batch, cell.shape) for cell in PLAN.shapes)
    assert trained.told == ["batch shapes tried: 4; all fit"]
    assert trained.train_step.micro == {}


def test_a_shape_of_which_no_block_fits_is_refused_by_name(tmp_path, trainer, net):
    trained = trainer(tmp_path, model=lambda: net(limit=3))
    said = r"32×2×4² does not fit into memory \(.* GiB\), not even in micro-batches of 4 clips"
    with pytest.raises(VcycleError, match=said):
        trained.search.try_shapes(0)


def test_without_batchnorm_clips_may_be_computed_one_by_one(tmp_path, trainer, net):
    trained = trainer(tmp_path, model=lambda: net(limit=1, norm=False))
    trained.search.try_shapes(0)
    assert set(trained.train_step.micro.values()) == {1}


def test_a_resumed_run_takes_over_what_its_record_says_and_tries_the_rest_alone(tmp_path, trainer, net):
    first = trainer(tmp_path, model=lambda: net(limit=9))
    first.search.try_shapes(len(PLAN) - 1)
    again = trainer(tmp_path, model=lambda: net(limit=9), resumed=True)
    again.search.try_shapes(0)
    assert {batch for batch, _ in again.task.tried} == {32, 16, 7}
    third = trainer(tmp_path, model=lambda: net(limit=9), resumed=True)
    third.search.try_shapes(0)
    assert third.task.tried == []
    assert third.train_step.micro == again.train_step.micro == {COARSE.cell: 8, PLAN.shapes[1]: 8}


@pytest.mark.parametrize("change", [{"ranks": 2}, {"name": "another device"}, {"memory": 1}])
def test_a_record_of_other_devices_is_not_taken_over(tmp_path, change, trainer, net):
    trainer(tmp_path, model=lambda: net(limit=9)).search.try_shapes(0)
    said = json.loads((tmp_path / "fit.json").read_text())
    said["devices"] |= change
    (tmp_path / "fit.json").write_text(json.dumps(said))
    again = trainer(tmp_path, resumed=True)
    assert again.train_step.micro == {}
    again.search.try_shapes(0)
    assert len(again.task.tried) == len(PLAN.shapes)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"devices": {}}', '{"fits": 1}'])
def test_a_damaged_record_is_as_none(tmp_path, damage, trainer):
    (tmp_path / "fit.json").write_text(damage)
    assert trainer(tmp_path, resumed=True).train_step.micro == {}


def test_a_new_run_does_not_believe_a_record_that_another_left_behind(tmp_path, trainer, net):
    trainer(tmp_path, model=lambda: net(limit=9)).search.try_shapes(0)
    assert trainer(tmp_path).train_step.micro == {}
