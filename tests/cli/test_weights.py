"""Weights in and out of the commands: `init`, `vcycle export`, and what opens again."""

import json
import os
import shutil
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch

import vcycle as package
from vcycle.errors import CheckpointError
from vcycle.plan import Plan
from vcycle.tasks.loaded_model import load_model
from vcycle.tasks.recipes import dump_recipe, load_recipe
from vcycle.tasks.saved_weights import read_saved
from vcycle.train.checkpoint import load_checkpoint

pytestmark = pytest.mark.usefixtures("few_turns")

SHORT = ["plan=constant", "training.steps=2", "training.decay=constant"]


def refused(ran, *parts):
    """The command ended with one line of error that has all the parts, and made nothing."""
    assert ran.code == 2
    assert ran.out == ""
    said = ran.err.splitlines()[-1]
    assert said.startswith("error: ")
    assert ran.err.count("error: ") == 1
    for part in parts:
        assert part in said


@pytest.fixture
def exported(vcycle, trained, here):
    """A run's weights as a file of their own."""
    assert vcycle("export", trained[0], "--out", "model.safetensors").code == 0
    return here / "model.safetensors"


def logits(opened):
    """What a model makes of clips of noise."""
    clips = torch.rand(2, 3, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return opened.model(clips)


# Out --------------------------------------------------------------------------------------------------------


def test_an_export_holds_weights_recipe_plan_classes_and_evaluation(vcycle, trained, here):
    run, printed = trained
    told = json.loads(vcycle("export", run, "-o", "new/folder/x.safetensors", "--json").out)
    assert told["step"] == 6
    assert (told["file"], told["format"]) == ("new/folder/x.safetensors", "safetensors")
    with safetensors.safe_open("new/folder/x.safetensors", framework="pt") as file:
        metadata, names = file.metadata(), set(file.keys())
    assert len(names) == told["tensors"]
    assert "stem.0.1.running_mean" in names
    assert metadata["format"] == "pt"
    assert metadata["vcycle.version"] == package.__version__
    assert metadata["vcycle.recipe"] == (run / "recipe.yaml").read_text()
    assert Plan.from_json(metadata["vcycle.plan"]) == Plan.from_json((run / "plan.json").read_text())
    assert json.loads(metadata["vcycle.classes"]) == ["left", "right"]
    assert metadata["vcycle.step"] == "6"
    assert json.loads(metadata["vcycle.evaluation"])["protocol"] == printed["val"]["protocol"]
    assert sorted(file.name for file in (here / "new/folder").iterdir()) == ["x.safetensors"]


def test_an_export_lies_in_the_runs_folder_unless_told_otherwise(vcycle, trained, here):
    run = shutil.copytree(trained[0], here / "run")
    ran = vcycle("export", "run")
    assert ran.out.startswith("run/model.safetensors: ")
    assert ran.out.endswith("tensors after step 6, with the recipe, the plan and the names of the classes\n")
    assert (run / "model.safetensors").is_file()


def test_each_of_a_runs_checkpoints_is_taken_by_its_name(vcycle, trained, here, videos, monkeypatch):
    run = shutil.copytree(trained[0], here / "run")
    ran = vcycle("export", "run/checkpoints/step-000000004.pt")
    assert ran.out.startswith(f"{run}/step-000000004.safetensors: ")
    assert load_model(run / "step-000000004.safetensors").step == 4
    for file in ("step-000000004.pt", "best.pt"):
        shown = json.loads(vcycle("eval", f"run/checkpoints/{file}", "--json").out)
        assert shown["weights"] == f"run/checkpoints/{file}"
        assert shown["file"] == str(run / f"eval-val-1x1.{Path(file).stem}.json")
    assert vcycle("predict", "run/checkpoints/best.pt", videos / "val/left/0.mp4").code == 0
    assert vcycle("train", "tiny.yaml", f"data={videos}", "init=run/checkpoints/best.pt", "--out", "more").code == 0
    (here / "link.pt").symlink_to(run / "checkpoints/best.pt")
    assert json.loads(vcycle("eval", "link.pt", "--json").out)["step"] == shown["step"]
    monkeypatch.chdir(run / "checkpoints")
    assert json.loads(vcycle("eval", "best.pt", "--json").out)["step"] == shown["step"]


def test_the_weights_themselves_are_taken_past_their_average(vcycle, here, videos):
    assert vcycle("train", "tiny.yaml", f"data={videos}", "training.ema=0.9", "--out", "run").code == 0
    checkpoint = load_checkpoint(here / "run/checkpoints/step-000000006.pt")
    for raw, state in (([], checkpoint.averaged), (["--raw"], checkpoint.model)):
        assert vcycle("export", "run", *raw, "-o", "x.safetensors").code == 0
        written = safetensors.torch.load_file("x.safetensors")
        assert all(torch.equal(value, written[key]) for key, value in state.items())
    averaged, raw = (json.loads(vcycle("eval", "run", *flag, "--json").out) for flag in ([], ["--raw"]))
    assert averaged["loss"] != raw["loss"]
    assert raw["weights"] == "run/checkpoints/step-000000006.pt, raw"
    assert (averaged["file"], raw["file"]) == ("run/eval-val-1x1.json", "run/eval-val-1x1.raw.json")
    best = load_checkpoint(here / "run/checkpoints/best.pt")
    assert best.step != 6 or all(torch.equal(value, best.weights[key]) for key, value in checkpoint.averaged.items())
    refused(vcycle("eval", "x.safetensors", "--raw"), "x.safetensors is not of a run with training.ema")
    refused(vcycle("eval", "tiny.yaml", "--raw"), "--raw needs a run: tiny.yaml is a recipe")


@pytest.mark.parametrize("naming", ["vcycle", "pyslowfast", "pytorchvideo"])
def test_what_was_exported_opens_as_what_the_run_holds(vcycle, trained, here, naming):
    assert vcycle("export", trained[0], "-o", "x.safetensors", "--to", naming).code == 0
    run, file = load_model(trained[0]), load_model(here / "x.safetensors")
    assert torch.equal(logits(run), logits(file))
    assert (file.recipe, file.classes, file.step) == (run.recipe, ("left", "right"), 6)
    assert file.origin == str(here / "x.safetensors")
    assert run.origin == str(trained[0] / "checkpoints" / "step-000000006.pt")
    names = set(safetensors.torch.load_file("x.safetensors"))
    first = {"vcycle": "stem.0.0", "pyslowfast": "s1.pathway0_stem.conv", "pytorchvideo": "blocks.0.conv"}[naming]
    assert f"{first}.weight" in names


def test_opening_a_model_downloads_nothing(monkeypatch, trained, tmp_path):
    pytest.importorskip("torchvision")
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", None)
    run = shutil.copytree(trained[0], tmp_path / "run")
    recipe = load_recipe(str(run), ["model=r3d_18", "model.options.weights=KINETICS400_V1"])
    (run / "recipe.yaml").write_text(dump_recipe(recipe))
    with pytest.raises(CheckpointError, match="do not fit r3d_18: "):
        load_model(run)


def test_a_damaged_newest_checkpoint_is_passed_over_and_told(vcycle, trained, here):
    run = shutil.copytree(trained[0], here / "run")
    (run / "checkpoints/step-000000006.pt").write_bytes(b"PK\x03\x04")
    ran = vcycle("export", "run", "--json")
    assert "skipped: checkpoint run/checkpoints/step-000000006.pt cannot be read" in ran.err
    assert json.loads(ran.out)["step"] == 4


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["nowhere"], ["nowhere is not the folder of a run"]),
        (["videos"], ["videos is not the folder of a run: it has no recipe.yaml"]),
        (
            ["run/checkpoints"],
            ["run/checkpoints is not the folder of a run: it has no recipe.yaml (did you mean run?)"],
        ),
        (["run/checkpoints/step-000000009.pt"], ["step-000000009.pt cannot be read: [Errno 2] No such file"]),
        (
            ["run", "--raw"],
            ["has no separate raw weights: only numbered checkpoints"],
        ),
        (["run", "--to", "onnx"], ["--to 'onnx' is unknown: vcycle, pyslowfast, pytorchvideo, basicsr or mmagic"]),
        (["run", "-o", "x.pth"], ["--out x.pth: a name that ends in .safetensors is accepted"]),
        (["run", "-o", "tiny.yaml/x.safetensors"], ["tiny.yaml/x.safetensors cannot be written: File exists"]),
        (["old"], ["has no classes.json"]),
        (["new"], ["new has no checkpoint yet"]),
    ],
)
def test_what_cannot_be_exported(vcycle, trained, here, arguments, parts):
    for name in ("run", "old", "new"):
        shutil.copytree(trained[0], here / name)
    (here / "videos").mkdir()
    (here / "old/classes.json").unlink()
    shutil.rmtree(here / "new/checkpoints")
    before = sorted(here.rglob("*"))
    refused(vcycle("export", *arguments), *parts)
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("content", ["{}", "[]", "[1]", "[", "null"])
def test_classes_that_cannot_be_read(vcycle, trained, here, content):
    run = shutil.copytree(trained[0], here / "run")
    (run / "classes.json").write_text(content)
    refused(vcycle("export", "run"), "run/classes.json")


