"""The logs of large networks are of the plans of the recipes."""

import json
from pathlib import Path

import pytest

from vcycle.tasks.base import tasks
from vcycle.tasks.recipes import load_recipe

FOLDER = Path(__file__).parents[2] / "benchmarks" / "networks"


@pytest.mark.parametrize("log", sorted(FOLDER.glob("*.json")), ids=lambda file: file.stem)
def test_what_was_measured_are_the_plans_of_the_recipes_at_all_their_shapes(log):
    found = json.loads(log.read_text(encoding="utf-8"))
    assert found["command"][:2] == ["vcycle", "bench"]
    recipe = load_recipe(found["command"][2], [each for each in found["command"] if "=" in each])
    task = tasks[recipe.task]
    assert found["clock"] == "processor"
    assert {"constant", *found["command"][found["command"].index("--plans") + 1].split(",")} <= {
        row["plan"] for row in found["plans"]
    }
    plans = {row["plan"]: task.plan(recipe, task.length(recipe) or 10_000, row["plan"]) for row in found["plans"]}
    for row in found["plans"]:
        assert (row["steps"], row["samples"]) == (len(plans[row["plan"]]), plans[row["plan"]].samples)
    needed = {(shape.batch, *shape.shape, shape.bn_batch) for plan in plans.values() for shape in plan.shapes}
    measured = {(row["batch"], row["frames"], row["size"], row["size"], row["bn_batch"]) for row in found["shapes"]}
    assert measured <= needed
    assert {shape[:4] for shape in measured} == {shape[:4] for shape in needed}
