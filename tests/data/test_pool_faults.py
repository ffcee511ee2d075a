"""Workers that hang, die or are killed: real processes, and no sample lost that need not be."""

import ctypes
import faulthandler
import os
import resource
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from vcycle.data import (
    FileSource,
    GridSampler,
    Sample,
    SampleRequest,
    VideoError,
    Views,
    evaluation_loader,
    loader,
    read_videos,
)
from vcycle.data.dataset import VideoDataset, candidates
from vcycle.errors import DataError
from vcycle.plan import Baseline, Shape, cascade, constant

PLAN = cascade(Baseline(batch=2, frames=4, size=16, clips=12, steps=24, lr=0.1))
BAD = 5


def hang():
    time.sleep(3600)


def hold_the_gil():
    # A call that keeps the GIL: no Python thread of the worker runs again.
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
    ctypes.PyDLL(None).pause()


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


HANGS = (hang, hold_the_gil, stop)


def leave():
    os._exit(3)


def crash():
    faulthandler.disable()  # pytest's
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would take longer than the sample may
    os.kill(os.getpid(), signal.SIGSEGV)


def run_out_of_memory():
    os.kill(os.getpid(), signal.SIGKILL)


def close_everything():
    os.closerange(3, 1000)
    time.sleep(3600)


def at_once(happens, overdue):
    """The same, without waiting for the time-out of what never ends."""

    def begin():
        if happens in HANGS:
            overdue()
        happens()

    return begin


class Clips(torch.utils.data.Dataset):
    """Clips of noise; at one of them something happens."""

    samples_grids = True

    def __init__(self, happens=None, at=BAD, size=12):
        self.happens, self.at, self.size = happens, at, size

    def __len__(self):
        return self.size

    def name(self, index):
        return f"clip {index}"

    def __getitem__(self, request):
        if self.happens is not None and request.index == self.at:
            self.happens()
        pixels = request.generator().integers(0, 256, (*request.shape, 3), dtype="uint8")
        return Sample(
            clip=torch.from_numpy(pixels), label=request.index % 3, index=request.index, position=request.position
        )


def same(first, second):
    return len(first) == len(second) and all(
        all(torch.equal(a, b) for a, b in zip(one[:4], other[:4], strict=True)) and one[4:] == other[4:]
        for one, other in zip(first, second, strict=True)
    )


@pytest.mark.parametrize(
    ("happens", "cause"),
    [
        (hang, "did not finish within 1000 s"),
        (hold_the_gil, "did not finish within 1000 s"),
        (stop, "did not finish within 1000 s"),
        (leave, "ended its process (exit code 3)"),
        (crash, "killed its process (signal 11)"),
        (run_out_of_memory, "killed its process (signal 9: probably out of memory)"),
    ],
)
def test_a_sample_that_hangs_or_kills_its_worker_is_replaced_and_a_journal_repeats_it(happens, cause, overdue):
    dataset = Clips(at_once(happens, overdue))
    batches = list(loader(dataset, PLAN, stop=2, workers=2, timeout=1000))
    plain = list(loader(Clips(), PLAN, stop=2))
    replaced = [bad for batch in batches for bad in batch.replaced]
    expected = [
        position
        for batch in plain
        for position, index in zip(batch.positions.tolist(), batch.indices.tolist(), strict=True)
        if index == BAD
    ]
    assert [bad.position for bad in replaced] == expected != []
    assert {(bad.video, bad.path, bad.cause) for bad in replaced} == {(BAD, f"clip {BAD}", cause)}
    # Whatever else was in the hands of the worker is as if nothing had happened.
    for batch, untouched in zip(batches, plain, strict=True):
        for place, position in enumerate(batch.positions.tolist()):
            assert position == untouched.positions[place]
            if position not in expected:
                assert batch.indices[place] == untouched.indices[place]
                assert torch.equal(batch.clips[place], untouched.clips[place])
    journal = {bad.position: bad.replacement for bad in replaced}
    assert BAD not in journal.values()
    again = list(loader(dataset, PLAN, stop=2, replaced=journal))
    assert same(again, [batch._replace(replaced=[]) for batch in batches])


def test_a_sample_is_tried_once_more_when_its_worker_died(tmp_path):
    def crash_once():
        try:
            (tmp_path / "crashed").touch(exist_ok=False)
        except FileExistsError:
            return
        crash()

    batches = list(loader(Clips(crash_once), PLAN, stop=3, workers=2))
    assert same(batches, list(loader(Clips(), PLAN, stop=3)))
    assert (tmp_path / "crashed").exists()


