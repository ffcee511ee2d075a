import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from vcycle.data import Batch, rank_slice
from vcycle.errors import VcycleError
from vcycle.nn import convert_batchnorm
from vcycle.plan import Baseline, Shape, cascade, constant, multigrid
from vcycle.train.fitting import Fitting, largest_that_fits, micro_batch_sizes, shapes_from
from vcycle.train.loop import Settings, fit, make_fabric
from vcycle.train.memory import grow_in_place, is_out_of_memory, undone
from vcycle.train.optimizer import OptimizerSpec
from vcycle.train.ranks import ALONE, Ranks
from vcycle.train.run import JsonLines, RunFolder
from vcycle.train.state import TrainState
from vcycle.train.update import Update

CPU = torch.device("cpu")
BASELINE = Baseline(batch=4, frames=4, size=8, clips=24, steps=24, lr=0.05, bn_batch=4)
PLAN = cascade(BASELINE)
COARSE = PLAN[0]  # the most clips, in several blocks


class Net(nn.Module):
    """A narrow network with all that a step may change, in double precision."""

    def __init__(self, *, limit=math.inf, norm=True):
        super().__init__()
        self.limit, self.seen = limit, []
        self.body = nn.Sequential(
            nn.Conv3d(3, 4, 3, padding=1), nn.BatchNorm3d(4) if norm else nn.Identity(), nn.ReLU()
        )
        self.head = nn.Linear(4, 4)
        self.double()

    def forward(self, clips):
        self.seen.append(len(clips))
        if len(clips) > self.limit:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {len(clips)} MiB.")
        return self.head(self.body(clips.double()).mean((2, 3, 4)))


class Noisy:
    """Cross-entropy, and clips of noise to try with."""

    mixes = False

    def __init__(self):
        self.tried = []

    def loss(self, model, clips, labels, *, block=None):
        return nn.functional.cross_entropy(model(clips.div(255).permute(0, 4, 1, 2, 3)), labels)

    def noise(self, batch, shape, device):
        self.tried.append((batch, shape))
        return torch.randint(0, 256, (batch, *shape, 3), dtype=torch.uint8), torch.randint(0, 4, (batch,))

    def check(self, labels):
        pass

    def predict(self, model, clips):
        return model(clips)


class Trained:
    """A model, what trains it, and what makes its steps fit."""

    def __init__(self, folder, *, model=Net, plan=PLAN, optimizer=None, ranks=ALONE, resumed=False):
        torch.manual_seed(0)
        folder.mkdir(exist_ok=True)
        self.model = convert_batchnorm(model(), plan[0].bn_batch).train()
        self.task, self.told, self.logged = Noisy(), [], []
        self.state = TrainState(
            run=RunFolder(folder),
            plan=plan,
            seed=0,
            model=self.model,
            optimizer=(optimizer or OptimizerSpec()).build(self.model),
        )
        self.update = Update(make_fabric(Settings(device="cpu")), self.task, self.state, ranks)
        self.gradients = []
        self.state.optimizer.register_step_pre_hook(
            lambda *_: self.gradients.append([each.grad.clone() for each in self.model.parameters()])
        )
        self.fitting = Fitting(
            self.update,
            self.task,
            self.state,
            device=CPU,
            ranks=ranks,
            resumed=resumed,
            on_message=self.told.append,
            on_shortage=lambda step, message: self.logged.append((step.index, message)),
        )

    def everything(self):
        """All that a step changes, as bytes."""
        state = [self.model.state_dict(), self.state.optimizer.state_dict(), torch.get_rng_state()]
        return str(_plain(state)), [each.grad for each in self.model.parameters()]

    def steps(self, count=None):
        for step in list(self.state.plan)[:count]:
            self.fitting(step, batch_of(step))


