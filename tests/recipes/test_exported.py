"""Exported files: what the libraries call tensors depends on the network that they are of."""

import pytest
import safetensors.torch
import torch

from vcycle.nn.weights.files import Weights
from vcycle.runs.export import export
from vcycle.tasks.loaded_model import load_model
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.init_weights import build_model
from vcycle.tasks.recognition.task import RECOGNITION
from vcycle.tasks.saved_weights import Provenance, SavedWeights

NARROW = "model.options={stem_width: 8, widths: [8, 8, 8, 8], blocks: [1, 1, 1, 1]}"


@pytest.fixture
def kept():
    """Makes weights as drawn, of a narrow model of a shipped recipe."""

    def make(name):
        recipe = load_recipe(name, [NARROW])
        classes = ("left", "right", "up")
        state = build_model(recipe, len(classes)).state_dict()
        trained = Provenance(recipe=recipe, plan=RECOGNITION.plan(recipe, 1000), classes=classes, step=1)
        return SavedWeights(weights=Weights(state=state, source="run"), trained=trained)

    return make


@pytest.mark.parametrize(
    ("recipe", "head", "second"),
    [
        ("kinetics/slow_r50", "blocks.5", "blocks.2"),
        # pytorchvideo counts the pooling in time after the first stage as a block.
        ("kinetics/i3d_r50", "blocks.6", "blocks.3"),
        ("kinetics/c2d_r50", "blocks.6", "blocks.3"),
        ("kinetics/slowfast_8x8_r50", "blocks.6", "blocks.2.multipathway_blocks.1"),
    ],
)
def test_pytorchvideos_names_are_those_of_its_own_network_of_the_kind(kept, recipe, head, second, tmp_path):
    made, file = kept(recipe), tmp_path / "x.safetensors"
    assert export(made, file, naming="pytorchvideo", reload=False) == len(made.weights.state)
    names = safetensors.torch.load_file(file).keys()
    assert f"{head}.proj.weight" in names
    assert f"{second}.res_blocks.0.branch2.conv_b.weight" in names
    opened = load_model(file).model.state_dict()
    assert all(torch.equal(value, opened[key]) for key, value in made.weights.state.items())
