"""`vcycle compare` and `vcycle demo` on tiny data."""

import contextlib
import io
import json

import pytest

from vcycle.cli import process
from vcycle.cli.app import app
from vcycle.recipes import Recipe
from vcycle.recipes.load import load_recipe

ARM = {
    "train_seconds": float,
    "accuracy": float,
    "accuracy_std": float,
    "steps": int,
    "samples": int,
    "seeds": int,
}


def has_arm(data, name):
    for key, kind in ARM.items():
        assert isinstance(data["arms"][name][key], kind), (name, key)


@pytest.fixture(scope="module")
def compared(videos, recipe, tmp_path_factory):
    """One comparison of two plans over one seed: its folder, and what was printed."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "tiny.yaml").write_text(recipe)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        arguments = [str(folder / "tiny.yaml"), f"data={videos}", "plan=constant,cascade", "seeds=1"]
        code = process.run(app, ["compare", *arguments, "--out", str(folder / "study")])
    assert code == 0
    return folder, out.getvalue(), err.getvalue()


def test_a_comparison_ends_with_a_table_a_file_and_a_picture(compared):
    folder, out, _ = compared
    for name in ("constant", "cascade", "control:cascade"):
        assert name in out
    assert "…" not in out
    assert "accuracy (test)" in out
    assert (folder / "study/comparison.png").read_bytes().startswith(b"\x89PNG")
    data = json.loads((folder / "study/comparison.json").read_text())
    assert data["plan"] == "cascade"
    assert data["split"] == "test"
    for name in ("constant", "cascade", "control:cascade"):
        has_arm(data, name)


def test_a_comparison_says_what_it_trains_and_each_result_as_it_comes(compared):
    _, _, err = compared
    assert "3 plans (constant, cascade, control:cascade), 1 seed each" in err
    assert [line.split(":")[0] for line in err.splitlines() if "on validation after" in line] == [
        "constant, seed 0",
        "cascade, seed 0",
        "control",
    ]


def test_the_same_command_goes_on_with_what_is_done(vcycle, compared, videos):
    folder, _, _ = compared
    arguments = [folder / "tiny.yaml", f"data={videos}", "plan=constant,cascade", "seeds=1"]
    ran = vcycle("compare", *arguments, "--out", folder / "study", "--json")
    assert ran.code == 0
    assert ran.out.count("\n") == 1
    assert "3 of 3 trainings were done before" in ran.err
    assert json.loads(ran.out) == json.loads((folder / "study/comparison.json").read_text())


@pytest.fixture
def small_demo(monkeypatch):
    """The demo's own recipe, with fewer and smaller clips and two epochs."""
    whole = load_recipe("demo/digits")
    digits = whole.data.digits.model_copy(
        update={"digits": (2,), "motions": ("left", "right"), "frames": 8, "clips": {"train": 6, "val": 2, "test": 2}}
    )
    data = whole.model_dump(by_alias=True)
    data["data"]["digits"] = digits.model_dump()
    data["training"] |= {"epochs": 3, "frames": 4, "batch": 2, "warmup": None, "decay": {"law": "constant"}}
    data["model"] = {"name": "r3d_tiny", "options": {"widths": [4, 8, 8]}}
    data["plans"]["long+short"] |= {"cycles": 1}
    small = Recipe.model_validate(data)
    monkeypatch.setattr("vcycle.recipes.load.load_recipe", lambda name: {"demo/digits": small}[name])


def test_the_demo_prints_the_promised_object(vcycle, here, small_demo):
    ran = vcycle("demo", "--json", "--seeds", "1", "--out", "shown")
    assert ran.code == 0, ran.err
    assert ran.out.count("\n") == 1
    data = json.loads(ran.out)
    assert data["plan"] == "cascade"
    for name in ("constant", "control", "multigrid"):
        has_arm(data, name)
    assert data["arms"]["multigrid"] == data["arms"][data["plan"]]
    assert data["arms"]["control"] == data["arms"]["control:cascade"]
    assert data["arms"]["constant"]["seeds"] == 1
    assert (here / "shown/comparison.png").is_file()
    assert (here / "shown/comparison.json").is_file()

    # For people: the same table, from the trainings that are done.
    ran = vcycle("demo", "--seeds", "1", "--out", "shown")
    assert "4 of 4 trainings were done before" in ran.err
    for name in ("constant", "control:cascade", "long+short", "cascade"):
        assert name in ran.out
    assert "cascade takes 1/" in ran.out
