"""Images, the task: clips of one frame, through every command."""

import json
import math
import re
import shutil
from fractions import Fraction

import av
import numpy as np
import pytest
import torch

from vcycle.data import SampleRequest
from vcycle.data.pictures import encode_png, picture_size
from vcycle.errors import RecipeError
from vcycle.nn import drop_tokens, require_token_dropping
from vcycle.plan import Shape, ShapeConstraints
from vcycle.tasks.base import tasks
from vcycle.tasks.images.models import MODELS
from vcycle.tasks.recipes import load_recipe

pytestmark = pytest.mark.usefixtures("few_turns")

IMAGES = tasks["images"]
COLORS = {"blue": (40, 60, 200), "green": (50, 180, 60), "red": (210, 50, 40)}
RECIPE = """
task: images
sampling: {field: [0.8, 1.0]}
model: {name: resnet_tiny, options: {widths: [8, 16], dropout: 0.2}}
data: {workers: 0}
training: {batch: 8, size: 32, epochs: 8, lr: 0.05, decay: cosine, bn_batch: 8}
augment: {randaugment: {ops: 1, magnitude: 4}, mixup: 0.2, strength_at_half: 0.0}
plan: cascade
run: {device: cpu, save_every: 4, validate_every: 100}
"""


def jpeg(pixels: np.ndarray) -> bytes:
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.height, encoder.width = pixels.shape[:2]
    encoder.pix_fmt, encoder.time_base = "yuvj420p", Fraction(1)
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format="yuvj420p")
    return b"".join(bytes(packet) for packet in (*encoder.encode(frame), *encoder.encode(None)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three classes of noisy colors in train and val, of several sizes, as PNG and one JPEG."""
    root = tmp_path_factory.mktemp("colors")
    rng = np.random.default_rng(0)
    for split, count in (("train", 16), ("val", 6)):
        for name, color in COLORS.items():
            place = root / split / name
            place.mkdir(parents=True)
            for number in range(count):
                size = (40 + number, 48)
                pixels = np.clip(np.array(color) + rng.normal(0, 40, (*size, 3)), 0, 255).astype(np.uint8)
                (place / f"{number}.png").write_bytes(encode_png(pixels))
            (place / "photo.JPG").write_bytes(jpeg(np.full((36, 52, 3), color, np.uint8)))
    (root / "train" / "red" / "notes.txt").write_text("beside the images")
    return root


@pytest.fixture
def here(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(f"{RECIPE}\n")
    return tmp_path


@pytest.fixture
def vcycle(vcycle):
    """A command, with its exit code: what it printed, and what it said beside."""

    def run(*arguments, code=0):
        ran = vcycle(*arguments)
        assert ran.code == code, ran.err
        return ran

    return run


def test_images_work_with_every_command(here, folder, vcycle):
    data = f"data={folder}"
    planned = vcycle("plan", "tiny.yaml", data, "--json")
    stages = json.loads(planned.out)["stages"]
    assert [(stage["frames"], stage["size"], stage["batch"]) for stage in stages] == [
        (1, 16, 32),
        (1, 23, 16),
        (1, 32, 8),
    ]
    assert "51 training images in 3 classes and 21 validation images" in planned.err
    assert "strength of the regularisation: 0 at 16², 0.44 at 23², 1 at 32²" in planned.err

    trained = json.loads(vcycle("train", "tiny.yaml", data, "--out", "run", "--json").out)
    assert trained["val"]["top1"] > 0.9
    assert trained["val"]["top5"] == 1
    (first, *later) = sorted((here / "run" / "checkpoints").glob("step-*.pt"))
    for checkpoint in later:
        checkpoint.unlink()
    resumed = vcycle("train", "run", "--resume", "--json")
    assert f"resuming at step {int(first.stem.removeprefix('step-'))} of 22" in resumed.err
    assert json.loads(resumed.out)["val"] == trained["val"]

    tested = vcycle("eval", "run", "evaluation.crops=3")
    assert "top-1 100.0% on 21 val images (1 clip × 3 crops" in tested.out
    rows = json.loads((here / "run" / "eval-val-1x3.json").read_text())
    assert {row["class"]: row["images"] for row in rows["per_class"]} == dict.fromkeys(COLORS, 7)

    assert vcycle("export", "run", "--out", "red.safetensors").out
    (here / "torn.png").write_bytes((folder / "val" / "red" / "0.png").read_bytes()[:200])
    shown = vcycle("predict", "red.safetensors", folder / "val" / "red" / "photo.JPG", "torn.png", "--json", code=2)
    photo, torn = json.loads(shown.out)["images"]
    assert next(iter(photo["classes"])) == "red"
    assert torn == {"image": "torn.png", "error": "the png picture cannot be decoded"}

    compared = vcycle("compare", "tiny.yaml", data, "seeds=1", "training.epochs=2", "--out", "study", "--json")
    arms = json.loads(compared.out)["arms"]
    assert list(arms) == ["constant", "cascade", "control:cascade"]
    assert arms["cascade"]["steps"] < arms["constant"]["steps"]
    assert vcycle("bench", "tiny.yaml", data, "--repeats", "1", "--seconds", "0.01", "--json").out
    vcycle("report", "run")
    assert "1×32²" in (here / "run" / "report.html").read_text()


def test_check_finds_the_images_that_cannot_be_decoded(here, folder, vcycle):
    shutil.copytree(folder, "set")
    whole = (here / "set" / "train" / "red" / "3.png").read_bytes()
    (here / "set" / "train" / "red" / "3.png").write_bytes(whole[: len(whole) // 2])
    (here / "set" / "val" / "blue" / "1.png").write_bytes(b"no picture")
    found = json.loads(vcycle("check", "set", "--recipe", "tiny.yaml", "--json", code=1).out)
    assert found["videos"] == 72
    assert {path.partition("set/")[2]: cause for path, cause in found["bad"].items()} == {
        "train/red/3.png": "the png picture cannot be decoded",
        "val/blue/1.png": "not a picture in PNG, JPEG, WebP or BMP (10 bytes)",
    }
    given = ("data=set", "training.epochs=1", "run.bad_limit=0.5")
    trained = json.loads(vcycle("train", "tiny.yaml", *given, "--out", "run", "--json").out)
    assert trained["val"]["unreadable"] == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["data=nowhere"], "nowhere: no such folder"),
        (["training.frames=4"], "unknown key 'training.frames'"),
        (["model=resnet_tin"], "model 'resnet_tin' is unknown (did you mean 'resnet_tiny'?)"),
        (["model=r3d_tiny"], "model 'r3d_tiny' is not one of images"),
        (["plans.cascade.shapes=[[1, 0.5], [1, 0.7]]"], "must end with the full grid"),
    ],
)
def test_a_recipe_that_cannot_be_trained_is_refused_in_a_line(here, folder, vcycle, change, said):
    printed = vcycle("plan", "tiny.yaml", f"data={folder}", *change, code=2)
    assert said in printed.err.splitlines()[-1]


@pytest.mark.parametrize("plan", ["cascade", "long+short", "long", "short", "constant"])
def test_every_step_of_the_default_plans_has_the_work_of_the_baseline(plan):
    recipe = load_recipe("images/small", ["data.clips=50000", "training.size=224"])
    made = IMAGES.plan(recipe, name=plan)
    full = made.baseline_shape
    assert {cell.frames for cell in made.shapes} == {1}
    for cell in made.shapes:
        assert cell.voxels == pytest.approx(full.voxels, rel=0.03)
    for stage in made.stages:
        batch = stage.base.batch / full.batch
        assert batch == pytest.approx((full.size / stage.base.size) ** 2, rel=0.03)
        assert stage.lr_factor == pytest.approx(1 if plan == "constant" else math.sqrt(batch))
    sizes = [stage.base.size for stage in made.stages]
    assert len(sizes) == len(set(sizes)) or plan != "cascade"  # each size once


def test_a_picture_is_a_video_of_one_frame(folder):
    recipe = load_recipe("images/small", [f"data={folder}", "augment.randaugment=null"])
    splits = IMAGES.find(recipe, folder)
    dataset = IMAGES.dataset(recipe, splits, "train", folder)
    assert splits.train.classes == tuple(COLORS)
    item = splits.train.paths.index("red/photo.JPG")
    sample = dataset[SampleRequest(item, Shape(1, 32, 32), (0, 0, item))]
    assert (tuple(sample.clip.shape), sample.label) == ((1, 32, 32, 3), 2)
    assert (sample.clip.float().mean((0, 1, 2)) - torch.tensor(COLORS["red"])).abs().max() < 4
    assert picture_size(folder / "train" / "red" / "photo.JPG") == (36, 52)


def test_new_classifier_on_trained_weights(here, folder, vcycle):
    short = (f"data={folder}", "training.epochs=1")
    vcycle("train", "tiny.yaml", *short, "--out", "first")
    again = vcycle("train", "tiny.yaml", *short, "init=first", "init.head=new", "--out", "second")
    assert re.search(r"init: weights from .*first/.*, with a new classifier", again.err)


NETS = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, classes, width=4):
        body = nn.Conv2d(3, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        super().__init__(*body, nn.Linear(width, classes))

class Fixed(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Flatten(), nn.Linear(3 * 32 * 32, classes))
"""


def test_a_network_of_ones_own_takes_pictures_and_one_of_fixed_size_is_refused_before_the_first_step(
    here, folder, vcycle, own_models
):
    (here / "nets.py").write_text(NETS)
    given = ("tiny.yaml", f"data={folder}", "training.epochs=1")
    net = ("model={name: nets:Net, options: {width: 6}}",)
    assert json.loads(vcycle("train", *given, *net, "--out", "own", "--json").out)["val"]["samples"] == 21
    refused = vcycle("train", *given, "model={name: nets:Fixed}", "--out", "fixed", code=2)
    assert "model 'nets:Fixed' failed on 2 clips of 1×16×16, tried before training" in refused.err.splitlines()[-1]
    constant = ("model={name: nets:Fixed}", "plan=constant")
    assert json.loads(vcycle("train", *given, *constant, "--out", "one-size", "--json").out)["val"]["samples"] == 21


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "swin_t"])
def test_models_of_torchvision_take_every_size_of_a_plan(name):
    pytest.importorskip("torchvision")
    recipe = load_recipe("images/small", ["data.clips=50000", f"model={name}", "training.size=64"])
    model = IMAGES.build_model(recipe, 5).train()
    objective = IMAGES.objective(recipe, 5)
    IMAGES.check_plan(recipe, IMAGES.plan(recipe))
    for size in sorted({cell.size for cell in IMAGES.plan(recipe).shapes}):
        clips, labels = objective.noise(2, Shape(1, size, size), torch.device("cpu"))
        objective.loss(model, clips, labels).backward()


