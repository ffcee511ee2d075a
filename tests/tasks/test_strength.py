"""Regularisation that grows with the size: a function of a step's shape alone."""

import pytest
import torch
from torch import nn

from vcycle.tasks.classification.augment import ClipAugment
from vcycle.tasks.classification.objective import Recognition
from vcycle.tasks.classification.sampling import Strength

pytest.importorskip("torchvision")


def clips(side: int, count: int = 4) -> torch.Tensor:
    return torch.randint(0, 256, (count, 1, side, side, 3), dtype=torch.uint8)


class Seen(nn.Module):
    """Keeps what it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.4)
        self.head = nn.Linear(3, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = x
        return self.head(self.dropout(x.mean((2, 3, 4))))


def test_it_is_linear_in_the_side_from_its_value_at_half():
    # EfficientNetV2-S (Tan and Le 2021, table 6): dropout 0.1 to 0.3 from 128 to 300 pixels is a third at 128.
    strength = Strength(full=300, at_half=0.4186)
    assert 0.3 * strength(128) == pytest.approx(0.1, abs=1e-4)
    assert [strength(side) for side in (300, 400)] == [1, 1]
    assert Strength(full=64, at_half=0.0)(16) == 0


def test_dropout_and_mixup_follow_the_size_of_each_batch_and_evaluation_has_neither():
    model = Seen()
    objective = Recognition(classes=5, mixup=0.4, strength=Strength(full=32, at_half=0.0))
    plain = Recognition(classes=5)
    labels = torch.arange(4)
    rates, mixed = [], []
    for side in (16, 24, 32, 16):
        batch = clips(side)
        objective.loss(model, batch, labels).backward()
        rates.append(model.dropout.p)
        mixed.append(not torch.equal(model.seen, plain.inputs(batch)))
    assert rates == pytest.approx([0, 0.2, 0.4, 0])
    assert mixed == [False, True, True, False]


def test_randaugment_does_nothing_visible_at_no_strength():
    torch.manual_seed(0)
    still = torch.full((1, 16, 16, 3), 100, dtype=torch.uint8)
    augment = ClipAugment(ops=1, magnitude=30, strength=Strength(full=32, at_half=0.5))
    assert [augment._transform.magnitude for side in (16, 32) if augment(clips(side)[0]) is not None] == [15, 30]
    assert augment(still).shape == still.shape
