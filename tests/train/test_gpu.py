"""What a training does on a GPU by itself. No GPU is needed: there is one as far as torch is asked."""

import os
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from vcycle.data import loader
from vcycle.data.config import LoadingSection
from vcycle.plan import Baseline, constant
from vcycle.tasks.classification.objective import Recognition
from vcycle.train import setup, trainer
from vcycle.train.accelerator import make_accelerator
from vcycle.train.config import OptimizerSection, RunSection, TrainConfig
from vcycle.train.fetching import BatchFetcher
from vcycle.train.journal import Journal
from vcycle.train.outcome import Totals
from vcycle.train.ranks import SINGLE_PROCESS
from vcycle.train.run import RunFolder
from vcycle.train.setup import set_up
from vcycle.train.trainer import fit

PLAN = constant(Baseline(batch=2, frames=4, size=8, clips=24, steps=3, lr=0.05, bn_batch=2))
ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


@pytest.fixture
def gpu(monkeypatch):
    """One GPU, an untouched cuDNN, and an allocator that nobody has configured."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    monkeypatch.setattr(os, "environ", {key: value for key, value in os.environ.items() if key not in ALLOCATOR})


@pytest.mark.usefixtures("gpu")
def test_cudnn_tries_its_algorithms_on_a_gpu_and_nowhere_else():
    make_accelerator(RunSection(device="cpu"))
    assert not torch.backends.cudnn.benchmark
    assert make_accelerator(RunSection(device="auto")).device == torch.device("cuda", 0)
    assert torch.backends.cudnn.benchmark


@pytest.mark.usefixtures("gpu")
def test_cudnn_tries_nothing_where_the_user_wants_determinism(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    torch.use_deterministic_algorithms(True)
    try:
        make_accelerator(RunSection(device="cuda"))
    finally:
        torch.use_deterministic_algorithms(False)
    assert not torch.backends.cudnn.benchmark


@pytest.mark.usefixtures("gpu")
def test_memory_of_a_gpu_grows_in_place():
    make_accelerator(RunSection(device="cpu"))
    assert not os.environ.keys() & set(ALLOCATOR)
    make_accelerator(RunSection(device="cuda"))
    assert os.environ["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", ALLOCATOR)
def test_an_allocator_that_the_user_has_configured_stays_so(name):
    os.environ[name] = "max_split_size_mb:64"
    make_accelerator(RunSection(device="cuda"))
    assert {key: value for key, value in os.environ.items() if key in ALLOCATOR} == {name: "max_split_size_mb:64"}


@pytest.mark.parametrize(
    ("device", "name", "precision", "fused"),
    [
        ("cuda", "sgd", "fp32", True),
        ("cuda", "sgd", "bf16", True),
        ("cuda", "adamw", "fp32", True),
        ("cuda", "sgd", "fp16", False),
        ("cuda", "adamw", "fp16", False),
        ("cpu", "sgd", "fp32", False),
        ("cpu", "adamw", "fp32", True),
    ],
)
def test_the_optimizer_is_fused_where_it_can_be(brightness, tmp_path, monkeypatch, device, name, precision, fused):
    monkeypatch.setattr(nn.Module, "to", lambda self, *_, **__: self)
    monkeypatch.setattr(setup, "TrainStep", lambda *_, **__: None)
    state, _ = set_up(
        TrainConfig(run=RunSection(device=device, precision=precision), optimizer=OptimizerSection(name=name)),
        SimpleNamespace(device=torch.device(device)),
        plan=PLAN,
        model=brightness(),
        objective=Recognition(classes=4),
        run=RunFolder(tmp_path),
    )
    assert {bool(group["fused"]) for group in state.optimizer.param_groups} == {fused}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_batches_of_a_training_are_page_locked_on_a_gpu_and_nowhere_else(
    noise, brightness, tmp_path, monkeypatch, device
):
    def feed(*_, pin_memory, **__):
        assert pin_memory == (device == "cuda")
        raise InterruptedError

    here = make_accelerator(RunSection(device="cpu"))
    monkeypatch.setattr(trainer, "make_accelerator", lambda *_: SimpleNamespace(device=torch.device(device)))
    monkeypatch.setattr(trainer, "set_up", lambda config, _, **how: set_up(config, here, **how))
    monkeypatch.setattr(trainer, "record_environment", lambda *_, **__: None)
    monkeypatch.setattr(trainer, "MicroBatchSearch", lambda *_, **__: None)
    monkeypatch.setattr(trainer, "BatchFetcher", feed)
    with pytest.raises(InterruptedError):
        fit(
            plan=PLAN,
            model=brightness(),
            dataset=noise,
            objective=Recognition(classes=4),
            config=TrainConfig(
                run=RunSection(device=device, fit="never"),
                loading=LoadingSection(workers=0),
                optimizer=OptimizerSection(),
            ),
            run=RunFolder(tmp_path),
        )


@pytest.mark.parametrize("there", [True, False])
def test_every_tensor_of_a_batch_is_page_locked_where_there_is_a_gpu(noise, tmp_path, monkeypatch, there):
    locked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: False)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: locked.append(self) or self)
    journal = Journal(tmp_path / "bad_samples.jsonl", Totals(), first=0, clips=24, limit=0.1)
    with journal:
        feed = BatchFetcher(
            noise,
            PLAN,
            TrainConfig(loading=LoadingSection(workers=0)),
            start=0,
            journal=journal,
            ranks=SINGLE_PROCESS,
            pin_memory=True,
        )
        batch, _ = feed.take()
        feed.close()
    tensors = [value for value in batch if isinstance(value, torch.Tensor)]
    assert len(tensors) == 4
    assert [id(tensor) for tensor in locked] == [id(tensor) for tensor in tensors] * there


def test_memory_that_workers_fill_is_page_locked_as_a_whole(noise, monkeypatch):
    asked = []
    library = SimpleNamespace(cudaHostRegister=lambda address, size, flags: asked.append(size) or 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: library)
    with pytest.warns(UserWarning, match=r"MiB cannot be pinned \(CUDA error 2\)"):
        batches = iter(loader(noise, PLAN, workers=1, pin_memory=True))
    batches.close()
    assert len(asked) == 1
    assert asked[0] >= 3 * PLAN.baseline_shape.voxels * 2