def test_a_full_disk_leaves_the_export_before_as_it_was(vcycle, trained, here):
    resource = pytest.importorskip("resource")
    assert vcycle("export", trained[0], "-o", "x.safetensors").code == 0
    before = (here / "x.safetensors").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        ran = vcycle("export", trained[0], "-o", "x.safetensors")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    refused(ran, "x.safetensors cannot be written: File too large")
    assert (here / "x.safetensors").read_bytes() == before
    assert sorted(file.name for file in here.iterdir()) == ["tiny.yaml", "x.safetensors"]


# In ---------------------------------------------------------------------------------------------------------


def test_a_training_begins_with_the_weights_that_it_is_given(vcycle, here, videos, trained, exported):
    sources = [trained[0], exported, trained[0] / "checkpoints/step-000000006.pt"]
    for number, source in enumerate(sources):
        ran = vcycle("train", "tiny.yaml", f"data={videos}", f"init={source}", *SHORT, "--out", f"run{number}")
        assert ran.code == 0, ran.err
        assert (
            f"init: {len(read_saved(source).weights.state)} tensors from {read_saved(source).weights.source}" in ran.err
        )
    begun = read_saved(trained[0]).weights.state
    outcomes = [read_saved(here / f"run{number}").weights.state for number in range(3)]
    first = torch.load(here / "run0/checkpoints/step-000000000.pt", weights_only=True)["model"]
    assert all(torch.equal(value, begun[key]) for key, value in first.items())
    assert all(torch.equal(value, other[key]) for other in outcomes for key, value in outcomes[0].items())
    assert load_recipe("run0").init.path == str(trained[0])


