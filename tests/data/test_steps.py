"""A step comes with its batch, on every rank, from any step on; a loader has a state that says which comes next."""

import collections
import io
import json

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import vcycle
from vcycle.data import PlanBatchSampler, SampleStream
from vcycle.errors import CheckpointError, DataError, PlanError, VcycleError
from vcycle.plan import Baseline, cascade, rank_slice

PLAN = cascade(Baseline(batch=4, frames=8, size=32, clips=12, epochs=16, lr=0.1))
OTHER = cascade(Baseline(batch=4, frames=8, size=32, clips=12, epochs=16, lr=0.2))


class Asked(torch.utils.data.Dataset):
    """Answers requests with empty clips of the shape, the item's number and a draw that its key decides."""

    samples_grids = True

    def __len__(self):
        return 12

    def __getitem__(self, request):
        return torch.zeros(3, *request.shape, dtype=torch.uint8), request.index, float(request.generator().random())


def seen(pairs):
    return [(step.index, tuple(clips.shape), ids.tolist(), draws.tolist()) for step, (clips, ids, draws) in pairs]


@pytest.fixture(scope="module")
def whole():
    return seen(vcycle.steps(Asked(), PLAN, seed=3))


@pytest.mark.parametrize("workers", [0, 2])
def test_each_step_comes_with_the_clips_of_the_plan(workers):
    found = seen(vcycle.steps(Asked(), PLAN, seed=3, workers=workers))
    stream = SampleStream(12, seed=3)
    assert [(index, shape, ids) for index, shape, ids, _ in found] == [
        (step.index, (step.batch, 3, *step.shape), stream.indices(step.first_sample, step.batch).tolist())
        for step in PLAN
    ]
    assert len({shape for _, shape, _, _ in found}) > 2


def test_steps_resume_at_every_step_and_stop_where_they_are_told(whole):
    for start in range(len(PLAN) + 1):
        assert seen(vcycle.steps(Asked(), PLAN, seed=3, start=start)) == whole[start:]
    assert seen(vcycle.steps(Asked(), PLAN, seed=3, start=4, stop=6, workers=1)) == whole[4:6]


def test_steps_know_how_many_are_left_and_end_their_workers_when_they_are_closed_or_left(processes):
    pairs = vcycle.steps(Asked(), PLAN, workers=2)
    next(pairs)
    assert len(pairs) == len(PLAN) - 1
    assert processes()
    pairs.close()
    assert not processes()
    assert list(pairs) == []
    for _ in vcycle.steps(Asked(), PLAN, workers=2):
        break
    assert not processes()


def test_what_the_user_has_to_change_is_said_at_the_call_of_steps():
    shorter = cascade(Baseline(batch=4, frames=8, size=32, clips=11, epochs=16, lr=0.1))
    with pytest.warns(UserWarning, match="made for 11 clips, but the dataset has 12") as told:
        vcycle.steps(Asked(), shorter)
    assert told[0].filename == __file__
    with pytest.raises(PlanError, match="not in the plan"):
        vcycle.steps(Asked(), PLAN, start=len(PLAN) + 1)


# The state of a loader ---------------------------------------------------------------------------------


