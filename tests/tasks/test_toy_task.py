"""A task from a file outside the package, through every command."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from vcycle.cli.app import app
from vcycle.console import process
from vcycle.tasks.base import tasks

MODULE = Path(__file__).with_name("brightness.py")
PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
RECIPE = "task: brightness\nimport: brightness\nmodel: linear\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the module and a recipe that imports it; what it registers is forgotten afterwards."""
    registries = (tasks, tasks["recognition"].plans)
    known = [dict(registry._values) for registry in registries]
    shutil.copy(MODULE, tmp_path)
    (tmp_path / "bright.yaml").write_text(RECIPE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for registry, values in zip(registries, known, strict=True):
        registry._values = values
    for module in ("brightness", "frames_first"):
        sys.modules.pop(module, None)


@pytest.fixture
def vcycle(vcycle):
    """A command, which ends well: what it printed, and what it said beside."""

    def run(*arguments):
        ran = vcycle(*arguments)
        assert ran.code == 0, ran.err
        return ran

    return run


def test_a_task_of_ones_own_works_with_every_command(here, vcycle, capsys):
    planned = json.loads(vcycle("plan", "bright.yaml", "--json").out)
    assert Path(sys.modules["brightness"].__file__) == here / "brightness.py"
    assert (planned["plan"], len(planned["stages"])) == ("cascade", 4)

    trained = json.loads(vcycle("train", "bright.yaml", "run.save_every=10", "--out", "run", "--json").out)
    assert (trained["steps"], trained["samples"]) == (planned["steps"], planned["samples"])
    assert trained["val"]["value"] > 0.9
    *_, earlier, newest = sorted((here / "run" / "checkpoints").glob("step-*.pt"))
    newest.unlink()
    resumed = vcycle("train", "run", "--resume", "--json")
    assert f"resuming at step 30 of {planned['steps']} from {earlier.relative_to(here)}" in resumed.err
    assert json.loads(resumed.out)["val"] == trained["val"]

    shutil.copytree("run", "other")
    (here / "other" / "videos.json").write_text('{"train": {"clips": 40}}')  # by names of its own
    assert process.run(app, ["train", "other", "--resume"]) == 2
    assert "other train data than data.path None: found 32 clips, the run has 40" in capsys.readouterr().err

    tested = json.loads(vcycle("eval", "run", "--split", "test", "--json").out)
    assert (tested["step"], tested["split"]) == (trained["steps"], "test")
    assert json.loads((here / "run" / "eval-test.json").read_text())["value"] == tested["value"] > 0.9

    assert vcycle("export", "run").out.startswith("run/model.safetensors: 2 tensors after step ")
    exported = json.loads(vcycle("eval", "run/model.safetensors", "--split", "test", "--json").out)
    assert exported["value"] == tested["value"]

    compared = vcycle("compare", "bright.yaml", "seeds=1", "training.epochs=4", "--out", "study", "--json")
    arms = json.loads(compared.out)["arms"]
    assert list(arms) == ["constant", "cascade", "control:cascade"]
    assert arms["cascade"]["steps"] < arms["constant"]["steps"]
    assert (here / "study" / "comparison.png").is_file()

    timed = json.loads(vcycle("bench", "bright.yaml", "--repeats", "1", "--seconds", "0", "--json").out)
    assert [row["plan"] for row in timed["plans"]] == ["constant", "cascade", "control:cascade"]
    assert len(timed["shapes"]) == 4

    proposing = ("plan", "auto", "bright.yaml", "--repeats", "1", "--seconds", "0")
    proposed = json.loads(vcycle(*proposing, "--pilot", "0", "--json").out)
    assert {"cascade", "constant"} <= {row["label"] for row in proposed["candidates"]}
    assert process.run(app, list(proposing)) == 2
    assert "needs the method part(items) of " in capsys.readouterr().err

    vcycle("report", "run", "study", "--out", "report.html")
    report = (here / "report.html").read_text(encoding="utf-8")
    assert f"{trained['val']['value']:.1%}" in report
    assert f"test {tested['value']:.1%}" in report
    assert "closeness on validation (%)" in report


def test_wrong_keys_and_plans_of_ones_own_task_are_refused_by_name(here, capsys):
    for override, said in (
        ("training.epoch=3", "unknown key 'training.epoch' (did you mean 'epochs'?)"),
        ("plan=cascde", "plan 'cascde' is unknown (did you mean 'cascade'?): constant, cascade, or control:PLAN"),
    ):
        assert process.run(app, ["plan", "bright.yaml", override]) == 2
        assert said in capsys.readouterr().err


def blocks(language):
    """The blocks of a language on the page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_page_shows_this_very_module_and_recipe():
    assert (blocks("python")[0], blocks("yaml")[0]) == (MODULE.read_text(encoding="utf-8"), RECIPE)


def test_a_plan_of_ones_own_has_options_lengths_and_a_control(here, vcycle, capsys):
    (here / "frames_first.py").write_text(blocks("python")[1], encoding="utf-8")
    (here / "own.yaml").write_text(blocks("yaml")[1], encoding="utf-8")

    def planned(*overrides):
        return json.loads(vcycle("plan", "own.yaml", "data.clips=1000", *overrides, "--json").out)

    whole = planned()
    full = whole["stages"][-1]
    assert whole["plan"] == "frames-first"
    assert [(stage["frames"], stage["size"]) for stage in whole["stages"]] == [
        (full["frames"] // 2, full["size"]),
        (full["frames"], full["size"]),
    ]
    assert len(planned("plans.frames-first.halvings=2")["stages"]) == 3
    assert planned("plan=frames-first@0.5")["steps"] == pytest.approx(whole["steps"] / 2, abs=1)
    assert {stage["frames"] for stage in planned("plan=control:frames-first")["stages"]} == {full["frames"]}
    assert process.run(app, ["plan", "own.yaml", "plans.frames-first.halving=2"]) == 2
    assert "plans.frames-first.halving" in capsys.readouterr().err