def test_a_new_classifier_is_drawn_by_the_seed(vcycle, here, videos, exported):
    options = [f"data={videos}", "init=model.safetensors", "init.head=new", *SHORT]
    for number in range(2):
        ran = vcycle("train", "tiny.yaml", *options, "--out", f"run{number}")
        assert "; newly initialised: head" in ran.err
    first, second = (
        torch.load(here / f"run{number}/checkpoints/step-000000000.pt", weights_only=True)["model"] for number in (0, 1)
    )
    begun = safetensors.torch.load_file(exported)
    for key, value in first.items():
        assert torch.equal(value, second[key])
        assert torch.equal(value, begun[key]) is not key.startswith("head.")


def test_a_resume_does_not_ask_for_the_first_weights_again(vcycle, here, videos, exported):
    options = [f"data={videos}", "init=model.safetensors", *SHORT, "run.save_every=1"]
    whole = json.loads(vcycle("train", "tiny.yaml", *options, "--out", "whole", "--json").out)
    shutil.copytree("whole", "cut")
    os.unlink("cut/checkpoints/step-000000002.pt")
    exported.unlink()
    ran = vcycle("train", "cut", "--resume", "--json")
    assert ran.code == 0, ran.err
    assert "init:" not in ran.err
    assert json.loads(ran.out)["val"] == whole["val"]


def test_a_comparison_begins_each_training_with_them(vcycle, here, videos, exported):
    options = [f"data={videos}", "init=model.safetensors", "plan=constant", "seeds=2", "training.steps=2"]
    options += ["training.decay=constant"]
    ran = vcycle("compare", "tiny.yaml", *options, "--out", "study")
    assert ran.code == 0, ran.err
    begun = safetensors.torch.load_file(exported)
    runs = sorted((here / "study/runs").iterdir())
    assert len(runs) == 2
    for run in runs:
        first = torch.load(run / "checkpoints/step-000000000.pt", weights_only=True)["model"]
        assert all(torch.equal(value, begun[key]) for key, value in first.items())
    refused(
        vcycle("compare", "tiny.yaml", *options, "init=nowhere", "--out", "other"),
        "nowhere cannot be read: No such file",
    )


