import pickle

import pytest
import torch
from torch.utils.data import DataLoader

from vcycle.data import (
    Batch,
    FrameCache,
    GridSampler,
    PlanBatchSampler,
    ResampledDataset,
    VideoDataset,
    VideoError,
    Views,
    evaluation_loader,
    loader,
    read_videos,
)
from vcycle.errors import DataError, PlanError
from vcycle.plan import Baseline, Shape, cascade

PLAN = cascade(Baseline(batch=2, frames=8, size=32, clips=7, steps=60, lr=0.1))
GRIDS = GridSampler(frames=8, size=32, flip=True)


@pytest.fixture(scope="module")
def videos(tmp_path_factory, write_video):
    root = tmp_path_factory.mktemp("set")
    for number in range(7):
        write_video(root / "train" / f"class{number % 2}" / f"{number}.mp4", 12 + number)
    (root / "train" / "class0" / "2.mp4").write_bytes(b"")
    return read_videos(root, "train")


@pytest.fixture(scope="module")
def dataset(videos, tmp_path_factory):
    cache = FrameCache.build(videos, tmp_path_factory.mktemp("cache"), short_side=32)
    return VideoDataset(videos, GRIDS, source=cache)


def same(first, second):
    return len(first) == len(second) and all(
        all(torch.equal(a, b) for a, b in zip(one[:4], other[:4], strict=True)) and one[4:] == other[4:]
        for one, other in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("workers", [1, 4])
def test_batches_do_not_depend_on_the_number_of_workers(dataset, videos, workers):
    assert same(list(loader(dataset, PLAN)), list(loader(dataset, PLAN, workers=workers)))
    files = VideoDataset(videos, GRIDS)
    assert same(list(loader(files, PLAN, stop=5)), list(loader(files, PLAN, stop=5, workers=workers)))


def test_each_step_gets_a_batch_of_its_shape(dataset):
    batches = list(loader(dataset, PLAN))
    assert len(batches) == len(PLAN) == len(loader(dataset, PLAN))
    for step, batch in zip(PLAN, batches, strict=True):
        assert isinstance(batch, Batch)
        assert batch.clips.shape == (step.batch, *step.shape, 3)
        assert batch.clips.dtype == torch.uint8
        assert batch.positions.tolist() == list(step.samples)
        assert batch.labels.dtype == batch.indices.dtype == torch.int64
        assert batch.labels.tolist() == [dataset.videos.labels[index] for index in batch.indices]


def test_replacements_are_reported_with_their_batch_and_a_journal_repeats_them(dataset):
    batches = list(loader(dataset, PLAN))
    replaced = [replacement for batch in batches for replacement in batch.replaced]
    assert len(replaced) >= PLAN.samples // 7
    bad = {replacement.video for replacement in replaced}
    assert [dataset.videos.paths[video] for video in bad] == ["class0/2.mp4"]
    journal = {replacement.position: replacement.replacement for replacement in replaced}
    resumed = list(loader(dataset, PLAN, replaced=journal))
    assert not any(batch.replaced for batch in resumed)
    assert same([batch._replace(replaced=[]) for batch in batches], resumed)


def test_a_resumed_run_sees_what_the_uninterrupted_one_saw(dataset):
    whole = list(loader(dataset, PLAN, seed=4))
    for start in (1, 7, len(PLAN) - 1):
        assert same(list(loader(dataset, PLAN, seed=4, start=start, workers=1)), whole[start:])


def test_ranks_share_the_batch(dataset):
    whole = list(loader(dataset, PLAN, stop=6))
    shares = [list(loader(dataset, PLAN, stop=6, rank=rank, world=2)) for rank in range(2)]
    for step, parts in enumerate(zip(*shares, strict=True)):
        assert torch.equal(torch.cat([part.clips for part in parts]), whole[step].clips)


def test_the_batch_sampler_works_under_a_plain_data_loader(dataset):
    plain = DataLoader(dataset, batch_sampler=PlanBatchSampler(PLAN, len(dataset)), collate_fn=lambda samples: samples)
    for samples, batch in zip(plain, loader(dataset, PLAN), strict=True):
        assert torch.equal(torch.stack([sample.clip for sample in samples]), batch.clips)


class Clips(torch.utils.data.Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        noise = torch.rand(())
        return torch.full((3, 16, 32, 32), float(index)) + noise, index, f"clip {index}"


@pytest.mark.parametrize("workers", [0, 2])
def test_any_map_style_dataset_is_wrapped(workers):
    batches = list(loader(Clips(), PLAN, workers=workers))
    for step, (clips, labels, names) in zip(PLAN, batches, strict=True):
        assert clips.shape == (step.batch, 3, *step.shape)
        assert list(names) == [f"clip {label}" for label in labels]
        assert (clips[:, 0, 0, 0, 0].floor() == labels).all()
    again = list(loader(Clips(), PLAN))
    assert all(torch.equal(one[0], other[0]) for one, other in zip(batches, again, strict=True))


def test_grids_may_be_given_for_a_dataset_that_has_none(dataset):
    grids = GridSampler(frames=8, size=32, stride=1)
    clips, _, _ = next(iter(loader(Clips(), PLAN, grids=grids)))
    wrapped = ResampledDataset(Clips(), grids)
    expected = [wrapped[request][0] for request in next(iter(PlanBatchSampler(PLAN, 5)))]
    assert torch.equal(clips, torch.stack(expected))
    with pytest.raises(DataError, match="VideoDataset samples its own grids"):
        loader(dataset, PLAN, grids=grids)


def test_what_cannot_be_loaded_is_refused_before_the_run(dataset):
    with pytest.raises(PlanError, match="not in the plan"):
        loader(dataset, PLAN, start=len(PLAN) + 1)
    with pytest.raises(PlanError, match="fewer clips than the 3 ranks"):
        loader(dataset, PLAN, rank=0, world=3)
    with pytest.raises(DataError, match="0 samples"):
        loader([], PLAN)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_that_a_user_can_mend_is_one_line_wherever_it_arises(workers):
    class NoClips(Clips):
        def __getitem__(self, index):
            return index

    with pytest.raises(DataError) as caught:
        next(iter(loader(NoClips(), PLAN, workers=workers)))
    assert str(caught.value).endswith("must be a clip (tensor or array), or a tuple that starts with one")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (None, "is NoneType: must be a clip"),
        ((1, 2), "is tuple that starts with int: must be a clip"),
        (torch.zeros(3, 0, 20, 20), r"a clip of shape \(3, 0, 20, 20\) has no pixels"),
        (torch.zeros(3, 20, 20), r"a clip of shape \(3, 20, 20\) is not CTHW"),
    ],
)
def test_what_is_no_clip_is_named_with_what_it_is(item, words):
    class Odd(Clips):
        def __getitem__(self, index):
            return item

    with pytest.raises(DataError, match=rf"item \d+.* {words}"):
        next(iter(loader(Odd(), PLAN)))


