import pytest
import torch
from torch import nn

from vcycle.data import Batch, Replacement
from vcycle.errors import DataError
from vcycle.plan import Shape
from vcycle.tasks.recognition import Recognition, evaluate

SHAPE = Shape(2, 4, 4)
CPU = torch.device("cpu")


class Rigged(nn.Module):
    """Answers what a clip's first pixel says: its red is the class, ranked first; the ones below follow."""

    def __init__(self, task, classes):
        super().__init__()
        self.task, self.classes = task, classes
        self.batchnorm = nn.BatchNorm3d(3)
        self.modes = []

    def forward(self, x):
        self.modes.append(self.training)
        mean, std = self.task.mean[0], self.task.std[0]
        answers = ((x[:, 0, 0, 0, 0] * std + mean) * 255).round()
        return -(answers[:, None] - torch.arange(self.classes)).remainder(self.classes)


def batch_of(answers, labels, replaced=()):
    clips = torch.zeros(len(answers), *SHAPE, 3, dtype=torch.uint8)
    clips[:, 0, 0, 0, 0] = torch.tensor(answers, dtype=torch.uint8)
    return Batch(
        clips=clips if answers else torch.empty(0, 0, 0, 0, 3, dtype=torch.uint8),
        labels=torch.tensor(labels, dtype=torch.int64),
        indices=torch.arange(len(labels)),
        positions=torch.full((len(labels),), -1),
        replaced=list(replaced),
        faults=[],
    )


def unreadable(video):
    return Replacement(position=-1, video=video, replacement=-1, path=f"{video}.mp4", cause="no such file")


@pytest.fixture
def task():
    return Recognition(classes=12)


def test_top1_and_top5_count_what_the_model_ranks_first_and_among_the_first_five(task):
    # The answers 7 are ranked 7, 6, 5, 4, 3.
    labels = [7, 7, 6, 3, 2, 11]
    found = evaluate(task, Rigged(task, 12), [batch_of([7] * 6, labels)], SHAPE, device=CPU)
    assert found.top1 == pytest.approx(2 / 6)
    assert found.top5 == pytest.approx(4 / 6)
    assert (found.samples, found.unreadable) == (6, 0)
    assert found.protocol == "1 center clip, 2×4×4"


def test_every_video_counts_once_however_they_are_batched_and_ordered(task):
    answers, labels = [1, 2, 3, 4, 5, 6, 7], [1, 2, 0, 4, 4, 11, 7]
    cuts = ([7], [1, 6], [3, 3, 1], [2, 2, 2, 1])
    results = []
    for order in (list(range(7)), [6, 2, 4, 0, 1, 5, 3]):
        for cut in cuts:
            places = iter(order)
            batches = []
            for size in cut:
                part = [next(places) for _ in range(size)]
                batches.append(batch_of([answers[p] for p in part], [labels[p] for p in part]))
            results.append(evaluate(task, Rigged(task, 12), batches, SHAPE, device=CPU))
    for found in results:
        assert (found.top1, found.top5) == (pytest.approx(4 / 7), pytest.approx(6 / 7))
        assert (found.samples, found.loss) == (7, pytest.approx(results[0].loss))


def test_the_loss_is_the_mean_cross_entropy_without_smoothing():
    task = Recognition(classes=12, label_smoothing=0.3)
    batches = [batch_of([1, 5], [1, 4]), batch_of([3], [0])]
    found = evaluate(task, Rigged(task, 12), batches, SHAPE, device=CPU)
    logits = -(torch.tensor([1.0, 5.0, 3.0])[:, None] - torch.arange(12)).remainder(12)
    assert found.loss == pytest.approx(float(nn.functional.cross_entropy(logits, torch.tensor([1, 4, 0]))))


def test_unreadable_videos_are_left_out_and_counted(task):
    batches = [
        batch_of([1], [1], [unreadable(4)]),
        batch_of([], [], [unreadable(5), unreadable(6)]),
        batch_of([2], [3]),
    ]
    found = evaluate(task, Rigged(task, 12), batches, SHAPE, device=CPU)
    assert (found.samples, found.unreadable, found.top1) == (2, 3, 0.5)


def test_a_split_without_a_readable_video_is_an_error(task):
    with pytest.raises(DataError, match="none of the 2 videos of the evaluation split can be read"):
        evaluate(task, Rigged(task, 12), [batch_of([], [], [unreadable(1), unreadable(2)])], SHAPE, device=CPU)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_evaluated_in_eval_mode_and_left_as_it_was(task, training):
    model = Rigged(task, 12).train(training)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    evaluate(task, model, [batch_of([1], [1]), batch_of([1], [1])], SHAPE, device=CPU)
    assert model.modes == [False, False]
    assert model.training is training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_with_few_classes_top5_is_the_share_among_all(classes):
    task = Recognition(classes=classes)
    found = evaluate(task, Rigged(task, classes), [batch_of([0, 1], [0, 0])], SHAPE, device=CPU)
    assert (found.top1, found.top5) == (0.5, 1.0)


def test_a_single_class_cannot_be_told_from_others():
    with pytest.raises(DataError, match="1 class: at least 2 are needed"):
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
