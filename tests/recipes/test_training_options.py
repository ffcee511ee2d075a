"""What a recipe says of labels, augmentation and freezing reaches the training, or is refused before it."""

import shutil
import sys

import pytest
import torch

from vcycle.data import SampleRequest
from vcycle.errors import DataError, RecipeError
from vcycle.plan import Shape
from vcycle.runs.experiment import Experiment
from vcycle.runs.train import config_of, train
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.data import check_videos, find_videos, notes
from vcycle.tasks.recognition.task import RECOGNITION
from vcycle.train.run import RunFolder

TEXT = """
sampling: {span: [0.8, 1.0], short_side: [16, 20], flip: false}
model: {name: r3d_tiny, options: {widths: [4], blocks: [1], temporal_kernels: [3]}}
training: {batch: 4, frames: 4, size: 16, steps: 6, lr: 0.1}
plan: constant
data: {workers: 0}
run: {device: cpu}
"""


@pytest.fixture
def load(tmp_path):
    def load(*overrides):
        (tmp_path / "recipe.yaml").write_text(TEXT)
        return load_recipe(str(tmp_path / "recipe.yaml"), overrides)

    return load


@pytest.fixture(scope="module")
def charades(digit_videos, tmp_path_factory):
    """The embedded set's videos under the lists of Charades: any of three classes in each."""
    root = tmp_path_factory.mktemp("charades")
    (root / "Charades_v1_480").mkdir(parents=True)
    (root / "Charades_v1_classes.txt").write_text("c000 Two\nc001 Left\nc002 Nothing\n")
    for split, folder in (("train", "train"), ("test", "val")):
        rows = ["id,actions,length"]
        for file in sorted((digit_videos / folder).rglob("*.mp4")):
            name = f"{split}{len(rows)}"
            shutil.copy(file, root / "Charades_v1_480" / f"{name}.mp4")
            digit, motion = file.parent.name.split("-")
            actions = ["c000 0 1"] * (digit == "2") + ["c001 0 1"] * (motion == "left")
            rows.append(f"{name},{';'.join(actions)},1")
        (root / f"Charades_v1_{split}.csv").write_text("\n".join(rows))
    return root


def test_videos_of_any_number_of_labels_are_trained_on_and_judged_by_map(load, charades, tmp_path):
    recipe = load(f"data={charades}", "training.multi_label=true", "augment.mixup=0.4", "optimizer.nesterov=true")
    experiment = Experiment(recipe, tmp_path)
    plan = experiment.plan()
    experiment.check(plan, fresh=True)
    fitted = train(experiment, plan, RunFolder(tmp_path / "run"))
    found = fitted.curve[-1].evaluation
    assert found.samples == 8
    assert 0 < found.map <= 1
    # Binary cross-entropy at the start is log 2 a class; a softmax over three would be log 3.
    assert found.loss == pytest.approx(0.69, abs=0.25)


def test_the_loss_and_the_labels_have_to_agree(load, charades, digit_videos, tmp_path):
    def check(*overrides):
        recipe = load(*overrides)
        check_videos(recipe, find_videos(recipe, tmp_path))

    with pytest.raises(RecipeError, match=r"charades.*: its videos have any number of labels, .*multi_label is false"):
        check(f"data={charades}")
    with pytest.raises(RecipeError, match=r"its videos have one label each, and training\.multi_label is true"):
        check(f"data={digit_videos}", "training.multi_label=true")
    with pytest.raises(RecipeError, match=r"training\.label_smoothing=0\.1: .* binary cross-entropy, which has none"):
        check(f"data={charades}", "training.multi_label=true", "training.label_smoothing=0.1")
    check(f"data={charades}", "training.multi_label=true")
    check(f"data={digit_videos}", "training.label_smoothing=0.1")


def test_precise_statistics_are_of_weights_that_are_not_frozen(load, digit_videos, tmp_path):
    recipe = load(f"data={digit_videos}", "training.precise_bn=8", "training.freeze=backbone")
    with pytest.raises(RecipeError, match=r"training\.precise_bn=8.*training\.freeze"):
        check_videos(recipe, find_videos(recipe, tmp_path))


