"""What the pages show of a comparison of plans: its table, its verdicts, and the numbers of its row in docs/expect.md.

python -m benchmarks.comparisons NAME STUDY takes the comparison from the folder of a study into benchmarks/NAME (demo,
images or superresolution), without the trainings, which study.jsonl has. python -m benchmarks.comparisons NAME draws
comparison.png again from the two.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.logs import HERE, interval, lines, load, over, signed, table, times

__all__ = ["comparison", "draw", "expected", "results"]

RECIPES = {
    "demo": "demo/digits",
    "images": "demo/images",
    "superresolution": str(HERE / "superresolution" / "superres.yaml"),
}
AGAINST = {"over_constant": "the constant shape", "over_control": "its control"}


def comparison(name: str) -> dict[str, Any]:
    """The comparison of a study."""
    found: dict[str, Any] = load(f"{name}/comparison.json")
    return found


def results(found: Mapping[str, Any]) -> str:
    """The table of a comparison and its verdicts."""
    return "\n".join([_table(found), "", *_verdicts(found)])


def expected(found: Mapping[str, Any]) -> list[str]:
    """Work, speed-ups and differences in accuracy, over the constant shape and over the control."""
    arms = found["arms"]
    gains = [arms[found["plan"]][against] for against in AGAINST]
    work = times(arms[found["constant"]]["work"] / arms[found["plan"]]["work"])
    measure = found["measure"]
    paired = (over(gain["paired"], measure["scale"], measure["digits"]) for gain in gains)
    return [f"{work} less", *(times(gain["speedup"]) for gain in gains), *paired]


def _table(found: Mapping[str, Any]) -> str:
    """A row per plan, with its time and speed-up by steps timed in turns."""
    rows, measure = [], found["measure"]
    unit, scale, digits = (measure[key] for key in ("unit", "scale", "digits"))
    for name, arm in found["arms"].items():
        ratios = (times(arm[against]["speedup"]) if against in arm else "" for against in AGAINST)
        value = f"{scale * arm['value']:.{digits}f} {unit} ± {scale * arm['value_std']:.{digits}f}"
        rows.append([f"`{name}`", f"{arm['steps']:,}", f"{arm['train_seconds']:.1f} s", value, *ratios])
    test = f"{measure['name']} (test)"
    return table(["plan", "steps", "training time", test, "speed-up over constant shape", "over its control"], rows)


def _verdicts(found: Mapping[str, Any]) -> list[str]:
    """A line per reference: the difference, its intervals, and whether non-inferiority is shown."""
    arm, measure, shown = found["arms"][found["plan"]], found["measure"], []
    for against, reference in AGAINST.items():
        gain = arm[against]
        verdict = {"shown": "shown", "not shown": "inconclusive", "shown worse": "refuted"}[gain["no_worse"]]
        shown.append(
            f"- `{found['plan']}` minus {reference}: "
            f"{signed(measure['scale'] * gain['paired']['difference'], measure['digits'])} {measure['points']} "
            f"(95 % CI {_range(gain['paired'], measure)} over seeds and {measure['samples']}, "
            f"{_range(gain['difference'], measure)} over seeds alone); "
            f"non-inferiority (margin {measure['scale'] * found['margin']:g} {measure['points']}): {verdict}."
        )
    return shown


def _range(found: Mapping[str, float], measure: Mapping[str, Any]) -> str:
    return interval(measure["scale"] * found["low"], measure["scale"] * found["high"], measure["digits"])


def draw(name: str) -> None:
    """Draw the comparison from its log: as `vcycle compare` draws it after the trainings."""
    from vcycle.bench.steps.turns import StepTimes
    from vcycle.report.comparison import comparison_figure
    from vcycle.tasks.base import tasks
    from vcycle.tasks.recipes import load_recipe

    found = comparison(name)
    recipe = load_recipe(RECIPES[name])
    task, times_of = tasks[recipe.task], StepTimes.from_data(found["clock"])
    plans = {arm: task.plan(recipe, task.length(recipe), arm) for arm in found["arms"]}
    if changed := [arm for arm, plan in plans.items() if plan.fingerprint != found["arms"][arm]["fingerprint"]]:
        raise SystemExit(f"{name}: the recipe's plans are no longer those of the study: {', '.join(changed)}")
    runs = [
        run | {"curve_seconds": [times_of.of(plans[run["arm"]], samples) for _, samples, _ in run["curve"]]}
        for run in lines(f"{name}/study.jsonl")
    ]
    comparison_figure(found | {"runs": runs}).savefig(HERE / name / "comparison.png", dpi=150)


def _take(name: str, study: str) -> None:
    """Write the comparison of a study without its trainings."""
    taken = json.loads((Path(study) / "comparison.json").read_text(encoding="utf-8"))
    del taken["runs"]
    text = json.dumps(taken, indent=1, ensure_ascii=False) + "\n"
    (HERE / name / "comparison.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        draw(sys.argv[1])
    else:
        _take(*sys.argv[1:])
