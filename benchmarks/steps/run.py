"""What `vcycle bench` predicts beside what a training then takes, in turns.

python benchmarks/steps/run.py NAME RECIPE [KEY=VALUE ...] [--plans constant,cascade] [--rounds 5] [--out results.jsonl]

Each round predicts the plans with the recipe's own data and then trains each of them, in one process. A line per plan
and round is added to the results; at the end the table of all rounds of that name is printed.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from vcycle.bench.steps.study import bench_steps
from vcycle.bench.steps.turns import Effort
from vcycle.bench.steps.workload import workload_of
from vcycle.runs.experiment import Experiment
from vcycle.runs.train import train
from vcycle.tasks.recipes import load_recipe, with_absolute_paths
from vcycle.train.run import RunFolder


def main() -> None:
    """Predict and train in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--plans", default="constant,cascade")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.jsonl"))
    asked = parser.parse_intermixed_args()
    recipe = with_absolute_paths(load_recipe(asked.recipe, asked.overrides))
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        experiment = Experiment(recipe, work)
        plans = {name: experiment.plan(name) for name in asked.plans.split(",")}
        workload = workload_of(recipe, len(experiment.classes))
        for number in range(asked.rounds):
            found = bench_steps(
                workload,
                plans,
                effort=Effort(repeats=asked.repeats, seconds=asked.seconds),
                dataset=experiment.dataset("train"),
            )
            predicted = {row["plan"]: row for row in found["plans"]}
            for name, plan in plans.items():
                fitted = train(experiment, plan, RunFolder(work / f"{name}-{number}"))
                line = {
                    "name": asked.name,
                    "round": number,
                    "plan": name,
                    "steps": len(plan),
                    "predicted": predicted[name]["seconds"],
                    "predicted_cpu": predicted[name]["cpu_seconds"],
                    "seconds": fitted.seconds,
                    "cpu_seconds": fitted.cpu_seconds,
                    "load": os.getloadavg()[0],
                    "versions": found["versions"],
                }
                with asked.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
    lines = [json.loads(line) for line in asked.out.read_text(encoding="utf-8").splitlines()]
    print("\n".join(table([line for line in lines if line["name"] == asked.name])))


def table(lines: list[dict[str, Any]]) -> list[str]:
    """Medians over the rounds, and the range of predicted over taken."""
    rows = ["| plan | steps | rounds | training | predicted / taken | processor | predicted / taken |"]
    rows.append("|---|---:|---:|---:|---:|---:|---:|")
    for plan in dict.fromkeys(line["plan"] for line in lines):
        own = [line for line in lines if line["plan"] == plan]
        cells = [plan, f"{own[0]['steps']:,}", str(len(own))]
        for taken, predicted in (("seconds", "predicted"), ("cpu_seconds", "predicted_cpu")):
            ratios = [line[predicted]["median"] / line[taken] for line in own]
            cells.append(f"{statistics.median(line[taken] for line in own):.1f} s")
            cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        rows.append("| " + " | ".join(cells) + " |")
    return rows


if __name__ == "__main__":
    main()
