"""The average of the weights over the steps, in training for recognition."""

import pytest
import torch

from vcycle.errors import RecipeError
from vcycle.tasks.loaded_model import load_model
from vcycle.train.config import EmaSpec


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


def test_precise_batchnorm_of_other_weights_is_refused(make_training):
    with pytest.raises(RecipeError, match=r"training.precise_bn=8 is of the weights as they are, and training.ema=0.9"):
        make_training("training.ema=0.9", "training.precise_bn=8")
