"""`vcycle export --format`: a program that runs without vcycle."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch

import vcycle
from vcycle.errors import CheckpointError
from vcycle.nn.weights.files import Weights
from vcycle.runs.export import export
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
    assert (facts["antialias"], facts["short"], facts["scores"]) == (True, "hold", "softmax")


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


PAGE = Path(__file__).parents[2] / "docs" / "evaluating.md"
VIDEO = "videos/test/2-left/0000.mp4"
PREPROCESSING = {
    "antialiased": ("sampling.antialias=true", "sampling.short_side=null", "sampling.field=[0.75, 0.9]"),
    "strided": (
        "sampling.antialias=false",
        "sampling.short_side=[21, 24]",
        "sampling.span=null",
        "sampling.stride=2.5",
    ),
    "larger": (
        *("sampling.antialias=true", "sampling.span=null", "sampling.stride=3", "sampling.fps=20"),
        *("evaluation.size=21", "evaluation.short_side=24", "training.multi_label=true"),
    ),
}
"""Changes to `TINY`. Each leaves an odd number of pixels beside the crop along a side."""


def _write_textured_video(file):
    """Ten different pictures of coarse and fine texture, shown for unequal times."""
    draws = np.random.default_rng(0)
    file.parent.mkdir(parents=True)
    with av.open(str(file), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"qp": "10"})
        stream.height, stream.width, stream.pix_fmt = 38, 54, "yuv420p"
        stream.codec_context.time_base = Fraction(1, 1000)
        for time in (0, 40, 80, 120, 160, 230, 270, 330, 370, 410):
            coarse = np.kron(draws.integers(0, 190, (4, 6, 3)), np.ones((10, 9, 1), dtype=int))[:38]
            pixels = (coarse + draws.integers(0, 66, (38, 54, 3))).astype(np.uint8)
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def _scores_of_the_page(rank, world, saved, folder):
    """Exports each model, and runs the example of the page on it: its variable `scores`."""
    (example,) = (
        found
        for found in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        if "torch.export.load" in found
    )
    os.chdir(folder)
    found = []
    for one in saved:
        export_program(one, Path("model.pt2"), "torch-export")
        names = {}
        exec(compile(example, str(PAGE), "exec"), names)
        found.append(names["scores"].numpy())
    return found


@pytest.mark.filterwarnings("ignore:.*videos shorter than a clip")  # the last frame is repeated in both
def test_the_example_of_the_page_gives_the_scores_of_predict(trained, on_ranks, tmp_path):
    torch.manual_seed(2)
    recipe = trained[0].trained.recipe
    state = tasks[recipe.task].build_model(recipe, 3, download=False).state_dict()
    state["head.projection.weight"].normal_(0, 3.0)  # rounding of the pixels changes the scores
    _write_textured_video(tmp_path / VIDEO)
    saved, expected = [], []
    for changes in PREPROCESSING.values():
        recipe = load_recipe("videos/small", [*TINY, "data.workers=0", "run.device=cpu", *changes])
        plan = tasks[recipe.task].plan(recipe, 100)
        provenance = Provenance(recipe=recipe, plan=plan, classes=("a", "b", "ü"), step=7)
        saved.append(SavedWeights(weights=Weights(state=state, source="run"), trained=provenance))
        file = tmp_path / "model.safetensors"
        export(saved[-1], file, reload=False)
        expected.append(vcycle.load(file, device="cpu").predict(tmp_path / VIDEO, views=(1, 1)).scores.numpy())
    (found,) = on_ranks(1, _scores_of_the_page, saved, tmp_path)
    for name, ours, theirs in zip(PREPROCESSING, found, expected, strict=True):
        assert np.abs(ours - theirs).max() < 1e-5, (name, ours, theirs)


def test_the_facts_of_an_image_model_have_no_time_axis():
    recipe = load_recipe("images/small", ["sampling.field=[0.5, 0.8]", "training.size=64"])
    facts = tasks["images"].input_facts(recipe)
    assert facts["layout"].startswith("BCHW, RGB")
    assert (facts["size"], facts["short_side"], facts["antialias"]) == (64, 80.0, True)
    assert "short" not in facts


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
