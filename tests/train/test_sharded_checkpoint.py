"""Checkpoints of sharded runs: folders, written by all ranks in the background, whole or absent, read by any number."""

import json
import os
import pickle
import shutil
import signal
import threading
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from vcycle.data.config import LoadingSection
from vcycle.errors import CheckpointError
from vcycle.plan import Baseline, constant
from vcycle.tasks.recognition import Recognition
from vcycle.train import sharded_checkpoint, shards
from vcycle.train.callbacks import Callbacks
from vcycle.train.checkpoint import latest_checkpoint, load_checkpoint
from vcycle.train.config import EmaSpec, OptimizerSection, RunSection, TrainConfig
from vcycle.train.ranks import Ranks
from vcycle.train.run import RunFolder
from vcycle.train.sharded_checkpoint import ShardedWriter, joined, read_sharded, split
from vcycle.train.trainer import fit
from vcycle.utils.jsonl import JsonLines

pytestmark = pytest.mark.usefixtures("sharding")

PLAN = constant(Baseline(batch=6, frames=2, size=4, clips=24, steps=12, lr=0.02, bn_batch=3))


class Net(nn.Module):
    """Parameters of five, three and one rows, and a norm."""

    def __init__(self):
        super().__init__()
        self.body, self.norm = nn.Conv3d(3, 5, 1), nn.BatchNorm3d(5)
        self.scale, self.head = nn.Parameter(torch.ones(1, 5)), nn.Linear(5, 4)

    def forward(self, clips):
        return self.head(self.norm(self.body(clips.to(self.scale.dtype))).mean((2, 3, 4)) * self.scale)


class Precisely(Recognition):
    """The task with its loss in the network's own precision."""

    def loss(self, model, clips, labels, *, block=None):
        return nn.functional.cross_entropy(model(self.inputs(clips)), labels)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(shards, "_LEAST", 1)


def train(rank, world, noise, folder, until=None, *, optimizer="adamw", shard=True):
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    said = []

    def stop(report):
        if report.step.index + 1 == until:
            raise InterruptedError

    try:
        fit(
            TrainConfig(
                run=RunSection(device="cpu", save_every=2, shard=shard),
                loading=LoadingSection(workers=0),
                optimizer=OptimizerSection(name=optimizer),
                ema=EmaSpec(decay=0.9, clips=6),
            ),
            plan=PLAN,
            model=Net(),
            dataset=noise,
            objective=Precisely(classes=4),
            run=RunFolder(folder),
            resume=True,
            ranks=Ranks(rank=rank, world=world),
            callbacks=Callbacks(on_step=stop, on_message=said.append),
        )
    except InterruptedError:
        pass
    finally:
        torch.set_default_dtype(torch.float32)
    return said


def flat(checkpoint):
    state = {f"model.{name}": value for name, value in checkpoint.model.items()}
    state |= {f"averaged.{name}": value for name, value in checkpoint.averaged.items()}
    for place, of_parameter in checkpoint.optimizer["state"].items():
        state |= {f"optimizer.{place}.{key}": value for key, value in of_parameter.items()}
    return {name: value.numpy() for name, value in state.items()}


def newest(folder):
    checkpoint, path, passed = latest_checkpoint(RunFolder(folder).checkpoints)
    return checkpoint, path, passed


@pytest.fixture(scope="module")
def alone(noise, tmp_path_factory):
    """What one process learns."""
    folder = tmp_path_factory.mktemp("alone")
    train(0, 1, noise, folder)
    return flat(newest(folder)[0])


@pytest.fixture(scope="module")
def saved_once(on_ranks, noise, tmp_path_factory):
    """A run of two ranks, cut after the step of its third checkpoint."""
    folder = tmp_path_factory.mktemp("saved") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "_LEAST", 1)
        on_ranks(2, train, noise, folder, 7)
    return folder


@pytest.fixture
def saved_by_two(saved_once, tmp_path):
    """A copy of that run."""
    return shutil.copytree(saved_once, tmp_path / "run")


@pytest.mark.parametrize("world", [1, 2, 3])
def test_what_two_ranks_saved_is_resumed_by_any_number(on_ranks, noise, saved_by_two, alone, world):
    path = newest(saved_by_two)[1]
    assert (path.name, path.is_dir()) == ("step-000000006", True)
    assert {file.name for file in path.iterdir()} == {
        *("header.pt", ".metadata", "whole.json", "__0_0.distcp", "__1_0.distcp")
    }
    said = on_ranks(world, train, noise, saved_by_two)[0]
    assert said == [f"resuming at step 6 of 12 from {path}"]
    checkpoint, path, _ = newest(saved_by_two)
    assert path.name == ("step-000000012.pt" if world == 1 else "step-000000012")
    found = flat(checkpoint)
    assert found.keys() == alone.keys()
    for name, value in alone.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-9, err_msg=name)


