import pytest
import torch
from torch import nn

from vcycle.errors import DataError
from vcycle.plan import Shape
from vcycle.tasks.recognition import Recognition

SHAPE = Shape(2, 4, 4)


def test_a_single_class_cannot_be_told_from_others():
    with pytest.raises(DataError, match="found 1 class; classification needs at least 2"):
        Recognition(classes=1)


def test_clips_are_normalised_and_moved_without_a_copy_of_their_layout():
    task = Recognition(classes=2, mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 1.0))
    clips = torch.randint(0, 256, (2, 3, 5, 7, 3), dtype=torch.uint8)
    x = task.inputs(clips)
    assert x.shape == (2, 3, 3, 5, 7)
    assert x.is_contiguous(memory_format=torch.channels_last_3d)
    expected = (clips.double() / 255 - torch.tensor(task.mean).double()) / torch.tensor(task.std).double()
    assert torch.allclose(x.double(), expected.permute(0, 4, 1, 2, 3), atol=1e-5)


def test_the_training_loss_is_smoothed_and_reaches_the_weights():
    task = Recognition(classes=4, label_smoothing=0.1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * SHAPE.voxels, 4))
    clips = torch.randint(0, 256, (5, *SHAPE, 3), dtype=torch.uint8)
    labels = torch.tensor([0, 1, 2, 3, 0])
    loss = task.loss(model, clips, labels)
    logs = model(task.inputs(clips)).log_softmax(1)
    expected = -(0.9 * logs[range(5), labels] + 0.1 * logs.mean(1)).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    loss.backward()
    assert model[1].weight.grad.abs().sum() > 0
