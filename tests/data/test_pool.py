"""The pool as its user meets it: shared memory, descriptors, ends of all kinds."""

import gc
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter, namedtuple
from pathlib import Path

import pytest
import torch

from vcycle.data import Sample, loader
from vcycle.data.pool.arena import Arena
from vcycle.data.pool.items import decode, encode
from vcycle.errors import DataError
from vcycle.plan import Baseline, cascade

PLAN = cascade(Baseline(batch=2, frames=4, size=16, clips=12, steps=96, lr=0.1))


class Clips(torch.utils.data.Dataset):
    """Clips of one value each."""

    samples_grids = True

    def __init__(self, seconds=0.0):
        self.seconds = seconds

    def __len__(self):
        return 12

    def __getitem__(self, request):
        time.sleep(self.seconds)
        return Sample(
            clip=torch.full((*request.shape, 3), request.position % 251, dtype=torch.uint8),
            label=request.index,
            index=request.index,
            position=request.position,
        )


def right(batch):
    return all(
        (clip == position % 251).all() for clip, position in zip(batch.clips, batch.positions.tolist(), strict=True)
    )


@pytest.fixture(autouse=True)
def _nothing_is_left(processes):
    gc.collect()  # what earlier tests have left to it is not of this one
    before = len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert processes() == set()
    assert len(os.listdir("/proc/self/fd")) <= before  # what an earlier test left may be closed by now


def test_clips_lie_in_shared_memory_and_are_not_copied():
    plan = cascade(Baseline(batch=2, frames=4, size=16, clips=12, steps=1000, lr=0.1))
    places = Counter()
    later = None
    for batch in loader(Clips(), plan, workers=2):
        if later is not None:  # the first samples tell how much memory one takes
            assert batch.clips.is_contiguous()
            places[batch.clips.untyped_storage().data_ptr()] += 1
        later = batch
        assert right(batch)
    assert 1 < len(places) < len(plan) / 4  # the same blocks again and again, however far ahead the workers are


def test_batches_that_are_kept_are_never_overwritten():
    batches = list(loader(Clips(), PLAN, workers=2))
    assert len(batches) == len(PLAN)
    assert all(right(batch) for batch in batches)


def test_a_part_of_a_batch_keeps_its_memory():
    batches = iter(loader(Clips(), PLAN, workers=2))
    kept = []
    for _ in range(12):
        batch = next(batches)
        kept.append((batch.clips[0].numpy(), int(batch.positions[0]) % 251))
        del batch
    batches.close()
    assert all((pixels == value).all() for pixels, value in kept)


def test_batches_outlive_their_loader():
    batches = iter(loader(Clips(), PLAN, workers=2))
    batch = next(batches)
    batches.close()
    del batches
    gc.collect()
    assert right(batch)
    batch.clips.zero_()


