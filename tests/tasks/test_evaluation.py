"""Scores of videos from scores of their views, and the numbers that are made of them."""

import math

import pytest
import torch
from torch import nn

from vcycle.data import Batch, Replacement, Views
from vcycle.errors import DataError
from vcycle.plan import Shape
from vcycle.tasks.classification.metrics import evaluate, share_interval
from vcycle.tasks.recognition import Recognition, Scores, Scoring, class_results, confusion, score_each

SHAPE = Shape(2, 4, 4)
CENTER = Views(shape=SHAPE)
CPU = torch.device("cpu")


class Rigged(nn.Module):
    """Answers what a clip's first pixel says: its red is the class, ranked first; the ones below follow."""

    def __init__(self, task):
        super().__init__()
        self.task = task
        self.batchnorm = nn.BatchNorm3d(3)
        self.modes = []

    def logits(self, answers):
        return -(answers[:, None] - torch.arange(self.task.classes)).remainder(self.task.classes)

    def forward(self, x):
        self.modes.append(self.training)
        return self.logits(((x[:, 0, 0, 0, 0] * self.task.std[0] + self.task.mean[0]) * 255).round())


class Told(nn.Module):
    """Gives the logits that it was told for a view's number, which is its clip's first pixel."""

    def __init__(self, task, logits):
        super().__init__()
        self.task, self.told = task, torch.tensor(logits)

    def forward(self, x):
        return self.told[((x[:, 0, 0, 0, 0] * self.task.std[0] + self.task.mean[0]) * 255).round().long()]


def batch_of(answers, labels, videos, replaced=()):
    clips = torch.zeros(len(answers), *SHAPE, 3, dtype=torch.uint8)
    clips[:, 0, 0, 0, 0] = torch.tensor(answers, dtype=torch.uint8)
    return Batch(
        clips=clips if answers else torch.empty(0, 0, 0, 0, 3, dtype=torch.uint8),
        labels=torch.as_tensor(labels, dtype=None if torch.is_tensor(labels) else torch.int64),
        indices=torch.tensor(videos, dtype=torch.int64),
        positions=torch.full((len(videos),), -1),
        replaced=list(replaced),
        faults=[],
    )


def unreadable(video):
    return Replacement(position=-1, video=video, replacement=-1, path=f"{video}.mp4", cause="no such file")


def evaluated(task, batches, views=CENTER):
    scores = Scores.of(score_each(task, Rigged(task), batches, views, device=CPU))
    return evaluate(scores, Scoring().words(task, views))


@pytest.fixture
def task():
    return Recognition(classes=12)


def test_top1_and_top5_count_what_the_model_ranks_first_and_among_the_first_five(task):
    # The answers 7 are ranked 7, 6, 5, 4, 3.
    found = evaluated(task, [batch_of([7] * 6, [7, 7, 6, 3, 2, 11], range(6))])
    assert found.top1 == pytest.approx(2 / 6)
    assert found.top5 == pytest.approx(4 / 6)
    assert (found.samples, found.unreadable) == (6, 0)
    assert found.protocol == "1 center clip, 2×4×4"
    assert (found.measure, found.value, found.map) == ("top-1", found.top1, None)


def test_every_video_counts_once_however_they_are_batched_and_ordered(task):
    answers, labels = [1, 2, 3, 4, 5, 6, 7], [1, 2, 0, 4, 4, 11, 7]
    results = set()
    for order in (list(range(7)), [6, 2, 4, 0, 1, 5, 3]):
        for cut in ([7], [1, 6], [3, 3, 1], [2, 2, 2, 1]):
            places = iter(order)
            parts = [[next(places) for _ in range(size)] for size in cut]
            batches = [batch_of([answers[p] for p in part], [labels[p] for p in part], part) for part in parts]
            results.add(evaluated(task, batches))
    (found,) = results
    assert (found.top1, found.top5, found.samples) == (pytest.approx(4 / 7), pytest.approx(6 / 7), 7)


def test_the_loss_is_the_mean_cross_entropy_without_smoothing():
    task = Recognition(classes=12, label_smoothing=0.3)
    found = evaluated(task, [batch_of([1, 5], [1, 4], [0, 1]), batch_of([3], [0], [2])])
    logits = Rigged(task).logits(torch.tensor([1.0, 5.0, 3.0]))
    assert found.loss == pytest.approx(float(nn.functional.cross_entropy(logits, torch.tensor([1, 4, 0]))))


def test_a_class_that_is_all_but_ruled_out_has_a_finite_loss():
    task = Recognition(classes=2)
    scores = Scores.of(score_each(task, Told(task, [[3000.0, 0.0]]), [batch_of([0], [1], [0])], CENTER, device=CPU))
    assert math.isfinite(evaluate(scores, "").loss)


