"""Paired crops: aligned at both resolutions, keyed, and never silent about a clip that cannot be read."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vcycle.data import Batch, Sample
from vcycle.data.batch import collate
from vcycle.data.dataset import Replacement
from vcycle.data.loading import loader
from vcycle.data.request import SampleRequest
from vcycle.data.stream import SampleStream
from vcycle.data.video import VideoError
from vcycle.errors import DataError
from vcycle.plan import Baseline, CosineDecay, Shape, superresolution
from vcycle.tasks.superres.pairs.dataset import PairedDataset, mirror
from vcycle.tasks.superres.pairs.degrade import Degradation
from vcycle.tasks.superres.pairs.layouts import ClipPairs, read_pairs
from vcycle.tasks.superres.pairs.prepare import prepare_frames
from vcycle.tasks.superres.pairs.synthetic import SyntheticClips, SyntheticPairs

Write = Callable[..., Path]
Noise = Callable[..., NDArray[np.uint8]]

FRAMES, HEIGHT, WIDTH = 9, 20, 28


@pytest.fixture(scope="module")
def coordinates(tmp_path_factory: pytest.TempPathFactory, write_clip: Write) -> ClipPairs:
    """Two clips whose low-resolution pixels are (frame, row, column), and each high-resolution pixel likewise."""
    root = tmp_path_factory.mktemp("coordinates")
    low = np.stack(np.meshgrid(range(FRAMES), range(HEIGHT), range(WIDTH), indexing="ij"), axis=-1).astype(np.uint8)
    for clip in range(2):
        write_clip(root / "low" / str(clip), low)
        write_clip(root / "high" / str(clip), low.repeat(4, axis=1).repeat(4, axis=2))
    return read_pairs(root / "high", low=root / "low")


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory, write_clip: Write, noise: Noise) -> Path:
    root = tmp_path_factory.mktemp("noisy")
    for clip in range(4):
        write_clip(root / str(clip), noise(6, 66, 82, clip))
    return root


def request(index: int, shape: Shape, position: int = 0) -> SampleRequest:
    return SampleRequest(index, shape, (3, 0, position))


def pair_of(sample: Sample) -> tuple[torch.Tensor, torch.Tensor]:
    """The clip at low and at high resolution."""
    assert isinstance(sample.label, torch.Tensor)
    return sample.clip, sample.label


def test_crops_flips_and_windows_are_aligned_at_both_resolutions(coordinates: ClipPairs) -> None:
    dataset = PairedDataset(coordinates)
    seen = set()
    for position in range(64):
        sample = dataset[request(position % 2, Shape(4, 6, 10), position)]
        lr, hr = pair_of(sample)
        assert (sample.index, sample.position, list(sample.replaced)) == (position % 2, position, [])
        assert lr.shape == (4, 6, 10, 3)
        assert torch.equal(hr, lr.repeat_interleave(4, 1).repeat_interleave(4, 2))
        frames, rows, columns = (lr[..., k].long() for k in range(3))
        assert frames[:, 0, 0].tolist() == list(range(int(frames[0, 0, 0]), int(frames[0, 0, 0]) + 4))
        down, right = (rows[0, 1, 0] - rows[0, 0, 0], rows[0, 0, 1] - rows[0, 0, 0])
        across = (columns[0, 1, 0] - columns[0, 0, 0], columns[0, 0, 1] - columns[0, 0, 0])
        seen.add((int(down), int(right), *map(int, across)))
    assert len(seen) == 8  # every flip, alone and with the transpose


def test_every_window_and_place_can_come(coordinates: ClipPairs) -> None:
    dataset = PairedDataset(coordinates, flip=False, transpose=False)
    corners = [dataset[request(0, Shape(7, 18, 26), position)].clip[0, 0, 0].tolist() for position in range(300)]
    assert {tuple(corner) for corner in corners} == {(t, y, x) for t in range(3) for y in range(3) for x in range(3)}


def test_the_whole_clip_fits(coordinates: ClipPairs) -> None:
    sample = PairedDataset(coordinates, transpose=False)[request(1, Shape(FRAMES, HEIGHT, WIDTH))]
    assert pair_of(sample)[1].shape == (FRAMES, 4 * HEIGHT, 4 * WIDTH, 3)


def test_a_mirrored_clip_goes_back_the_way_it_came(coordinates: ClipPairs) -> None:
    dataset = PairedDataset(coordinates, mirrored=True, flip=False, transpose=False)
    lr, hr = pair_of(dataset[request(0, Shape(6, 8, 8), 5)])
    frames = lr[:, 0, 0, 0].tolist()
    assert frames == [frames[0], frames[0] + 1, frames[0] + 2, frames[0] + 2, frames[0] + 1, frames[0]]
    assert torch.equal(hr, mirror(hr[:3]))
    with pytest.raises(DataError, match="7 frames: mirrored clips have even numbers of frames"):
        dataset[request(0, Shape(7, 8, 8))]


def test_the_same_request_gives_the_same_crop_and_another_position_another(noisy: Path) -> None:
    dataset = PairedDataset(read_pairs(noisy))
    first, again = (pair_of(dataset[request(2, Shape(3, 8, 8), 7)]) for _ in range(2))
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[0], dataset[request(2, Shape(3, 8, 8), 8)].clip)


def test_a_part_has_the_same_clips_under_numbers_of_its_own(coordinates: ClipPairs, noisy: Path) -> None:
    for pairs, items in ((coordinates, [1]), (read_pairs(noisy), [3, 0])):
        whole = PairedDataset(pairs)
        part = whole.part(items)
        assert [part.name(item) for item in range(len(part))] == [whole.name(item) for item in items]
        for item, other in enumerate(items):
            assert all(map(torch.equal, part.whole(item), whole.whole(other)))
            shape = Shape(3, 8, 8)
            assert all(map(torch.equal, pair_of(part[request(item, shape)]), pair_of(whole[request(other, shape)])))


@pytest.mark.parametrize("kind", ["bicubic", "bd"])
def test_low_resolution_made_for_a_crop_is_that_of_the_whole_frame(noisy: Path, tmp_path: Path, kind: str) -> None:
    made = PairedDataset(read_pairs(noisy, degradation=Degradation(kind=kind)))
    prepare_frames(noisy, tmp_path / "store", degradation=kind)
    stored = PairedDataset(read_pairs(tmp_path / "store"))
    for position in range(24):
        for shape in (Shape(2, 9, 13), Shape(5, 16, 16)):
            ours, theirs = (pair_of(dataset[request(position % 4, shape, position)]) for dataset in (made, stored))
            assert all(map(torch.equal, ours, theirs))


def test_evaluation_sees_whole_clips(noisy: Path) -> None:
    pairs = read_pairs(noisy)
    sample = PairedDataset(pairs, mirrored=True).whole(3)
    truth = torch.from_numpy(pairs.high.read(3, range(6)))[:, :64, :80]
    assert torch.equal(sample.hr, truth)
    assert torch.equal(sample.lr, Degradation().whole(truth))


def test_a_clip_that_cannot_be_read_is_replaced_and_named(noisy: Path, tmp_path: Path) -> None:
    for clip in noisy.iterdir():
        (tmp_path / clip.name).symlink_to(clip)
    (tmp_path / "1").unlink()
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "0.png").write_bytes(b"")
    dataset = PairedDataset(read_pairs(tmp_path))
    samples = [dataset[request(index, Shape(2, 8, 8), 40 + index)] for index in range(4)]
    batch = collate(samples)
    assert batch.indices[1] != 1
    assert batch.indices[[0, 2, 3]].tolist() == [0, 2, 3]
    expected = Replacement(
        position=41,
        video=1,
        replacement=int(batch.indices[1]),
        path=str(tmp_path / "1" / "0.png"),
        cause="not a picture in PNG, JPEG, WebP or BMP (0 bytes)",
    )
    assert batch.replaced == [expected] == list(samples[1].replaced)
    assert dataset[request(1, Shape(2, 8, 8), 41)].index == expected.replacement
    with pytest.raises(VideoError, match="not a picture"):
        dataset.whole(1)


def test_a_clip_that_ends_its_worker_is_listed_with_those_that_cannot_be_read(noisy: Path, tmp_path: Path) -> None:
    baseline = Baseline(batch=3, frames=4, size=8, clips=4, lr=1e-3, steps=12, decay=CosineDecay(floor=1e-7))
    plan = superresolution(baseline, sizes=[8], frames=[4])
    at = [place for place, index in enumerate(SampleStream(4).indices(0, plan.samples).tolist()) if index == 2]

    class Deadly(PairedDataset):
        def __getitem__(self, request: SampleRequest) -> Sample:
            if request.index == 2 and request.position in at:
                os._exit(3)
            return super().__getitem__(request)

    for clip in noisy.iterdir():
        (tmp_path / clip.name).symlink_to(clip)
    (tmp_path / "1").unlink()
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "0.png").write_bytes(b"")
    dataset = Deadly(read_pairs(tmp_path))
    batches = list(loader(dataset, plan, workers=2))
    listed = [bad for batch in batches for bad in batch.replaced]
    assert max(Counter(bad.position for bad in listed).values()) == 2
    ended = [bad for bad in listed if bad.video == 2]
    assert {(bad.path, bad.cause) for bad in ended} == {(dataset.name(2), "ended its process (exit code 3)")}
    assert [bad.position for bad in ended] == at
    journal = {bad.position: bad.replacement for bad in listed}
    again = list(loader(dataset, plan, replaced=journal))
    assert not any(batch.replaced for batch in again)
    assert all(torch.equal(one.labels, other.labels) for one, other in zip(batches, again, strict=True))


def test_clips_that_are_all_too_small_or_short_are_an_error(noisy: Path) -> None:
    dataset = PairedDataset(read_pairs(noisy))
    with pytest.raises(
        DataError, match=r"4 clips in a row .*: 6 frames of 80 × 64, too short or too small for 7 frames of 32"
    ):
        dataset[request(0, Shape(7, 8, 8))]
    with pytest.raises(DataError, match="too short or too small for 2 frames of 68 × 68"):
        dataset[request(0, Shape(2, 17, 17))]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plan_of_super_resolution_runs_through_the_loader(noisy: Path, workers: int) -> None:
    baseline = Baseline(batch=3, frames=6, size=16, clips=4, lr=1e-3, steps=12, decay=CosineDecay(floor=1e-7))
    plan = superresolution(baseline, sizes=[8, 16], frames=[4, 6])
    dataset = PairedDataset(read_pairs(noisy))
    batches = list(loader(dataset, plan, workers=workers))
    assert len(batches) == len(plan)
    for step, batch in zip(plan, batches, strict=True):
        t, h, w = step.shape.frames, step.shape.height, step.shape.width
        assert isinstance(batch, Batch)
        assert batch.clips.shape == (3, t, h, w, 3)
        assert batch.labels.shape == (3, t, 4 * h, 4 * w, 3)
        assert batch.positions.tolist() == list(range(step.first_sample, step.first_sample + 3))
        assert batch.replaced == []
    alone = dataset[SampleRequest(int(batches[-1].indices[0]), plan[11].shape, (0, 8, 33))]
    assert torch.equal(batches[-1].labels[0], pair_of(alone)[1])


def test_a_sample_fits_the_memory_it_asks_for(noisy: Path) -> None:
    shape = Shape(3, 8, 8)
    for dataset in (PairedDataset(read_pairs(noisy)), SyntheticPairs(4)):
        assert dataset.sample_bytes(shape) >= sum(clip.numel() for clip in pair_of(dataset[request(0, shape)]))


def test_synthetic_clips_have_any_shape_and_need_no_files() -> None:
    clips, pairs = SyntheticClips(7, classes=3), SyntheticPairs(7, scale=2)
    sample = clips[request(5, Shape(3, 9, 11))]
    assert sample.clip.shape == (3, 9, 11, 3)
    assert sample.label == 2
    assert clips.sample_bytes(Shape(3, 9, 11)) == sample.clip.numel()
    lr, hr = pair_of(pairs[request(5, Shape(3, 9, 11), 6)])
    assert torch.equal(hr, lr.repeat_interleave(2, 1).repeat_interleave(2, 2))
    assert torch.equal(lr, pairs[request(5, Shape(3, 9, 11), 6)].clip)
    assert not torch.equal(lr, pairs[request(5, Shape(3, 9, 11), 7)].clip)
    with pytest.raises(DataError, match="clips=0"):
        SyntheticPairs(0)
