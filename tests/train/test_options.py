"""Augmentation, freezing and precise BatchNorm in whole trainings: exact when resumed, the same for any workers."""

from itertools import combinations

import pytest
import torch

from vcycle.errors import CheckpointError, RecipeError
from vcycle.tasks.recognition.init_weights import build_model
from vcycle.train import validation
from vcycle.train.run import RunFolder
from vcycle.utils.jsonl import JsonLines

# Ten steps of three shapes, with two validations.
BRIEF = [
    "data.cache=24",
    "plan=short",
    "training.steps=16",
    "training.decay=constant",
    "training.warmup=null",
    "run.validate_every=1",
]
AUGMENTED = [
    "augment.randaugment={ops: 2, magnitude: 12}",
    "augment.color_jitter={hue: 0.1}",
    "augment.erasing=0.5",
    "augment.repeats=2",
    "augment.mixup=0.4",
    "augment.cutmix=1",
]
OPTIONS = {
    "augmentation": AUGMENTED,
    "precise BatchNorm of an average": ["training.precise_bn=9", "training.ema=0.9"],
    "frozen BatchNorm": ["training.freeze=batchnorm", "optimizer.nesterov=true"],
    "frozen backbone": ["training.freeze=backbone"],
}


@pytest.mark.parametrize("options", [pytest.param(options, id=name) for name, options in OPTIONS.items()])
def test_a_resumed_training_is_the_one_that_was_not_interrupted(make_training, record_of, tmp_path, options):
    training = make_training(*BRIEF, *options)
    training.run(tmp_path / "whole")
    for step in (2, 7):  # the first validation is in between
        training.run_until(step, tmp_path / "parts", resume=True)
    training.run(tmp_path / "parts", resume=True)
    assert record_of(tmp_path / "parts") == record_of(tmp_path / "whole")


def test_the_number_of_workers_changes_nothing(make_training, record_of, tmp_path):
    options = [*BRIEF, *AUGMENTED, "training.precise_bn=9", "run.validate_every=1000"]
    for workers in (0, 2):
        make_training(*options, f"data.workers={workers}").run(tmp_path / str(workers))
    assert record_of(tmp_path / "0") == record_of(tmp_path / "2")


def test_each_augmentation_changes_what_is_learnt(make_training, newest, tmp_path):
    options = [[], *([option] for option in AUGMENTED)]
    for number, option in enumerate(options):
        make_training(*BRIEF, *option).run_until(3, tmp_path / str(number))
    found = [newest(tmp_path / str(number)).model["head.projection.weight"] for number in range(len(options))]
    assert not any(torch.equal(one, other) for one, other in combinations(found, 2))


def test_precise_batchnorm_changes_the_statistics_alone(make_training, newest, tmp_path):
    make_training(*BRIEF, "training.precise_bn=24").run(tmp_path / "precise")
    make_training(*BRIEF).run(tmp_path / "plain")
    precise, plain = (newest(tmp_path / name).model for name in ("precise", "plain"))
    changed = {key for key, value in plain.items() if not torch.equal(value, precise[key])}
    assert changed == {key for key in plain if key.endswith(("running_mean", "running_var"))}


def test_without_validation_the_statistics_are_precise_at_the_end(make_training, monkeypatch, tmp_path):
    done = []
    monkeypatch.setattr(validation, "recompute_statistics", lambda *_: done.append(1))
    training = make_training(*BRIEF, "training.precise_bn=8", "run.validate_every=1000")
    training.run(tmp_path)
    assert done == [1]
    assert [line["event"] for line in JsonLines(RunFolder(tmp_path).log).read()].count("validation") == 1


def test_more_clips_than_there_are_is_said_once_and_bounded(make_training, tmp_path):
    said = []
    make_training(*BRIEF, "training.precise_bn=1000").run(tmp_path, on_message=said.append)
    assert [text for text in said if "precise_bn" in text] == [
        "precise_bn is 1,000 clips, but the training set has only 24"
    ]


def test_what_is_frozen_is_as_it_was_drawn(make_training, newest, tmp_path):
    training = make_training(*BRIEF, "training.freeze=backbone")
    training.run(tmp_path)
    drawn = build_model(training.recipe, 4).state_dict()
    found = newest(tmp_path)
    changed = {key for key, value in drawn.items() if not torch.equal(value, found.model[key])}
    assert changed == {"head.projection.weight", "head.projection.bias"}
    assert sum(len(group["params"]) for group in found.optimizer["param_groups"]) == 2


def test_a_run_does_not_go_on_with_something_else_frozen(make_training, tmp_path):
    make_training(*BRIEF).run_until(3, tmp_path)
    RunFolder(tmp_path).recipe.unlink()  # which is compared first
    other = make_training(*BRIEF, "training.freeze=backbone")
    with pytest.raises(CheckpointError, match=r"made while \d+ parameters were trained, this recipe trains 2 \(train"):
        other.run(tmp_path, resume=True)


def test_precise_statistics_of_a_frozen_batchnorm_are_refused(make_training):
    with pytest.raises(RecipeError, match=r"training\.precise_bn=8: training\.freeze=backbone keeps BatchNorm's"):
        make_training(*BRIEF, "training.precise_bn=8", "training.freeze=backbone")


def test_a_network_that_reads_values_while_it_is_built_is_checked_all_the_same(make_training, tmp_path, monkeypatch):
    # As networks do whose drop-path rates come from torch.linspace: on the meta device, those have no values.
    (tmp_path / "rates_of_depth.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, classes):\n"
        "        super().__init__()\n"
        "        self.rates = [rate.item() for rate in torch.linspace(0, 0.1, 4)]\n"
        "        self.body, self.head = nn.Conv3d(3, 4, 1), nn.Linear(4, classes)\n"
        "    def forward(self, clips):\n"
        "        return self.head(self.body(clips).mean((2, 3, 4)))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    training = make_training(
        "model=rates_of_depth:Net",
        "training.steps=2",
        "training.warmup=null",
        "plan=constant",
        "training.decay=constant",
        "data.cache=24",
    )
    assert training.run(tmp_path / "run").steps == 2
