"""Regularisation that grows with the size: a function of a step's shape alone."""

import pytest
import torch
from torch import nn

from vcycle.data import ClipAugment, ClipErasing, ClipJitter
from vcycle.tasks.classification.objective import Recognition, scale_dropout
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


def test_erasing_gets_rarer_and_color_jitter_weaker_at_smaller_sizes():
    strength = Strength(full=32, at_half=0.2)
    erasing = ClipErasing(probability=0.5, strength=strength)
    jitter = ClipJitter(brightness=0.5, contrast=0, saturation=0, strength=strength)
    torch.manual_seed(0)
    erased, brightest = [], []
    for side in (16, 24, 32):
        grey = torch.full((1, side, side, 3), 100, dtype=torch.uint8)
        erased.append(sum(not torch.equal(erasing(grey), grey) for _ in range(400)) / 400)
        brightest.append(max(int(jitter(grey).max()) for _ in range(100)))
    assert erased == pytest.approx([0.1, 0.3, 0.5], abs=0.08)
    assert brightest == pytest.approx([110, 130, 150], abs=4)


class VJEPA2DropPath(nn.Module):
    """As transformers names its classes of stochastic depth."""

    def __init__(self, drop_prob: float | None) -> None:
        super().__init__()
        self.drop_prob = drop_prob


def test_every_kind_of_dropout_and_stochastic_depth_follows_the_size():
    ops = pytest.importorskip("torchvision.ops")
    kinds = nn.ModuleList(
        [
            nn.Dropout3d(0.4),
            nn.MultiheadAttention(8, 2, dropout=0.2),
            ops.StochasticDepth(0.3, "row"),
            VJEPA2DropPath(0.1),
            VJEPA2DropPath(None),
            nn.Identity(),
        ]
    )

    for share in (0.5, 0.25, 1.0):
        scale_dropout(kinds, share)
        rates = [kinds[0].p, kinds[1].dropout, kinds[2].p, kinds[3].drop_prob]
        assert rates == pytest.approx([share * rate for rate in (0.4, 0.2, 0.3, 0.1)])
        assert kinds[4].drop_prob is None


def test_the_rate_of_stochastic_depth_is_that_of_the_size_and_its_draws_follow_the_seed():
    ops = pytest.importorskip("torchvision.ops")

    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.head = ops.StochasticDepth(0.5, "row"), nn.Linear(3, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen = self.drop(torch.ones(len(x), 3))
            return self.head(self.seen)

    model, objective = Branch(), Recognition(classes=5, strength=Strength(full=32, at_half=0.2))

    def kept(side: int) -> torch.Tensor:
        torch.manual_seed(3)
        objective.loss(model, clips(side, 2000), torch.zeros(2000, dtype=torch.int64))
        return model.seen[:, 0] != 0

    assert torch.equal(kept(16), kept(16))
    shares = [kept(side).float().mean().item() for side in (16, 32)]
    assert shares == pytest.approx([0.9, 0.5], abs=0.04)  # 3.5 standard deviations