def test_few_descriptors_are_needed_for_many_clips():
    script = """
        import resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        import torch, vcycle
        from vcycle.data import Sample
        class Clips:
            samples_grids = True
            def __len__(self): return 1000
            def __getitem__(self, request):
                clip = torch.zeros(*request.shape, 3, dtype=torch.uint8)
                return Sample(clip=clip, label=0, index=request.index, position=request.position)
        plan = vcycle.constant(vcycle.Baseline(batch=512, frames=2, size=16, clips=1000, steps=3, lr=0.1))
        kept = [batch.clips for batch in vcycle.loader(Clips(), plan, workers=8)]
        print(sum(map(len, kept)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{3 * 512}\n", "")
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 256


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_a_loop_that_breaks_off_leaves_no_process(seconds, processes):
    for batch in loader(Clips(seconds), PLAN, workers=3):
        assert right(batch)
        break
    assert processes() == set()


def test_an_exception_in_the_loop_leaves_no_process(processes):
    def train():
        for _ in loader(Clips(0.02), PLAN, workers=2):
            raise KeyError("in training")

    with pytest.raises(KeyError):
        train()
    assert processes() == set()


def test_closing_is_final_and_may_be_repeated(processes):
    batches = iter(loader(Clips(), PLAN, workers=2))
    next(batches)
    batches.close()
    batches.close()
    assert processes() == set()
    with pytest.raises(StopIteration):
        next(batches)


def test_a_finished_iteration_leaves_no_process_and_a_loader_can_be_iterated_again(processes):
    load = loader(Clips(), PLAN, workers=2, stop=3)
    batches = iter(load)
    first = list(batches)
    assert processes() == set()
    with pytest.raises(StopIteration):
        next(batches)
    again = list(load)
    assert len(load) == len(first) == len(again) == 3
    assert all(torch.equal(one.clips, other.clips) for one, other in zip(first, again, strict=True))


def test_two_loaders_and_two_iterations_of_one_run_side_by_side():
    load = loader(Clips(0.001), PLAN, workers=2)
    for one, other, third in zip(load, load, loader(Clips(), PLAN, workers=1), strict=True):
        assert right(one)
        assert right(other)
        assert right(third)


def test_a_loader_can_be_used_in_a_thread():
    got = []
    thread = threading.Thread(target=lambda: got.extend(loader(Clips(), PLAN, workers=2)))
    thread.start()
    thread.join()
    assert len(got) == len(PLAN)
    assert all(map(right, got))


def test_a_loader_that_outlives_the_thread_that_began_it_goes_on():
    box = []

    def begin():
        box.append(iter(loader(Clips(), PLAN, workers=2)))
        next(box[0])

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    assert sum(1 for _ in box[0]) == len(PLAN) - 1


def test_a_forked_process_does_not_end_its_parents_workers():
    batches = iter(loader(Clips(), PLAN, workers=2))
    next(batches)
    pid = os.fork()
    if pid == 0:
        batches.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert sum(1 for _ in batches) == len(PLAN) - 1


def test_ctrl_c_while_waiting_ends_the_workers(processes):
    batches = iter(loader(Clips(60.0), PLAN, workers=2))
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))

    def wait():
        timer.start()
        next(batches)

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert processes() == set()


def test_a_signal_in_a_hook_of_the_fork_is_not_lost():
    script = """
        import os, signal, threading
        import torch
        from vcycle.data import Sample, loader
        from vcycle.plan import Baseline, constant

        class Clips:
            samples_grids = True
            def __len__(self):
                return 8
            def __getitem__(self, request):
                clip = torch.zeros((*request.shape, 3), dtype=torch.uint8)
                return Sample(clip=clip, label=0, index=request.index, position=request.position)

        def strike():  # by way of a thread that blocks nothing
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
            signal.raise_signal(signal.SIGINT)

        def hook():
            thread = threading.Thread(target=strike)
            thread.start()
            thread.join()
            for _ in range(1000):  # Python looks for signals here
                pass

        os.register_at_fork(after_in_parent=hook)
        plan = constant(Baseline(batch=2, frames=4, size=16, clips=8, steps=100, lr=0.1))
        try:
            for _ in loader(Clips(), plan, workers=2):
                pass
        except KeyboardInterrupt:
            print("interrupted")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_signals_to_the_whole_group_are_left_to_the_main_process(processes):
    batches = iter(loader(Clips(0.01), PLAN, workers=2))
    next(batches)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        for pid in processes():
            os.kill(pid, number)
    assert sum(1 for _ in batches) == len(PLAN) - 1


@pytest.mark.parametrize("stuck", [False, True])
def test_no_process_outlives_a_main_process_that_is_killed(tmp_path, stuck):
    class Noted(Clips):
        def __getitem__(self, request):
            (tmp_path / str(os.getpid())).touch()
            if stuck and request.position > 0:
                signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
                time.sleep(3600)
            return super().__getitem__(request)

    def main():
        batches = iter(loader(Noted(), PLAN, workers=3))
        if not stuck:
            next(batches)
        while len(list(tmp_path.iterdir())) < 3:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    reading, writing = os.pipe()
    killed = multiprocessing.get_context("fork").Process(target=main)
    killed.start()
    os.close(writing)
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    killed.close()
    # The pipe ends when the last process that holds it does.
    assert os.read(reading, 1) == b""
    os.close(reading)
    for file in tmp_path.iterdir():
        assert not Path(f"/proc/{file.name}/cmdline").is_file() or not Path(f"/proc/{file.name}/cmdline").read_bytes()


