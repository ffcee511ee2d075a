"""Generators that a user's dataset or transform holds draw the same in any process, and after any resume."""

import copy
import pickle
import random
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset

from vcycle.data import (
    GridSampler,
    PlanBatchSampler,
    ResampledDataset,
    SampleRequest,
    VideoDataset,
    loader,
    read_videos,
)
from vcycle.data.generators import generators_in
from vcycle.plan import Baseline, Shape, constant

PLAN = constant(Baseline(batch=4, frames=8, size=16, clips=12, epochs=2, lr=0.1))
CLIP = torch.zeros(3, 8, 16, 16)


def draw(generator):
    if isinstance(generator, torch.Generator):
        return float(torch.rand((), generator=generator, dtype=torch.float64))
    return float(generator.random())


class Draws(torch.utils.data.Dataset):
    """Clips, and a draw of a generator of its own."""

    def __init__(self, rng):
        self.rng = rng

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return CLIP, torch.tensor(draw(self.rng), dtype=torch.float64)


def drawn(dataset, **options):
    return torch.cat([draws for _, draws in loader(dataset, PLAN, **options)]).tolist()


KINDS = {
    "Generator": lambda: np.random.default_rng(0),
    "MT19937": lambda: np.random.Generator(np.random.MT19937(0)),
    "RandomState": lambda: np.random.RandomState(0),
    "Random": lambda: random.Random(0),
    "torch": lambda: torch.Generator().manual_seed(0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_generator_of_the_datasets_own_draws_the_same_for_any_workers_and_on_a_resume(kind):
    whole = drawn(Draws(KINDS[kind]()))
    assert len(set(whole)) == len(whole) == PLAN.samples
    assert drawn(Draws(KINDS[kind]()), workers=3) == whole
    assert drawn(Draws(KINDS[kind]()), start=2, workers=1) == whole[8:]
    assert drawn(Draws(KINDS[kind]()), seed=1) != whole


def test_under_pytorchs_loader_it_draws_the_same():
    dataset = ResampledDataset(Draws(np.random.default_rng(0)), GridSampler(frames=8, size=16))
    plain = DataLoader(dataset, batch_sampler=PlanBatchSampler(PLAN, 12), num_workers=1)
    assert torch.cat([draws for _, draws in plain]).tolist() == drawn(dataset.dataset)


def test_a_generator_that_is_made_with_the_first_item_is_keyed_from_that_item_on():
    class Late(Draws):
        def __getitem__(self, index):
            self.rng = np.random.default_rng(7) if self.rng is None else self.rng
            return super().__getitem__(index)

    whole = drawn(Late(None))
    assert len(set(whole)) == PLAN.samples
    assert drawn(Late(None), workers=3) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_generator_draws_elsewhere_is_as_if_nothing_had_been_loaded(kind):
    loaded, untouched = KINDS[kind](), KINDS[kind]()
    draw(loaded), draw(untouched)
    drawn(Draws(loaded))
    assert [draw(loaded) for _ in range(3)] == [draw(untouched) for _ in range(3)]


def test_global_generators_draw_what_they_drew_before_a_dataset_had_its_own():
    class Global(Draws):
        def __getitem__(self, index):
            return CLIP, torch.tensor(random.random() + np.random.rand() + float(torch.rand(())))

    assert drawn(Global(None)) == drawn(Global(np.random.default_rng(0)))


class Jitter(torch.nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.rng = rng

    def forward(self, clip):
        return clip + int(self.rng.integers(0, 200))


def function_of(rng):
    return lambda clip: clip + int(rng.integers(0, 200))


def of_default(clip, rng=np.random.default_rng(0)):  # noqa: B008 (what a user may write)
    return clip + int(rng.integers(0, 200))


TRANSFORMS = {
    "module": Jitter,
    "sequence": lambda rng: torch.nn.Sequential(torch.nn.Identity(), Jitter(rng)),
    "closure": function_of,
    "partial": lambda rng: partial(of_default, rng=rng),
    "default": lambda rng: of_default,
    "method": lambda rng: Jitter(rng).forward,
}


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_a_transform_of_videos_that_holds_a_generator_is_keyed(kind, tmp_path, write_video):
    for number in range(3):
        write_video(tmp_path / "train" / "class" / f"{number}.mp4", 10)
    videos = read_videos(tmp_path, "train")

    def clips(**options):
        transform = TRANSFORMS[kind](np.random.default_rng(0))
        dataset = VideoDataset(videos, GridSampler(frames=8, size=16), transform=transform)
        plan = constant(Baseline(batch=3, frames=8, size=16, clips=3, epochs=4, lr=0.1))
        return [batch.clips for batch in loader(dataset, plan, **options)]

    whole = clips()
    assert len({int(clip.float().mean()) for batch in whole for clip in batch}) > 6
    for other in (clips(workers=2), clips(workers=1)):
        assert all(torch.equal(a, b) for a, b in zip(whole, other, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(whole[2:], clips(start=2), strict=True))


class Holder:
    kept_by_class = random.Random(3)

    def __init__(self, *held):
        self.held = held


def test_generators_are_found_wherever_a_dataset_holds_them_each_once():
    first, second, third = np.random.default_rng(0), random.Random(1), torch.Generator()
    dataset = Subset(Draws({"a": [first, (second, Jitter(third))], "again": first}), [0, 1])
    assert generators_in(dataset) == [first.bit_generator, second, third]
    assert generators_in(Holder(second)) == [Holder.kept_by_class, second]
    assert generators_in([second.random, first.normal]) == [second, first.bit_generator]
    assert generators_in([random.random, np.random.rand, np.random.mtrand._rand, torch.default_generator]) == []
    assert generators_in([random.SystemRandom(), "text", None, np, np.random.default_rng]) == []


def test_the_search_ends_and_a_long_list_of_samples_hides_no_transform():
    rng = random.Random(0)
    holder = Holder([Holder(str(number)) for number in range(100_000)], {"transform": Holder(rng)})
    holder.itself = holder
    assert generators_in(holder) == [Holder.kept_by_class, rng]
    nested: list = []
    for _ in range(100_000):
        nested = [nested]
    assert generators_in(nested) == []


def test_a_copy_keys_its_own_generators():
    request = SampleRequest(0, Shape(8, 16, 16), (0, 0, 5))
    dataset = ResampledDataset(Draws(np.random.default_rng(0)), GridSampler(frames=8, size=16))
    expected = dataset[request][1]
    for other in (copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):
        other.dataset.rng = np.random.default_rng(99)
        assert other[request][1] == expected