@pytest.mark.parametrize(("right", "count"), [(0, 1), (1, 1), (3, 4), (50, 99)])
def test_the_interval_of_an_accuracy_is_that_of_scipy(right, count):
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(right, count).proportion_ci(0.95, method="wilson")
    assert share_interval(right / count, count) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_unreadable_videos_are_left_out_and_counted(task):
    batches = [
        batch_of([1], [1], [0], [unreadable(4)]),
        batch_of([], [], [], [unreadable(5), unreadable(6)]),
        batch_of([2], [3], [7]),
    ]
    found = evaluated(task, batches)
    assert (found.samples, found.unreadable, found.top1) == (2, 3, 0.5)


def test_a_video_of_which_one_view_cannot_be_read_does_not_count_and_is_named_once(task):
    views = Views(shape=SHAPE, clips=3, crops=2)
    batches = [
        batch_of([1, 1], [1, 1], [0, 0], [unreadable(0)]),
        batch_of([2, 2], [2, 2], [1, 1], [unreadable(0)]),
        batch_of([2, 2, 2, 2], [2] * 4, [1] * 4),
    ]
    scores = Scores.of(score_each(task, Rigged(task), batches, views, device=CPU))
    assert scores.videos.tolist() == [1]
    assert scores.unreadable == (unreadable(0),)


def test_a_split_without_a_readable_video_is_an_error(task):
    with pytest.raises(DataError, match="none of the 2 files of the evaluation split can be read"):
        evaluated(task, [batch_of([], [], [], [unreadable(1), unreadable(2)])])


def test_missing_views_are_an_error_rather_than_a_mean_of_fewer(task):
    with pytest.raises(DataError, match="1 items have fewer than 2 views"):
        evaluated(task, [batch_of([1], [1], [0])], Views(shape=SHAPE, clips=2))


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_evaluated_in_eval_mode_and_left_as_it_was(task, training):
    model = Rigged(task).train(training)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    list(score_each(task, model, [batch_of([1], [1], [0]), batch_of([1], [1], [1])], CENTER, device=CPU))
    assert model.modes == [False, False]
    assert model.training is training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_with_few_classes_top5_is_the_share_among_all(classes):
    found = evaluated(Recognition(classes=classes), [batch_of([0, 1], [0, 0], [0, 1])])
    assert (found.top1, found.top5) == (0.5, 1.0)


# Views by hand: softmax of (ln 1, ln 3) is (1/4, 3/4), of (ln 3, ln 2) it is (3/5, 2/5).
@pytest.mark.parametrize("cut", [[4], [1, 3], [3, 1], [2, 2]])
@pytest.mark.parametrize(
    ("combine", "expected"), [("mean", [(1 / 4 + 3 / 5) / 2, (3 / 4 + 2 / 5) / 2]), ("max", [3 / 5, 3 / 4])]
)
def test_views_are_combined_wherever_batches_are_cut(cut, combine, expected):
    task = Recognition(classes=2)
    model = Told(task, [[0.0, math.log(3)], [math.log(3), math.log(2)], [0.0, 0.0]])
    views = Views(shape=SHAPE, clips=2)
    rows = [(0, 5), (1, 5), (2, 8), (2, 8)]
    batches = []
    for size in cut:
        part, rows = rows[:size], rows[size:]
        batches.append(batch_of([view for view, _ in part], [0] * size, [video for _, video in part]))
    found = list(score_each(task, model, batches, views, device=CPU, scoring=Scoring(combine=combine)))
    assert [one.video for one in found] == [5, 8]
    assert found[0].scores.tolist() == pytest.approx(expected)
    assert found[1].scores.tolist() == pytest.approx([0.5, 0.5])


def test_a_video_is_given_as_soon_as_its_views_are_there(task):
    views = Views(shape=SHAPE, clips=2)
    asked = []

    def batches():
        for number in range(3):
            asked.append(number)
            yield batch_of([1, 1], [1, 1], [number, number])

    found = score_each(task, Rigged(task), batches(), views, device=CPU)
    assert next(found).video == 0
    assert asked == [0]


def test_several_labels_are_scored_by_sigmoids_unless_told_otherwise():
    task = Recognition(classes=2, multi_label=True)
    labels = torch.tensor([[1.0, 0.0]])
    for scores, expected in (("auto", [0.5, 0.75]), ("softmax", [0.25, 0.75])):
        model = Told(task, [[0.0, math.log(3)]])
        scoring = Scoring(scores=scores)
        (found,) = score_each(task, model, [batch_of([0], labels, [0])], CENTER, device=CPU, scoring=scoring)
        assert found.scores.tolist() == pytest.approx(expected)


def test_the_protocol_says_how_scores_came_about(task):
    views = Views(shape=SHAPE, clips=10, crops=3)
    several = Recognition(classes=3, multi_label=True)
    assert Scoring().words(task, views) == "10 clips × 3 crops, 2×4×4, softmax mean"
    assert Scoring(combine="max").words(several, views) == "10 clips × 3 crops, 2×4×4, sigmoid max"
    assert Scoring().words(several, CENTER) == "1 center clip, 2×4×4, sigmoid"