def test_other_colors_are_told(vcycle, here, videos, exported):
    ran = vcycle(
        "train",
        "tiny.yaml",
        f"data={videos}",
        "init=model.safetensors",
        "sampling.mean=[0, 0, 0]",
        *SHORT,
        "--out",
        "run",
    )
    assert ran.code == 0
    assert "they were trained with sampling.mean=[0.45, 0.45, 0.45], this is [0.0, 0.0, 0.0]" in ran.err


def test_other_strides_and_poolings_than_the_runs_are_refused_or_with_a_new_classifier_told(
    vcycle, here, videos, exported, trained
):
    options = [f"data={videos}", *SHORT, "model.options.temporal_strides=[1, 2, 1]", "model.options.temporal_pool=2"]
    for source in (exported, trained[0]):
        ran = vcycle("train", "tiny.yaml", *options, f"init={source}", "--out", "run")
        refused(ran, "temporal_strides [1, 1, 1], the model has [1, 2, 1]", "temporal_pool 1, the model has 2")
    ran = vcycle("train", "tiny.yaml", *options, f"init={exported}", "init.head=new", "--out", "run")
    assert ran.code == 0, ran.err
    assert "temporal_strides [1, 1, 1], the model has [1, 2, 1]" in ran.err


def test_null_takes_the_first_weights_back(here):
    assert load_recipe("tiny.yaml", ["init=a.pth", "init=null"]).init.path is None
    assert load_recipe("tiny.yaml", ["init={path: a.pth, head: new}"]).init.head == "new"


@pytest.mark.parametrize(
    ("init", "parts"),
    [
        ("nowhere.pth", ["nowhere.pth cannot be read: No such file or directory"]),
        ("folder", ["folder is not the folder of a run: it has no recipe.yaml"]),
        ("page.pth", ["page.pth: this is a web page, not weights"]),
        ("empty.pth", ["empty.pth: the file is empty"]),
        ("cut.safetensors", ["cut.safetensors: the file is cut short or damaged"]),
        ("tiny.yaml", ["tiny.yaml: this is text, not weights: 'description: Tiny'"]),
        ("narrow.safetensors", ["do not fit r3d_tiny: ", "shapes differ (stem.0.0.weight is 4×3×3×3×3"]),
        ("classes.safetensors", ["class 1 of their classifier is 'up', but 'right' in the videos: init.head=new"]),
        ("three.safetensors", ["their classifier has 3 classes, the data has 2: init.head=new"]),
        ("future.safetensors", ["unknown key 'futuristic'"]),
        ("other.safetensors", ["was exported by another version of vcycle"]),
    ],
)
def test_first_weights_that_do_not_fit_are_refused_before_anything_is_made(vcycle, here, videos, exported, init, parts):
    (here / "folder").mkdir()
    (here / "page.pth").write_text("<!DOCTYPE html><title>Sign in</title>")
    (here / "empty.pth").write_bytes(b"")
    (here / "cut.safetensors").write_bytes(exported.read_bytes()[:-100])
    with safetensors.safe_open(exported, framework="pt") as file:
        state, said = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    changed = {
        "classes": (state, {"vcycle.classes": '["left", "up"]'}),
        "three": (state | {"head.projection.weight": torch.ones(3, 8), "head.projection.bias": torch.ones(3)}, {}),
        "future": (state, {"vcycle.recipe": said["vcycle.recipe"] + "futuristic: 1\n"}),
        "other": (state, {"vcycle.plan": "{}"}),
    }
    for name, (tensors, more) in changed.items():
        safetensors.torch.save_file(tensors, here / f"{name}.safetensors", said | more)
    shutil.copy(exported, "narrow.safetensors")
    changes = ["model.options.widths=[6, 8, 8]"] if init.startswith("narrow") else []
    ran = vcycle("train", "tiny.yaml", f"data={videos}", f"init={init}", *changes, "--out", "run")
    refused(ran, *parts)
    assert not (here / "run").exists()


def test_weights_alone_can_be_trained_from_and_not_opened(vcycle, here, videos, exported):
    safetensors.torch.save_file(safetensors.torch.load_file(exported), here / "bare.safetensors")
    assert vcycle("train", "tiny.yaml", f"data={videos}", "init=bare.safetensors", *SHORT, "--out", "run").code == 0
    with pytest.raises(CheckpointError, match=r"bare.safetensors holds weights without a recipe"):
        load_model(here / "bare.safetensors")
