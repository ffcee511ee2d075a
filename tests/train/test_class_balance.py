"""Classes of unequal size: weights in the loss, balanced sampling, and the mean over classes."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from vcycle.data import Balance, SampleStream
from vcycle.errors import CheckpointError, RecipeError
from vcycle.tasks.classification.metrics import evaluate
from vcycle.tasks.classification.scores import Scores
from vcycle.tasks.recognition import Recognition
from vcycle.train.fetching import BatchFetcher

SHORT = (
    "data.cache=24",
    "plan=constant",
    "training.steps=14",
    "training.decay=constant",
    "training.warmup=null",
    "training.batch=4",
)


@pytest.fixture(scope="module")
def unequal(digit_videos, tmp_path_factory):
    """The videos of half of the classes but one are left out: 14 to 1, or so."""
    videos = tmp_path_factory.mktemp("unequal") / "videos"
    shutil.copytree(digit_videos, videos)
    for number, folder in enumerate(sorted((videos / "train").iterdir())):
        for file in sorted(folder.iterdir())[1 if number % 2 else 99 :]:
            file.unlink()
    return videos


class Constant(nn.Module):
    """The same logits for every clip."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, clips):
        return self.logits.expand(len(clips), -1)


def test_the_loss_is_the_weighted_mean_over_clips_however_they_are_split():
    logits, labels, weights = [0.2, -0.4, 1.0], torch.tensor([0, 2, 2, 1, 0, 2]), (3.0, 0.5, 1.0)
    clips = torch.zeros(6, 1, 2, 2, 3, dtype=torch.uint8)
    own = -torch.tensor(logits).log_softmax(0)
    model, task = Constant(logits), Recognition(classes=3, class_weights=weights)
    expected = (torch.tensor(weights) * own)[labels].mean()
    assert torch.allclose(task.loss(model, clips, labels), expected)
    parts = [task.loss(model, clips[part], labels[part]) * len(labels[part]) / 6 for part in (slice(4), slice(4, 6))]
    assert torch.allclose(sum(parts), expected)
    smooth = Recognition(classes=3, class_weights=weights, label_smoothing=0.3).loss(model, clips, labels)
    soft = 0.7 * functional.one_hot(labels, 3) + 0.1
    assert torch.allclose(smooth, (soft * torch.tensor(weights) * own).sum(1).mean())
    ones = Recognition(classes=3, class_weights=(1.0, 1.0, 1.0)).loss(model, clips, labels)
    assert torch.allclose(ones, Recognition(classes=3).loss(model, clips, labels))


def test_balanced_weights_are_one_per_item_on_average(make_training, unequal):
    training = make_training(*SHORT, "training.class_weights=balanced", videos=unequal)
    task, splits = training.experiment.task, training.experiment.splits
    weights = np.array(task.training_objective(training.recipe, splits).class_weights)
    labels = np.array(splits.train.labels)
    assert weights[labels].mean() == pytest.approx(1)
    assert np.bincount(labels, weights[labels]) == pytest.approx(len(labels) / len(weights))
    assert task.objective(training.recipe, len(weights)).class_weights is None  # as evaluations use it


@pytest.mark.parametrize(
    "options",
    [("sampling.balanced=true", "training.class_weights={2-left: 3, 2-right: 0.5}"), ("sampling.balanced=0.5",)],
)
def test_a_resumed_run_is_the_one_that_was_not_interrupted(make_training, unequal, record_of, tmp_path, options):
    training = make_training(*SHORT, *options, videos=unequal)
    training.run(tmp_path / "whole")
    training.run_until(5, tmp_path / "cut")
    training.run(tmp_path / "cut", resume=True)
    assert record_of(tmp_path / "cut") == record_of(tmp_path / "whole")
    with pytest.raises(CheckpointError, match=r"was started with sampling\.balanced"):
        make_training(*SHORT, *options, "sampling.balanced=0.25", videos=unequal).run(tmp_path / "cut", resume=True)


def test_a_run_trains_on_the_balanced_stream_and_the_plan_stays(make_training, unequal, tmp_path, monkeypatch):
    plain = make_training(*SHORT, videos=unequal)
    balanced = make_training(*SHORT, "sampling.balanced=true", videos=unequal)
    assert balanced.plan == plain.plan
    names = [Path(path).parent.name for path in plain.experiment.splits.train.paths]
    labels = np.unique(names, return_inverse=True)[1]
    seen = []
    take = BatchFetcher.take

    def taken(fetcher):
        batch, waited = take(fetcher)
        seen.extend(zip(batch.positions.tolist(), batch.indices.tolist(), strict=True))
        return batch, waited

    monkeypatch.setattr(BatchFetcher, "take", taken)
    for training, balance in ((plain, None), (balanced, Balance(labels))):
        seen.clear()
        training.run(tmp_path / str(len(list(tmp_path.iterdir()))))
        expected = SampleStream(len(labels), training.recipe.run.seed, balance).indices(0, 14 * 4)
        assert sorted(seen) == list(enumerate(expected.tolist()))
    drawn = [labels[item] for position, item in seen if position < len(labels)]
    assert np.ptp(np.bincount(drawn)) <= 1
    (note,) = [
        note
        for note in balanced.experiment.task.notices(balanced.recipe, balanced.experiment.splits, balanced.plan)
        if note.startswith("sampling.balanced=1")
    ]
    assert "(1 videos)" in note


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("training.class_weights={2-lefd: 2}",), "has no class '2-lefd' .did you mean '2-left'"),
        (("training.class_weights=balanced", "sampling.balanced=true"), "both make up for classes of unequal size"),
        (("training.class_weights={2-left: 0}",), "training.class_weights"),
        (("training.class_weights=equal",), "training.class_weights"),
        (("sampling.balanced=2",), "sampling.balanced"),
    ],
)
def test_what_does_not_fit_the_classes_is_refused(make_training, digit_videos, options, message):
    with pytest.raises(RecipeError, match=message):
        make_training(*options)


def test_the_mean_over_classes_counts_each_class_once():
    scores = torch.eye(3, dtype=torch.float64)[[0, 0, 0, 1, 0, 0]]
    found = evaluate(Scores(videos=torch.arange(6), scores=scores, labels=torch.tensor([0, 0, 0, 1, 1, 0])), "")
    assert (found.top1, found.mean_class_accuracy) == (pytest.approx(5 / 6), pytest.approx((1 + 0.5) / 2))