def saved(state):
    """The state after a round trip through a file that may hold nothing but plain values."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def ids(batches):
    return [batch[1].tolist() for batch in batches]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_resumes_after_the_batches_that_were_taken_and_not_those_loaded_ahead(whole, workers):
    for taken in range(0, len(PLAN) + 1, 1 if workers == 0 else 5):
        load = vcycle.loader(Asked(), PLAN, seed=3, workers=workers)
        batches = iter(load)
        for _ in range(taken):
            next(batches)
        state = saved(load.state_dict())
        assert state == {"step": taken, "plan": PLAN.fingerprint, "seed": 3, "clips": 12}
        resumed = vcycle.loader(Asked(), PLAN, seed=3)
        resumed.load_state_dict(state)
        assert len(resumed) == len(PLAN)  # trainers count the batches of the whole training
        assert ids(resumed) == [number for _, _, number, _ in whole[taken:]]
        assert resumed.state_dict()["step"] == len(PLAN)


def test_a_state_lasts_until_a_batch_is_taken_and_for_one_iteration(whole):
    expected = [number for _, _, number, _ in whole]
    load = vcycle.loader(Asked(), PLAN, seed=3)
    load.load_state_dict(load.state_dict() | {"step": 5})
    assert load.state_dict()["step"] == 5
    iter(load)  # as trainers do, to see whether they can
    assert load.state_dict()["step"] == 5
    assert ids(load) == expected[5:]
    assert ids(load) == expected  # from `start` again
    load.load_state_dict(load.state_dict() | {"step": 5})
    batches = iter(load)
    next(batches)
    load.load_state_dict(load.state_dict() | {"step": 2})  # which the running iteration does not follow
    assert next(batches)[1].tolist() == expected[6]
    assert load.state_dict()["step"] == 2
    assert ids(load) == expected[2:]
    batches = iter(load)
    next(batches)
    iter(load)  # from which nothing is taken
    assert load.state_dict()["step"] == 1
    part = vcycle.loader(Asked(), PLAN, seed=3, start=3, stop=8)
    assert part.state_dict()["step"] == 3
    part.load_state_dict(load.state_dict() | {"step": 6})
    assert ids(part) == expected[6:8]


def test_repeats_are_part_of_the_state(whole):
    load = vcycle.loader(Asked(), PLAN, repeats=2)
    state = saved(load.state_dict() | {"step": 4})
    assert state["repeats"] == 2
    load.load_state_dict(state)
    resumed = ids(load)
    assert resumed == ids(vcycle.loader(Asked(), PLAN, repeats=2))[4:]
    assert resumed != ids(vcycle.loader(Asked(), PLAN))[4:]
    with pytest.raises(CheckpointError, match="with repeats of 2, but this loader has 1"):
        vcycle.loader(Asked(), PLAN).load_state_dict(state)


def test_the_state_of_a_finished_training_gives_no_batch():
    load = vcycle.loader(Asked(), PLAN)
    list(load)
    again = vcycle.loader(Asked(), PLAN)
    again.load_state_dict(load.state_dict())
    assert list(again) == []


class Fewer(Asked):
    def __len__(self):
        return 11


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: vcycle.loader(Asked(), OTHER), f"plan {PLAN.fingerprint}, .* has {OTHER.fingerprint}"),
        (lambda: vcycle.loader(Asked(), PLAN, seed=1), "with seed 0, but this loader has 1"),
        (lambda: vcycle.loader(Asked(), PLAN, repeats=2), "with repeats of 1, but this loader has 2"),
        (lambda: vcycle.loader(Asked(), PLAN, stop=2), "is at step 3, but this loader has steps 0 to 2"),
    ],
)
def test_a_state_of_another_training_is_refused(make, words):
    state = vcycle.loader(Asked(), PLAN).state_dict() | {"step": 3}
    with pytest.raises(CheckpointError, match=words):
        make().load_state_dict(state)


@pytest.mark.filterwarnings("ignore:the plan is made for")
def test_a_state_of_a_dataset_of_another_length_and_one_that_is_damaged_are_refused():
    load = vcycle.loader(Fewer(), PLAN)
    with pytest.raises(CheckpointError, match="with a dataset length of 12, but this loader has 11"):
        load.load_state_dict(vcycle.loader(Asked(), PLAN).state_dict())
    with pytest.raises(CheckpointError, match="lacks 'step': it has 'epoch'"):
        load.load_state_dict({"epoch": 3})
    with pytest.raises(CheckpointError, match="the state of the loader is NoneType, not what state_dict"):
        load.load_state_dict(None)
    for step in (-1, 2.5, None):
        with pytest.raises(CheckpointError, match=f"is at step {step!r}"):
            load.load_state_dict(load.state_dict() | {"step": step})
    assert load.state_dict()["step"] == 0


@pytest.mark.parametrize("call", [vcycle.steps, vcycle.loader, vcycle.follow])
def test_swapped_arguments_are_refused_with_the_call_as_it_should_be(call):
    with pytest.raises(
        PlanError, match=rf"^plan is Asked, not a vcycle.Plan: .*vcycle.{call.__name__}\((dataset|stream), plan\)"
    ):
        call(PLAN, Asked())


# Ranks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: vcycle.steps(Asked(), PLAN, worker=2), "steps() got an unexpected keyword argument 'worker'"),
        (lambda: vcycle.steps(Asked()), "steps() missing a required argument: 'plan'"),
        (lambda: vcycle.steps(Asked(), PLAN, 3), "steps() too many positional arguments"),
        (lambda: vcycle.loader(Asked(), PLAN, worker=2), "loader() got an unexpected keyword argument 'worker'"),
    ],
)
def test_a_wrong_argument_is_one_of_the_function_that_was_called(call, words):
    with pytest.raises(TypeError) as refused:
        call()
    assert str(refused.value).startswith(words)  # Python 3.13 adds what may have been meant


def test_rank_and_world_are_those_of_the_environment_where_there_is_no_process_group(whole, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    shares = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        shares.append(ids(vcycle.loader(Asked(), PLAN, seed=3)))
        sampler = PlanBatchSampler(PLAN, 12, seed=3)
        assert [[request.index for request in requests] for requests in sampler] == shares[-1]
    assert [one + other for one, other in zip(*shares, strict=True)] == [number for _, _, number, _ in whole]
    assert ids(vcycle.loader(Asked(), PLAN, seed=3, rank=0, world=1)) == [number for _, _, number, _ in whole]


def test_a_loader_finds_its_rank_when_it_starts_and_not_when_it_is_made(monkeypatch):
    load, sampler = vcycle.loader(Asked(), PLAN), PlanBatchSampler(PLAN, 12)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    share = len(rank_slice(PLAN[0].batch, PLAN[0].bn_batch, 1, 2))
    assert len(next(iter(load))[0]) == len(next(iter(sampler))) == share < PLAN[0].batch


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two': it must be a number"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2, but RANK is '': it must be a number from 0 to 1"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "but RANK is '2'"),
        ({"WORLD_SIZE": "9", "RANK": "0"}, "fewer clips than the 9 ranks"),
    ],
)
def test_an_environment_that_names_no_rank_is_refused(environment, words, monkeypatch):
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(VcycleError, match=words):
        vcycle.steps(Asked(), PLAN)


def test_a_rank_without_the_number_of_ranks_is_refused():
    with pytest.raises(PlanError, match="rank=1, world=None: give both"):
        vcycle.loader(Asked(), PLAN, rank=1)


def test_a_sampler_that_would_be_sharded_again_says_so_where_there_are_several_ranks(monkeypatch):
    sampler = PlanBatchSampler(PLAN, 12)
    assert getattr(sampler, "batch_size", None) is None
    assert len(list(DataLoader(Asked(), batch_sampler=sampler))) == len(PLAN)
    with pytest.raises(PlanError, match=r"each of the 2 ranks its slice .* must not be sharded or dispatched again"):
        getattr(PlanBatchSampler(PLAN, 12, rank=0, world=2), "batch_size", None)  # as Accelerate reads it
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    for each in (sampler, PlanBatchSampler(PLAN, 12, rank=0, world=1)):
        with pytest.raises(PlanError, match="use_distributed_sampler=False"):
            hasattr(each, "batch_size")  # as Lightning does
        assert not hasattr(each, "sampler")  # Fabric asks to set an epoch
        assert len(list(DataLoader(Asked(), batch_sampler=each))) == len(PLAN)


def steps_of_a_rank(folder):
    """What a script under torchrun finds before and after it joins the process group."""
    model = torch.nn.Linear(1, 1)

    def run():
        optimizer = torch.optim.SGD(model.parameters(), lr=9.0)
        scheduler = vcycle.PlanLR(optimizer, PLAN)
        found = []
        for step, batch in vcycle.steps(Asked(), PLAN, seed=3):
            vcycle.apply(step, model, optimizer, batch)
            optimizer.step()
            found.append((step.index, batch[0].shape, batch[1].tolist(), scheduler.get_last_lr()))
            scheduler.step()
        return found

    launched = run()  # by the environment
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    joined = run()
    step, _ = next(vcycle.steps(Asked(), PLAN))
    optimizer = torch.optim.SGD(model.parameters(), lr=9.0)
    with pytest.raises(PlanError) as refused:
        vcycle.apply(step, model, optimizer, torch.zeros(step.batch, 3, *step.shape))
    sharing = vcycle.BatchPartition.of(step)
    result = {"launched": launched, "joined": joined, "whole": str(refused.value)}
    (folder / f"{rank}.json").write_text(json.dumps(result | {"clips": sharing.clips, "rank": sharing.rank}))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def test_two_processes_of_torchrun_get_their_slices_and_the_plans_lr_and_refuse_a_whole_batch(
    as_torchrun, tmp_path, whole
):
    for ended in as_torchrun(2, lambda: steps_of_a_rank(tmp_path)):
        assert ended.code == 0, ended.err
    slices = [len(rank_slice(PLAN[0].batch, PLAN[0].bn_batch, rank, 2)) for rank in range(2)]
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found["launched"] == found["joined"]
        for step, (index, shape, numbers, rates) in zip(PLAN, found["joined"], strict=True):
            places = rank_slice(step.batch, step.bn_batch, rank, 2)
            assert numbers == whole[index][2][places.start : places.stop]
            assert (index, shape, rates) == (step.index, [len(places), 3, *step.shape], [step.lr])
        assert f"expects {slices[rank]} clips of rank {rank} of 2" in found["whole"]
        assert (found["clips"], found["rank"]) == (slices, rank)


# Items that are mappings, and datasets that are streams too --------------------------------------------------


class Dicts(torch.utils.data.Dataset):
    """Items as processors make them: a dict with a clip, frames first, and nested values."""

    kind = dict

    def __len__(self):
        return 12

    def __getitem__(self, index):
        clip = np.full((16, 3, 40, 40), index, dtype=np.float32)
        return self.kind({"labels": index, "pixel_values": clip, "meta": {"name": f"{index}.mp4", "box": (1.0, 2.0)}})


class UserDicts(Dicts):
    kind = collections.UserDict


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Dicts(), UserDicts()], ids=["dict", "mapping"])
def test_a_batch_of_dicts_is_a_dict_with_the_clip_of_the_step_under_its_key(dataset, workers):
    for step, batch in vcycle.steps(dataset, PLAN, key="pixel_values", layout="TCHW", stop=5, workers=workers):
        frames, height, width = step.shape
        assert batch["pixel_values"].shape == (step.batch, frames, 3, height, width)
        assert batch["pixel_values"][:, 0, 0, 0, 0].round().tolist() == batch["labels"].tolist()
        assert batch["meta"]["name"] == [f"{number}.mp4" for number in batch["labels"]]
        assert [part[0].item() for part in batch["meta"]["box"]] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r"item \d+ is dict with 'labels', 'pixel_values', 'meta': give the key .* key='pixel_values'"),
        ({"key": "video"}, r"item \d+ has no 'video': it has 'labels', 'pixel_values', 'meta'"),
        ({"key": "labels"}, r"item \d+: 'labels' is int: must be a clip"),
        ({"key": "pixel_values", "layout": "CTHW"}, r"16 channels as CTHW: give layout='TCHW'"),
    ],
)
def test_a_dict_whose_clip_is_not_found_is_named_with_its_keys(options, words):
    with pytest.raises(DataError, match=words):
        next(vcycle.steps(Dicts(), PLAN, **{"layout": "TCHW", **options}))


def test_a_key_is_refused_where_items_are_no_dicts_or_clips_are_not_resampled():
    with pytest.raises(DataError, match=r"key='clip': Asked samples its own grids"):
        vcycle.loader(Asked(), PLAN, key="clip")
    clips = [(torch.zeros(3, 8, 32, 32), 0)] * 12
    with pytest.raises(DataError, match=r"item \d+ is tuple: with key='clip', it must be a dict"):
        next(vcycle.steps(clips, PLAN, key="clip"))


class Streaming(IterableDataset):
    """Both a stream and numbered items, as datasets of shards in object storage are."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.full((3, 8, 32, 32), float(index)), index

    def __iter__(self):
        pytest.fail("the plan decides which item comes when")


