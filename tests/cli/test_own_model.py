"""A network from a user's own file goes through the commands."""

import json

import pytest

pytestmark = pytest.mark.usefixtures("few_turns")

NET = """
from torch import nn


class Net(nn.Module):
    needs = {"size_multiple": 4}

    def __init__(self, classes, width=8):
        super().__init__()
        self.body = nn.Sequential(nn.Conv3d(3, width, 3, (1, 2, 2), padding=1), nn.BatchNorm3d(width), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3, 4)))
"""


@pytest.fixture
def own(here, videos, own_models):
    """Arguments by which the recipe trains the network in own_net.py."""
    (here / "own_net.py").write_text(NET)
    return [f"data={videos}", "model=own_net:Net", "model.options.width=4"]


def test_a_network_of_ones_own_goes_through_every_command(own, here, videos, vcycle):
    planned = vcycle("plan", "tiny.yaml", *own)
    assert planned.code == 0
    said = " ".join(planned.out.split())
    assert "T·S/√2 is 4×12² (rounded from 4×11²: size a multiple of 4), 1.12 times the voxels of the scale" in said
    trained = vcycle("train", "tiny.yaml", *own, "--out", "run")
    assert trained.code == 0, trained.err
    assert "own_net:Net" in (here / "run" / "recipe.yaml").read_text()
    stages = json.loads((here / "run" / "plan.json").read_text())["stages"]
    assert {cell["size"] for stage in stages for cell in stage["pattern"]} == {8, 12, 16}
    assert {cell["batch"] for stage in stages for cell in stage["pattern"] if cell["size"] == 12} == {4}  # 2·(16/12)²
    for command in (
        ["train", "run", "--resume"],
        ["compare", "tiny.yaml", *own, "plan=cascade", "seeds=1", "--out", "study"],
        ["bench", "tiny.yaml", *own, "--plans", "cascade", "--repeats", "1", "--seconds", "0"],
    ):
        ran = vcycle(*command)
        assert ran.code == 0, ran.err
    evaluated = vcycle("eval", "run")
    assert evaluated.code == 0, evaluated.err
    exported = vcycle("export", "run", "--out", "net.safetensors")
    assert exported.code == 0, exported.err
    predicted = vcycle("predict", "net.safetensors", videos / "val" / "left" / "0.mp4")
    assert predicted.code == 0, predicted.err
    begun = vcycle("train", "tiny.yaml", *own, "init=net.safetensors", "--out", "again")
    assert begun.code == 0, begun.err
    assert "the model's own names" in begun.err


TRANSFORMER = """
from torch import nn

from vcycle.nn import TokenDropping


class Attending(nn.Module):
    needs = {"size_multiple": 4}

    def __init__(self, classes):
        super().__init__()
        self.patches = nn.Conv3d(3, 8, (1, 4, 4), stride=(1, 4, 4))
        self.dropping = TokenDropping()
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        return self.head(self.block(self.dropping(self.patches(x).flatten(2).transpose(1, 2))).mean(1))
"""


def test_a_transformer_of_ones_own_drops_tokens_and_a_convolution_is_refused_before_the_first_step(
    own, here, videos, vcycle
):
    (here / "own_vit.py").write_text(TRANSFORMER)
    dropping = ["plan=cascade", "plans.cascade.shapes=[[1, 1, 0.25], [1, 1]]", "plans.cascade.weights=null"]
    ran = vcycle("train", "tiny.yaml", f"data={videos}", "model=own_vit:Attending", *dropping, "--out", "run")
    assert ran.code == 0, ran.err
    lines = [json.loads(line) for line in (here / "run" / "log.jsonl").read_text().splitlines()]
    assert {line.get("tokens", 1) for line in lines if line["event"] == "step"} == {0.25, 1}
    benched = vcycle(
        *("bench", "tiny.yaml", f"data={videos}", "model=own_vit:Attending", *dropping),
        *("--plans", "cascade", "--repeats", "1", "--seconds", "0", "--json"),
    )
    rows = {row["tokens"]: row for row in json.loads(benched.out)["shapes"]}
    assert rows.keys() == {0.25, 1.0}
    assert rows[0.25]["batch"] == 4 * rows[1.0]["batch"]
    ran = vcycle("train", "tiny.yaml", *own, *dropping, "--out", "refused")
    assert ran.code == 2
    assert "error: model 'own_net:Net' cannot drop tokens, and a step keeps 25 % of them; accepted:" in ran.err
    assert not (here / "refused").exists()


def test_needs_in_the_recipe_constrain_the_plan(own, vcycle):
    ran = vcycle("plan", "tiny.yaml", *own, "model.needs.size_multiple=16")
    assert ran.code == 2
    assert "model 'own_net:Net' cannot take the shape " in ran.err
    assert ran.err.rstrip().endswith("pixels, the model needs a multiple of 16")
    ran = vcycle("plan", "tiny.yaml", *own, "model.needs={min_frames: 3}")
    assert ran.code == 2
    assert "2 frames, the model needs at least 3" in ran.err
    assert vcycle("plan", "tiny.yaml", *own, "model.needs={frames_multiple: 2, min_size: 8}").code == 0


def test_needs_in_the_recipe_add_to_a_registered_models_own(own, vcycle):
    ran = vcycle("plan", "tiny.yaml", own[0], "model=slowfast_tiny", "training.frames=8", "model.needs.min_frames=5")
    assert ran.code == 2
    assert "needs at least 5" in ran.err


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model=own_net:Nte", "error: model 'own_net:Nte': module 'own_net' has no 'Nte' (did you mean 'Net'?)"),
        (
            "model.options.widht=3",
            "error: option 'widht' of model 'own_net:Net' is unknown (did you mean 'width'?); accepted: width",
        ),
        ("model=no_net:Net", "error: model 'no_net:Net': module 'no_net' cannot be imported: not found among"),
        ("model.needs.min_frame=3", "unknown key 'model.needs.min_frame' (did you mean 'min_frames'?)"),
        ("model.needs.min_frames=0", "key 'model.needs.min_frames' is 0"),
    ],
)
def test_a_mistake_in_naming_it_is_one_line_and_exit_code_2(own, vcycle, override, said):
    ran = vcycle("plan", "tiny.yaml", *own, override)
    assert ran.code == 2
    assert "Traceback" not in ran.err
    assert said in ran.err.splitlines()[-1]


def test_another_model_resets_needs_as_it_does_options(own, here, vcycle):
    recipe = (here / "tiny.yaml").read_text()
    (here / "mine.yaml").write_text(
        recipe.replace("r3d_tiny, options: {widths: [4, 8, 8]}", "'own_net:Net', needs: {min_frames: 100}")
    )
    assert vcycle("plan", "mine.yaml", own[0]).code == 2
    assert vcycle("plan", "mine.yaml", own[0], "model=r3d_tiny").code == 0
    (here / "derived.yaml").write_text("base: mine.yaml\nmodel: r3d_tiny\n")
    assert vcycle("plan", "derived.yaml", own[0]).code == 0
