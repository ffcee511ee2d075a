"""PyTorch's Subset and ConcatDataset over datasets that sample grids."""

import time

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split

from vcycle.data import GridSampler, VideoDataset, Views, evaluation_loader, loader, read_videos
from vcycle.errors import DataError
from vcycle.plan import Baseline, Shape, cascade
from vcycle.tasks.superres import SyntheticClips, SyntheticPairs
from vcycle.tasks.superres.pairs.dataset import PairedDataset
from vcycle.tasks.superres.pairs.layouts import read_pairs

PLAN = cascade(Baseline(batch=2, frames=8, size=32, clips=5, steps=40, lr=0.1))
GRIDS = GridSampler(frames=8, size=32, flip=True)
BAD = 4


@pytest.fixture(scope="module")
def videos(tmp_path_factory, write_video):
    root = tmp_path_factory.mktemp("set")
    for number in range(8):
        write_video(root / "train" / f"class{number % 2}" / f"{number}.mp4", 12 + number)
    return read_videos(root, "train")


@pytest.fixture(scope="module")
def dataset(videos):
    return VideoDataset(videos, GRIDS)


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory, videos):
    root = tmp_path_factory.mktemp("spoilt")
    for item in range(len(videos)):
        path = root / "train" / videos.paths[item]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"no video" if item == BAD else videos.path(item).read_bytes())
    return VideoDataset(read_videos(root, "train"), GRIDS)


def same(first, second):
    return len(first) == len(second) and all(
        all(torch.equal(a, b) for a, b in zip(one[:4], other[:4], strict=True)) and one[4:] == other[4:]
        for one, other in zip(first, second, strict=True)
    )


INNER = [6, 1, 3, 0, 7]


def nested(dataset):
    """The videos of ``INNER``, by way of subsets and a concatenation."""
    return Subset(ConcatDataset([Subset(dataset, [1, 6]), Subset(dataset, np.array([0, 3, -1]))]), [1, 0, 3, 2, -1])


@pytest.mark.parametrize("compose", [lambda dataset: Subset(dataset, INNER), nested], ids=["subset", "nested"])
def test_clips_are_sampled_at_each_shape_and_keyed_by_the_place_in_the_outer_dataset(dataset, compose):
    composed = compose(dataset)
    batches = list(loader(composed, PLAN))
    for step, batch in zip(PLAN, batches, strict=True):
        assert batch.clips.shape == (step.batch, *step.shape, 3)
        assert batch.positions.tolist() == list(step.samples)
        assert batch.labels.tolist() == [dataset.videos.labels[INNER[index]] for index in batch.indices]
    requests = [request for requests in loader(composed, PLAN).work._sampler for request in requests]
    clips = [clip for batch in batches for clip in batch.clips]
    for request, clip in zip(requests[:12], clips, strict=False):
        alone = dataset[type(request)(INNER[request.index], request.shape, request.key)]
        assert torch.equal(alone.clip, clip)
    assert same(batches, list(loader(composed, PLAN, workers=2)))
    assert same(batches[5:], list(loader(composed, PLAN, start=5)))


def test_a_bad_video_is_replaced_by_one_of_the_subset_and_a_journal_repeats_it(spoilt):
    subset = Subset(spoilt, [0, BAD, 2, 5, 7])
    batches = list(loader(subset, PLAN))
    replaced = [bad for batch in batches for bad in batch.replaced]
    assert {(bad.video, bad.path) for bad in replaced} == {(1, spoilt.name(BAD))}
    assert {bad.replacement for bad in replaced} <= {0, 2, 3, 4}
    assert all(0 <= index < 5 for batch in batches for index in batch.indices.tolist())
    assert same(batches, list(loader(subset, PLAN, workers=2)))
    journal = {bad.position: bad.replacement for bad in replaced}
    again = list(loader(subset, PLAN, replaced=journal))
    assert same([batch._replace(replaced=[]) for batch in batches], again)


