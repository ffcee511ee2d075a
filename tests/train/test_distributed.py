"""Ranks that train together give the training of one process."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from vcycle.data.config import LoadingSection
from vcycle.data.dataset import Replacement
from vcycle.errors import VcycleError
from vcycle.plan import Baseline, StepDecay, constant, multigrid
from vcycle.tasks.recognition import Recognition
from vcycle.tasks.recognition.models import build_model
from vcycle.train.callbacks import Callbacks
from vcycle.train.checkpoint import latest_checkpoint
from vcycle.train.config import EmaSpec, OptimizerSection, RunSection, TrainConfig
from vcycle.train.ranks import Ranks
from vcycle.train.run import RunFolder
from vcycle.train.trainer import fit
from vcycle.utils.jsonl import JsonLines

PLAN = multigrid(
    Baseline(batch=5, frames=8, size=16, clips=24, steps=40, lr=0.02, decay=StepDecay(milestones=(20, 30)), bn_batch=4)
)
"""Batches of 5 to 80 clips: some cannot be divided by ranks, some have fewer blocks than there are ranks."""


class Net(nn.Module):
    """A small network in double precision, whatever it is given."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.first, self.norm = nn.Conv3d(3, 4, 3, padding=1), nn.BatchNorm3d(4)
        self.second, self.last = nn.Conv3d(4, 4, 1), nn.BatchNorm3d(4)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(4, 4)

    def forward(self, clips):
        x = self.norm(self.first(clips.to(self.head.weight.dtype))).relu()
        return self.head(self.dropout(self.last(self.second(x)).relu().mean((2, 3, 4))))


class Precisely(Recognition):
    """The task with its loss in the network's own precision."""

    def loss(self, model, clips, labels, *, block=None):
        own = next(model.parameters()).dtype
        return nn.functional.cross_entropy(model(self.inputs(clips).to(own)), labels)


def train(rank, world, noise, folder, until=None, dropout=0.0, task=None, compress=None, ema=None, repeats=1, **more):
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    task = task or Precisely(classes=4)

    def stop(report):
        if report.step.index + 1 == until:
            raise InterruptedError

    try:
        fit(
            plan=PLAN,
            model=Net(dropout),
            dataset=noise,
            objective=task,
            config=TrainConfig(
                run=RunSection(device="cpu", save_every=5, compress=compress),
                loading=LoadingSection(workers=0),
                ema=ema,
                repeats=repeats,
            ),
            run=RunFolder(folder),
            ranks=Ranks(rank=rank, world=world),
            callbacks=Callbacks(on_step=stop),
            **more,
        )
    except InterruptedError:
        pass
    finally:
        torch.set_default_dtype(torch.float32)


def record(folder):
    """Per step what was trained on and at which rate, the losses, and what was learned."""
    lines = [line for line in JsonLines(RunFolder(folder).log).read() if line["event"] == "step"]
    checkpoint = latest_checkpoint(RunFolder(folder).checkpoints)[0]
    exact = [(line["step"], line["ids_crc32"], line["lr"], line["batch"]) for line in lines]
    state = checkpoint.model | {f"average.{name}": value for name, value in (checkpoint.averaged or {}).items()}
    return exact, [line["loss"] for line in lines], {name: value.numpy() for name, value in state.items()}


def assert_equal(found, expected, atol=1e-9):
    (steps, losses, state), (steps_expected, losses_expected, state_expected) = found, expected
    assert steps == steps_expected
    np.testing.assert_allclose(losses, losses_expected, rtol=0, atol=atol)
    for name, value in state_expected.items():
        np.testing.assert_allclose(state[name], value, rtol=0, atol=atol, err_msg=name)


@pytest.fixture(scope="module")
def alone(noise, tmp_path_factory):
    """What one process learns."""
    folder = tmp_path_factory.mktemp("alone")
    train(0, 1, noise, folder, ema=EmaSpec(decay=0.9, clips=5))
    return record(folder)