def test_a_stream_that_also_has_numbered_items_is_loaded_by_them():
    stream = SampleStream(12)
    for step, (clips, numbers) in vcycle.steps(Streaming(), PLAN):
        assert numbers.tolist() == stream.indices(step.first_sample, step.batch).tolist()
        assert clips.shape == (step.batch, 3, *step.shape)


class Masked(Dicts):
    """Dicts with values of several sizes, and one that is not the same in all items."""

    def __init__(self, odd=()):
        self.odd = odd

    def __getitem__(self, index):
        extra = {"mask": torch.full((2, 50, 50), index)} if index not in self.odd else {"mask": None}
        return {**super().__getitem__(index), **extra}


@pytest.mark.parametrize("workers", [0, 2])
def test_every_tensor_of_a_dict_arrives_whatever_its_size(workers):
    for step, batch in vcycle.steps(Masked(), PLAN, key="pixel_values", layout="TCHW", stop=5, workers=workers):
        assert batch["mask"].shape == (step.batch, 2, 50, 50)
        assert batch["mask"][:, 1, 0, 0].tolist() == batch["labels"].tolist()
        assert batch["pixel_values"][:, 0, 0, 0, 0].round().tolist() == batch["labels"].tolist()


def test_dicts_that_make_no_batch_are_told_in_a_line():
    with pytest.raises(DataError, match="items of a batch do not fit together"):
        next(vcycle.steps(Masked(odd=range(6)), PLAN, key="pixel_values", layout="TCHW"))


def test_a_resampled_dataset_is_asked_by_requests_alone():
    dataset = vcycle.data.ResampledDataset(Dicts(), vcycle.GridSampler(frames=8, size=32), key="pixel_values")
    with pytest.raises(DataError, match=r"ResampledDataset\[3\]: an index does not say at which shape"):
        dataset[3]
