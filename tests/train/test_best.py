"""The weights of the best validation: kept beside the checkpoints, and told of where the end is not the best."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from vcycle.data.config import LoadingSection
from vcycle.errors import VcycleError
from vcycle.plan import Baseline, StepDecay, cascade
from vcycle.tasks.recognition import RecognitionMetrics
from vcycle.train.callbacks import Callbacks
from vcycle.train.checkpoint import BEST, kept_best, load_checkpoint
from vcycle.train.config import OptimizerSection, RunSection, TrainConfig
from vcycle.train.outcome import Totals, ValidationResult
from vcycle.train.run import RunFolder
from vcycle.train.trainer import fit

PLAN = cascade(
    Baseline(
        batch=2,
        frames=8,
        size=16,
        bn_batch=2,
        clips=24,
        epochs=8,
        lr=0.1,
        decay=StepDecay(milestones=(4, 6), gamma=0.1),
    )
)


class Loss:
    mixes = False

    def loss(self, model, clips, labels, *, block=None):
        return nn.functional.cross_entropy(model(clips.float().div(255).permute(0, 4, 1, 2, 3)), labels)

    def check(self, labels):
        pass


def found(value):
    return RecognitionMetrics(top1=value, top5=1.0, loss=0.5, samples=8, unreadable=0, protocol="none")


@pytest.fixture
def run(noise, brightness, tmp_path):
    """A training whose validations find given values: what it said, and the weights at each validation."""

    def run(values, *, on_step=lambda report: None, **settings):
        said, weights, left = [], [], iter(values)

        def validate(model, device):
            weights.append({key: value.clone() for key, value in model.state_dict().items()})
            return found(next(left))

        torch.manual_seed(0)
        fit(
            plan=PLAN,
            model=brightness(),
            dataset=noise,
            objective=Loss(),
            config=TrainConfig(
                run=RunSection(device="cpu", validate_every=PLAN.epochs / len(values), **settings),
                loading=LoadingSection(workers=0),
                optimizer=OptimizerSection(),
            ),
            run=RunFolder(tmp_path),
            validate=validate,
            callbacks=Callbacks(on_step=on_step, on_message=said.append),
        )
        return said, weights

    return run


@pytest.mark.parametrize(
    ("values", "best"),
    [((0.1, 0.7, 0.3), 1), ((0.6, math.nan, 0.5), 0), ((0.4, 0.4, 0.1), 0), ((math.nan, 0.3, 0.1), 1)],
)
@pytest.mark.parametrize("save_every", [1, 1000])
def test_it_is_kept_whenever_checkpoints_are_saved_and_told_of_at_the_end(run, tmp_path, values, best, save_every):
    said, weights = run(values, save_every=save_every)
    kept = load_checkpoint(tmp_path / "checkpoints" / BEST)
    assert all(torch.equal(value, weights[best][key]) for key, value in kept.weights.items())
    told = [line for line in said if "best validation" in line]
    assert told == [
        f"the best validation was after step {kept.step:,}, top-1 {values[best]:.1%}, the last one is top-1 "
        f"{values[-1]:.1%}: {tmp_path / 'checkpoints' / BEST} has the best weights"
    ]


def test_where_the_end_is_as_good_there_is_nothing_to_tell(run, tmp_path):
    said, _ = run((0.3, 0.2, 0.3))
    assert not [line for line in said if "best" in line]
    assert load_checkpoint(tmp_path / "checkpoints" / BEST).step < len(PLAN)


def test_where_the_end_is_the_best_its_weights_are(run, tmp_path):
    said, weights = run((0.1, 0.2, 0.3))
    assert not [line for line in said if "best" in line]
    kept = load_checkpoint(tmp_path / "checkpoints" / BEST)
    assert kept.step == len(PLAN)
    assert all(torch.equal(value, weights[-1][key]) for key, value in kept.weights.items())


def test_the_first_of_equals_is_the_best_and_none_before_a_number():
    totals = Totals()
    assert totals.best is None
    for step, value in enumerate((math.nan, 0.5, 0.5)):
        totals.curve.append(ValidationResult(step=step, samples=step, seconds=0.0, evaluation=found(value)))
    assert totals.best.step == 1


def test_a_run_that_was_cut_short_ends_with_the_same_best(make_training, tmp_path):
    training = make_training("data.cache=24", "run.validate_every=1", "run.save_every=2")
    training.run(tmp_path / "whole")
    training.run_until(13, tmp_path / "cut")
    training.run(tmp_path / "cut", resume=True)
    whole, cut = (load_checkpoint(tmp_path / name / "checkpoints" / BEST) for name in ("whole", "cut"))
    assert whole.step == cut.step
    assert all(torch.equal(value, cut.weights[key]) for key, value in whole.weights.items())


def test_of_an_average_of_the_weights_it_is_the_average_that_is_kept(make_training, tmp_path):
    training = make_training("data.cache=24", "training.ema=0.9", "run.validate_every=1")
    fitted = training.run(tmp_path)
    best = load_checkpoint(tmp_path / "checkpoints" / BEST)
    (last,) = (tmp_path / "checkpoints").glob(f"step-{len(training.plan):09d}.pt")
    if best.step == len(training.plan):
        assert all(torch.equal(value, fitted.model.state_dict()[key]) for key, value in best.weights.items())
    assert not all(torch.equal(value, load_checkpoint(last).model[key]) for key, value in best.weights.items())


def test_one_that_is_not_of_the_record_is_dropped_on_resume(make_training, tmp_path):
    training = make_training("data.cache=24", "run.validate_every=1", "run.save_every=2")
    training.run_until(13, tmp_path)
    file = tmp_path / "checkpoints" / BEST
    kept = load_checkpoint(file)
    best = Totals.from_data(kept.totals, RecognitionMetrics).best
    assert kept_best(tmp_path / "checkpoints", best) == kept.step
    assert kept_best(tmp_path / "checkpoints", dataclasses.replace(best, step=best.step + 1)) is None
    assert not file.exists()


def test_a_training_that_ends_by_an_error_keeps_it(run, tmp_path):
    def fail(report):
        if report.step.index == len(PLAN) - 2:
            raise VcycleError("the offsets are too large")

    with pytest.raises(VcycleError, match="offsets"):
        run((0.5, 0.5, 0.5, 0.5), save_every=1000, on_step=fail)
    assert load_checkpoint(tmp_path / "checkpoints" / BEST).step > 0
