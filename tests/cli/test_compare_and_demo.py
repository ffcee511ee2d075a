"""`vcycle compare` and `vcycle demo` on tiny data."""

import contextlib
import io
import json
import shutil
from html import escape

import pytest

from vcycle.cli.app import app
from vcycle.console import process
from vcycle.report.comparison import statements
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.recipe import RecognitionRecipe

pytestmark = pytest.mark.usefixtures("few_turns")

ARM = {
    "train_seconds": float,
    "wall_seconds": float,
    "value": float,
    "value_std": float,
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
    assert "accuracy" in out
    assert "(test)" in out
    assert (folder / "study/comparison.png").read_bytes().startswith(b"\x89PNG")
    data = json.loads((folder / "study/comparison.json").read_text())
    assert data["plan"] == "cascade"
    assert data["split"] == "test"
    assert data["references"]["test"]["value"] == 0.5
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
    assert "reusing 3 of 3 finished runs" in ran.err
    assert json.loads(ran.out) == json.loads((folder / "study/comparison.json").read_text())


def test_a_page_about_a_study_has_the_verdict_of_its_comparison(vcycle, compared, tmp_path):
    study = shutil.copytree(compared[0] / "study", tmp_path / "study")
    data = json.loads((study / "comparison.json").read_text())
    for arm in data["arms"].values():
        arm["beats_reference"] = True
    gain = data["arms"]["cascade"]["over_constant"]
    gain |= {"speedup": 2.9, "speedup_low": 2.8, "speedup_high": 3.0, "wall_speedup": 4.36, "clocks_disagree": True}
    (study / "comparison.json").write_text(json.dumps(data))
    ran = vcycle("report", study, "--markdown", "-o", tmp_path / "page.html")
    said = statements(data)
    assert said[0].startswith("cascade trains 2.90× faster (2.80 to 3.00; wall clock 4.36×, which disagrees)")
    page = (tmp_path / "page.html").read_text()
    for line in said:
        assert f"<p>{escape(line)}</p>" in page
        assert f"\n- {line}\n" in ran.out
    # One that an earlier version wrote lacks the wall clock's: its runs are still shown.
    del gain["wall_speedup"]
    (study / "comparison.json").write_text(json.dumps(data))
    ran = vcycle("report", study, "-o", tmp_path / "other.html")
    assert ran.code == 0
    (warned,) = [line for line in ran.err.splitlines() if "comparison.json" in line]
    assert "another version of vcycle wrote it: the page leaves its verdict out; the same `vcycle compare`" in warned
    page = (tmp_path / "other.html").read_text()
    assert "cascade-seed0" in page
    assert "× faster" not in page


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--margin", "0"), "--margin 0: a loss above 0 is accepted, in points"),
        (("--target", "101"), "--target 101: a share such as 0.95, or 95, is accepted"),
        (("--target", "-1"), "--target -1: a share such as 0.95, or 95, is accepted"),
    ],
)
def test_margins_and_targets_that_mean_nothing_are_refused(vcycle, compared, option, message):
    folder, _, _ = compared
    ran = vcycle("compare", folder / "tiny.yaml", "data=nowhere", *option, "--out", folder / "other")
    assert (ran.code, ran.err) == (2, f"error: {message}\n")
    assert not (folder / "other").exists()


def test_a_target_may_be_a_share_or_in_percent(vcycle, compared, videos):
    folder, _, _ = compared
    arguments = [folder / "tiny.yaml", f"data={videos}", "plan=constant,cascade", "seeds=1", "--out", folder / "study"]
    found = [json.loads(vcycle("compare", *arguments, "--json", "--target", given).out) for given in ("0.25", "25")]
    assert [data["target"] for data in found] == [0.25, 0.25]
    assert found[0] == found[1]


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
    small = RecognitionRecipe.model_validate(data)
    monkeypatch.setattr("vcycle.tasks.recipes.load_recipe", lambda name, _: {"demo/digits": small}[name])


def test_the_demo_prints_the_promised_object(vcycle, here, small_demo, one_job):
    ran = vcycle("demo", "--json", "--seeds", "1", "--out", "shown")
    assert one_job == [3]
    assert ran.code == 0, ran.err
    assert ran.out.count("\n") == 1
    data = json.loads(ran.out)
    assert (data["plan"], data["split"], data["margin"]) == ("cascade", "test", 0.015)
    for name in ("constant", "control", "multigrid"):
        has_arm(data, name)
        assert data["arms"][name]["accuracy"] == data["arms"][name]["value"]
        assert data["arms"][name]["accuracy_std"] == data["arms"][name]["value_std"]
    assert data["arms"]["multigrid"] == data["arms"][data["plan"]]
    assert data["arms"]["control"] == data["arms"]["control:cascade"]
    assert data["arms"]["constant"]["seeds"] == 1
    assert (here / "shown/comparison.png").is_file()
    assert (here / "shown/comparison.json").is_file()

    # For people: the same table, from the trainings that are done.
    ran = vcycle("demo", "--seeds", "1", "--out", "shown")
    assert "reusing 3 of 3 finished runs" in ran.err
    for name in ("constant", "control:cascade", "cascade"):
        assert name in ran.out
    assert "no plan beat chance (50.0 %: the largest class's share of 4 test videos)" in ran.out  # too few to show it
    assert "cascade trains" not in ran.out


def test_the_demo_of_images_judges_by_a_margin_of_one_and_a_half_points(vcycle, here, one_job, monkeypatch):
    overrides = (
        "data.digits.images={train: 2, val: 1, test: 1}",
        "data.digits.size=16",
        "data.cache=null",
        *("training.size=16", "training.batch=4", "training.epochs=2", "training.warmup=null"),
        "model.options.widths=[4, 8]",
    )
    tiny = load_recipe("demo/images", overrides)
    monkeypatch.setattr("vcycle.tasks.recipes.load_recipe", lambda name, _: {"demo/images": tiny}[name])
    ran = vcycle("demo", "images", "--json", "--seeds", "1", "--out", "shown")
    assert ran.code == 0, ran.err
    data = json.loads(ran.out)
    assert list(data["arms"]) == ["constant", "control:cascade", "cascade"]
    assert (data["split"], data["margin"]) == ("test", 0.015)
