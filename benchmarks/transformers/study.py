"""Trains two small transformers under plans, with and without token dropping, and makes the tables of the pages.

    python study.py train RECIPE [KEY=VALUE...] --seeds 11-13 --work FOLDER --out RUNS.jsonl [--only ARM...]
    python study.py steps RECIPE --out STEPS.json
    python study.py losses RECIPE --work FOLDER --out LOSSES.jsonl
    python study.py picture

`train` keeps finished runs and resumes an interrupted one. `steps` counts the FLOPs of a clip at every shape and times
a step at every batch shape, in turns. `losses` reads the training loss around every change of shape. `picture` draws
accuracy.png. `python -m benchmarks.pages` puts the tables into README.md and docs/transformers.md.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from vcycle.bench.statistics import Interval, clip_interval, paired_bootstrap
from vcycle.config.recipe import RecipeBase
from vcycle.plan import BatchShape, Plan
from vcycle.tasks.base import tasks
from vcycle.tasks.recipes import load_given

HERE = Path(__file__).parent
CLIPS = 538
"""Training videos of mhad_depth."""

TOKENS = ("plans.cascade.shapes=[[1, 1, 0.25], [1, 1, 0.5], [1, 1]]", "plans.cascade.weights=[5, 3, 2]")
BOTH = (
    "plans.cascade.shapes=[[0.5, 0.5], [1, 0.5, 0.5], [1, 0.7071, 0.5], [1, 1, 0.5], [1, 1]]",
    "plans.cascade.weights=[5, 1, 1, 1, 2]",
)
AROUND = 20
"""Steps of a stage over which its first and last losses are means."""
NONE = "No training has ended yet."
PLANS: Mapping[str, tuple[str, Sequence[str]]] = {
    "constant": ("constant@1", ()),
    "cascade": ("cascade@1", ()),
    "control": ("control:cascade@1", ()),
    "constant, half": ("constant@0.5", ()),
    "tokens": ("cascade@1", TOKENS),
    "cascade + tokens": ("cascade@1", BOTH),
    "control, half": ("control:cascade@0.5", ()),
    "cascade, double": ("cascade@2", ()),
    "cascade + tokens, double": ("cascade@2", BOTH),
}
"""Plan and changes to the recipe of each arm."""
ARMS: Mapping[str, Sequence[str]] = {
    "plain": list(PLANS),
    "scratch": ["constant", "cascade", "control", "tokens"],
    "hierarchical": [name for name in PLANS if "tokens" not in name],
}
"""The arms of each recipe. Swin attends in windows, and cannot drop tokens."""
TITLES = {
    "plain": "ViViT from trained weights",
    "scratch": "ViViT from scratch",
    "hierarchical": "Swin3D from trained weights",
}
"""Of the picture, as the headings of README.md."""
STEPS = {"plain": "steps-plain.json", "scratch": "steps-plain.json", "hierarchical": "steps-hierarchical.json"}
"""The measured steps of each recipe's network."""

Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""The trainings of each arm."""


def plans_of(file: Path, overrides: Sequence[str] = (), clips: int = CLIPS) -> dict[str, tuple[RecipeBase, Plan]]:
    """The recipe and plan of each arm."""
    found = {}
    for name in ARMS[file.stem]:
        plan, changes = PLANS[name]
        recipe = load_given(str(file), [*overrides, *changes, f"plan={plan}"])
        found[name] = recipe, tasks[recipe.task].plan(recipe, clips, plan)
    return found


def train_study(
    file: Path, overrides: Sequence[str], seeds: Sequence[int], work: Path, out: Path, only: Sequence[str]
) -> None:
    """Train every arm with every seed, seed by seed."""
    from vcycle.bench.runs import Arm, in_turn, train_all
    from vcycle.bench.study import run_key, train_arm
    from vcycle.runs.experiment import Experiment
    from vcycle.runs.train import probe_plans
    from vcycle.train.callbacks import Callbacks

    experiment = Experiment(load_given(str(file), overrides), work)
    found = plans_of(file, overrides, len(experiment.splits.train))
    found = {name: pair for name, pair in found.items() if not only or name in only}
    for recipe, plan in found.values():
        probe_plans(recipe, len(experiment.classes), [plan])
    arms = [Arm(name=name, plan=plan, key=run_key(recipe, plan.fingerprint)) for name, (recipe, plan) in found.items()]

    def train(arm: Arm, seed: int) -> Any:
        return train_arm(experiment, arm, seed, work, recipe=found[arm.name][0], callbacks=Callbacks())

    def tell(run: Any) -> None:
        print(
            run.arm, run.seed, getattr(run, "failed", None) or f"{run.test:.3f} in {run.cpu_seconds:.0f} s", flush=True
        )

    train_all(arms, seeds=seeds, results=out, train=in_turn(train), on_run=tell)


def measure_steps(file: Path, out: Path) -> None:
    """FLOPs of a clip at every shape of the arms, and the time of a step at every batch shape."""
    from torch.utils.flop_counter import FlopCounterMode

    from vcycle.bench.steps.study import bench_steps
    from vcycle.bench.steps.turns import Effort
    from vcycle.bench.steps.work import step_flops
    from vcycle.bench.steps.workload import workload_of

    arms = plans_of(file)
    workload = workload_of(arms["constant"][0], 27)
    shapes = {(s.frames, s.size, s.tokens) for _, plan in arms.values() for s in plan.shapes}
    shapes.add((16, 24, 1.0))  # not in Swin's plans, because its windows pad it
    counted = []
    for frames, size, tokens in sorted(shapes, key=lambda s: (-s[0] * s[1] ** 2, -s[2])):
        with FlopCounterMode(display=False) as every:
            total = step_flops(workload, BatchShape(frames=frames, size=size, batch=1, bn_batch=1, tokens=tokens))
        products = sum(n for op, n in every.get_flop_counts()["Global"].items() if "bmm" in str(op))
        counted.append({"frames": frames, "size": size, "tokens": tokens, "flops": total, "attention": products})
    plans = {name: plan for name, (_, plan) in arms.items()}
    timed = bench_steps(workload, plans, effort=Effort(repeats=5, seconds=0.1))
    kept = ("batch", "frames", "size", "tokens", "gflop", "step_ms", "cpu_ms", "realised", "realised_cpu")
    steps = [{key: row[key] for key in kept if key in row} for row in timed["shapes"]]
    lengths = {row["plan"]: {key: row[key] for key in ("steps", "samples", "flop_speedup")} for row in timed["plans"]}
    about = {key: timed[key] for key in ("threads", "machine", "versions", "peak_gflops")}
    found = {"clips": counted, "steps": steps, "plans": lengths, **about}
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def read_losses(file: Path, work: Path, out: Path) -> None:
    """The mean training loss of the first and the last steps of each stage, in the logs of the trainings that ended."""
    from vcycle.bench.study import run_folder

    found = []
    for run in (run for own in read(file.with_suffix(".jsonl")).values() for run in own):
        folder = run_folder(work, run["arm"], run["seed"], run["key"])
        events = map(json.loads, (folder / "log.jsonl").read_text(encoding="utf-8").splitlines())
        steps = [event for event in events if event["event"] == "step"]
        for _, group in groupby(steps, key=lambda step: step["stage"]):
            own = list(group)
            losses = [step["loss"] for step in own]
            shape = {"frames": own[0]["frames"], "size": own[0]["size"], "tokens": own[0].get("tokens", 1.0)}
            first, last = fmean(losses[:AROUND]), fmean(losses[-AROUND:])
            found.append({"arm": run["arm"], "seed": run["seed"], **shape, "first": first, "last": last})
    out.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")


def loss_rows(losses: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """A row per stage of the plans: the training loss when it begins and when it ends, the mean over seeds."""
    stages: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in losses:
        if row["arm"] in ("cascade", "tokens", "cascade + tokens"):
            stages.setdefault((row["arm"], row["frames"], row["size"], row["tokens"]), []).append(row)
    for (arm, frames, size, tokens), rows in stages.items():
        kept = f", {100 * tokens:.0f} % of tokens" if tokens < 1 else ""
        ends = (f"{fmean(row[end] for row in rows):.2f}" for end in ("first", "last"))
        yield [arm, f"{frames}×{size}²{kept}", *ends]


def read(file: Path) -> Runs:
    """The trainings of a study that ended, by arm; those of seeds that every arm has."""
    runs: dict[str, dict[int, Mapping[str, Any]]] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        run = json.loads(line)
        if "failed" not in run:
            runs.setdefault(run["arm"], {})[run["seed"]] = run
    order = [name for name in ARMS[file.stem] if name in runs]
    return {name: [runs[name][seed] for seed in sorted(runs[name])] for name in order}


def tables(name: str, runs: Runs, steps: Mapping[str, Any]) -> dict[str, str]:
    """The tables of a recipe, as Markdown, by the name of their marker."""
    return {
        f"{name}: shapes": table(SHAPES, shape_rows(steps)),
        f"{name}: plans": table(ACCURACY, accuracy_rows(steps["plans"], runs)) if runs else NONE,
        f"{name}: differences": table(DIFFERENCES, difference_rows(runs)) if runs else NONE,
    }


SHAPES = ("clip", "voxels", "FLOPs", "of which attention", "batch", "step", "per clip", "realised")
ACCURACY = ("plan", "length", "updates", "FLOPs", "processor time", "validation", "test", "seeds")
LOSSES = ("plan", "stage", "first 20 steps", "last 20 steps")
DIFFERENCES = ("plan", "against", "difference in points (95 %)", "time")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column, and the second where it is words, are flush left."""
    left = 2 if head in (DIFFERENCES, LOSSES) else 1
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * left + "---:|" * (len(head) - left)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def shape_rows(steps: Mapping[str, Any]) -> Iterator[list[str]]:
    """A row per shape: the clip's cost by voxels and by FLOPs and, where it was timed, the step's."""
    full = steps["clips"][0]
    timed = {(row["frames"], row["size"], row.get("tokens", 1.0)): row for row in steps["steps"]}
    for clip in sorted(steps["clips"], key=lambda clip: -clip["flops"]):
        kept = f", {100 * clip['tokens']:.0f} % of tokens" if clip["tokens"] < 1 else ""
        voxels = clip["frames"] * clip["size"] ** 2 / (full["frames"] * full["size"] ** 2)
        row = timed.get((clip["frames"], clip["size"], clip["tokens"]))
        yield [
            f"{clip['frames']}×{clip['size']}²{kept}",
            f"{voxels:.3f}",
            f"{clip['flops'] / full['flops']:.3f}",
            f"{100 * clip['attention'] / clip['flops']:.0f} %",
            *(("", "", "", "") if row is None else step_cells(row)),
        ]


