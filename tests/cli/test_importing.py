"""`vcycle import`."""

import json

import pytest

from vcycle.tasks.recipes import load_recipe

CONFIG = """\
TRAIN: {DATASET: kinetics, BATCH_SIZE: 64}
MULTIGRID: {SHORT_CYCLE: true, LONG_CYCLE: true}
DATA: {NUM_FRAMES: 32, SAMPLING_RATE: 2, INV_UNIFORM_SAMPLE: true, OWN_KEY: 3}
SLOWFAST: {ALPHA: 4, FUSION_KERNEL_SZ: 7}
RESNET: {ZERO_INIT_FINAL_BN: true, NUM_BLOCK_TEMP_KERNEL: [[3, 3], [4, 4], [6, 6], [3, 3]]}
SOLVER: {LR_POLICY: steps_with_relative_lrs, STEPS: [0, 94, 154, 196], MAX_EPOCH: 239, BASE_LR: 0.1}
MODEL: {ARCH: slowfast}
"""


@pytest.fixture
def config(here):
    (here / "theirs.yaml").write_text(CONFIG)
    return here / "theirs.yaml"


def test_the_recipe_is_written_with_what_differs_and_the_next_command_runs(vcycle, here, config):
    ran = vcycle("import", "theirs.yaml")
    assert ran.code == 0
    assert "DATA.INV_UNIFORM_SAMPLE: vcycle draws the short side uniformly, not its inverse" in ran.out
    assert "DATA.OWN_KEY: vcycle has nothing of the kind" in ran.out
    assert ran.out.splitlines()[-1] == "next: vcycle plan recipe.yaml"
    text = (here / "recipe.yaml").read_text()
    assert "#   DATA.OWN_KEY: vcycle has nothing of the kind" in text
    assert "\nbase: kinetics/slowfast_8x8_r50_cosine\n" in text
    assert load_recipe("recipe.yaml").plan == "long+short"
    planned = vcycle("plan", "recipe.yaml")
    assert planned.code == 0
    assert "cycle 3" in planned.out


def test_every_key_is_listed_on_request(vcycle, config):
    short, full = vcycle("import", "theirs.yaml", "-o", "-"), vcycle("import", "theirs.yaml", "-o", "-", "--all")
    assert "SOLVER.MAX_EPOCH: → training.epochs" in full.err
    assert "SOLVER.MAX_EPOCH" not in short.err
    printed = json.loads(vcycle("import", "theirs.yaml", "-o", "-", "--json").out)
    assert printed["translated"]["SOLVER.MAX_EPOCH"] == "training.epochs"
    assert printed["different"].keys() >= {"DATA.INV_UNIFORM_SAMPLE", "DATA.OWN_KEY"}
    assert printed["recipe"] == short.out


def test_a_dash_prints_the_recipe_alone_and_overrides_are_part_of_it(vcycle, here, config):
    ran = vcycle("import", "theirs.yaml", "data.clips=5000", "plan=cascade", "-o", "-")
    assert not (here / "recipe.yaml").exists()
    (here / "mine.yaml").write_text(ran.out)
    recipe = load_recipe("mine.yaml")
    assert (recipe.data.clips, recipe.plan) == (5000, "cascade")


def test_a_file_is_replaced_only_if_asked_for(vcycle, here, config):
    (here / "recipe.yaml").write_text("mine")
    ran = vcycle("import", "theirs.yaml")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "recipe.yaml exists" in ran.err
    assert (here / "recipe.yaml").read_text() == "mine"
    assert vcycle("import", "theirs.yaml", "--force").code == 0
    assert load_recipe("recipe.yaml").training.epochs == 239


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("missing.yaml", None, "missing.yaml: cannot be read: No such file"),
        ("notes.txt", "TRAIN: {}", "accepted: PySlowFast (.yaml, .yml with sections TRAIN, DATA"),
        ("ours.yaml", "base: videos/small\n", "accepted: PySlowFast"),
        ("list.yaml", "[1, 2]", "accepted: PySlowFast"),
        ("broken.yaml", "TRAIN: {", "broken.yaml: "),
        ("other.py", "x = 1\n", "MMAction2 (.py with model"),
        ("broken.py", "model = dict(\n", "broken.py:1: not Python"),
        (
            "code.py",
            "model = __import__('os').system('touch ran')\n",
            "code.py:1: `__import__('os').system('touch ran')`",
        ),
        ("mvit.yaml", CONFIG.replace("ARCH: slowfast", "ARCH: mvit"), "MODEL.ARCH is 'mvit'"),
    ],
)
def test_what_cannot_be_imported_is_one_line_and_writes_nothing(vcycle, here, name, text, message):
    if text is not None:
        (here / name).write_text(text)
    before = sorted(here.iterdir())
    ran = vcycle("import", name)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert message in ran.err
    assert sorted(here.iterdir()) == before