def test_classes_without_a_video_are_named(load, digit_videos, charades, tmp_path):
    assert notes(find_videos(load(f"data={digit_videos}"), tmp_path)) == []
    files = sorted(digit_videos.rglob("*.mp4"))
    (tmp_path / "train.txt").write_text("".join(f"{file} {number % 2 * 5}\n" for number, file in enumerate(files)))
    (tmp_path / "val.txt").write_text(f"{files[0]} 3\n")
    *_, note = notes(find_videos(load(f"data={tmp_path}/train.txt", f"data.val={tmp_path}/val.txt"), tmp_path))
    assert note == f"{tmp_path}/train.txt: no video to train on for 4 of 6 classes: '1', '2', '3', …"
    *_, note = notes(find_videos(load(f"data={charades}"), tmp_path))
    assert note.endswith("no video to train on for 1 of 3 classes: 'Nothing'")


def test_the_options_reach_the_task_and_the_training_split_alone(load, digit_videos, tmp_path):
    recipe = load(
        f"data={digit_videos}",
        "augment.mixup=0.2",
        "augment.cutmix=1",
        "augment.randaugment={ops: 1, magnitude: 30}",
        "training.label_smoothing=0.1",
    )
    task = RECOGNITION.objective(recipe, 4)
    assert (task.mixup, task.cutmix, task.label_smoothing, task.multi_label) == (0.2, 1.0, 0.1, False)
    experiment = Experiment(recipe, tmp_path)
    assert experiment.dataset("val").transform is experiment.dataset("test").transform is None
    plain = Experiment(load(f"data={digit_videos}"), tmp_path).dataset("train")
    assert plain.transform is None
    requests = [SampleRequest(item, Shape(4, 16, 16), (0, 0, item)) for item in range(8)]
    pairs = [(experiment.dataset("train")[request].clip, plain[request].clip) for request in requests]
    assert any(not torch.equal(a, b) for a, b in pairs)


def test_the_samples_of_a_video_are_said_and_reach_the_training(load, digit_videos, tmp_path):
    experiment = Experiment(load(f"data={digit_videos}", "augment.repeats=3"), tmp_path)
    said = RECOGNITION.notices(experiment.recipe, experiment.splits, experiment.plan())
    assert said[-1].startswith(
        "augment.repeats=3: 3 clips of each video, so an epoch of 24 clips has 8 different videos"
    )
    assert config_of(experiment.recipe).repeats == 3
    assert experiment.plan() == Experiment(load(f"data={digit_videos}"), tmp_path).plan()


def test_the_probability_of_erasing_is_a_shorthand_that_keeps_the_rest(load, tmp_path):
    (tmp_path / "based.yaml").write_text("base: recipe.yaml\naugment: {erasing: 0.5}")
    load()
    (tmp_path / "recipe.yaml").write_text(TEXT + "augment: {erasing: {probability: 0.1, fill: mean}}")
    erasing = load_recipe(str(tmp_path / "based.yaml"), ["augment.erasing.area=[0.1, 0.2]"]).augment.erasing
    assert (erasing.probability, erasing.fill, erasing.area) == (0.5, "mean", (0.1, 0.2))
    assert load_recipe(str(tmp_path / "based.yaml"), ["augment.erasing=null"]).augment.erasing is None


@pytest.mark.parametrize("option", ["randaugment={}", "color_jitter={}", "erasing=0.1", "mixup=0.2", "cutmix=1"])
def test_augmentation_without_torchvision_says_what_to_install(load, digit_videos, tmp_path, monkeypatch, option):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    recipe = load(f"data={digit_videos}", f"augment.{option}")
    name = option.partition("=")[0]
    with pytest.raises(RecipeError, match=rf"augment\.{name} needs torchvision, .* pip install torchvision torch=="):
        check_videos(recipe, find_videos(recipe, tmp_path))


@pytest.mark.parametrize(
    "wrong",
    [
        "augment.mixup=0",
        "augment.cutmix=-1",
        "augment.randaugment={magnitude: 31}",
        "augment.randaugment={ops: 0}",
        "augment.color_jitter={hue: 0.6}",
        "augment.erasing=0",
        "augment.erasing={area: [0.5, 0.1]}",
        "augment.erasing={fill: black}",
        "augment.repeats=0",
        "augment.flip=true",
        "training.freeze=head",
        "training.precise_bn=0",
        "training.multi_label=2",
    ],
)
def test_values_out_of_range_are_refused_by_their_key(load, wrong):
    with pytest.raises(RecipeError, match=wrong.partition("=")[0].rpartition(".")[2]):
        load(wrong)


def test_labels_outside_the_classes_are_refused_where_a_list_is_made(digit_videos, load, tmp_path):
    from dataclasses import replace

    videos = find_videos(load(f"data={digit_videos}"), tmp_path).train
    for label in (-1, 4):
        with pytest.raises(DataError, match=rf"label {label}: must be from 0 to 3"):
            replace(videos, labels=[label, *videos.labels[1:]])