def test_only_the_newest_two_are_kept_and_nothing_lies_aside(saved_by_two):
    names = {path.name for path in RunFolder(saved_by_two).checkpoints.iterdir()}
    assert names == {"step-000000004", "step-000000006"}


def test_one_process_reads_it_as_it_reads_a_file(noise, saved_by_two, tmp_path):
    train(0, 1, noise, tmp_path / "one", 7)
    found, expected = newest(saved_by_two)[0], newest(tmp_path / "one")[0]
    assert (found.step, found.plan, found.seed) == (expected.step, expected.plan, expected.seed)
    assert found.optimizer_kind == expected.optimizer_kind
    assert found.totals.keys() == expected.totals.keys()
    assert [group["params"] for group in found.optimizer["param_groups"]] == [
        group["params"] for group in expected.optimizer["param_groups"]
    ]
    one, other = flat(found), flat(expected)
    assert one.keys() == other.keys()
    for name, value in other.items():
        np.testing.assert_allclose(one[name], value, rtol=0, atol=1e-9, err_msg=name)


def test_an_older_pytorch_is_told_to_be_too_old_for_it(saved_by_two, monkeypatch):
    path = newest(saved_by_two)[1]
    monkeypatch.setattr(metadata, "version", lambda name: "2.9.1")
    with pytest.raises(CheckpointError, match=r"is sharded, but torch 2\.9\.1 is installed: torch 2\.10 or newer"):
        load_checkpoint(path)


# Whole or absent --------------------------------------------------------------------------------------


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def _train_and_die(rank, world, noise, folder, moment):
    """Train until the rank that ends the writing of the third checkpoint kills itself, before that or in it."""
    finish = sharded_checkpoint._Writer.finish

    def deadly(self, metadata, results):
        if self._path.name == "step-000000006":
            replace = os.replace
            os.replace = lambda old, new: (
                os.kill(os.getpid(), signal.SIGKILL) if os.path.isdir(old) else replace(old, new)
            )
            if moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
        finish(self, metadata, results)

    sharded_checkpoint._Writer.finish = deadly
    train(rank, world, noise, folder)


@pytest.mark.parametrize("moment", ["before", "rename"])
def test_a_kill_while_it_is_written_leaves_the_one_before(on_ranks, noise, tmp_path, alone, moment):
    folder = tmp_path / "run"
    with pytest.raises(ChildProcessError, match="a rank ended with -9"):
        on_ranks(2, _train_and_die, noise, folder, moment)
    names = {path.name for path in RunFolder(folder).checkpoints.iterdir()}
    assert names == {"step-000000002", "step-000000004", "step-000000006.partial"}
    assert newest(folder)[0].step == 4
    on_ranks(2, train, noise, folder)
    found = flat(newest(folder)[0])
    for name, value in alone.items():
        # AdamW divides a gradient by its own size, which enlarges rounding; another training differs by 1e-2.
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-7, err_msg=name)
    assert not list(RunFolder(folder).checkpoints.glob("*.partial"))


