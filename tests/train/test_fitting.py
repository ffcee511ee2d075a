import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from vcycle.data import Batch, rank_slice
from vcycle.errors import VcycleError
from vcycle.nn import convert_batchnorm
from vcycle.plan import Baseline, Shape, StepDecay, cascade, multigrid
from vcycle.train.fitting import Fitting, largest_that_fits, micro_batch_sizes, shapes_from
from vcycle.train.log import RunLog
from vcycle.train.loop import Settings, fit, make_fabric
from vcycle.train.memory import is_out_of_memory, undone
from vcycle.train.optimizer import OptimizerSpec
from vcycle.train.ranks import ALONE, Ranks
from vcycle.train.run import JsonLines, RunFolder
from vcycle.train.state import TrainState
from vcycle.train.update import Update

CPU = torch.device("cpu")
BASELINE = Baseline(
    batch=4, frames=4, size=8, clips=24, steps=12, lr=0.05, decay=StepDecay(milestones=(6, 9)), bn_batch=4
)
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

    def __init__(self, folder, *, model=None, plan=PLAN, optimizer=None, ranks=ALONE, resumed=False):
        torch.manual_seed(0)
        folder.mkdir(exist_ok=True)
        self.model = convert_batchnorm(model or Net(), plan[0].bn_batch).train()
        self.task, self.told = Noisy(), []
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
        self.log = RunLog(self.state.run, start=0, device=CPU, tensorboard=False)
        self.fitting = Fitting(
            self.update,
            self.task,
            self.state,
            device=CPU,
            ranks=ranks,
            resumed=resumed,
            on_message=self.told.append,
            on_shortage=self.log.shortage,
        )

    def everything(self):
        """All that a step changes, as bytes."""
        state = [self.model.state_dict(), self.state.optimizer.state_dict(), torch.get_rng_state()]
        return str(_plain(state)), [each.grad for each in self.model.parameters()]

    def steps(self, count=len(PLAN)):
        for step in self.state.plan.iterate():
            if step.index < count:
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


@pytest.mark.parametrize("plan", [PLAN, multigrid(BASELINE)], ids=["cascade", "long+short"])
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
    trained = Trained(tmp_path, model=Net(limit=9), optimizer=OptimizerSpec(name=name))
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
    trained = Trained(tmp_path, model=Net(limit=9))
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
    trained = Trained(tmp_path, model=Net(limit=3))
    with pytest.raises(VcycleError, match=r"32×2×4² does not fit into memory \(.* GiB\), not even 4 of its clips"):
        trained.fitting.try_shapes(0)


def test_without_batchnorm_clips_may_be_computed_one_by_one(tmp_path):
    trained = Trained(tmp_path, model=Net(limit=1, norm=False))
    trained.fitting.try_shapes(0)
    assert set(trained.update.micro.values()) == {1}


# What micro-batches give -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", micro_batch_sizes(COARSE.batch, COARSE.bn_batch)[1:])
def test_micro_batches_give_the_gradients_and_running_statistics_of_the_whole_batch(tmp_path, size):
    whole, parted = Trained(tmp_path / "whole"), Trained(tmp_path / "parted")
    parted.update.micro[COARSE.batch, COARSE.shape] = size
    losses = [trained.fitting(COARSE, batch_of(COARSE)) for trained in (whole, parted)]
    assert parted.model.seen[0] == size
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-12)
    for one, other in zip(whole.gradients[0], parted.gradients[0], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    assert largest_difference(whole.model, parted.model) < 1e-9
    assert parted.model.body[1].num_batches_tracked == 1


def test_a_run_that_does_not_fit_learns_what_one_that_does_would(noise, tmp_path):
    def run(folder, **more):
        torch.manual_seed(0)
        return fit(
            plan=PLAN,
            dataset=noise,
            task=Noisy(),
            optimizer=OptimizerSpec(),
            run=RunFolder(tmp_path / folder),
            settings=Settings(device="cpu", fit="on"),
            **more,
        )

    told = []
    whole = run("whole", model=Net())
    parted = run("parted", model=Net(limit=8), on_message=told.append)
    assert any("8 clips at a time" in message for message in told)
    assert largest_difference(whole.model, parted.model) < 1e-9


CHILD = """
import json, resource, sys
from pathlib import Path
import torch
from test_fitting import Net, Trained, batch_of, largest_difference
from vcycle.plan import Baseline, constant

plan = constant(Baseline(batch=64, frames=8, size=32, clips=64, steps=2, lr=0.05, bn_batch=8))
work = Path(sys.argv[1])
whole, parted = (Trained(work / name, plan=plan, model=Net()) for name in ("whole", "parted"))
whole.steps()
pages = int(Path("/proc/self/statm").read_text().split()[0])
room = pages * resource.getpagesize() + (80 << 20)
resource.setrlimit(resource.RLIMIT_AS, (room, room))
parted.fitting.try_shapes(0)
parted.steps()
print(json.dumps({
    "told": parted.told,
    "micro": list(parted.update.micro.values()),
    "difference": largest_difference(whole.model, parted.model),
    "gradients": max((a - b).abs().max().item() for a, b in zip(whole.gradients[0], parted.gradients[-2])),
}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on memory, as Linux has it")
def test_under_a_real_limit_on_memory_training_goes_on_in_parts(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["micro"][0] < 64
    assert "clips at a time" in found["told"][0]
    assert found["difference"] < 1e-9
    assert found["gradients"] < 1e-9