def test_a_supervisor_that_is_killed_ends_the_iteration_with_an_error(processes):
    batches = iter(loader(Clips(0.05), PLAN, workers=2))
    next(batches)
    supervisor = next(
        pid for pid in processes() if Path(f"/proc/{pid}/stat").read_text().split()[3] == str(os.getpid())
    )
    os.kill(supervisor, signal.SIGKILL)
    with pytest.raises(DataError, match="supervises the workers was killed"):
        list(batches)


def test_an_error_comes_in_its_place_with_the_traceback_of_the_worker(processes):
    class Faulty(Clips):
        def __getitem__(self, request):
            if request.position == PLAN[2].first_sample + 1:
                raise KeyError("stem")
            return super().__getitem__(request)

    batches = iter(loader(Faulty(), PLAN, workers=3))
    assert right(next(batches))
    assert right(next(batches))
    with pytest.raises(RuntimeError, match=r"KeyError: 'stem' \(in a worker that loaded item \d+\)") as caught:
        next(batches)
    assert 'raise KeyError("stem")' in str(caught.value)
    assert processes() == set()


def test_even_an_exit_in_a_dataset_is_an_error():
    class Leaving(Clips):
        def __getitem__(self, request):
            sys.exit(4)

    with pytest.raises(RuntimeError, match="SystemExit: 4"):
        next(iter(loader(Leaving(), PLAN, workers=2)))


Item = namedtuple("Item", ("clip", "flow", "name"))


@pytest.mark.parametrize(
    "make",
    [
        lambda r: torch.full((3, *r.shape), float(r.position)),
        lambda r: (torch.full((3, *r.shape), r.position % 251, dtype=torch.uint8), r.index),
        lambda r: [torch.full((3, *r.shape), float(r.position), dtype=torch.bfloat16), {"id": f"clip {r.index}"}],
        lambda r: Item(torch.full((*r.shape, 1), 2.0), torch.ones(4, 4, r.shape.size), str(r.index)),
        lambda r: {"lr": torch.ones(3, *r.shape), "hr": torch.full((12, *r.shape), 3.0), "at": r.position},
        lambda r: (torch.tensor(r.index), torch.empty(0), torch.ones(40, *r.shape)),  # larger than what it is given
    ],
)
def test_whatever_a_dataset_gives_is_collated_as_in_this_process(make):
    class Any(Clips):
        def __getitem__(self, request):
            return make(request)

    here = list(loader(Any(), PLAN, stop=8))
    there = list(loader(Any(), PLAN, stop=8, workers=2))
    for one, other in zip(here, there, strict=True):
        assert type(one) is type(other)
        assert flat(one) == flat(other)


def flat(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.tolist()
    if isinstance(value, dict):
        return {key: flat(inner) for key, inner in value.items()}
    return [flat(inner) for inner in value] if isinstance(value, list | tuple) else value


def test_workers_do_not_share_a_state_of_the_global_generators():
    class Random(Clips):
        def __getitem__(self, request):
            time.sleep(0.005)
            return torch.rand(2)

    drawn = torch.cat([batch for batch in loader(Random(), PLAN, workers=3, stop=8)])
    assert len(set(map(tuple, drawn.tolist()))) == len(drawn)


@pytest.mark.parametrize("wrong", [{"workers": -1}, {"timeout": 0}, {"prefetch": 0}])
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(DataError, match="must be at least"):
        loader(Clips(), PLAN, **wrong)


def test_memory_that_cannot_be_had_is_one_line():
    with pytest.raises(DataError, match=r"GiB of shared memory for 3 batches cannot be allocated \(.*\): lower"):
        Arena(filling=2, lending=1, block_bytes=1 << 50)


def test_an_item_comes_out_of_a_slot_as_it_went_in():
    slot = torch.zeros(4096, dtype=torch.uint8)
    item = {"a": torch.arange(600.0).view(20, 30), "b": [torch.arange(400).flip(0), "text"], "c": torch.tensor(7)}
    data, wanted = encode(item, slot)
    assert wanted == 2400 + 32 + 3200
    got = decode(data, slot)
    assert flat(got) == flat(item)
    inside = slot.untyped_storage().data_ptr()
    assert [t.untyped_storage().data_ptr() == inside for t in (got["a"], got["b"][0], got["c"])] == [True, False, False]
