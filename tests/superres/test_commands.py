"""The commands on a recipe of super-resolution, as a user gives them."""

import contextlib
import io
import json
import re
import shutil
from types import SimpleNamespace

import pytest
import safetensors
import safetensors.torch
import torch

from vcycle.cli.app import app
from vcycle.console import process
from vcycle.data.pictures import read_picture
from vcycle.data.video import probe, read_frames
from vcycle.errors import VcycleError
from vcycle.tasks.loaded_model import load, load_model
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.superres import Degradation
from vcycle.tasks.superres.init_weights import build_model, initialise
from vcycle.tasks.superres.weights.keys import foreign_keys

QUICK = ("model.options.flow=none", "training.flow=null")


@pytest.fixture(scope="session")
def once(clips, recipe, tmp_path_factory):
    """A finished run, and what the command printed."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(recipe, encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = process.run(
            app, ["train", str(folder / "tiny.yaml"), f"data={clips}", *QUICK, "--out", str(folder / "run")]
        )
    assert code == 0, err.getvalue()
    return folder / "run", SimpleNamespace(out=out.getvalue(), err=err.getvalue())


@pytest.fixture
def trained(once, here):
    """A finished run in ./run: what the command printed."""
    folder, printed = once
    shutil.copytree(folder, here / "run")
    return printed


def test_plan_shows_stages_in_low_resolution_pixels_without_clips(vcycle):
    ran = vcycle("plan", "reds/basicvsr_m", "--json")
    assert ran.code == 0, ran.err
    data = json.loads(ran.out)
    assert (data["plan"], data["steps"], data["samples"]) == ("hierarchical", 75_000, 4_800_000)
    assert [(stage["frames"], stage["size"]) for stage in data["stages"]] == [
        *((7, 32), (11, 32), (15, 32)),
        *((7, 64), (11, 64), (15, 64)),
    ]


def test_train_then_resume_then_eval(vcycle, here, clips, trained):
    lines = trained.out.splitlines()
    assert lines[-2].startswith("PSNR ")
    assert lines[-2].endswith(" on 2 val clips (10 frames; RGB, all frames, whole clips), low resolution bicubic ×4")
    assert "8 steps, 16 samples (0 replaced)" in lines[-1]
    assert "epoch 3.2 of 3.2, step 8: PSNR " in trained.err
    ran = vcycle("train", "run", "--resume", "--json")
    assert ran.code == 0, ran.err
    assert "resuming at step 8 of 8" in ran.err
    assert json.loads(ran.out)["val"]["protocol"] == "RGB, all frames, whole clips"
    ran = vcycle("eval", "run", "--split", "test", "evaluation.channels=y", "evaluation.chunk=2", "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    written = json.loads((here / "run" / "eval-test.json").read_text())
    assert [clip["clip"] for clip in written["clips"]] == ["test0", "test1", "test2"]
    assert (told["samples"], told["frames"], told["step"]) == (3, 15, 8)
    assert told["protocol"] == "Y channel, all frames, chunks of 2 + 2 × 4 frames"
    assert told["psnr"] == written["psnr"] == pytest.approx(sum(clip["psnr"] for clip in written["clips"]) / 3)


def test_bicubic_stands_beside_every_psnr_and_a_network_below_it_is_warned_of(vcycle, here, clips, trained):
    beside = r"PSNR \d+\.\d\d dB \(bicubic (\d+\.\d\d) dB\)"
    (final,) = re.findall(rf"(?m)^{beside}, SSIM .* on 2 val clips", trained.out)
    validations = re.findall(rf"epoch .* of 3\.2, step \d+: {beside} on validation", trained.err)
    assert validations
    assert set(validations) == {final}
    warning = r"warning: the model is \d+\.\d\d dB below bicubic interpolation \(\d+\.\d\d against " + re.escape(final)
    assert len(re.findall(warning, trained.err)) == 1  # eight steps are too few

    logged = [json.loads(line) for line in (here / "run" / "log.jsonl").read_text().splitlines()]
    stored = {line["evaluation"]["bicubic_psnr"] for line in logged if line["event"] == "validation"}
    assert {f"{value:.2f}" for value in stored} == {final}
    assert len(stored) == 1

    ran = vcycle("eval", "run")
    assert ran.code == 0, ran.err
    written = json.loads((here / "run" / "eval-val.json").read_text())
    assert written["bicubic_psnr"] == pytest.approx(sum(clip["bicubic_psnr"] for clip in written["clips"]) / 2)
    assert re.search(beside, ran.out)[1] == f"{written['bicubic_psnr']:.2f}" == final
    assert re.search(warning, ran.err)
    assert vcycle("report", "run").code == 0
    assert vcycle("report", "run", "--markdown").out.count(f"dB (bicubic {final} dB)") == 2  # validation, evaluation


def nearest(frames):
    return frames[:, ::4, ::4]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Degradation().whole, "bicubic ×4 (given files that match it)"),
        (Degradation(kind="bd").whole, "bd ×4 (given files that match it)"),
        (nearest, "given files, made by neither bicubic nor bd ×4 (PSNR "),
    ],
    ids=["bicubic", "blurred", "another kernel"],
)
def test_eval_says_what_the_low_resolution_files_are(vcycle, here, clips, trained, write_png, make, said):
    for path in clips.rglob("*.png"):
        low = make(torch.from_numpy(read_picture(path))[None])[0]
        write_png(here / "low" / path.relative_to(clips), low.numpy())
    ran = vcycle("eval", "run", f"data.low={here / 'low'}")
    assert ran.code == 0, ran.err
    assert f", low resolution {said}" in ran.out
    assert json.loads((here / "run" / "eval-val.json").read_text())["low_resolution"].startswith(said)


def test_how_far_a_validation_or_an_evaluation_is_is_shown(vcycle, here, clips, monkeypatch):
    monkeypatch.setattr("vcycle.console.progress._LINE_EVERY", 0)
    ran = vcycle("train", "tiny.yaml", f"data={clips}", *QUICK, "training.steps=8", "--out", "run")
    assert ran.code == 0, ran.err
    assert "\nrestoring frames: 0 of 10\nrestoring frames: 5 of 10, about " in ran.err
    assert vcycle("eval", "run").err.startswith("restoring frames: 0 of 10\nrestoring frames: 5 of 10, about ")


def test_a_run_restores_a_video(vcycle, here, trained):
    import av
    import numpy as np

    with av.open("small.mp4", "w") as container:
        stream = container.add_stream("libx264", rate=12)
        stream.height, stream.width, stream.pix_fmt = 16, 24, "yuv420p"
        for number in range(3):
            picture = np.full((16, 24, 3), 60 * number, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    assert vcycle("export", "run").code == 0
    for model in ("run", "run/model.safetensors"):
        ran = vcycle("upscale", model, "small.mp4", "--out", "large.mp4")
        assert ran.code == 0, ran.err
        assert ran.err.splitlines()[0] == f"{model}: basicvsr_m after step 8"
        assert ran.out == "large.mp4: 3 frames of 96 × 64\n"
    loaded = load("run", device="cpu")
    assert loaded.upscale("small.mp4", "again.mp4", frame_rate=None) is None
    assert (here / "again.mp4").read_bytes() == (here / "large.mp4").read_bytes()
    small, large = (read_frames(probe(name), [0, 1, 2]).pixels for name in ("small.mp4", "large.mp4"))
    restored = loaded.upscale(small)
    assert (restored.dtype, restored.shape) == (torch.uint8, large.shape)
    assert np.abs(restored.numpy().astype(int) - large).mean() < 4  # H.264 at CRF 17
    with pytest.raises(VcycleError, match=r"small\.mp4: give out=FILE\.mp4"):
        loaded.upscale("small.mp4")
    with pytest.raises(VcycleError, match="a superresolution model predicts no classes"):
        loaded.predict("small.mp4")


def test_what_was_exported_opens_as_what_the_run_holds_whosever_names_it_has(vcycle, here, trained):
    run = load_model(here / "run")
    for naming, last in (("vcycle", "head.last"), ("basicsr", "conv_last"), ("mmagic", "conv_last")):
        ran = vcycle("export", "run", "-o", "moved/x.safetensors", "--to", naming)
        assert ran.code == 0, ran.err
        assert ran.out.endswith("tensors after step 8, with the recipe and the plan\n")
        assert f"{last}.weight" in safetensors.torch.load_file("moved/x.safetensors")
        file = load_model(here / "moved" / "x.safetensors")
        assert (file.recipe, file.step, file.origin) == (run.recipe, 8, str(here / "moved" / "x.safetensors"))
        assert all(torch.equal(value, file.model.state_dict()[key]) for key, value in run.model.state_dict().items())
    ran = vcycle("export", "run", "--to", "pytorchvideo")
    assert ran.err.endswith("have no name in pytorchvideo; accepted: vcycle\n")


def test_an_exported_file_is_measured_and_trained_from(vcycle, here, clips, trained):
    assert vcycle("export", "run", "-o", "moved/x.safetensors").code == 0
    ran = vcycle("eval", "moved/x.safetensors", f"data={clips}", "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found == json.loads(ran.out) | {"file": "moved/eval-val.json", "step": 8}
    assert f"PSNR {found['psnr']:.2f} dB" in trained.out
    assert (here / "moved" / "eval-val.json").is_file()
    for file in ("moved/x.safetensors", "run/checkpoints/step-000000008.pt"):
        recipe, said = load_recipe("tiny.yaml", [*QUICK, f"init={file}"]), []
        started = build_model(recipe)
        initialise(started, recipe, said.append)
        assert f"tensors of the network from {file}" in said[0]
        assert torch.equal(started.head.last.weight, load_model(here / "run").model.head.last.weight)
    ran = vcycle("predict", "moved/x.safetensors", "x.mp4")
    assert ran.err == (
        "error: moved/x.safetensors is a superresolution model, but this command needs recognition or images: use "
        "`vcycle upscale`, `vcycle eval`\n"
    )


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [(lambda value: value * torch.nan, "holds numbers that are not finite"), (torch.Tensor.long, "is int64; accepted")],
)
def test_an_exported_file_of_no_numbers_to_compute_with_is_refused(vcycle, here, clips, trained, spoilt, said):
    assert vcycle("export", "run", "-o", "x.safetensors").code == 0
    with safetensors.safe_open("x.safetensors", framework="pt") as file:
        metadata = file.metadata()
    state = safetensors.torch.load_file("x.safetensors")
    state["head.last.bias"] = spoilt(state["head.last.bias"])
    safetensors.torch.save_file(state, "bad.safetensors", metadata)
    ran = vcycle("eval", "bad.safetensors", f"data={clips}")
    assert (ran.code, ran.out) == (2, "")
    assert f"weights bad.safetensors: head.last.bias {said}" in ran.err


def test_published_weights_are_measured_by_a_recipe(vcycle, here, clips):
    recipe = load_recipe("tiny.yaml", ["model.options.flow=none", "run.seed=5"])
    state = build_model(recipe).state_dict()
    theirs = foreign_keys(state, "basicsr")
    torch.save({"params": {theirs[key]: value for key, value in state.items()}}, "basicvsr.pth")
    ran = vcycle("eval", "tiny.yaml", f"data={clips}", *QUICK, "init=basicvsr.pth", "--split", "test")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("PSNR ")
    assert ran.out.endswith(", whole clips), low resolution bicubic ×4, weights " + f"{here / 'basicvsr.pth'}\n")
    assert (here / "runs" / "tiny-init" / "eval-test.json").is_file()
    ran = vcycle("eval", "tiny.yaml", f"data={clips}", *QUICK)
    assert ran.err.startswith("error: the model of a recipe is untrained: give a run folder, ")


def test_a_flow_network_alone_cannot_be_measured(vcycle, here, clips):
    flow = build_model(load_recipe("tiny.yaml", ["run.seed=5"])).flow.state_dict()
    torch.save(flow, "flow.pth")
    ran = vcycle("eval", "tiny.yaml", f"data={clips}", "init=flow.pth")
    assert ran.err.endswith("flow.pth do not cover the whole model basicvsr_m\n")


def test_the_result_does_not_depend_on_the_ranks_even_if_they_are_more_than_the_clips(
    vcycle, vcycle_on, here, clips, trained
):
    (here / "one").mkdir()
    (here / "one" / "clip").symlink_to(clips / "val" / "val0")
    ran = vcycle("eval", "run", "data.val=one", "--json", "--out", "alone")
    assert ran.code == 0, ran.err
    ended, _ = vcycle_on(2, "eval", "run", "data.val=one", "--json", "--out", "shared")
    assert ended.code == 0, ended.err
    keys = ("psnr", "ssim", "samples", "frames")
    alone, shared = json.loads(ran.out), json.loads(ended.out)
    assert [shared[key] for key in keys] == [alone[key] for key in keys]
    assert json.loads((here / "shared" / "eval-val.json").read_text())["clips"][0]["clip"] == "clip"


def test_a_resume_by_another_recipe_or_on_other_clips_is_refused(vcycle, here, clips, trained):
    ran = vcycle("train", "run", "--resume", "training.lr=1")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(
        "error: run was started with training.lr 0.002, not 1.0: resume with the run's own recipe"
    )
    ran = vcycle("train", "run", "--resume", f"data.path={clips}", f"data.val={clips / 'test'}")
    assert ran.code == 2
    assert "was started with other val data than data.path " in ran.err
    ran = vcycle("eval", "run", "training.lr=1")
    assert ran.code == 2
    assert "the model in run is already trained; only keys of evaluation, data and run can be changed" in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "reds/basicvsr_m", "data=nowhere"), "error: nowhere"),
        (
            ("train", "tiny.yaml", "data=CLIPS", "init.needed=true"),
            "error: training.flow.frozen_steps=3 freezes a flow",
        ),
        (("train", "tiny.yaml", "data=CLIPS", "training.frames=9"), "train0 has 5 frames of 96 × 80, but training.fra"),
        (("plan", "reds/edvr_m", "training.frames=7"), "takes a window of 5"),
        (
            ("predict", "run", "x.mp4"),
            "error: run is a superresolution model, but this command needs recognition or images: use `vcycle upscale`",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(vcycle, here, clips, arguments, said):
    (here / "run").mkdir()
    (here / "run" / "recipe.yaml").write_text((here / "tiny.yaml").read_text())
    ran = vcycle(*(argument.replace("CLIPS", str(clips)) for argument in arguments))
    assert ran.code == 2
    assert ran.err.splitlines()[-1].startswith("error: ")
    assert said.replace("nowhere", str(here / "nowhere")) in ran.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--views", "10x3"], "--views goes with task recognition"),
        (["--figure", "x.png"], "--figure: this evaluation has no figure"),
    ],
)
def test_what_goes_with_another_task_is_refused_before_anything_is_restored(vcycle, here, trained, options, said):
    ran = vcycle("eval", "run", *options)
    assert (ran.code, ran.out, ran.err) == (2, "", f"error: {said}\n")


def test_a_run_that_has_not_been_trained_cannot_be_measured(vcycle, here, clips):
    (here / "run").mkdir()
    (here / "run" / "recipe.yaml").write_text((here / "tiny.yaml").read_text())
    ran = vcycle("eval", "run", f"data={clips}")
    assert (ran.code, ran.err) == (2, "error: run has no checkpoint yet\n")


OWN = """
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    window = None
    needs = {"size_multiple": 8}

    def __init__(self, width=4):
        super().__init__()
        self.body = nn.Conv2d(3, width, 3, padding=1)
        self.last = nn.Conv2d(width, 48, 3, padding=1)

    def outputs(self, frames):
        return range(frames)

    def forward(self, video, *, mirrored=False):
        details = F.pixel_shuffle(self.last(self.body(video.flatten(0, 1)).relu()), 4)
        return details.unflatten(0, video.shape[:2]).float()
"""


def test_a_network_of_ones_own_trains_evaluates_exports_and_initialises(here, clips, vcycle, own_models):
    (here / "own_sr.py").write_text(OWN)
    own = [
        f"data={clips}",
        "model=own_sr:Net",
        "model.options.width=3",
        *(key for key in QUICK if "options" not in key),
    ]
    trained = vcycle("train", "tiny.yaml", *own, "--out", "own")
    assert trained.code == 0, trained.err
    evaluated = vcycle("eval", "own")
    assert evaluated.code == 0, evaluated.err
    exported = vcycle("export", "own", "--out", "own.safetensors")
    assert exported.code == 0, exported.err
    again = vcycle("train", "tiny.yaml", *own, "init=own.safetensors", "--out", "again")
    assert again.code == 0, again.err
    assert "init: 4 tensors of the network from " in again.err
    refused = vcycle("plan", "tiny.yaml", *own, "plans.spatial.sizes=[12,16]")
    assert refused.code == 2
    assert "12 pixels, the model needs a multiple of 8" in refused.err
    flow = vcycle("plan", "tiny.yaml", *own, "training.flow={frozen_steps: 3}")
    assert flow.code == 2
    assert "training.flow is set, but model own_sr:Net has no flow network" in flow.err
