"""The average of the weights over the steps, in training for recognition."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import update_bn

from vcycle.data import loader
from vcycle.errors import RecipeError
from vcycle.nn import revert_batchnorm
from vcycle.tasks.loaded_model import load_model
from vcycle.train.config import EmaSpec
from vcycle.train.precise_bn import precise_plan


@pytest.fixture(scope="module")
def averaged(make_training):
    return make_training("data.cache=24", "training.ema=0.9")


def test_a_large_batch_decays_it_as_so_many_steps_would():
    spec = EmaSpec(decay=0.9, clips=4)
    assert spec.share(4) == pytest.approx(0.1)
    assert 1 - spec.share(32) == pytest.approx(0.9**8)
    with pytest.raises(RecipeError, match="an average of decay 1 at 4 clips"):
        EmaSpec(decay=1, clips=4)


def test_a_run_that_was_cut_short_goes_on_with_its_average(averaged, record_of, newest, tmp_path):
    fitted = averaged.run(tmp_path / "whole")
    averaged.run_until(13, tmp_path / "cut")
    averaged.run(tmp_path / "cut", resume=True)
    assert record_of(tmp_path / "cut") == record_of(tmp_path / "whole")
    kept, cut = newest(tmp_path / "whole"), newest(tmp_path / "cut")
    for key, value in kept.averaged.items():
        assert torch.equal(value, cut.averaged[key])
        assert torch.equal(value, fitted.model.state_dict()[key])
    assert not all(torch.equal(value, kept.averaged[key]) for key, value in kept.model.items())


def test_training_itself_is_the_same_and_the_average_is_what_is_opened(averaged, training, newest, tmp_path):
    training.run(tmp_path / "plain")
    averaged.run(tmp_path / "averaged")
    plain, kept = newest(tmp_path / "plain"), newest(tmp_path / "averaged")
    assert plain.averaged is None
    assert all(torch.equal(value, kept.model[key]) for key, value in plain.model.items())
    opened = load_model(tmp_path / "averaged").model.state_dict()
    assert all(torch.equal(value, opened[key]) for key, value in kept.averaged.items())


def test_precise_statistics_are_those_of_the_averaged_weights(make_training, newest, tmp_path):
    one_group = ("training.batch=4", "training.bn_batch=4", "training.precise_bn=4")
    training = make_training("data.cache=24", "training.ema=0.9", "model.options.dropout=0", *one_group)
    found = training.run(tmp_path).model
    expected = Normalised(training.experiment, revert_batchnorm(deepcopy(found)))
    batches = loader(training.experiment.dataset("train"), precise_plan(training.plan, 4), workers=0)
    update_bn([next(iter(batches)).clips], expected)
    oracle, trained = expected.model.state_dict(), newest(tmp_path).model
    statistics = [key for key in oracle if key.endswith(("running_mean", "running_var"))]
    assert statistics
    for key in statistics:
        torch.testing.assert_close(found.state_dict()[key], oracle[key], rtol=1e-4, atol=1e-6)
        assert not torch.allclose(trained[key], oracle[key], rtol=1e-2)  # those of training


class Normalised(nn.Module):
    """A model that takes clips as they are loaded."""

    def __init__(self, experiment, model):
        super().__init__()
        self.model = model
        self.predict = experiment.task.objective(experiment.recipe, len(experiment.classes)).predict

    def forward(self, clips):
        return self.predict(self.model, clips)