def test_a_worker_that_is_killed_from_outside_costs_nothing(children):
    def slow():
        time.sleep(0.02)

    class Slow(Clips):
        def __getitem__(self, request):
            slow()
            return super().__getitem__(request)

    batches = iter(loader(Slow(), PLAN, workers=3))
    got = [next(batches)]
    for _ in range(3):
        (supervisor,) = children(os.getpid())
        for worker in children(supervisor)[:2]:
            os.kill(worker, signal.SIGKILL)
        got.append(next(batches))
    got += list(batches)
    assert same(got, list(loader(Clips(), PLAN)))


def test_a_worker_that_closes_its_descriptors_is_replaced():
    batches = list(loader(Clips(close_everything), PLAN, stop=1, workers=2))
    (bad,) = {(bad.video, bad.cause) for batch in batches for bad in batch.replaced}
    assert bad == (BAD, "killed its process (signal 9: probably out of memory)")


def test_other_workers_go_on_while_one_hangs(tmp_path, wait_until):
    class Marked(Clips):
        def __getitem__(self, request):
            if request.position == 0:
                hang()
            (tmp_path / str(request.position)).touch()
            return super().__getitem__(request)

    batches = iter(loader(Marked(), PLAN, workers=2, timeout=100))
    # The rest of the batch is there, but for what waits behind the one that hangs.
    wait_until(lambda: len(list(tmp_path.iterdir())) >= PLAN[0].batch - 2)
    batches.close()


def test_many_deadly_samples_among_quick_ones_are_replaced():
    class Quick(Clips):
        def __getitem__(self, request):
            if request.index % 10 == 0:
                leave()
            clip = torch.zeros(*request.shape, 3, dtype=torch.uint8)
            return Sample(clip=clip, label=0, index=request.index, position=request.position)

    plan = constant(Baseline(batch=128, frames=2, size=8, clips=2000, steps=2, lr=0.1))
    for step, batch in zip(plan, loader(Quick(size=2000), plan, workers=8), strict=True):
        assert batch.positions.tolist() == list(step.samples)
        assert all(index % 10 for index in batch.indices)
        assert all(bad.video % 10 == 0 for bad in batch.replaced)


def test_a_set_that_kills_every_worker_ends_with_what_killed_them():
    class Deadly(Clips):
        def __getitem__(self, request):
            crash()

    with pytest.raises(DataError) as caught:
        next(iter(loader(Deadly(), PLAN, workers=2)))
    text = str(caught.value)
    assert text.startswith("16 workers in a row were lost before any of them loaded a sample; the last one at clip ")
    assert text.endswith(" killed its process (signal 11)")
    assert "\n" not in text


def test_what_ended_the_loading_is_told_however_late_it_is_asked_for(children, wait_until):
    class Deadly(Clips):
        def __getitem__(self, request):
            if request.position >= PLAN[2].first_sample:
                crash()
            return super().__getitem__(request)

    batches = iter(loader(Deadly(), PLAN, workers=2))
    held = [next(batches)]
    wait_until(lambda: not children(os.getpid()))
    held.clear()  # its memory is given back to processes that are no more
    with pytest.raises(DataError, match="16 workers in a row were lost"):
        held.extend(batches)


def test_a_sample_without_a_replacement_is_an_error_in_its_place():
    dataset = Clips(crash, at=1, size=2)
    plan = cascade(Baseline(batch=1, frames=4, size=16, clips=2, steps=40, lr=0.1))
    batch = next(iter(loader(dataset, plan, workers=1)))
    assert {bad.video for bad in batch.replaced} == {1}

    class Alone(Clips):
        def __getitem__(self, request):
            if request.position >= 8 and request.position % 3 == 0:
                crash()
            return super().__getitem__(request)

    batches = iter(loader(Alone(size=1), plan, workers=1))
    next(batches)
    with pytest.raises(DataError, match=r"^clip 0 killed its process .*no replacement is left"):
        next(batches)


@pytest.mark.parametrize("happens", [hang, crash])
def test_any_map_style_dataset_is_protected_and_a_warning_names_the_item(happens, overdue):
    happens = at_once(happens, overdue)

    class Plain(torch.utils.data.Dataset):
        def __len__(self):
            return 7

        def __getitem__(self, index):
            if index == 3:
                happens()
            return torch.full((3, 8, 16, 16), float(index)), index

    with pytest.warns(UserWarning, match=r"bad item 3: (did not finish|killed its process)") as told:
        batches = list(loader(Plain(), PLAN, stop=2, workers=2, timeout=1000))
    assert len(told) == 1
    for step, (clips, labels) in zip(PLAN, batches, strict=False):
        assert clips.shape == (step.batch, 3, *step.shape)
        assert 3 not in labels
        assert torch.allclose(clips[:, 0, 0, 0, 0], labels.float())


