"""Cross-validation: every video of a set is tested by trainings that have not seen it.

python folds.py train RECIPE [KEY=VALUE...] --data FOLDER --plans PLAN,PLAN --seeds 20-24 [--folds 3] [--shuffled]
    [--people REGEX] [--named NAME] [--whole-batchnorm] [--out folds.jsonl]
python folds.py table RESULTS... [--times RESULTS...]
python folds.py picture OUT.png SET=RESULTS,RESULTS...

The videos of each class, in the order of their names, which is that of recording, or shuffled, are cut into as many
blocks; each is tested once. With `--people`, whose group 1 is the person in a file's name, a block has all videos of
some people, of two folds the odd and the even ones, and intervals are over people. A training adds a line to the
results, and those that are there already are not repeated. `--named` is what results call the plan under KEY=VALUE.
With `--whole-batchnorm`, BatchNorm is over the whole batch of a step, in place of groups.
"""

import argparse
import json
import math
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
from torch import nn

from vcycle.bench.statistics import Interval, paired_bootstrap
from vcycle.plan import Plan, Step
from vcycle.report.lengths import lengths_figure
from vcycle.runs.experiment import Experiment
from vcycle.runs.train import train
from vcycle.tasks.base import measures
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition import Scores
from vcycle.train.callbacks import Callbacks
from vcycle.train.run import RunFolder
from vcycle.utils.jsonl import JsonLines

LISTS = ("train.csv", "val.csv", "test.csv")


def main() -> None:
    """Train what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    add_trainings(training)
    training.add_argument("--folds", type=int, default=3)
    training.add_argument("--shuffled", action="store_true")
    training.add_argument("--named")
    training.add_argument("--whole-batchnorm", action="store_true")
    table = commands.add_parser("table")
    table.add_argument("results", type=Path, nargs="+")
    table.add_argument(
        "--times", type=Path, nargs="+", help="whose processor times are shown: of trainings that took turns"
    )
    picture = commands.add_parser("picture")
    picture.add_argument("out", type=Path)
    picture.add_argument("results", nargs="+", metavar="SET=RESULTS")
    asked = parser.parse_args()
    if asked.command == "picture":
        sets = dict(argument.split("=") for argument in asked.results)
        drawn = {
            name: comparison([run for file in files.split(",") for run in read(Path(file))])
            for name, files in sets.items()
        }
        lengths_figure(drawn, "cpu_seconds").savefig(asked.out, dpi=150)
        return
    if asked.command == "table":
        runs = [run for file in asked.results for run in read(file)]
        timed = [run for file in asked.times or asked.results for run in read(file)]
        print("\n".join(lines_of(runs, timed)))
        return
    done = {(run["fold"], run["plan"], run["seed"]) for run in read(asked.out)}
    with tempfile.TemporaryDirectory() as temporary:
        for seed in asked.seeds:
            for fold in range(asked.folds):
                for plan in asked.plans.split(","):
                    name = asked.named or plan
                    if (fold, name, seed) not in done:
                        place = Path(temporary) / str(fold)
                        tested = write_lists(
                            asked.data, asked.folds, fold, place, shuffled=asked.shuffled, people=asked.people
                        )
                        change = with_whole_batchnorm if asked.whole_batchnorm else as_it_is
                        run = trained(asked.recipe, asked.overrides, place, plan, seed, change)
                        people = {"people": Counter(tested)} if asked.people else {}
                        with asked.out.open("a", encoding="utf-8") as file:
                            file.write(json.dumps({"fold": fold, "plan": name, "seed": seed, **people, **run}) + "\n")


def add_trainings(parser: argparse.ArgumentParser) -> None:
    """Add what says which trainings to run, and where their results go."""
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--people", type=re.compile, metavar="REGEX")
    parser.add_argument("--plans", required=True)
    parser.add_argument("--seeds", type=seeds_in, required=True)
    parser.add_argument("--out", type=Path, default=Path("folds.jsonl"))


def seeds_in(text: str) -> range:
    """The seeds of `20-24`, or of one number."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