@pytest.mark.parametrize("workers", [0, 1])
def test_items_that_make_no_batch_are_told_in_a_line(workers):
    class Growing(Clips):
        def __getitem__(self, index):
            return super().__getitem__(index)[0], torch.zeros(index + 1)

    with pytest.raises(DataError, match=r"items of a batch do not fit together: .*must have one shape in all items"):
        next(iter(loader(Growing(), PLAN, workers=workers)))


class Ending(Clips):
    """What a bare `next(...)` raises leaves the dataset at item 3."""

    def __init__(self, raised=StopIteration):
        self.raised = raised

    def __getitem__(self, item):
        if getattr(item, "index", item) == 3:
            raise self.raised
        clip = super().__getitem__(0)[0]
        return clip if isinstance(item, int) else clip[:, : item.shape.frames]


class EndingGrids(Ending):
    samples_grids = True


ENDING = r"item 3 raised StopIteration, which would end the loop over the data: call next\(\) with a default"


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "dataset",
    [
        Ending(),
        EndingGrids(),
        torch.utils.data.Subset(Ending(), range(5)),
        torch.utils.data.ConcatDataset([EndingGrids()]),
    ],
    ids=["whole clips", "grids", "subset", "concat"],
)
def test_stop_iteration_in_a_dataset_is_an_error_that_names_the_item_and_not_the_end_of_the_data(dataset, workers):
    batches = iter(loader(dataset, PLAN, workers=workers))
    with pytest.raises(RuntimeError, match=ENDING):
        for _, _ in zip(PLAN, batches, strict=False):
            pass
    assert list(batches) == []  # and not the next step's batch in place of this one's


@pytest.mark.parametrize("workers", [0, 1])
def test_stop_iteration_is_an_error_under_a_loader_of_pytorch_too(videos, workers, monkeypatch):
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)  # seconds that it waits at its end

    def ends(clip):
        return next(iter([]))

    spoilt = VideoDataset(videos, GRIDS, transform=ends)
    for dataset in (spoilt, ResampledDataset(Ending(), GridSampler(frames=8, size=32))):
        sampler = PlanBatchSampler(PLAN, 5)
        with pytest.raises(RuntimeError, match=r"item \d raised StopIteration, which would end the loop"):
            for _ in DataLoader(dataset, batch_sampler=sampler, num_workers=workers, collate_fn=list):
                pass


@pytest.mark.parametrize("workers", [0, 1])
def test_stop_iteration_in_an_evaluation_names_the_video(videos, workers):
    class Frames:
        def info(self, item):
            return next(iter([]))

    dataset = VideoDataset(videos, GRIDS, source=Frames())
    with pytest.raises(RuntimeError, match=r"class0/0\.mp4 raised StopIteration"):
        list(evaluation_loader(dataset, Views(shape=Shape(8, 32, 32)), batch=4, workers=workers))