def step_cells(row: Mapping[str, Any]) -> list[str]:
    """The batch of a step, its processor time, that of a clip, and the rate of FLOPs."""
    taken = row["cpu_ms"]["median"]
    realised = f"{row['realised_cpu']['median']:.2f}"
    return [str(row["batch"]), f"{taken:.1f} ms", f"{taken / row['batch']:.2f} ms", realised]


def accuracy_rows(plans: Mapping[str, Mapping[str, Any]], runs: Runs) -> Iterator[list[str]]:
    """A row per arm: what it costs and what it reaches."""
    for name, own in runs.items():
        yield [
            name.partition(",")[0],
            f"{plans[name]['samples'] / plans['constant']['samples']:.2g}",
            f"{plans[name]['steps']:,}",
            f"{1 / plans[name]['flop_speedup']:.2f}",
            f"{fmean(run['cpu_seconds'] for run in own):.0f} s",
            f"{100 * fmean(run['val'] for run in own):.1f} %",
            percent([run["test"] for run in own]),
            str(len(own)),
        ]


def percent(values: Sequence[float]) -> str:
    """Mean and, of several values, their standard deviation."""
    spread = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * fmean(values):.1f} %{spread}"


def difference_rows(runs: Runs) -> Iterator[list[str]]:
    """A row per plan and constant arm: the difference on test, and how many times faster."""
    against = [name for name in runs if name.partition(",")[0] in ("constant", "control")]
    for name in (name for name in runs if name not in against):
        for other in against:
            found = difference(runs[name], runs[other])
            time = ratio(runs[other], runs[name])
            yield [name, other, found, f"{time:.1f}× faster" if time >= 1 else f"{1 / time:.1f}× slower"]