def flipped(file, within=None):
    """Flip a bit in the middle of a file, or of some bytes in it."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2 if within is None else data.index(within) + len(within) // 2] ^= 1
    file.write_bytes(bytes(data))


def second_half_of_the_weights(path):
    """What the second rank has of five rows."""
    return load_checkpoint(path).model["body.weight"][3:].numpy().tobytes()


DAMAGES = {
    "a bit of the weights": lambda path: flipped(path / "__1_0.distcp", second_half_of_the_weights(path)),
    "a bit of the metadata": lambda path: flipped(path / ".metadata"),
    "a bit of the header": lambda path: flipped(path / "header.pt"),
    "a file that was cut short": lambda path: os.truncate(path / "__0_0.distcp", 100),
    "a file that is gone": lambda path: (path / "__1_0.distcp").unlink(),
    "no mark": lambda path: (path / "whole.json").unlink(),
}


def test_what_is_damaged_is_passed_over_by_one_process_and_by_ranks(on_ranks, noise, saved_by_two, tmp_path):
    for number, damage in enumerate(DAMAGES.values()):
        copy = tmp_path / str(number)
        shutil.copytree(saved_by_two, copy)
        damage(RunFolder(copy).checkpoints / "step-000000006")
        checkpoint, path, passed = newest(copy)
        assert (checkpoint.step, path.name, len(passed)) == (4, "step-000000004", 1)
        assert passed[0].startswith(f"checkpoint {RunFolder(copy).checkpoints / 'step-000000006'} cannot be read: ")
    said = on_ranks(3, train, noise, tmp_path / "0", 6)[0]
    assert said[0].startswith("skipped: checkpoint ")
    assert said[1] == f"resuming at step 4 of 12 from {RunFolder(tmp_path / '0').checkpoints / 'step-000000004'}"


class Evil:
    def __reduce__(self):
        return os.mkdir, ("/tmp/vcycle-was-here",)


def test_nothing_in_it_is_run(saved_by_two):
    import hashlib

    path = newest(saved_by_two)[1]
    (path / ".metadata").write_bytes(pickle.dumps(Evil()))
    digest = hashlib.sha256((path / ".metadata").read_bytes()).hexdigest()
    (path / "whole.json").write_text(json.dumps({"metadata": digest}))
    with pytest.raises(CheckpointError, match="pickled objects other than tensors and plain values"):
        load_checkpoint(path)
    assert not Path("/tmp/vcycle-was-here").exists()


# In the background ------------------------------------------------------------------------------------


def _learn_meanwhile(rank, world, folder):
    """Change the weights while they are being saved: whether the save was still under way."""
    original, changed = sharded_checkpoint._Writer.write_data, threading.Event()

    def slow(self, *arguments):
        assert changed.wait(60)
        return original(self, *arguments)

    sharded_checkpoint._Writer.write_data = slow
    weights, writer = torch.full((4,), float(rank)), ShardedWriter()
    data = {"model": {f"weights{rank}": weights}, "optimizer": {"state": {}, "param_groups": []}}
    writer.save(folder / "step-000000001", data, write=rank == 0, on_saved=lambda: None)
    under_way = not (folder / "step-000000001").exists()
    weights.fill_(7)
    changed.set()
    writer.finish()
    torch.distributed.barrier()
    return under_way


def test_training_goes_on_meanwhile_and_does_not_change_what_is_saved(on_ranks, tmp_path):
    assert on_ranks(2, _learn_meanwhile, tmp_path) == [True, True]
    found = read_sharded(tmp_path / "step-000000001")["model"]
    assert {name: value.tolist() for name, value in found.items()} == {"weights0": [0.0] * 4, "weights1": [1.0] * 4}


def _full_disk(rank, world, noise, folder):
    if rank == 0:

        def full(self, metadata, results):
            raise OSError(28, "No space left on device")

        sharded_checkpoint._Writer.finish = full
    try:
        train(rank, world, noise, folder)
    except CheckpointError as error:
        return str(error)
    return None


def test_a_full_disk_ends_the_run_with_a_line(on_ranks, noise, tmp_path):
    for said in on_ranks(2, _full_disk, noise, tmp_path):
        assert "cannot be saved (" in said
        assert "No space left on device" in said


def test_split_data_is_joined_again():
    data = {
        "step": 3,
        "model": {"a.weight": torch.ones(2)},
        "averaged": {"a.weight": torch.zeros(2)},
        "optimizer": {"state": {0: {"step": torch.ones(()), "momentum_buffer": None}}, "param_groups": [{"lr": 1}]},
    }
    for some in (data, {key: value for key, value in data.items() if key != "averaged"}):
        header, tensors = split(some)
        again = joined(header, tensors)
        assert again.keys() == some.keys()
        assert all(str(again[key]) == str(some[key]) for key in ("step", "model"))
        assert again["optimizer"]["state"][0] == some["optimizer"]["state"][0]
        assert not any(isinstance(value, torch.Tensor) for value in header.values())


# By commands ------------------------------------------------------------------------------------------


def test_ranks_train_and_validate_sharded_and_one_process_evaluates_the_same(vcycle, vcycle_on, digit_videos, tmp_path):
    videos, recipe = tmp_path / "videos", tmp_path / "tiny.yaml"
    shutil.copytree(digit_videos, videos)
    min((videos / "val").rglob("*.mp4")).write_bytes(b"no video")
    recipe.write_text(
        "sampling: {span: [0.8, 1.0], short_side: [18, 22]}\n"
        "model: {name: r3d_tiny, options: {widths: [4, 8], blocks: [1, 1], temporal_kernels: [3, 3]}}\n"
        "training: {batch: 4, frames: 4, size: 16, steps: 24, lr: 0.02, bn_batch: 2, decay: constant}\n"
        "evaluation: {clips: 1, crops: 1}\n"
        "plan: cascade\n"
        "run: {device: cpu, validate_every: 0.5, validate_stage_shape: true, save_every: 2}\n"
    )
    options = [recipe, f"data={videos}", "data.workers=0", "run.shard=true", "--out", tmp_path / "run"]
    for ended in vcycle_on(2, "train", *options):
        assert ended.code == 0, ended.err
    assert newest(tmp_path / "run")[1].name.startswith("step-")
    evaluated = vcycle("eval", tmp_path / "run", "--json")
    assert evaluated.code == 0, evaluated.err
    found = json.loads(evaluated.out)
    assert (found["samples"], found["unreadable"]) == (7, 1)
    validations = [line for line in JsonLines(RunFolder(tmp_path / "run").log).read() if line["event"] == "validation"]
    assert any("val_stage" in line for line in validations)
    last = validations[-1]["evaluation"]
    assert (last["samples"], last["unreadable"], last["top1"]) == (7, 1, found["top1"])
    assert last["loss"] == pytest.approx(found["loss"], abs=1e-6)