def _plain(value):
    if isinstance(value, torch.Tensor):
        return value.numpy().tobytes()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def batch_of(step, rank=0, world=1):
    drawn = torch.Generator().manual_seed(step.index)
    clips = torch.randint(0, 256, (step.batch, *step.shape, 3), dtype=torch.uint8, generator=drawn)
    labels = torch.randint(0, 4, (step.batch,), generator=drawn)
    own = rank_slice(step.batch, step.bn_batch, rank, world)
    places = torch.arange(own.start, own.stop)
    return Batch(clips[places], labels[places], places, places, [], [])


def largest_difference(one, other):
    return max(
        (mine.double() - theirs.double()).abs().max().item()
        for mine, theirs in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    )


# The search ------------------------------------------------------------------------------------------


@given(st.integers(1, 300), st.integers(1, 40))
def test_micro_batches_are_whole_blocks_and_none_is_larger_than_its_number_needs(clips, block):
    sizes = micro_batch_sizes(clips, block)
    assert sizes[0] == clips
    assert sizes[-1] == min(block, clips)
    assert sizes == sorted(set(sizes), reverse=True)
    assert all(size % block == 0 for size in sizes[1:])
    parts = [math.ceil(clips / size) for size in sizes]
    assert len(set(parts)) == len(parts)
    for size, count in zip(sizes, parts, strict=True):
        assert size <= block or math.ceil(clips / (size - block)) > count


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 320))
def test_bisection_finds_the_largest_that_fits_in_few_trials(clips, block, room):
    sizes, tried = micro_batch_sizes(clips, block), []

    def fits(size):
        tried.append(size)
        return size <= room

    assert largest_that_fits(sizes, fits) == next((size for size in sizes if size <= room), None)
    assert len(tried) == len(set(tried)) <= 1 + math.ceil(math.log2(len(sizes) + 1))


@pytest.mark.parametrize("plan", [PLAN, multigrid(replace(BASELINE, steps=60))], ids=["cascade", "long+short"])
def test_only_shapes_that_are_still_to_come_are_tried_the_largest_first(plan):
    for start in range(len(plan) + 1):
        found = shapes_from(plan, start)
        ahead = {(step.batch, step.shape, step.bn_batch) for step in plan.iterate(start)}
        assert {(cell.batch, cell.shape, cell.bn_batch) for cell in found} == ahead
        assert [cell.voxels for cell in found] == sorted((cell.voxels for cell in found), reverse=True)


def test_running_out_of_memory_is_told_from_other_errors():
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory."))
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert not is_out_of_memory(ValueError("can't allocate memory"))
    with pytest.raises(RuntimeError) as real:
        torch.empty(1 << 50, dtype=torch.uint8)
    assert is_out_of_memory(real.value)


# Trying before the first step ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("before", [0, 3])
def test_trying_leaves_no_trace(tmp_path, name, before):
    trained = Trained(tmp_path, model=lambda: Net(limit=9), optimizer=OptimizerSpec(name=name))
    trained.fitting.try_shapes(0)  # so that the steps before do not find it out
    trained.steps(before)
    (tmp_path / "fit.json").unlink()
    trained.fitting._fits.clear()
    state = trained.everything()
    trained.fitting.try_shapes(0)
    assert len(trained.task.tried) > len(PLAN.shapes)
    assert trained.everything() == state


def test_what_is_undone_is_undone_when_it_fails_too(tmp_path):
    trained = Trained(tmp_path)
    state = trained.everything()

    def fail():
        trained.update.attempt(PLAN[0], batch_of(PLAN[0]))
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"), undone(trained.model, trained.state.optimizer, CPU):
        fail()
    assert trained.everything() == state


def test_a_shape_that_does_not_fit_is_found_out_before_the_first_step_and_told(tmp_path):
    trained = Trained(tmp_path, model=lambda: Net(limit=9))
    trained.fitting.try_shapes(0)
    assert COARSE.batch == 32
    assert trained.update.micro == {(32, COARSE.shape): 8, (16, PLAN.shapes[1].shape): 8}
    assert trained.told == [
        "batch shapes tried: 4; 32×2×4² is computed 8 clips at a time, with the same result; 16×4×4² is computed 8 "
        "clips at a time, with the same result"
    ]
    said = json.loads((tmp_path / "fit.json").read_text())
    assert said["devices"]["name"] == "CPU"
    assert said["devices"]["ranks"] == 1
    assert {(fit["shape"]["batch"], fit["micro"]) for fit in said["fits"]} == {(32, 8), (16, 8), (8, 8), (4, 4)}