def test_the_plan_has_the_cases():
    shapes = {(cell.batch, cell.bn_batch) for cell in PLAN.shapes}
    assert any(-(-batch // block) < 4 for batch, block in shapes)  # blocks on several of four ranks
    assert any(-(-batch // block) >= 4 and batch % 4 for batch, block in shapes | {(10, 2)})


@pytest.mark.parametrize("world", [2, 3, 4])
def test_ranks_learn_what_one_process_learns(on_ranks, noise, tmp_path, alone, world):
    on_ranks(world, _train_with_ema, noise, tmp_path / "run")
    assert_equal(record(tmp_path / "run"), alone)


def _train_with_ema(rank, world, noise, folder, until=None):
    train(rank, world, noise, folder, until, ema=EmaSpec(decay=0.9, clips=5), resume=True)


def _train_repeatedly(rank, world, noise, folder):
    train(rank, world, noise, folder, repeats=2)


def test_ranks_learn_what_one_process_learns_from_several_clips_of_each_video(on_ranks, noise, tmp_path, alone):
    _train_repeatedly(0, 1, noise, tmp_path / "alone")
    on_ranks(2, _train_repeatedly, noise, tmp_path / "run")
    assert_equal(record(tmp_path / "run"), record(tmp_path / "alone"))
    assert record(tmp_path / "run")[0] != alone[0]


def test_the_number_of_ranks_may_change_on_resume(on_ranks, noise, tmp_path, alone):
    on_ranks(2, _train_with_ema, noise, tmp_path / "run", 8)
    on_ranks(3, _train_with_ema, noise, tmp_path / "run")
    assert_equal(record(tmp_path / "run"), alone)


def _train_with_dropout(rank, world, noise, folder, until=None):
    train(rank, world, noise, folder, until, 0.5, resume=True)


def test_ranks_that_go_on_repeat_themselves_to_the_last_bit(on_ranks, noise, tmp_path):
    on_ranks(3, _train_with_dropout, noise, tmp_path / "whole")
    for until in (3, 11):
        on_ranks(3, _train_with_dropout, noise, tmp_path / "cut", until)
    on_ranks(3, _train_with_dropout, noise, tmp_path / "cut")
    (steps, losses, state), whole = record(tmp_path / "cut"), record(tmp_path / "whole")
    assert (steps, losses) == whole[:2]
    assert all((state[name] == value).all() for name, value in whole[2].items())


def _train_compressed(rank, world, noise, folder):
    train(rank, world, noise, folder, compress="bf16", ema=EmaSpec(decay=0.9, clips=5))


def test_compressed_gradients_are_rounded_and_no_more(on_ranks, noise, tmp_path, alone):
    on_ranks(2, _train_compressed, noise, tmp_path / "run")
    found = record(tmp_path / "run")
    assert_equal(found, alone, atol=0.05)
    assert found[1] != alone[1]


def _train_with_mixup(rank, world, noise, folder):
    pytest.importorskip("torchvision")
    try:
        train(rank, world, noise, folder, task=Recognition(classes=4, mixup=0.8))
    except VcycleError as error:
        return str(error)
    return None


def test_clips_are_mixed_within_blocks_and_not_where_ranks_share_them(on_ranks, noise, tmp_path):
    _train_with_mixup(0, 1, noise, tmp_path / "alone")
    assert on_ranks(2, _train_with_mixup, noise, tmp_path / "two") == [None, None]
    assert_equal(record(tmp_path / "two"), record(tmp_path / "alone"), atol=1e-5)
    for refusal in on_ranks(3, _train_with_mixup, noise, tmp_path / "three"):
        assert "blocks of the batch 5×8×16² span several of the 3 ranks" in refusal


def _train_by_adamw(rank, world, noise, folder, bn_batch):
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    try:
        fit(
            plan=constant(Baseline(batch=8, frames=8, size=16, clips=24, steps=3, lr=1e-3, bn_batch=bn_batch)),
            model=build_model("r3d_tiny", 4),
            dataset=noise,
            objective=Precisely(classes=4),
            config=TrainConfig(run=RunSection(device="cpu"), optimizer=OptimizerSection(name="adamw")),
            run=RunFolder(folder),
            ranks=Ranks(rank=rank, world=world),
        )
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("bn_batch", [4, 8])
def test_adamw_on_two_ranks_differs_from_one_process_by_rounding_alone(on_ranks, noise, tmp_path, bn_batch):
    # Its first steps divide a gradient by its own size: in fp32, one that is rounding becomes a step of up to the LR.
    # In fp64 that rounding is far below Adam's epsilon, and what remains would be an error in the gradients.
    _train_by_adamw(0, 1, noise, tmp_path / "alone", bn_batch)
    on_ranks(2, _train_by_adamw, noise, tmp_path / "two", bn_batch)  # 8 is one block, which both share
    assert_equal(record(tmp_path / "two"), record(tmp_path / "alone"), atol=1e-12)


class Patchy:
    """Noise of which some videos cannot be read; each rank replaces its own."""

    samples_grids = True

    def __init__(self, noise):
        self._noise = noise

    def __len__(self):
        return len(self._noise)

    def __getitem__(self, request):
        sample = self._noise[request]
        if request.index % 12:
            return sample
        bad = Replacement(
            position=request.position, video=request.index, replacement=1, path=f"{request.index}.mp4", cause="broken"
        )
        return replace(sample, index=1, replaced=(bad,))


def _train_patchy(rank, world, noise, folder, limit):
    torch.manual_seed(0)
    try:
        return fit(
            plan=PLAN,
            model=Net(),
            dataset=Patchy(noise),
            objective=Recognition(classes=4),
            config=TrainConfig(
                run=RunSection(device="cpu", bad_limit=limit),
                loading=LoadingSection(workers=0),
                optimizer=OptimizerSection(),
            ),
            run=RunFolder(folder),
            ranks=Ranks(rank=rank, world=world),
        ).replaced
    except VcycleError as error:
        return str(error)


def test_bad_samples_are_counted_over_ranks_and_written_down_by_each(on_ranks, noise, tmp_path):
    found = on_ranks(2, _train_patchy, noise, tmp_path / "two", 1.0)
    lines = [line for file in RunFolder(tmp_path / "two").all_bad_samples for line in JsonLines(file).read()]
    positions = [line["position"] for line in lines]
    assert found == [len(positions)] * 2
    assert len(RunFolder(tmp_path / "two").all_bad_samples) == 2
    assert _train_patchy(0, 1, noise, tmp_path / "one", 1.0) == len(set(positions)) == len(positions)
    first, second = on_ranks(2, _train_patchy, noise, tmp_path / "strict", 0.01)
    assert "samples could not be read" in first
    assert "samples could not be read" in second