def test_what_ends_a_program_leaves_the_loop_as_it_is():
    for raised in (KeyboardInterrupt, GeneratorExit, SystemExit):
        batches = iter(loader(Ending(raised), PLAN))
        with pytest.raises(raised):
            list(batches)
        assert list(batches) == []
        with pytest.raises(RuntimeError, match=rf"{raised.__name__}: .*in a worker that loaded item 3"):
            list(loader(Ending(raised), PLAN, workers=1))


class Spoilt(Clips):
    """A file of these is broken."""

    samples_grids = False

    def __getitem__(self, item):
        index = item.index if self.samples_grids else item
        if index == 3:
            raise VideoError("x.mp4", "broken")
        clip = torch.zeros(3, *item.shape) if self.samples_grids else torch.zeros(3, 16, 32, 32)
        return clip, index, float(torch.rand(()))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("samples_grids", [False, True])
def test_a_bad_item_of_a_users_dataset_is_replaced_by_a_keyed_draw_and_named_once(samples_grids, workers):
    dataset = Spoilt()
    dataset.samples_grids = samples_grids
    with pytest.warns(UserWarning, match=r"^bad x\.mp4: broken; another takes its place$") as told:
        batches = list(loader(dataset, PLAN, workers=workers))
    assert len(told) == 1
    assert len(batches) == len(PLAN)
    with pytest.warns(UserWarning, match="bad x"):
        again = list(loader(dataset, PLAN))
    untouched = list(loader(Clips(), PLAN))
    replaced = 0
    for batch, same_batch, meant in zip(batches, again, untouched, strict=True):
        assert batch[1].tolist() == same_batch[1].tolist()
        assert 3 not in batch[1].tolist()
        assert all(index in (3, used) for index, used in zip(meant[1].tolist(), batch[1].tolist(), strict=True))
        replaced += int((meant[1] == 3).sum())
    assert replaced > 2


def test_a_users_dataset_without_a_good_item_stops_the_run():
    class Broken(Clips):
        def __getitem__(self, index):
            raise VideoError(f"{index}.mp4", "broken")

    for workers in (0, 1):
        with pytest.raises(DataError, match=r"5 items in a row cannot be read, the last: \d\.mp4: broken"):
            list(loader(Broken(), PLAN, workers=workers))


def test_a_dataset_without_numbered_items_is_refused_in_a_sentence():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield torch.zeros(3, 16, 32, 32)

    for dataset in (Stream(), iter([torch.zeros(3, 16, 32, 32)])):
        with pytest.raises(
            DataError,
            match=r"is not a map-style dataset: .* so it needs len\(dataset\) and dataset\[i\]\. .*vcycle\.follow",
        ):
            loader(dataset, PLAN)


def test_workers_use_one_thread_each():
    class Threads(Clips):
        def __getitem__(self, index):
            return torch.zeros(3, 8, 32, 32), torch.get_num_threads()

    _, threads = next(iter(loader(Threads(), PLAN, workers=1)))
    assert set(threads.tolist()) == {1}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_evaluation_sees_every_video_once_and_names_the_unreadable(dataset, workers, world):
    shape = Shape(8, 32, 32)
    ranks = [
        evaluation_loader(dataset, Views(shape=shape), batch=2, workers=workers, rank=rank, world=world)
        for rank in range(world)
    ]
    batches = [batch for each in ranks for batch in each]
    indices = torch.cat([batch.indices for batch in batches]).tolist()
    bad = [
        (replaced.video, replaced.position, replaced.replacement) for batch in batches for replaced in batch.replaced
    ]
    unreadable = dataset.videos.paths.index("class0/2.mp4")
    assert indices == [index for index in range(7) if index != unreadable]
    assert bad == [(unreadable, -1, -1)]
    for batch in batches:
        for clip, label, index in zip(batch.clips, batch.labels, batch.indices, strict=True):
            expected = dataset.center(int(index), shape)
            assert torch.equal(clip, expected.clip)
            assert label == expected.label


def test_a_batch_can_be_sent_and_moved(dataset):
    batch = next(iter(loader(dataset, PLAN)))
    assert same([pickle.loads(pickle.dumps(batch))], [batch])
    moved = pytest.importorskip("lightning_fabric.utilities").move_data_to_device(batch, torch.device("cpu"))
    assert isinstance(moved, Batch)
    assert same([moved], [batch])


def test_a_plan_for_another_number_of_clips_is_said_where_it_decides_the_length(recwarn):
    epochs = cascade(Baseline(batch=2, frames=8, size=32, clips=7, epochs=8, lr=0.1))
    with pytest.warns(UserWarning, match=r"made for 7 clips, but the dataset has 5: .*Baseline\(clips=5\)"):
        loader(Clips(), epochs)
    recwarn.clear()
    loader(Clips(), cascade(Baseline(batch=2, frames=8, size=32, clips=5, epochs=8, lr=0.1)))
    loader(Clips(), cascade(Baseline(batch=2, frames=8, size=32, clips=7, steps=40, lr=0.1)))  # a length of its own
    assert not recwarn.list