@contextmanager
def left_out(asked: argparse.Namespace, fold: int, seed: int) -> Iterator[tuple[Experiment, list[str]]]:
    """The recipe on the other of two folds, and the group of each video that is left out."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        tested = write_lists(asked.data, 2, fold, place, shuffled=False, people=asked.people)
        recipe = load_recipe(asked.recipe, [*asked.overrides, f"data={place}", f"run.seed={seed}"])
        yield Experiment(recipe, place), tested


def write_lists(
    data: Path, folds: int, tested: int, place: Path, *, shuffled: bool, people: re.Pattern[str] | None
) -> list[str]:
    """Write lists of a fold's videos, and return the group of each tested one: its person, or else its class.

    The videos of the tested block are to validate too, at the end, where that chooses nothing.
    """
    lines = sorted(line for name in LISTS for line in (data / name).read_text(encoding="utf-8").splitlines() if line)
    groups: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        groups[line.rpartition(" ")[2] if people is None else person_in(line, people)].append(line)
    for own in groups.values() if shuffled else ():
        Random(0).shuffle(own)
    if people is None:
        block = {line: k * folds // len(own) for own in groups.values() for k, line in enumerate(own)}
    else:
        block = {line: k % folds for k, name in enumerate(sorted(groups)) for line in groups[name]}
    place.mkdir(parents=True, exist_ok=True)
    for name in LISTS:
        listed = (line for line, number in block.items() if (number == tested) != (name == "train.csv"))
        (place / name).write_text("".join(f"{data.resolve() / line}\n" for line in listed), encoding="utf-8")
    names = data / "classes.txt"
    if names.exists():
        (place / names.name).write_bytes(names.read_bytes())
    of = {line: name for name, own in groups.items() for line in own}
    return [of[line] for line, number in block.items() if number == tested]


def person_in(line: str, people: re.Pattern[str]) -> str:
    """The person in a line's file name."""
    name = line.rpartition(" ")[0].rpartition("/")[2]
    found = people.search(name)
    if found is None:
        raise SystemExit(f"--people {people.pattern}: {name} does not match")
    return found[1]


def as_it_is(plan: Plan) -> Plan:
    """The plan."""
    return plan


def with_whole_batchnorm(plan: Plan) -> Plan:
    """A plan with BatchNorm over the whole batch of each step, in place of groups."""
    stages = (
        replace(stage, pattern=tuple(replace(cell, bn_batch=cell.batch) for cell in stage.pattern))
        for stage in plan.stages
    )
    return replace(plan, stages=tuple(stages))


def trained(
    recipe_name: str,
    overrides: list[str],
    data: Path,
    name: str,
    seed: int,
    change: Callable[[Plan], Plan],
) -> dict[str, Any]:
    """Train under a plan and test: what took how long, and which of the videos were recognised."""
    recipe = load_recipe(recipe_name, [*overrides, f"data={data}", "run.validate_every=100000", f"run.seed={seed}"])
    experiment = Experiment(recipe, data)
    took: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as temporary:
        fitted = train(
            experiment,
            change(experiment.plan(name)),
            RunFolder(Path(temporary) / "run"),
            callbacks=Callbacks(on_step=lambda report: took[cell_of(report.step)].append(report.seconds)),
        )
    return {
        "steps": fitted.steps,
        "samples": fitted.samples,
        "cpu_seconds": round(fitted.cpu_seconds, 2),
        "seconds": round(fitted.seconds, 2),
        "step_seconds": {cell: [len(each), round(median(each), 5)] for cell, each in took.items()},
        **tested_by(fitted.model, experiment),
    }


def cell_of(step: Step) -> str:
    """A step's batch shape."""
    return f"{step.batch}×{step.shape.frames}×{step.shape.size}²"


def tested_by(model: nn.Module, experiment: Experiment) -> dict[str, Any]:
    """Which test videos a model recognises, and the mean of minus the logarithm of what it gives the true class."""
    found = Scores.of(experiment.evaluator("test", "validation").each(model, next(model.parameters()).device))
    order = found.videos.argsort()
    right = (found.scores.argmax(1) == found.labels)[order].int().tolist()
    given = found.scores.gather(1, found.labels[:, None].long()).clamp_min(1e-9)
    return {"nll": round(float(-given.log().mean()), 4), "right": right}


def read(results: Path) -> list[dict[str, Any]]:
    """The trainings so far."""
    return list(JsonLines(results).read())


