"""Trains the plans of a search at their full length, and compares the proposal with the best of them.

    python full.py train SEARCH.json RECIPE [KEY=VALUE...] --seeds 0,1 --work FOLDER --out RESULTS.jsonl
    python full.py table SEARCH.json RESULTS.jsonl

All plans of the pilot, the proposal among them, the recipe's own plan, the constant shape and its control are trained
for the same predicted time. Finished runs are kept. The table has each plan's accuracy minus that of the proposal, with
a 95 % Student interval over test videos, each the mean over the seeds that both plans have.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from vcycle.bench.auto.candidates import Candidate
from vcycle.bench.runs import Arm, ArmRun, Failure, in_turn, train_all
from vcycle.bench.statistics import clip_interval
from vcycle.bench.study import run_key, train_arm
from vcycle.config.recipe import RecipeBase
from vcycle.runs.experiment import Experiment
from vcycle.tasks.recipes import load_given
from vcycle.train.callbacks import Callbacks

Row = Mapping[str, Any]
"""A plan of the search, or a finished training."""


def arms_of(search: Mapping[str, Any], only: Sequence[str] | None) -> list[tuple[Row, Candidate]]:
    """The rows of a search to train, with a candidate each: those with these labels.

    Without labels, those of the pilot, best first, the recipe's own, the constant shape and its control.
    """
    rows = [
        row
        for row in search["candidates"]
        if (row["label"] in only if only else row["pilot"] or row["own"] or is_unshaped(row))
    ]
    rows.sort(key=lambda row: (-row["chosen"], -len(row["pilot"]), -row["pilot"][-1]["value"] if row["pilot"] else 0))
    return [(row, candidate_of(row)) for row in rows]


def is_unshaped(row: Row) -> bool:
    """Whether a row is the constant shape or a control."""
    label: str = row["label"]
    return label == "constant" or label.startswith("control:")


def candidate_of(row: Row) -> Candidate:
    """The candidate of a row: its label is its name, and its options as JSON."""
    plan, *options = row["label"].replace("], ", "]; ").split(", ", 1)
    changes = []
    for text in options[0].replace(", weights", "; weights").split("; ") if options else ():
        name, _, value = text.partition(" ")
        changes.append((name, json.loads(value)))
    return Candidate(plan=plan, changes=tuple(changes), own=row["own"])


def train_full(
    search: Mapping[str, Any],
    recipe: RecipeBase,
    seeds: Sequence[int],
    work: Path,
    out: Path,
    only: Sequence[str] | None,
) -> None:
    """Train every arm with every seed, or those with these labels alone."""
    experiment = Experiment(recipe, work)
    samples = len(experiment.splits.train)
    arms: list[Arm] = []
    recipes: dict[str, RecipeBase] = {}
    for row, candidate in arms_of(search, only):
        length = float(row["plan"].rpartition("@")[2])
        plan = candidate.build(recipe, samples, length)
        own = candidate.recipe(recipe).model_copy(update={"plan": candidate.name(length)})
        if recipe.data.path is None:  # the embedded set, beside the runs
            own = own.model_copy(update={"data": experiment.task.embedded_data(recipe, work)})
        recipes[row["label"]] = own
        arms.append(Arm(name=row["label"], plan=plan, key=run_key(recipe, plan.fingerprint)))

    def train(arm: Arm, seed: int) -> ArmRun:
        return train_arm(experiment, arm, seed, work, recipe=recipes[arm.name], callbacks=Callbacks())

    def tell(run: ArmRun | Failure) -> None:
        print(run.arm, run.seed, run.test if isinstance(run, ArmRun) else run.failed, flush=True)

    train_all(arms, seeds=seeds, results=out, train=in_turn(train), on_run=tell)


def table(search: Mapping[str, Any], runs: Sequence[Row]) -> None:
    """Print the accuracy of every plan at its full length, and the proposal against the best."""
    chosen = next(row["label"] for row in search["candidates"] if row["chosen"])
    found: dict[str, list[Row]] = {}
    for run in runs:
        found.setdefault(run["arm"], []).append(run)
    for label, each in sorted(found.items(), key=lambda item: -mean(run["test"] for run in item[1])):
        row = next(row for row in search["candidates"] if row["label"] == label)
        pilot = ", ".join(f"{100 * reached['value']:.1f}" for reached in row["pilot"])
        bold = "**" * (label == chosen)
        cells = [
            f"{bold}{label}{bold}",
            row["plan"].rpartition("@")[2],
            f"{each[0]['steps']:,}",
            f"{row['seconds']:.1f} s",
        ]
        cells += [f"{mean(run['cpu_seconds'] for run in each):.1f} s", pilot]
        cells += [f"{100 * mean(run['test'] for run in each):.1f} %", str(len(each)), over(found[chosen], each)]
        print(f"| {' | '.join(cells)} |")
    if chosen in found and len(found) > 1:
        best = max(mean(run["test"] for run in each) for each in found.values())
        mine = mean(run["test"] for run in found[chosen])
        print(f"\nproposal {100 * mine:.1f} %, best {100 * best:.1f} %: {mine / best:.3f} of the best in the same time")
    taken = search["search"]
    print(
        f"search: {taken['timing_seconds']:.0f} s of timing and {taken['pilot_seconds']:.0f} s of pilot by the clock, "
        f"{taken['pilot_cpu_seconds']:.0f} s of processor time in the pilot's steps; the plan itself takes "
        f"{search['seconds']:.0f} s"
    )


def over(chosen: Sequence[Row], other: Sequence[Row]) -> str:
    """The points that the trainings of a plan have more than those of the proposal, with their interval."""
    pairs = [(a["each"], b["each"]) for b in chosen for a in other if a is not b and a["seed"] == b["seed"]]
    found = clip_interval([a for a, _ in pairs], [b for _, b in pairs], shares=True) if pairs else None
    return "" if found is None else f"{100 * found.difference:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    full = commands.add_parser("train")
    full.add_argument("search", type=Path)
    full.add_argument("recipe")
    full.add_argument("overrides", nargs="*")
    full.add_argument("--seeds", default="0")
    full.add_argument("--only", action="append", help="Label of any plan of the search; several.")
    full.add_argument("--work", type=Path, required=True)
    full.add_argument("--out", type=Path, required=True)
    shown = commands.add_parser("table")
    shown.add_argument("search", type=Path)
    shown.add_argument("results", type=Path)
    given = parser.parse_args()
    search = json.loads(given.search.read_text())
    if given.command == "table":
        table(search, [json.loads(line) for line in given.results.read_text().splitlines() if '"failed"' not in line])
        return
    seeds = [int(seed) for seed in given.seeds.split(",")]
    train_full(search, load_given(given.recipe, given.overrides), seeds, given.work, given.out, given.only)


if __name__ == "__main__":
    main()
