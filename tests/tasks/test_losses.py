"""The training losses, and the labels that each takes."""

import pytest
import torch
from torch import nn

from vcycle.errors import DataError
from vcycle.tasks.recognition import Recognition

CLIPS = torch.randint(0, 256, (5, 2, 4, 4, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def linear(classes):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(96, classes))


def test_any_number_of_labels_is_learnt_by_the_mean_of_each_class_by_itself():
    task = Recognition(classes=3, multi_label=True)
    model = linear(3)
    labels = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0], [0, 0, 1]]).float()
    p = model(task.inputs(CLIPS)).sigmoid()
    expected = -(labels * p.log() + (1 - labels) * (1 - p).log()).mean()
    assert task.loss(model, CLIPS, labels).item() == pytest.approx(expected.item(), rel=1e-5)


def test_an_evaluation_that_comes_first_leaves_no_traces_in_training():
    task = Recognition(classes=3, mean=(0.4, 0.5, 0.6))
    with torch.inference_mode():
        task.predict(linear(3), CLIPS)
    model = nn.Sequential(nn.InstanceNorm3d(3, affine=True), linear(3))
    task.loss(model, CLIPS, torch.tensor([0, 1, 2, 0, 1])).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_mixed_labels_keep_their_smoothing():
    task = Recognition(classes=4, label_smoothing=0.1, mixup=0.8)
    model = linear(4)
    labels = torch.tensor([0, 1, 2, 3, 0])
    torch.manual_seed(2)
    found = task.loss(model, CLIPS, labels)
    torch.manual_seed(2)
    share = torch.distributions.Beta(torch.tensor([0.8]), torch.tensor([0.8])).sample(())
    x, hot = task.inputs(CLIPS), nn.functional.one_hot(labels, 4).float()
    logs = model(share * x + (1 - share) * x.roll(1, 0)).log_softmax(1)
    soft = share * hot + (1 - share) * hot.roll(1, 0)
    expected = -((0.9 * soft + 0.1 / 4) * logs).sum(1).mean()
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_without_mixing_the_generator_is_left_alone():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    Recognition(classes=4).loss(linear(4).requires_grad_(False), CLIPS, torch.tensor([0, 1, 2, 3, 0]))
    torch.manual_seed(3)
    assert torch.equal(torch.get_rng_state(), state)


def test_predictions_are_neither_mixed_nor_smoothed():
    task, model = Recognition(classes=4, mixup=0.8, label_smoothing=0.3), linear(4)
    assert torch.equal(task.predict(model, CLIPS), model(task.inputs(CLIPS)))


@pytest.mark.parametrize("label", [-1, 4, 7])
def test_a_label_outside_the_classes_is_refused(label):
    task = Recognition(classes=4)
    task.check(torch.tensor([0, 3, 2]))
    task.check(torch.empty(0, dtype=torch.int64))
    with pytest.raises(DataError, match=rf"label {label} is out of range; accepted: 0 to 3"):
        task.check(torch.tensor([0, label, 3]))


def test_labels_of_the_other_kind_are_refused():
    one, many = Recognition(classes=3), Recognition(classes=3, multi_label=True)
    many.check(torch.zeros(2, 3))
    with pytest.raises(DataError, match=r"has any number of labels per clip, but the task \(multi_label=False\) needs"):
        one.check(torch.zeros(2, 3))
    with pytest.raises(DataError, match=r"has one label per clip, but the task \(multi_label=True\) needs float"):
        many.check(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(DataError, match="labels of 4 classes; the model has 3"):
        many.check(torch.zeros(2, 4))


def test_one_class_may_be_told_by_itself():
    assert Recognition(classes=1, multi_label=True).classes == 1