def lines_of(runs: list[dict[str, Any]], timed: list[dict[str, Any]]) -> Iterator[str]:
    """Each plan, and each cascade beside the others; times are those of the trainings in `timed`."""
    plans = list(dict.fromkeys(run["plan"] for run in runs))
    yield "| plan | trainings | steps | processor time | loss on test | accuracy on test |"
    yield "|---|---:|---:|---:|---:|---:|"
    for plan in plans:
        own = [run for run in runs if run["plan"] == plan]
        shares = [fmean(run["right"]) for run in own]
        yield (
            f"| {plan} | {len(own)} | {fmean(run['steps'] for run in own):,.0f} "
            f"| {fmean(run['cpu_seconds'] for run in timed if run['plan'] == plan):.1f} s "
            f"| {fmean(run['nll'] for run in own):.3f} "
            f"| {np.nanmean(table_of(own)):.1%} ± {100 * (stdev(shares) if len(shares) > 1 else 0):.1f} |"
        )
    yield ""
    yield "| plan | against | difference in points (95 %) | speed-up (processor time) |"
    yield "|---|---|---:|---:|"
    for plan in (name for name in plans if name.startswith("cascade")):
        for other in (name for name in plans if not name.startswith("cascade")):
            found = difference_of(runs, plan, other)
            difference, low, high = (math.nan,) * 3 if found is None else found[:3]
            ratios = ratios_of(timed, plan, other)
            yield (
                f"| {plan} | {other} | {100 * difference:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}) "
                f"| {1 / median(ratios):.2f}× ({1 / ratios[-1]:.2f}× to {1 / ratios[0]:.2f}×) |"
            )


def comparison(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What is drawn: of each plan the time of its fastest training, as others add to it, and accuracy by seed."""
    arms = {}
    for plan in dict.fromkeys(run["plan"] for run in runs):
        own = [run for run in runs if run["plan"] == plan]
        if {run["fold"] for run in own} != {run["fold"] for run in runs}:
            continue  # folds differ: accuracies on some do not stand beside those on all
        by_seed = np.nanmean(table_of(own), axis=1)
        arms[plan] = {
            "cpu_seconds": min(run["cpu_seconds"] for run in own),
            "value": float(np.nanmean(table_of(own))),
            "value_std": float(by_seed.std(ddof=1)) if len(by_seed) > 1 else 0.0,
        }
    return {"measure": asdict(measures()["top-1"]), "split": "test", "arms": arms}


def paired(runs: list[dict[str, Any]], plan: str, other: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The trainings of two plans with the same folds and seeds."""
    of = {name: {(run["seed"], run["fold"]): run for run in runs if run["plan"] == name} for name in (plan, other)}
    keys = sorted(of[plan].keys() & of[other].keys())
    return [of[plan][key] for key in keys], [of[other][key] for key in keys]


def difference_of(runs: list[dict[str, Any]], plan: str, other: str) -> Interval | None:
    """The share by which a plan recognises more, with its interval over seeds and videos, or seeds and people."""
    a, b = paired(runs, plan, other)
    return paired_bootstrap(table_of(a), table_of(b), clusters=clusters_of(a))


def ratios_of(timed: list[dict[str, Any]], plan: str, other: str) -> list[float]:
    """The processor time of a plan over that of another, of each pair of fold and seed, in ascending order."""
    pairs = zip(*paired(timed, plan, other), strict=True)
    return sorted(x["cpu_seconds"] / y["cpu_seconds"] for x, y in pairs)


def voxels_of(run: dict[str, Any]) -> int:
    """The voxels that a training computed."""
    shapes = ((map(int, re.findall(r"\d+", shape)), steps) for shape, (steps, _) in run["step_seconds"].items())
    return sum(steps * clips * frames * side**2 for (clips, frames, side, *_), steps in shapes)


def table_of(runs: list[dict[str, Any]]) -> np.ndarray:
    """What was recognised: a row for each seed, a column for each video; nan where a fold was not trained."""
    videos = {run["fold"]: len(run["right"]) for run in runs}
    starts = {fold: sum(videos[before] for before in videos if before < fold) for fold in videos}
    seeds = sorted({run["seed"] for run in runs})
    table = np.full((len(seeds), sum(videos.values())), np.nan)
    for run in runs:
        begin = starts[run["fold"]]
        table[seeds.index(run["seed"]), begin : begin + len(run["right"])] = run["right"]
    return table


def clusters_of(runs: list[dict[str, Any]]) -> list[int] | None:
    """The person of each column of `table_of`, as a number; None if folds are not of people."""
    of_fold = {run["fold"]: run["people"] for run in runs if "people" in run}
    people = [(name, count) for fold in sorted(of_fold) for name, count in of_fold[fold].items()]
    return [number for number, (_, count) in enumerate(people) for _ in range(count)] or None


if __name__ == "__main__":
    main()
