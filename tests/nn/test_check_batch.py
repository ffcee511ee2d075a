"""`apply` refuses a batch that is not of its step."""

from collections import UserDict, deque
from itertools import starmap

import pytest
import torch
from torch import nn

import vcycle
from vcycle.data import Batch
from vcycle.errors import PlanError
from vcycle.plan import Baseline, cascade, constant, rank_slice

PLAN = cascade(Baseline(batch=4, frames=8, size=32, clips=12, epochs=16, lr=0.1))
STEP = PLAN[0]
FRAMES, HEIGHT, WIDTH = STEP.shape
LAYOUTS = {
    "CTHW": (STEP.batch, 3, FRAMES, HEIGHT, WIDTH),
    "TCHW": (STEP.batch, FRAMES, 3, HEIGHT, WIDTH),
    "THWC": (STEP.batch, FRAMES, HEIGHT, WIDTH, 3),
}


def apply(step, batch, **ranks):
    model = nn.Linear(1, 1)
    vcycle.apply(step, model, torch.optim.SGD(model.parameters(), lr=1.0), batch, **ranks)


def forms(clips):
    """Batches that have these clips, as datasets make them."""
    labels = torch.zeros(len(clips))
    yield clips
    yield (clips, labels)
    yield [clips, labels]
    yield {"labels": labels, "pixel_values": clips, "names": ["a"]}
    yield UserDict(video=clips)
    yield ({"video": clips}, labels)
    yield batch_at(0, clips)


def batch_at(first, clips):
    labels = torch.zeros(len(clips))
    positions = torch.arange(first, first + len(clips))
    return Batch(clips=clips, labels=labels, indices=labels, positions=positions, replaced=[], faults=[])


@pytest.mark.parametrize("shape", LAYOUTS.values(), ids=LAYOUTS)
def test_a_batch_of_the_step_is_accepted_and_any_other_refused_in_every_form(shape):
    for batch in forms(torch.zeros(shape)):
        apply(STEP, batch)
    for axis in {0, *(axis for axis, size in enumerate(shape) if axis and size != 3)}:
        for change in (-1, 1):
            other = tuple(size + change * (place == axis) for place, size in enumerate(shape))
            for batch in forms(torch.zeros(other)):
                with pytest.raises(PlanError) as caught:
                    apply(STEP, batch)
                expected = f"the batch is not of step 0, which expects {STEP.batch} clips of {STEP.shape} (T×H×W)"
                assert str(caught.value).startswith(f"{expected}: it has shape {other}.")


def test_steps_and_batches_of_two_iterators_that_have_run_apart_are_refused():
    dataset = [(torch.zeros(3, 8, 32, 32), 0)] * 12
    pairs = zip(PLAN.iterate(4), vcycle.loader(dataset, PLAN), strict=False)
    with pytest.raises(PlanError, match=r"the batch is not of step \d+, which expects"):
        deque(starmap(apply, pairs))


def test_a_batch_that_knows_its_place_is_refused_at_another_step_of_its_shape():
    clips = torch.zeros(LAYOUTS["THWC"])
    assert (PLAN[1].shape, PLAN[1].batch) == (STEP.shape, STEP.batch)
    with pytest.raises(
        PlanError, match=rf"not of step 0, .* is number 0 of the stream: its first is number {STEP.batch}"
    ):
        apply(STEP, batch_at(PLAN[1].first_sample, clips))
    half = len(rank_slice(STEP.batch, STEP.bn_batch, 0, 2))
    apply(PLAN[1], batch_at(PLAN[1].first_sample + half, clips[half:]), rank=1, world=2)
    with pytest.raises(PlanError, match="not of step 1"):
        apply(PLAN[1], batch_at(PLAN[1].first_sample, clips[half:]), rank=1, world=2)


def test_an_update_that_is_refused_changes_neither_lr_nor_groups():
    model = vcycle.convert_batchnorm(nn.Sequential(nn.BatchNorm3d(2)), bn_batch=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=7.0)
    with pytest.raises(PlanError):
        vcycle.apply(STEP, model, optimizer, torch.zeros(1, 2, 2, 2, 2))
    assert (optimizer.param_groups[0]["lr"], model[0].bn_batch) == (7.0, 3)


def test_each_rank_expects_its_own_slice(monkeypatch):
    step = constant(Baseline(batch=20, bn_batch=8, frames=2, size=4, clips=40, epochs=1, lr=0.1))[0]
    own, whole = torch.zeros(8, 3, 2, 4, 4), torch.zeros(20, 3, 2, 4, 4)
    apply(step, own, rank=0, world=2)
    apply(step, torch.zeros(12, 3, 2, 4, 4), rank=1, world=2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    apply(step, own)
    apply(step, whole, rank=0, world=1)
    with pytest.raises(PlanError, match=r"expects 8 clips of rank 0 of 2 of 2×4×4 .* shape \(20, 3, 2, 4, 4\)"):
        apply(step, whole)


def test_images_are_clips_of_one_frame():
    step = constant(Baseline(batch=4, frames=1, size=8, clips=12, epochs=2, lr=0.1))[0]
    for shape in ((4, 3, 8, 8), (4, 8, 8, 3), (4, 3, 1, 8, 8), (4, 1, 3, 8, 8)):
        apply(step, torch.zeros(shape))
        apply(step, {"image": torch.zeros(shape), "label": torch.zeros(4)})
    for shape in ((4, 3, 8, 9), (3, 3, 8, 8), (4, 3, 8), (4, 3, 2, 8, 8)):
        with pytest.raises(PlanError, match="is not of step 0"):
            apply(step, torch.zeros(shape))
    with pytest.raises(PlanError, match="is not of step 0"):
        apply(STEP, torch.zeros(STEP.batch, 3, HEIGHT, WIDTH))  # a step of several frames


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"rgb": torch.zeros(4, 3, 1, 2, 2), "flow": torch.zeros(4, 2, 1, 2, 2)}, "with 'rgb', 'flow' are not clear"),
        ({"labels": torch.zeros(4)}, "with 'labels' are not clear: pass them alone"),
        ({}, "with nothing are not clear"),
        ((), "a batch is tuple; accepted: clips"),
        (["a.mp4"], "a batch is str; accepted: clips"),
    ],
)
def test_a_batch_without_clips_is_refused(batch, words):
    with pytest.raises(PlanError, match=words):
        apply(STEP, batch)