SEVERAL = Scores(
    videos=torch.arange(4),
    scores=torch.tensor(
        [[0.9, 0.2, 0.3, 0.5], [0.8, 0.7, 0.6, 0.5], [0.7, 0.6, 0.1, 0.5], [0.6, 0.1, 0.2, 0.5]], dtype=torch.float64
    ),
    labels=torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]]),
)
"""Four videos, of which three have classes and one has none; nobody has the fourth class."""


# By hand. Class 0: ranked 0, 1, 2, 3 with positives at ranks 1 and 3: (1/1 + 2/3) / 2. Class 1: ranked 1, 2, 0, 3 with
# positives at ranks 1 and 2: 1. Class 2: ranked 1, 0, 3, 2, the positive last: 1/4. Class 3 has none and is left out.
def test_map_is_the_mean_average_precision_of_the_classes_that_somebody_has():
    found = evaluate(SEVERAL, "")
    assert found.map == pytest.approx(((1 + 2 / 3) / 2 + 1 + 1 / 4) / 3)
    assert found.map_classes == 3
    assert (found.measure, found.value) == ("mAP", found.map)


def test_map_is_that_of_the_only_class_that_somebody_has():
    for classes in (1, 4):
        some = Scores(
            videos=SEVERAL.videos, scores=SEVERAL.scores[:, :classes], labels=SEVERAL.labels[:, :classes].clone()
        )
        some.labels[:, 1:] = 0
        found = evaluate(some, "")
        assert (found.map, found.map_classes) == (pytest.approx((1 + 2 / 3) / 2), 1)


# By hand: precision 1 at 0.9, 2/3 at 0.5 and 3/4 at 0.1, where each finds a third of the positives.
def test_videos_of_equal_scores_are_found_together():
    scores = torch.tensor([[0.5], [0.9], [0.1], [0.5]], dtype=torch.float64)
    for labels in ([[1.0], [1], [1], [0]], [[0.0], [1], [1], [1]]):
        several = Scores(videos=torch.arange(4), scores=scores, labels=torch.tensor(labels))
        assert evaluate(several, "").map == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)


def test_average_precision_is_that_of_scikit_learn():
    sklearn = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(0)
    for digits in (1, 2, 9):  # with many, some and no equal scores
        scores = torch.rand(200, 6, generator=generator, dtype=torch.float64).round(decimals=digits)
        labels = (torch.rand(200, 6, generator=generator) < torch.tensor([0.005, 0.1, 0.3, 0.5, 0.9, 1.0])).double()
        rows = class_results(Scores(videos=torch.arange(200), scores=scores, labels=labels))
        expected = [sklearn.average_precision_score(labels[:, i], scores[:, i]) for i in range(6) if labels[:, i].any()]
        assert [row.value for row in rows if row.value is not None] == pytest.approx(expected, rel=1e-12)


def test_scores_that_are_not_numbers_are_refused(task):
    model = Told(task, [[math.nan] * 12])
    with pytest.raises(DataError, match="scores are not finite"):
        list(score_each(task, model, [batch_of([0], [0], [0])], CENTER, device=CPU))


def test_with_several_classes_top1_asks_for_any_of_them():
    found = evaluate(SEVERAL, "")
    assert (found.top1, found.top5) == (2 / 4, 3 / 4)


def test_with_several_classes_the_loss_is_binary():
    logits = SEVERAL.scores.logit()
    expected = nn.functional.binary_cross_entropy_with_logits(logits, SEVERAL.labels.double())
    assert evaluate(SEVERAL, "").loss == pytest.approx(float(expected))


def test_with_several_classes_each_has_its_average_precision():
    rows = class_results(SEVERAL)
    assert [row.videos for row in rows] == [2, 2, 1, 0]
    assert [row.value for row in rows[:3]] == pytest.approx([(1 + 2 / 3) / 2, 1, 1 / 4])
    assert rows[3].value is None


def test_each_class_has_its_share_and_what_it_was_most_taken_for():
    labels = [0, 0, 0, 0, 1, 1]
    answers = [0, 1, 1, 2, 1, 1]
    scores = Scores(
        videos=torch.arange(6), scores=torch.eye(4, dtype=torch.float64)[answers], labels=torch.tensor(labels)
    )
    assert confusion(scores).tolist() == [[1, 2, 1, 0], [0, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    rows = class_results(scores)
    assert [(row.videos, row.value, row.taken_for, row.taken) for row in rows] == [
        (4, 0.25, 1, 2),
        (2, 1.0, None, 0),
        (0, None, None, 0),
        (0, None, None, 0),
    ]