def difference(own: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> str:
    """Points by which an arm is better on test over shared seeds, with its interval.

    It is the paired bootstrap's over seeds and videos, with one seed Student's over videos alone.
    """
    pairs = [(a, b) for a in own for b in other if a["seed"] == b["seed"]]
    rows = [a["each"] for a, _ in pairs], [b["each"] for _, b in pairs]
    found = paired_bootstrap(*rows)
    points = signed(100 * fmean(a["test"] - b["test"] for a, b in pairs))
    if found is None:
        alone = clip_interval(*rows, shares=True)
        return points if alone is None else f"{points} ({interval(alone)}, over videos alone)"
    return f"{points} ({interval(found)})"


def interval(found: Interval) -> str:
    """The bounds in points."""
    return f"{signed(100 * found.low)} to {signed(100 * found.high)}"


def signed(points: float) -> str:
    """A number with its sign, one decimal."""
    return f"{points:+.1f}".replace("-", "−")


def ratio(slow: Sequence[Mapping[str, Any]], fast: Sequence[Mapping[str, Any]]) -> float:
    """How many times more processor time, over all trainings of both."""
    return fmean(run["cpu_seconds"] for run in slow) / fmean(run["cpu_seconds"] for run in fast)


def every_table() -> dict[str, str]:
    """All tables that the committed logs give."""
    found: dict[str, str] = {}
    for name, file in STEPS.items():
        steps = json.loads((HERE / file).read_text(encoding="utf-8"))
        found |= tables(name, read(HERE / f"{name}.jsonl"), steps)
    losses = (HERE / "losses-plain.jsonl").read_text(encoding="utf-8").splitlines()
    found["plain: losses"] = table(LOSSES, loss_rows([json.loads(line) for line in losses]))
    return found


def picture(out: Path) -> None:
    """Accuracy on test against processor time, both networks."""
    from dataclasses import asdict

    from vcycle.report.lengths import lengths_figure
    from vcycle.tasks.base import measures

    drawn = {}
    for name in ARMS:
        arms = {}
        for arm, own in read(HERE / f"{name}.jsonl").items():
            plan, _, length = arm.replace("control", "control:cascade").partition(", ")
            values = [run["test"] for run in own]
            arms[f"{plan}@{ {'half': 0.5, 'double': 2}.get(length, 1) }"] = {
                "cpu_seconds": fmean(run["cpu_seconds"] for run in own),
                "value": fmean(values),
                "value_std": stdev(values) if len(values) > 1 else 0.0,
            }
        if arms:
            drawn[TITLES[name]] = {"measure": asdict(measures()["top-1"]), "split": "test", "arms": arms}
    lengths_figure(drawn, "cpu_seconds").savefig(out, dpi=150)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    trained = commands.add_parser("train")
    trained.add_argument("recipe", type=Path)
    trained.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    trained.add_argument("--seeds", required=True)
    trained.add_argument("--work", type=Path, required=True)
    trained.add_argument("--out", type=Path, required=True)
    trained.add_argument("--only", action="append", default=[], help="an arm, by default all")
    stepped = commands.add_parser("steps")
    stepped.add_argument("recipe", type=Path)
    stepped.add_argument("--out", type=Path, required=True)
    lost = commands.add_parser("losses")
    lost.add_argument("recipe", type=Path)
    lost.add_argument("--work", type=Path, required=True)
    lost.add_argument("--out", type=Path, required=True)
    commands.add_parser("picture")
    given = parser.parse_args()
    if given.command == "train":
        first, _, last = given.seeds.partition("-")
        seeds = range(int(first), int(last or first) + 1)
        train_study(given.recipe, given.overrides, seeds, given.work, given.out, given.only)
    elif given.command == "steps":
        measure_steps(given.recipe, given.out)
    elif given.command == "losses":
        read_losses(given.recipe, given.work, given.out)
    else:
        picture(HERE / "accuracy.png")


if __name__ == "__main__":
    main()
