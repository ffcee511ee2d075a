"""A network of the user's own that does not fit its plan, or fails later: one error that says where."""

import json
import random

import numpy as np
import pytest
import torch

NET = """
import torch
from torch import nn

FAILS = {}  # how the tests make it fail


class Net(nn.Module):
    needs = {"size_multiple": 8}

    def __init__(self, classes, width=4):
        super().__init__()
        if "constructor" in FAILS:
            raise OSError("no table of positions")
        self.body = nn.Sequential(nn.Conv3d(3, width, 3, (1, 2, 2), padding=1), nn.BatchNorm3d(width), nn.ReLU())
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(width, classes)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, clips):
        self.calls += 1
        if clips.shape[3] == FAILS.get("side"):
            raise KeyError("position 64")
        if "step" in FAILS and torch.is_grad_enabled() and self.calls >= FAILS["step"]:
            raise ValueError("suddenly")
        logits = self.head(self.drop(self.body(clips)).mean((2, 3, 4)))
        return logits[0] if "output" in FAILS else logits
"""


@pytest.fixture
def own(here, videos, own_models):
    """Arguments by which the recipe trains the network in failing.py."""
    (here / "failing.py").write_text(NET)
    return ["tiny.yaml", f"data={videos}", "model=failing:Net"]


@pytest.fixture
def fails(own, monkeypatch):
    """Makes the network fail from now on."""

    def fail(**how):
        from vcycle.registry import import_attribute

        monkeypatch.setattr(import_attribute("failing", "test", here=True), "FAILS", how)

    return fail


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--out", "run"],
        ["compare", "plan=constant,cascade", "--out", "study"],
        ["bench", "--plans", "cascade", "--repeats", "1", "--seconds", "0"],
    ],
    ids=lambda command: command[0],
)
def test_a_shape_that_the_network_fails_at_ends_a_command_before_its_first_step(own, fails, here, vcycle, command):
    fails(side=8)
    ran = vcycle(command[0], *own, *command[1:])
    assert ran.code == 2
    line = "error: model 'failing:Net' failed on 2 clips of 2×8×8, tried before training: KeyError: 'position 64' ("
    assert ran.err.splitlines()[-1].startswith(line)
    assert ran.err.rstrip().endswith("failing.py:23); model.needs states which shapes a network takes")
    assert not (here / "run").exists()
    assert not (here / "study" / "runs").exists()


def test_an_output_of_a_wrong_shape_is_found_before_the_first_step_and_debug_shows_where(own, fails, vcycle):
    fails(output=True)
    ran = vcycle("train", *own, "--out", "run")
    assert ran.code == 2
    assert ran.err.splitlines()[-1] == (
        "error: model 'failing:Net' failed on 2 clips of 2×8×8, tried before training: the model returns (2,) for 2 "
        "clips; accepted: logits of shape (2, 2); model.needs states which shapes a network takes"
    )
    fails(side=16)
    ran = vcycle("train", *own, "--out", "run", "--debug")
    assert ran.code == 2
    assert "failing.py" in ran.err
    assert "KeyError: 'position 64'\n\nThe above exception was the direct cause" in ran.err


def test_a_network_that_cannot_be_built_names_its_line(own, fails, vcycle):
    fails(constructor=True)
    ran = vcycle("train", *own, "--out", "run")
    assert ran.code == 2
    assert ran.err.splitlines()[-1].startswith(
        "error: model 'failing:Net' cannot be built: OSError: no table of positions ("
    )


def losses(run):
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def test_a_network_that_fails_in_a_step_names_it_and_its_run_resumes(own, fails, here, vcycle, monkeypatch):
    fails(step=4)
    ran = vcycle("train", *own, "--out", "run", "run.save_every=1", "run.validate_every=99")
    assert ran.code == 2
    assert "error: model 'failing:Net' failed at step 3 (8×4×8²): ValueError: suddenly (" in ran.err.splitlines()[-1]
    fails()
    resumed = vcycle("train", "run", "--resume")
    assert resumed.code == 0, resumed.err

    # Trying the shapes changes nothing: neither the losses of a seeded run nor its weights.
    monkeypatch.setattr("vcycle.train.probe.probe", lambda *_, **__: None)
    whole = vcycle("train", *own, "--out", "whole", "run.save_every=1", "run.validate_every=99")
    assert whole.code == 0, whole.err
    assert losses(here / "run") == losses(here / "whole")

    fails(side=16)
    ran = vcycle("eval", "run")
    assert ran.code == 2
    assert "model 'failing:Net' failed on 2 clips of 4×16×16, tried before evaluation: KeyError" in ran.err
    ran = vcycle("export", "run")
    assert ran.code == 2
    assert "model 'failing:Net' failed on 2 clips of 4×16×16, tried before export: KeyError" in ran.err
    assert not list((here / "run").glob("model*"))


def generators():
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


def test_trying_a_network_leaves_it_and_the_random_generators_as_they_are(own, here):
    from vcycle.plan import Shape
    from vcycle.tasks.classification.objective import Recognition
    from vcycle.tasks.recognition.models import build_model
    from vcycle.train.probe import outputs_at

    model = build_model("failing:Net", 3)
    model.train()
    model.drop.eval()  # a part in another mode than the rest
    before, state = generators(), {key: value.clone() for key, value in model.state_dict().items()}
    found = outputs_at(model, Recognition(classes=3), [Shape(2, 8, 8), Shape(4, 16, 16)], device=torch.device("cpu"))
    assert [output.shape for output in found] == [(2, 3), (2, 3)]
    assert generators() == before
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert [part.training for part in (model, model.body, model.drop, model.head)] == [True, True, False, True]
