"""A user's own stream of full-size batches follows a plan: every clip carries its number."""

from collections import UserDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Sampler, WeightedRandomSampler

import vcycle
from vcycle.data import ResampledDataset, SampleStream
from vcycle.nn.check_batch import check_batch
from vcycle.plan import rank_slice

FRAMES, SIZE, CLIPS = 8, 16, 22

PLAN = vcycle.cascade(
    vcycle.Baseline(batch=3, frames=FRAMES, size=SIZE, clips=CLIPS, epochs=4, lr=0.1),
    shapes=[(0.5, 0.5), (0.5, 1), (1, 1)],
)
AXES = {"CTHW": (3, FRAMES, SIZE, SIZE), "TCHW": (FRAMES, 3, SIZE, SIZE), "THWC": (FRAMES, SIZE, SIZE, 3)}


class Numbered(Dataset[Any]):
    """Clips of noise, each with a label and a name."""

    def __init__(self, layout: str = "CTHW", dtype: torch.dtype = torch.uint8, clips: int = CLIPS) -> None:
        noise = torch.randint(0, 256, (clips, *AXES[layout]), generator=torch.Generator().manual_seed(3))
        self.clips = noise.to(torch.uint8) if dtype == torch.uint8 else (noise / 255).to(dtype)

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: int) -> tuple[Tensor, int, str]:
        return self.clips[index], index, f"{index}.mp4"


def whole(dataset: Any, layout: Any = "CTHW") -> Any:
    """What `vcycle.loader` gives of whole clips."""
    grids = vcycle.GridSampler(frames=FRAMES, size=SIZE, span=(1.0, 1.0), field=(1.0, 1.0))
    return ResampledDataset(dataset, grids, layout=layout)


def test_the_plan_has_batches_that_must_be_cut_and_joined() -> None:
    assert {(cell.batch, cell.shape) for cell in PLAN.shapes} == {
        (24, (4, 8, 8)),
        (6, (4, 16, 16)),
        (3, (8, 16, 16)),
    }


@pytest.mark.parametrize("layout", list(AXES))
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float16])
def test_each_step_has_the_next_clips_of_the_stream_as_the_loader_resamples_whole_clips(
    layout: Any, dtype: torch.dtype
) -> None:
    dataset = Numbered(layout, dtype)
    stream = DataLoader(dataset, batch_size=5)  # 22 clips: the last batch has 2
    oracle = whole(dataset, layout)
    seen = 0
    for step, (clips, labels, names) in vcycle.follow(stream, PLAN, layout=layout):
        expected = [number % CLIPS for number in range(seen, seen + step.batch)]
        seen += step.batch
        assert labels.tolist() == expected
        assert list(names) == [f"{number}.mp4" for number in expected]
        assert clips.dtype == dtype
        requests = [vcycle.SampleRequest(number, step.shape, (0, 0, 0)) for number in expected]
        assert torch.equal(clips, torch.stack([oracle[request][0] for request in requests]))
    assert seen == PLAN.samples
    assert step == PLAN[-1]


def test_a_coarse_clip_has_the_frames_in_the_middle_of_equal_parts_antialiased() -> None:
    dataset = Numbered(dtype=torch.float32)
    _, (clips, *_) = next(vcycle.follow(DataLoader(dataset, batch_size=24), PLAN))
    frames = dataset.clips[:, :, [1, 3, 5, 7]]  # those on display at 1, 3, 5 and 7 of 8 frames
    small = interpolate(frames.flatten(0, 1), size=(8, 8), mode="bilinear", antialias=True).unflatten(0, (CLIPS, 3))
    assert torch.allclose(clips[:CLIPS], small, atol=1e-6)


def test_a_wide_picture_is_cut_at_its_center() -> None:
    wide = torch.arange(24.0).expand(2, 3, FRAMES, SIZE, 24)
    _, clips = next(vcycle.follow([wide], PLAN, start=len(PLAN) - 1, moved=True))
    assert clips.shape == (3, 3, FRAMES, SIZE, SIZE)
    assert clips[0, 0, 0, 0].tolist() == list(range(4, 20))


def test_a_stream_may_have_more_frames_and_pixels_than_the_full_shape() -> None:
    step, clips = next(vcycle.follow([torch.zeros(3, 3, 2 * FRAMES, 40, 40)], PLAN, start=len(PLAN) - 1, moved=True))
    assert clips.shape[2:] == step.shape


class Named(NamedTuple):
    clips: Tensor
    label: Tensor


@dataclass
class Made:
    label: Tensor
    clips: Tensor
    note: str = "same"


def numbers(start: int, count: int) -> Tensor:
    return torch.arange(start, start + count)