def test_an_item_to_be_avoided_is_not_drawn_and_the_others_keep_their_order():
    shape = Shape(4, 16, 16)
    for position in range(20):
        order = list(candidates(SampleRequest(3, shape, (0, 0, position)), 10))
        assert sorted(order) == list(range(10))
        assert order[0] == 3
        second = SampleRequest(order[1], shape, (0, 0, position), (3,))
        assert list(candidates(second, 10)) == order[1:]


@pytest.mark.parametrize(("happens", "cause"), [(hang, "did not finish within 1000 s"), (crash, "killed its process")])
def test_a_replacement_that_hangs_or_kills_is_blamed_itself_and_the_unreadable_one_keeps_its_cause(
    happens, cause, overdue, tmp_path, write_video
):
    happens = at_once(happens, overdue)
    for number in range(6):
        write_video(tmp_path / "train" / f"class{number % 2}" / f"{number}.mp4", 12)
    plan = constant(Baseline(batch=6, frames=4, size=16, clips=6, steps=1, lr=0.1))
    good = VideoDataset(read_videos(tmp_path, "train"), GridSampler(frames=4, size=16))
    (plain,) = loader(good, plan)
    unreadable, position = int(plain.indices[0]), int(plain.positions[0])
    replacement = list(candidates(SampleRequest(unreadable, Shape(4, 16, 16), (0, 0, position)), 6))[1]

    class Faulty(FileSource):
        def info(self, item):
            if item == unreadable:
                raise VideoError(str(self.videos.path(item)), "broken")
            if item == replacement:
                happens()
            return super().info(item)

    (batch,) = loader(VideoDataset(good.videos, good.grids, source=Faulty(good.videos)), plan, workers=2, timeout=1000)
    found = {(bad.position, bad.video): bad.cause for bad in batch.replaced}
    assert found[position, unreadable] == "broken"
    assert found[position, replacement].startswith(cause)
    assert {video for _, video in found} == {unreadable, replacement}
    assert not {unreadable, replacement} & set(batch.indices.tolist())


def test_evaluation_leaves_out_what_hangs_or_kills(overdue, tmp_path, write_video, monkeypatch):
    for number in range(6):
        write_video(tmp_path / "train" / f"class{number % 2}" / f"{number}.mp4", 12)
    dataset = VideoDataset(read_videos(tmp_path, "train"), GridSampler(frames=4, size=16))
    whole = VideoDataset.view

    def view(self, item, *rest):
        if item == 1:
            overdue()
            hang()
        if item == 4:
            crash()
        return whole(self, item, *rest)

    monkeypatch.setattr(VideoDataset, "view", view)
    batches = list(evaluation_loader(dataset, Views(shape=Shape(4, 16, 16)), batch=3, workers=2, timeout=1000))
    assert [batch.indices.tolist() for batch in batches] == [[0, 2], [3, 5]]
    assert [(bad.video, bad.path, bad.cause) for batch in batches for bad in batch.replaced] == [
        (1, dataset.name(1), "did not finish within 1000 s"),
        (4, dataset.name(4), "killed its process (signal 11)"),
    ]


def test_a_pause_of_all_processes_is_no_hang(children):
    """As after Ctrl-Z and fg: the time in between is not the samples' fault."""

    class Slow(Clips):
        def __getitem__(self, request):
            time.sleep(0.1)
            return super().__getitem__(request)

    batches = iter(loader(Slow(), PLAN, stop=2, workers=2, timeout=1.5))
    got = [next(batches)]
    (supervisor,) = children(os.getpid())
    stopped = [supervisor, *children(supervisor)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    timer = threading.Timer(3, lambda: [os.kill(pid, signal.SIGCONT) for pid in stopped])
    timer.start()
    got += list(batches)
    timer.join()
    assert same(got, list(loader(Clips(), PLAN, stop=2)))


def test_a_file_that_vanishes_during_the_run_is_replaced(tmp_path, write_video):
    for number in range(6):
        write_video(tmp_path / "train" / f"class{number % 2}" / f"{number}.mp4", 12)
    dataset = VideoDataset(read_videos(tmp_path, "train"), GridSampler(frames=4, size=16))
    plan = constant(Baseline(batch=2, frames=4, size=16, clips=6, steps=60, lr=0.1))
    batches = iter(loader(dataset, plan, workers=2))
    next(batches)
    gone = Path(dataset.name(2))
    gone.unlink()
    rest = list(batches)
    counted = Counter(bad.path for batch in rest for bad in batch.replaced)
    assert set(counted) == {str(gone)}
    assert 3 <= counted[str(gone)] <= 20
