"""`vcycle export --format`: a program that runs without vcycle."""

import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from vcycle.errors import CheckpointError
from vcycle.nn.weights.files import Weights
from vcycle.runs.export_program import export_program
from vcycle.tasks.base import tasks
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.saved_weights import Provenance, SavedWeights

pytestmark = pytest.mark.forked

TINY = [
    *("model=r3d_tiny", "model.options.widths=[4, 8, 8]", "training.frames=4", "training.size=16"),
    *("training.warmup=null", "sampling.field=null", "sampling.short_side=[20, 24]", "sampling.mean=[0.4, 0.5, 0.6]"),
]
ALONE = """
import json, sys, numpy, torch
sys.modules["vcycle"] = None
facts = {"vcycle.json": ""}
program = torch.export.load(sys.argv[1], extra_files=facts).module()
clips = torch.from_numpy(numpy.load(sys.argv[2]))
numpy.save(sys.argv[3], program(clips).detach().numpy())
print(facts["vcycle.json"])
"""


def _export(rank, world, saved, file, file_format):
    said = []
    return export_program(saved, file, file_format, said.append), said


@pytest.fixture
def exported(on_ranks):
    """Exports in a process of its own: PyTorch's export starts threads, after which a process cannot be forked."""

    def run(*arguments):
        (found,) = on_ranks(1, _export, *arguments)
        return found

    return run


@pytest.fixture(scope="module")
def trained():
    """A model as a run would hold it, with running statistics of its own."""
    recipe = load_recipe("videos/small", TINY)
    task = tasks[recipe.task]
    model = task.build_model(recipe, 3, download=False)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if "running" in name:
                tensor.uniform_(0.5, 1.5)
        model.train()
        model(torch.randn(8, 3, 4, 16, 16))
    provenance = Provenance(recipe=recipe, plan=task.plan(recipe, 100), classes=("a", "b", "ü"), step=7)
    saved = SavedWeights(weights=Weights(state=model.state_dict(), source="run"), trained=provenance)
    return saved, model.eval()


def test_a_program_runs_by_torch_alone_on_any_batch(trained, exported, tmp_path):
    saved, model = trained
    file = tmp_path / "model.pt2"
    facts, _ = exported(saved, file, "torch-export")
    clips = torch.randn(5, 3, 4, 16, 16)
    np.save(tmp_path / "in.npy", clips.numpy())
    ran = subprocess.run(
        [sys.executable, "-c", ALONE, str(file), str(tmp_path / "in.npy"), str(tmp_path / "out.npy")],
        capture_output=True,
        text=True,
        check=True,
    )
    with torch.no_grad():
        assert np.allclose(np.load(tmp_path / "out.npy"), model(clips).numpy(), atol=1e-5)
    assert json.loads(ran.stdout) == facts
    assert facts["input"] == ["batch", "3", "4", "16", "16"]
    assert (facts["classes"], facts["step"], facts["short_side"]) == (["a", "b", "ü"], 7, 20)
    assert (facts["frames"], facts["size"], facts["mean"]) == (4, 16, [0.4, 0.5, 0.6])


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("onnx", "onnxscript", "onnxruntime"))),
    reason="onnx, onnxscript and onnxruntime are not installed",
)
def test_an_onnx_program_gives_the_same_on_any_batch(trained, exported, tmp_path):
    import onnx
    import onnxruntime

    saved, model = trained
    file = tmp_path / "model.onnx"
    facts, said = exported(saved, file, "onnx")
    assert said == []
    made = onnx.load(file)
    onnx.checker.check_model(made)
    assert {entry.key: json.loads(entry.value) for entry in made.metadata_props if entry.key == "vcycle.json"} == {
        "vcycle.json": facts
    }
    clips = torch.randn(5, 3, 4, 16, 16)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"clips": clips.numpy()})
    with torch.no_grad():
        assert np.allclose(found, model(clips).numpy(), atol=1e-4)


def test_a_program_that_gives_other_outputs_is_not_written(trained, exported, tmp_path, monkeypatch):
    from vcycle.runs import export_program as module

    def wrong(model, example, facts):
        return b"", lambda clips: model(clips) + 1

    monkeypatch.setitem(module.FORMATS, "torch-export", wrong)
    with pytest.raises(CheckpointError, match="output on a batch of 1 differs from the run's"):
        exported(trained[0], tmp_path / "model.pt2", "torch-export")
    assert list(tmp_path.iterdir()) == []


def test_options_of_export_that_contradict_each_other_are_refused(vcycle, tmp_path):
    for options, message in (
        (("--format", "torchscript"), "--format 'torchscript' is unknown: safetensors, torch-export or onnx"),
        (("--format", "onnx", "--out", "a.pt2"), "--out a.pt2: a name that ends in .onnx is accepted"),
        (("--format", "onnx", "--to", "vcycle"), "--to vcycle names tensors of safetensors; --format onnx writes"),
    ):
        ran = vcycle("export", tmp_path, *options)
        assert (ran.code, message in ran.err) == (2, True), ran.err