def clips_of(ids: Tensor) -> Tensor:
    return ids[:, None, None, None, None].expand(-1, 3, FRAMES, SIZE, SIZE).to(torch.uint8)


STRUCTURES: dict[str, tuple[Any, Any, Any]] = {
    # what makes a batch of numbers; the key; what reads clips and numbers back
    "tensor": (clips_of, None, lambda b: (b, b[:, 0, 0, 0, 0].long())),
    "tuple": (lambda i: (clips_of(i), i), None, lambda b: b),
    "list of arrays": (lambda i: [clips_of(i).numpy(), i.numpy()], None, lambda b: (b[0], torch.from_numpy(b[1]))),
    "named tuple": (lambda i: Named(clips_of(i), i), None, lambda b: (b.clips, b.label)),
    "named tuple by name": (lambda i: Named(i, clips_of(i)), "label", lambda b: (b.label, b.clips)),
    "dataclass": (lambda i: Made(i, clips_of(i)), None, lambda b: (b.clips, b.label)),
    "mapping": (
        lambda i: {"labels": i, "pixel_values": clips_of(i), "fps": 25},
        None,
        lambda b: (b["pixel_values"], b["labels"]) if b["fps"] == 25 else None,
    ),
    "mapping of two videos": (
        lambda i: UserDict({"slow": clips_of(i)[:, :, ::2], "pixel_values": clips_of(i), "ids": i}),
        "pixel_values",
        lambda b: (b["pixel_values"], b["ids"]) if b["slow"].shape[2:] == (4, 16, 16) else None,
    ),
    "position": (lambda i: (i, clips_of(i)), 1, lambda b: (b[1], b[0])),
    "inputs and targets": (
        lambda i: ({"video": clips_of(i), "text": [str(n) for n in i.tolist()]}, {"head": {"y": i}, "none": None}),
        "video",
        lambda b: (
            (b[0]["video"], b[1]["head"]["y"]) if b[0]["text"] == list(map(str, b[1]["head"]["y"].tolist())) else 0
        ),
    ),
    "list of one mapping": (
        lambda i: [{"data": clips_of(i), "label": i[:, None]}],
        None,
        lambda b: (b[0]["data"], b[0]["label"][:, 0]),
    ),
    "a dictionary and boxes per clip": (
        lambda i: (clips_of(i), [{"id": n} for n in i.tolist()], [torch.full((n % 3, 4), n) for n in i.tolist()]),
        None,
        lambda b: (
            b[0],
            torch.tensor([about["id"] for about in b[1]])
            if [len(x) for x in b[2]] == [d["id"] % 3 for d in b[1]]
            else 0,
        ),
    ),
    "collated fields": (
        lambda i: (clips_of(i), [i, 2 * i], [[f"a{n}" for n in i.tolist()], [f"b{n}" for n in i.tolist()]]),
        None,
        lambda b: (b[0], b[1][0]) if b[2][1] == [f"b{n}" for n in (b[1][1] // 2).tolist()] else 0,
    ),
}


@pytest.mark.parametrize("name", list(STRUCTURES))
def test_a_batch_of_any_structure_is_joined_and_cut_with_its_clips(name: str) -> None:
    make, key, read = STRUCTURES[name]
    sizes = [5, 4, 7, 6]
    stream = [make(numbers(start, size)) for start, size in zip([0, 5, 9, 16], sizes, strict=True)]
    seen = 0
    for step, batch in vcycle.follow(stream, PLAN, key=key):
        assert type(batch) is type(stream[0])
        clips, ids = read(batch)
        expected = [number % CLIPS for number in range(seen, seen + step.batch)]
        assert ids.tolist() == expected
        assert clips.shape == (step.batch, 3, *step.shape)
        assert clips[:, 0, 0, 0, 0].tolist() == expected
        seen += step.batch


def test_each_rank_follows_its_own_stream_and_takes_its_share() -> None:
    """Of a plan whose batches do not divide by two: a DistributedSampler of its own shuffles every epoch."""
    found: list[list[list[int]]] = []
    for rank in range(2):
        sampler: Any = DistributedSampler(range(CLIPS), num_replicas=2, rank=rank, shuffle=True, seed=5)  # type: ignore[arg-type]
        stream = DataLoader(Numbered(), batch_size=4, sampler=sampler)
        found.append([labels.tolist() for _, (_, labels, _) in vcycle.follow(stream, PLAN, rank=rank, world=2)])
    for step, *labels in zip(PLAN, *found, strict=True):
        assert [len(part) for part in labels] == [
            len(rank_slice(step.batch, step.bn_batch, rank, 2)) for rank in range(2)
        ]
    half = CLIPS // 2
    for rank in range(2):
        drawn = [*chain(*found[rank])]
        for epoch in range(len(drawn) // half):
            sampler.rank = rank
            sampler.set_epoch(epoch)
            assert drawn[epoch * half : (epoch + 1) * half] == list(sampler)


def test_the_next_epoch_goes_on_from_the_samplers() -> None:
    sampler: Any = DistributedSampler(range(CLIPS), num_replicas=1, rank=0, shuffle=True)  # type: ignore[arg-type]
    sampler.set_epoch(7)
    stream = DataLoader(Numbered(), batch_size=6, sampler=sampler)
    labels = torch.cat([batch[1] for _, batch in vcycle.follow(stream, PLAN)]).tolist()
    epochs = []
    for epoch in (7, 8):
        sampler.set_epoch(epoch)
        epochs += list(sampler)
    assert labels[: 2 * CLIPS] == epochs


def test_a_stream_that_counts_epochs_itself_is_told_once() -> None:
    class Counting:
        told: list[int]

        def __init__(self) -> None:
            self.told = []
            self.sampler = self.dataset = self

        def set_epoch(self, epoch: int) -> None:
            self.told.append(epoch)

        def __iter__(self) -> Iterator[Tensor]:
            return iter([clips_of(numbers(0, 24))])

    stream = Counting()
    for _ in vcycle.follow(stream, PLAN):
        pass
    assert stream.told == list(range(1, -(-PLAN.samples // 24)))


def test_a_resumed_loop_goes_on_as_if_it_had_never_stopped() -> None:
    class Shuffled(Sampler[int]):
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Iterator[int]:
            return iter(torch.randperm(CLIPS, generator=torch.Generator().manual_seed(self.epoch)).tolist())

    def labels(start: int) -> list[list[int]]:
        stream = DataLoader(Numbered(), batch_size=5, sampler=Shuffled())
        return [batch[1].tolist() for _, batch in vcycle.follow(stream, PLAN, start=start)]

    whole = labels(0)
    assert PLAN[len(PLAN) - 4].first_sample > CLIPS  # the stream has started again before
    for start in (1, len(PLAN) - 4, len(PLAN)):
        assert labels(start) == whole[start:]


def test_a_stream_that_was_moved_is_taken_as_given() -> None:
    start = len(PLAN) - 4
    stream = DataLoader(Numbered(), batch_size=5)
    steps = list(vcycle.follow(stream, PLAN, start=start, moved=True))
    assert [step for step, _ in steps] == list(PLAN.iterate(start))
    assert steps[0][1][1].tolist() == list(range(PLAN[start].batch))
    assert list(vcycle.follow(stream, PLAN, start=len(PLAN), moved=True)) == []


def test_iterable_datasets_and_weighted_samplers_keep_their_order() -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            yield from ((clips_of(numbers(n % 250, 1))[0], n) for n in range(10**6))

    labels = [batch[1] for _, batch in vcycle.follow(DataLoader(Endless(), batch_size=7), PLAN)]
    assert torch.cat(labels).tolist() == list(range(PLAN.samples))
    weights = [0.0] * 20 + [1.0, 3.0]
    weighted: Any = DataLoader(Numbered(), batch_size=7, sampler=WeightedRandomSampler(weights, 100))
    assert set(torch.cat([batch[1] for _, batch in vcycle.follow(weighted, PLAN)]).tolist()) == {20, 21}


def test_a_batch_goes_to_the_device() -> None:
    _, batch = next(vcycle.follow([{"clips": clips_of(numbers(0, 30)), "y": numbers(0, 30)}], PLAN, device="meta"))
    assert batch["clips"].shape == (24, 3, 4, 8, 8)
    assert {value.device.type for value in batch.values()} == {"meta"}


@pytest.mark.parametrize(
    ("stream", "options", "message"),
    [
        (
            iter([clips_of(numbers(0, 30))]),
            {},
            r"at step 1 of \d+, after 30 clips: a list_iterator can be",
        ),
        ([], {}, "ended at step 0 of .* its epoch 0 has no clips"),
        ([torch.zeros(24, 3, 4, 16, 16)], {"start": len(PLAN) - 1}, "4×16×16 as BCTHW, too small for 8×16×16 of step"),
        ([torch.zeros(24, 3, 8, 12, 16)], {"start": len(PLAN) - 1}, "8×12×16 as BCTHW, too small"),
        ([torch.zeros(24, 8, 3, 16, 16)], {}, "would have 8 channels as BCTHW: give layout='TCHW'"),
        (
            [torch.zeros(24, 3, 16, 16)],
            {},
            r"of shape \(24, 3, 16, 16\) is not BCTHW: give batches, such as",
        ),
        ([{"a": 1, "b": torch.zeros(2)}], {}, r"which part holds .* 'b' \(Tensor \(2,\)\); name it by key="),
        ([{"a": clips_of(numbers(0, 24))}], {"key": "b"}, r"no 'b' in batch, a dict that has 'a' \(Tensor"),
        ([clips_of(numbers(0, 24))], {"key": "b"}, "key='b': batch is Tensor .* not something with names"),
        (["text"], {}, "which part holds the clips of batch, a str that has nothing"),
        (
            [(clips_of(numbers(0, 20)), i) for i in range(2)],
            {},
            r"batch\[1\] is not one value per clip, and differs",
        ),
        (
            [(clips_of(numbers(0, 20)), {"y": 1}), (clips_of(numbers(0, 20)), {"z": 1})],
            {},
            r"batch\[1\] has \['y'\] and \['z'\]",
        ),
        (
            [(clips_of(numbers(0, n)), torch.zeros(n, n)) for n in (4, 5)],
            {},
            r"cannot be joined: batch\[1\]: Sizes of tensors must match",
        ),
        (
            [(clips_of(numbers(0, 20)), torch.zeros(n)) for n in (20, 19)],
            {},
            r"batch\[1\] is Tensor \(19,\), without one entry for each of its 20 clips",
        ),
        (
            [clips_of(numbers(0, 20)).to(torch.uint8), clips_of(numbers(0, 20)) / 255],
            {},
            r"batches of the stream differ: batch has torch\.uint8 and torch\.float32",
        ),
        (
            [{name: clips_of(numbers(0, 20)), "y": numbers(0, 20)} for name in ("clip", "video")],
            {},
            r"batches of the stream differ: clips are in batch\['clip'\] and in batch\['video'\]",
        ),
    ],
)
def test_what_cannot_be_followed_is_named(stream: Any, options: Any, message: str) -> None:
    with pytest.raises(vcycle.DataError, match=message):
        list(vcycle.follow(stream, PLAN, **options))


def test_an_unknown_layout_is_refused_at_once() -> None:
    with pytest.raises(vcycle.DataError, match="layout='CHW'"):
        vcycle.follow([], PLAN, layout="CHW")  # type: ignore[arg-type]


def test_a_stream_in_the_plans_order_trains_the_weights_of_the_loader() -> None:
    dataset = Numbered(dtype=torch.float32)
    grids = vcycle.GridSampler(frames=FRAMES, size=SIZE, span=(1.0, 1.0), field=(1.0, 1.0))
    order = SampleStream(CLIPS, 0).indices(0, PLAN.samples).tolist()

    def trained(steps: Any) -> dict[str, Tensor]:
        torch.manual_seed(0)
        layers = (torch.nn.Conv3d(3, 4, 3, padding=1), torch.nn.BatchNorm3d(4), torch.nn.AdaptiveAvgPool3d(1))
        model = vcycle.convert_batchnorm(torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(4, CLIPS)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step, (clips, labels, _) in steps:
            vcycle.apply(step, model, optimizer, clips)
            torch.nn.functional.cross_entropy(model(clips), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        return model.state_dict()

    found = trained(vcycle.follow(DataLoader(dataset, batch_size=5, sampler=order), PLAN))
    expected = trained(vcycle.steps(dataset, PLAN, grids=grids))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_wrong_place_in_the_plan_or_among_ranks_is_refused_at_once() -> None:
    for options in ({"start": len(PLAN) + 1}, {"start": -1}, {"rank": 2, "world": 2}, {"rank": 0, "world": 4}):
        with pytest.raises(vcycle.PlanError):
            vcycle.follow([], PLAN, **options)


def test_the_rank_is_found_as_the_loader_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    step, clips = next(vcycle.follow([clips_of(numbers(0, 30))], PLAN))
    assert len(clips) == len(rank_slice(step.batch, step.bn_batch, 1, 2)) < step.batch
    check_batch(step, clips)


def test_numpy_batches_become_tensors() -> None:
    _, batch = next(vcycle.follow([np.zeros((24, 3, 8, 16, 16), np.uint8)], PLAN))
    assert isinstance(batch, Tensor)


def test_flipped_arrays_and_texts_of_several_lengths_are_joined() -> None:
    clips = torch.rand(20, *AXES["CTHW"]).numpy()
    names = [np.array([f"{count * i}" for i in range(20)]) for count in (1, 1000)]
    stream = [(clips[..., ::-1], names[0]), (clips[:, :, ::-1], names[1])]
    plan = vcycle.constant(vcycle.Baseline(batch=40, frames=FRAMES, size=SIZE, clips=40, epochs=1, lr=0.1))
    (_, (joined, texts)), *_ = vcycle.follow(stream, plan)
    assert np.array_equal(joined.numpy(), np.concatenate([clips[..., ::-1], clips[:, :, ::-1]]))
    assert texts.tolist() == [*names[0], *names[1]]