def test_torchvisions_vision_transformers_round_to_the_patch_and_may_drop_tokens():
    pytest.importorskip("torchvision")
    shapes = "plans.cascade.shapes=[[1, 0.6, 0.5], [1, 1]]"
    recipe = load_recipe("images/small", ["data.clips=5000", "model=vit_b_32", "training.size=224", shapes])
    plan = IMAGES.plan(recipe, name="cascade")
    IMAGES.check_plan(recipe, plan)
    assert [(stage.base.size, stage.base.tokens) for stage in plan.stages] == [(128, 0.5), (224, 1.0)]
    with torch.device("meta"):
        model, objective = IMAGES.build_model(recipe, 5).train(), IMAGES.objective(recipe, 5)
        require_token_dropping(model, plan)
        for step in (plan[0], plan[len(plan) - 1]):
            drop_tokens(model, step)
            clips, _ = objective.noise(2, step.shape, torch.device("meta"))
            assert objective.predict(model, clips).shape == (2, 5)
    assert model.encoder.dropout.token_dropping.kept is None


def test_plans_of_timm_transformers_round_to_the_patch():
    assert MODELS.needs("timm/vit_tiny_patch16_224").size_multiple == 16
    assert MODELS.needs("timm/hiera_tiny_224") == ShapeConstraints(min_size=32, size_multiple=32)
    recipe = load_recipe("images/small", ["data.clips=5000", "model=timm/vit_tiny_patch16_224", "training.size=224"])
    assert [stage.base.size for stage in IMAGES.plan(recipe).stages] == [112, 160, 224]


def test_a_tag_of_weights_that_timm_does_not_know_is_refused():
    pytest.importorskip("timm", reason="timm is not installed")
    given = ["data.clips=5000", "model=timm/resnet18.nonsense", "model.options.pretrained=true"]
    recipe = load_recipe("images/small", given)
    with pytest.raises(RecipeError, match=r"model 'timm/resnet18.nonsense': Invalid pretrained tag"):
        IMAGES.build_model(recipe, 5)


def test_models_of_timm_take_every_size_of_a_plan():
    pytest.importorskip("timm", reason="timm is not installed")
    recipe = load_recipe("images/small", ["data.clips=5000", "model=timm/vit_tiny_patch16_224", "training.size=64"])
    model, objective = IMAGES.build_model(recipe, 5), IMAGES.objective(recipe, 5)
    for size in (32, 48, 64):
        clips, labels = objective.noise(2, Shape(1, size, size), torch.device("cpu"))
        objective.loss(model, clips, labels).backward()