def test_every_shape_is_tried_once_where_all_fit(tmp_path):
    trained = Trained(tmp_path)
    trained.fitting.try_shapes(0)
    assert sorted(trained.task.tried) == sorted((cell.batch, cell.shape) for cell in PLAN.shapes)
    assert trained.told == ["batch shapes tried: 4; all fit"]
    assert trained.update.micro == {}


def test_a_shape_of_which_no_block_fits_is_refused_by_name(tmp_path):
    trained = Trained(tmp_path, model=lambda: Net(limit=3))
    with pytest.raises(VcycleError, match=r"8×4×6² does not fit into memory \(.* GiB\), not even 4 of its clips"):
        trained.fitting.try_shapes(0)


def test_without_batchnorm_clips_may_be_computed_one_by_one(tmp_path):
    trained = Trained(tmp_path, model=lambda: Net(limit=1, norm=False))
    trained.fitting.try_shapes(0)
    assert set(trained.update.micro.values()) == {1}


# The record ------------------------------------------------------------------------------------------


def test_a_resumed_run_takes_over_what_its_record_says_and_tries_the_rest_alone(tmp_path):
    first = Trained(tmp_path, model=lambda: Net(limit=9))
    first.fitting.try_shapes(len(PLAN) - 1)
    again = Trained(tmp_path, model=lambda: Net(limit=9), resumed=True)
    again.fitting.try_shapes(0)
    assert {batch for batch, _ in again.task.tried} == {32, 16, 8}
    third = Trained(tmp_path, model=lambda: Net(limit=9), resumed=True)
    third.fitting.try_shapes(0)
    assert third.task.tried == []
    assert third.update.micro == again.update.micro == {(32, COARSE.shape): 8, (16, PLAN.shapes[1].shape): 8}


@pytest.mark.parametrize("change", [{"ranks": 2}, {"name": "another device"}, {"memory": 1}])
def test_a_record_of_other_devices_is_not_taken_over(tmp_path, change):
    Trained(tmp_path, model=lambda: Net(limit=9)).fitting.try_shapes(0)
    said = json.loads((tmp_path / "fit.json").read_text())
    said["devices"] |= change
    (tmp_path / "fit.json").write_text(json.dumps(said))
    again = Trained(tmp_path, resumed=True)
    assert again.update.micro == {}
    again.fitting.try_shapes(0)
    assert len(again.task.tried) == len(PLAN.shapes)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"devices": {}}', '{"fits": 1}'])
def test_a_damaged_record_is_as_none(tmp_path, damage):
    (tmp_path / "fit.json").write_text(damage)
    assert Trained(tmp_path, resumed=True).update.micro == {}


def test_a_new_run_does_not_believe_a_record_that_another_left_behind(tmp_path):
    Trained(tmp_path, model=lambda: Net(limit=9)).fitting.try_shapes(0)
    assert Trained(tmp_path).update.micro == {}


