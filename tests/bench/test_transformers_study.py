"""The study of small transformers: its logs are of the recipes beside them."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "transformers"
RECIPES = ["plain", "scratch", "hierarchical"]


@pytest.fixture(scope="module")
def study():
    spec = importlib.util.spec_from_file_location("transformers_study", FOLDER / "study.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def nets(monkeypatch):
    """The study's networks can be imported, and are forgotten afterwards: other tests have modules of that name."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    others = sys.modules.pop("nets", None)
    yield
    sys.modules.pop("nets", None)
    if others is not None:
        sys.modules["nets"] = others


def logged(recipe):
    """The trainings of a recipe that have ended."""
    file = FOLDER / f"{recipe}.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


@pytest.mark.parametrize("recipe", RECIPES)
def test_accuracy_is_of_the_215_videos_of_the_two_test_people(recipe):
    for run in logged(recipe):
        assert len(run["each"]) == 215
        assert run["test"] == pytest.approx(sum(run["each"]) / 215, abs=1e-6)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.usefixtures("nets")
def test_what_was_trained_and_counted_is_what_the_recipes_say(recipe, study):
    pytest.importorskip("transformers")
    pytest.importorskip("torchvision")
    plans = {arm: plan for arm, (_, plan) in study.plans_of(FOLDER / f"{recipe}.yaml").items()}
    counted = json.loads((FOLDER / study.STEPS[recipe]).read_text(encoding="utf-8"))["plans"]
    for arm, plan in plans.items():
        assert (counted[arm]["steps"], counted[arm]["samples"]) == (len(plan), plan.samples)
    for run in logged(recipe):
        assert (run["steps"], run["samples"]) == (len(plans[run["arm"]]), plans[run["arm"]].samples)


def test_the_picture_names_each_network_as_the_headings_do(study):
    headings = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    trained = {name: title for name, title in study.TITLES.items() if (FOLDER / f"{name}.jsonl").exists()}
    assert trained
    assert all(f"## {title}" in headings for title in trained.values())
    assert list(study.TITLES) == list(study.ARMS)