def test_random_split_gives_two_sets_that_share_nothing(dataset):
    train, held = random_split(dataset, [5, 3], generator=torch.Generator().manual_seed(0))
    seen = {train.indices[index] for batch in loader(train, PLAN) for index in batch.indices.tolist()}
    assert seen == set(train.indices)
    assert not seen & set(held.indices)


def test_views_of_a_subset_are_those_of_its_videos(dataset, spoilt):
    views = Views(shape=Shape(8, 32, 32))
    (batch,) = evaluation_loader(Subset(dataset, [5, 2]), views, batch=4)
    assert batch.indices.tolist() == [0, 1]
    assert torch.equal(batch.clips[0], dataset.center(5, views.shape).clip)
    (batch,) = evaluation_loader(Subset(spoilt, [BAD, 2]), views, batch=4)
    assert [(bad.video, bad.path) for bad in batch.replaced] == [(0, spoilt.name(BAD))]


def test_crops_of_super_resolution_are_taken_from_a_subset(tmp_path, write_video):
    for number in range(4):
        write_video(tmp_path / f"{number}.mp4", 8)
    pairs = PairedDataset(read_pairs(tmp_path))
    plan = cascade(Baseline(batch=1, frames=4, size=8, clips=3, steps=24, lr=0.1))
    batches = list(loader(Subset(pairs, [3, 0, 2]), plan))
    for step, batch in zip(plan, batches, strict=True):
        assert batch.clips.shape == (step.batch, *step.shape, 3)
        assert set(batch.indices.tolist()) <= {0, 1, 2}
    parts = ConcatDataset([SyntheticPairs(2), SyntheticPairs(1)])
    assert set(torch.cat([batch.indices for batch in loader(parts, plan)]).tolist()) == {0, 1, 2}


def test_parts_that_sample_grids_and_parts_that_do_not_are_refused_together(dataset):
    with pytest.raises(DataError, match="a ConcatDataset mixes VideoDataset, which samples grids, and list, which"):
        loader(ConcatDataset([dataset, [torch.zeros(3, 8, 32, 32)]]), PLAN)
    with pytest.raises(DataError, match="samples its own grids"):
        loader(Subset(dataset, [0]), PLAN, grids=GRIDS)


def test_a_subset_that_changes_its_items_is_not_looked_through(dataset):
    class Changed(Subset):
        def __getitem__(self, index):
            return self.dataset[self.indices[index]]

        def __getitems__(self, indices):
            return [self[index] for index in indices]

    with pytest.raises(DataError, match=r"VideoDataset\[\d\]: .*vcycle\.loader"):
        next(iter(loader(Changed(dataset, INNER), PLAN)))


class Hangs(SyntheticClips):
    def __init__(self, overdue):
        super().__init__(6, classes=6)
        self.overdue = overdue

    def name(self, item):
        return f"clip {item}"

    def __getitem__(self, request):
        if request.index == BAD:
            self.overdue()
            time.sleep(3600)
        return super().__getitem__(request)


def test_an_item_that_hangs_is_replaced_by_its_number_in_the_outer_dataset(overdue):
    subset = Subset(Hangs(overdue), [5, BAD, 3, 2, 1])
    batches = list(loader(subset, PLAN, stop=1, workers=2, timeout=1000))
    bad = {(bad.video, bad.path, bad.cause) for batch in batches for bad in batch.replaced}
    assert bad == {(1, f"clip {BAD}", "did not finish within 1000 s")}
    for batch in batches:
        assert batch.labels.tolist() == [subset.indices[index] for index in batch.indices.tolist()]


@pytest.mark.parametrize("number", [0, -1, np.int64(2), slice(2)])
def test_a_number_is_refused_with_what_asks_for_one(dataset, tmp_path, write_video, number):
    write_video(tmp_path / "a.mp4", 8)
    for refusing in (dataset, PairedDataset(read_pairs(tmp_path))):
        name = type(refusing).__name__
        with pytest.raises(DataError, match=rf"{name}\[.*vcycle\.loader\(dataset, plan\).*SampleRequest\(index, sh"):
            refusing[number]
    with pytest.raises(DataError, match=r"vcycle\.loader"):
        next(iter(DataLoader(dataset)))