# What micro-batches give -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", micro_batch_sizes(COARSE.batch, COARSE.bn_batch)[1:])
def test_micro_batches_give_the_gradients_and_running_statistics_of_the_whole_batch(tmp_path, size):
    whole, parted = Trained(tmp_path / "whole"), Trained(tmp_path / "parted")
    parted.update.micro[COARSE.batch, COARSE.shape] = size
    losses = [trained.fitting(COARSE, batch_of(COARSE)).loss for trained in (whole, parted)]
    assert parted.model.seen[0] == size
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-12)
    for one, other in zip(whole.gradients[0], parted.gradients[0], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    assert largest_difference(whole.model, parted.model) < 1e-9
    assert parted.model.body[1].num_batches_tracked == 1


def test_a_run_that_does_not_fit_learns_what_one_that_does_would(noise, tmp_path):
    def run(folder, limit=math.inf, **more):
        torch.manual_seed(0)
        return fit(
            plan=PLAN,
            model=Net(limit=limit),
            dataset=noise,
            task=Noisy(),
            optimizer=OptimizerSpec(),
            run=RunFolder(tmp_path / folder),
            settings=Settings(device="cpu", fit="always"),
            **more,
        )

    told = []
    whole = run("whole")
    parted = run("parted", limit=8, on_message=told.append)
    assert any("8 clips at a time" in message for message in told)
    assert largest_difference(whole.model, parted.model) < 1e-9


class Hungry(Net):
    """Takes 8 MiB for each clip, really, and keeps them until the next forward."""

    held = None

    def forward(self, clips):
        self.held = None
        self.held = torch.empty(len(clips) << 23, dtype=torch.uint8)
        return super().forward(clips)


def _under_a_limit(rank, world, folder):
    import resource

    plan = constant(Baseline(batch=64, frames=4, size=8, clips=64, steps=1, lr=0.05, bn_batch=8))
    whole, parted = (Trained(folder / name, model=Hungry, plan=plan) for name in ("whole", "parted"))
    whole.steps()
    whole.model.held = None
    room = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + (320 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    parted.fitting.try_shapes(0)
    parted.steps()
    gradients = zip(whole.gradients[-1], parted.gradients[-1], strict=True)
    return {
        "told": parted.told,
        "seen": parted.model.seen,
        "model": largest_difference(whole.model, parted.model),
        "gradients": max((one - other).abs().max().item() for one, other in gradients),
    }


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_under_a_real_limit_on_memory_a_batch_is_learned_in_parts(on_ranks, tmp_path):
    (found,) = on_ranks(1, _under_a_limit, tmp_path)
    assert found["told"] == ["batch shapes tried: 1; 64×4×8² is computed 32 clips at a time, with the same result"]
    assert found["seen"][-2:] == [32, 32]
    assert found["gradients"] < 1e-9
    assert found["model"] < 1e-9


# Running out later -----------------------------------------------------------------------------------


class Short(Net):
    """Runs out of memory in its first forward of more than so many clips, and not again."""

    def __init__(self, *, above):
        super().__init__()
        self.above = above

    def forward(self, clips):
        out = super().forward(clips)
        if len(clips) > self.above:
            self.above = math.inf
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return out


def test_where_memory_runs_out_later_the_step_is_done_again_in_halves(tmp_path):
    whole, short = Trained(tmp_path / "whole"), Trained(tmp_path / "short", model=lambda: Short(above=16))
    for trained in (whole, short):
        trained.steps()
    assert short.model.seen[:3] == [32, 16, 16]
    assert short.told == [
        "memory ran out at step 0: from here on 32×2×4² is computed 16 clips at a time, with the same result"
    ]
    assert short.logged == [(0, short.told[0])]
    assert largest_difference(whole.model, short.model) < 1e-9
    assert short.model.body[1].num_batches_tracked == len(PLAN)
    again = Trained(tmp_path / "short", resumed=True)
    assert again.update.micro == {(32, COARSE.shape): 16}


def test_parts_are_halved_until_they_fit_and_a_block_that_does_not_is_refused(tmp_path):
    trained = Trained(tmp_path, model=lambda: Net(limit=3))
    with pytest.raises(VcycleError, match=r"32×2×4² does not fit into memory at step 0 .* not even 4 of its clips"):
        trained.steps()
    assert trained.model.seen == [32, 16, 8, 4]


def test_a_step_that_has_begun_to_change_the_weights_is_not_done_again(tmp_path):
    trained = Trained(tmp_path)

    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    trained.state.optimizer.register_step_pre_hook(fail)
    with pytest.raises(VcycleError, match=r"while the optimizer changed the weights.*--resume"):
        trained.steps()


def test_an_error_of_another_kind_is_let_through(tmp_path):
    def refuse(labels):
        raise ValueError("labels")

    trained = Trained(tmp_path)
    trained.task.check = refuse
    with pytest.raises(ValueError, match="labels"):
        trained.steps()


def test_a_run_in_which_memory_runs_out_says_so_and_logs_it(noise, tmp_path):
    told = []
    torch.manual_seed(0)
    fit(
        plan=PLAN,
        model=Short(above=16),
        dataset=noise,
        task=Noisy(),
        optimizer=OptimizerSpec(),
        run=RunFolder(tmp_path),
        settings=Settings(device="cpu"),
        on_message=told.append,
    )
    logged = [line["message"] for line in JsonLines(RunFolder(tmp_path).log).read() if line["event"] == "shortage"]
    assert len(logged) == 1
    assert logged[0] in told


# Several ranks ---------------------------------------------------------------------------------------


def _on_rank(rank, world, folder, limits, plan):
    trained = Trained(folder, model=lambda: Net(limit=limits[rank]), ranks=Ranks(rank=rank, world=world), plan=plan)
    try:
        trained.fitting.try_shapes(0)
        for step in plan:
            trained.fitting(step, batch_of(step, rank, world))
    except VcycleError as error:
        return str(error), trained.update.micro, None
    return "", trained.update.micro, trained.model.state_dict()


def test_ranks_agree_on_what_fits_the_smallest_of_them(on_ranks, tmp_path):
    plan = constant(replace(BASELINE, batch=20, steps=3))  # of five blocks, one rank has two and the other three
    found = on_ranks(2, _on_rank, tmp_path, (9, 5), plan)
    assert [micro for _, micro, _ in found] == [{(20, Shape(4, 8, 8)): 4}] * 2
    alone = Trained(tmp_path / "alone", plan=plan)
    alone.steps()
    for error, _, state in found:
        assert error == ""
        for name, value in alone.model.state_dict().items():
            torch.testing.assert_close(state[name], value, rtol=0, atol=1e-9)


def test_a_rank_that_has_fewer_blocks_does_not_have_the_others_cut(on_ranks, tmp_path):
    plan = constant(replace(BASELINE, batch=20, steps=1))
    found = on_ranks(2, _on_rank, tmp_path, (99, 99), plan)
    assert [(error, micro) for error, micro, _ in found] == [("", {})] * 2


def test_what_fits_on_one_rank_alone_is_refused_on_all(on_ranks, tmp_path):
    found = on_ranks(2, _on_rank, tmp_path, (99, 3), PLAN)
    assert [("does not fit into memory" in error) for error, _, _ in found] == [True, True]


def test_a_rank_that_runs_out_later_ends_and_the_restart_takes_smaller_parts(tmp_path):
    trained = Trained(tmp_path, model=lambda: Short(above=16))
    trained.fitting._ranks = Ranks(rank=1, world=2)
    with pytest.raises(VcycleError, match=r"16 clips at a time.* Rank 1 cannot do the step again .*--resume"):
        trained.steps()
    assert Trained(tmp_path, resumed=True).update.micro == {(32, COARSE.shape): 16}


def test_a_block_that_ranks_share_is_tried_by_them_together(on_ranks, tmp_path):
    plan = constant(replace(BASELINE, batch=4, steps=2))
    found = on_ranks(2, _on_rank, tmp_path, (99, 99), plan)
    assert [error for error, _, _ in found] == ["", ""]


# On a GPU --------------------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_change_of_shape_takes_little_more_memory_than_the_larger_shape_alone():
    net = nn.Sequential(nn.Conv3d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv3d(64, 64, 3, padding=1)).cuda()
    grow_in_place()

    def reserved(*batches):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        for batch, frames, size in batches:
            net(torch.rand(batch, 3, frames, size, size, device="cuda")).sum().backward()
            net.zero_grad()
        return torch.cuda.max_memory_reserved()

    shapes = [(32, 4, 80), (16, 8, 80), (16, 4, 112), (8, 8, 112)]
    alone = max(reserved(shape) for shape in shapes)
    assert reserved(*shapes, *reversed(shapes)) <= 1.1 * alone
