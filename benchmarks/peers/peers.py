"""Trainings as three peers' users write them, beside vcycle's: the same network, videos, steps and LR schedule.

    python -m benchmarks.peers.peers turns RECIPE [KEY=VALUE...] --work FOLDER --out turns.jsonl
    python -m benchmarks.peers.peers train RECIPE [KEY=VALUE...] --work FOLDER --out trainings.jsonl

`turns` measures what an epoch costs, in turns; `train` trains each to its end, with its accuracy. Processor
time decides. A line is added for each turn and training, and lines that are there are not measured again.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from benchmarks.peers.accounting import Gate, Process, ffmpeg_of_pyav
from benchmarks.peers.trainings import TRAININGS, Job, preload

from vcycle.runs.evaluate import validator
from vcycle.runs.experiment import Experiment
from vcycle.tasks.recipes import load_recipe, with_absolute_paths
from vcycle.train.environment import environment
from vcycle.train.ranks import SINGLE_PROCESS

PACKAGES = ("torch", "torchvision", "torchcodec", "av", "slowfast", "transformers", "accelerate", "pytorchvideo")


@dataclass(frozen=True)
class Arm:
    """A way of training."""

    plan: str = "constant"
    prepared: bool = False
    """Read arrays of `vcycle prepare`, instead of the original files."""


ARMS = {
    "plain PyTorch": Arm(),
    "PySlowFast": Arm(),
    "Hugging Face": Arm(),
    "vcycle, constant": Arm(),
    "vcycle, constant, prepared": Arm(prepared=True),
    "vcycle, cascade, prepared": Arm("cascade", prepared=True),
    "vcycle, cascade of 1.5 lengths, prepared": Arm("cascade@1.5", prepared=True),
}
"""All arms, the peers first."""
PEERS = tuple(ARMS)[:3]
TURNS = tuple(ARMS)[:-1]
"""Those whose steps are measured in turns: a longer plan has the same steps."""
FULL = (*PEERS, *tuple(ARMS)[-3:])
"""Those that are trained to their end: the form of the videos changes nothing but the time."""


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    recipe: str
    overrides: tuple[str, ...]
    work: Path

    def of(self, arm: Arm) -> tuple[str, ...]:
        """The overrides of an arm."""
        common = ("data.cache=null", "data.workers=2", "run.device=cpu", "run.threads=1")
        quiet = ("run.validate_every=100000", "run.save_every=100000", "run.watchdog=null")
        prepared = (f"data.path={self.prepared}",) if arm.prepared else ()
        return (*common, *quiet, *self.overrides, *prepared)

    @property
    def prepared(self) -> Path:
        """The folder of the arrays."""
        return self.work / "arrays"


def run_arm(gate: Gate, asked: Asked, name: str, folder: Path, turns: int | None) -> dict[str, Any]:
    """Train an arm: in its own process.

    Args:
        gate: Lets it go on.
        asked: The command line.
        name: The arm.
        folder: An empty folder.
        turns: Repeat a part as often: the plan for one epoch or, of a constant shape, an eighth of that; None for the
            whole training, and its accuracy.
    """
    arm = ARMS[name]
    overrides = asked.of(arm) + (("training.epochs=1", "training.warmup=null") if turns else ())
    experiment = Experiment(with_absolute_paths(load_recipe(asked.recipe, overrides)), folder)
    plan = experiment.plan(arm.plan)
    steps = len(plan)
    if turns:
        stages = plan.stages
        if len(stages) == 1:
            steps //= 8
            stages = (replace(stages[0], steps=steps),)
        plan = replace(plan, stages=stages * turns)
    about = {"steps": steps, "clips": sum(plan[step].batch for step in range(steps))}
    job = Job(
        experiment=experiment, plan=plan, work=folder, begin=lambda: gate.begin(about), after_step=gate.after_step
    )
    network = TRAININGS[name.partition(",")[0]](job)
    found: dict[str, Any] = {"environment": environment(torch.device("cpu")) | packages()}
    if turns is None:
        original = Experiment(with_absolute_paths(load_recipe(asked.recipe, asked.of(Arm()))), folder)
        videos = original.splits.test
        if videos is None:
            raise SystemExit("the videos have no test split")
        test = validator(original.evaluator("test", "validation"), ranks=SINGLE_PROCESS)
        result = test(network.eval(), torch.device("cpu"))
        found |= {"videos": len(videos), "accuracy": result.value, "protocol": result.protocol}
    return found


def packages() -> dict[str, str]:
    """Versions of the peers, of those that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def prepare(asked: Asked, out: Path, names: Iterable[str]) -> None:
    """Prepare the videos as arrays if arms need it and they are not, and note what it took."""
    if not any(ARMS[name].prepared for name in names) or any(line["kind"] == "prepared" for line in lines(out)):
        return
    recipe = with_absolute_paths(load_recipe(asked.recipe, asked.of(Arm())))
    command = ["prepare", str(recipe.data.path), str(asked.prepared), "--recipe", asked.recipe, "--to", "array"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "vcycle", *command], check=True, stdout=sys.stderr)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    write(out, {"kind": "prepared", "cpu_seconds": cpu, "wall": wall}, asked)


def turns(asked: Asked, out: Path, count: int) -> None:
    """Measure a part of every arm, as often as asked for; every other turn backwards."""
    prepare(asked, out, TURNS)
    measured = [line["arm"] for line in lines(out) if line["kind"] == "turn"]
    done = min(measured.count(name) for name in TURNS)
    if len(measured) != done * len(TURNS):
        raise SystemExit(f"{out}: turn {done} was interrupted: remove its lines")
    if done >= count:
        return
    arms: dict[str, Process] = {}
    try:
        for name in TURNS:
            folder = asked.work / f"turns-{datetime.now(UTC):%H%M%S}-{name.replace(' ', '-').replace(',', '')}"
            arms[name] = Process(run_arm, asked, name, folder, count - done + 1)
        for arm in arms.values():
            arm.go(arm.about["steps"])  # starts workers, and is not counted
        for turn in range(done, count):
            for name in TURNS[:: -1 if turn % 2 else 1]:
                about = arms[name].about
                spent = arms[name].go(about["steps"], last=turn == count - 1)
                write(out, {"kind": "turn", "turn": turn, "arm": name, **about, **spent._asdict()}, asked)
        for name, arm in arms.items():
            write(out, {"kind": "environment", "arm": name, **arm.result()}, asked)
    finally:
        for arm in arms.values():
            arm.stop()


def trainings(asked: Asked, out: Path, names: Sequence[str]) -> None:
    """Train arms to their end, those whose seed is not in the results yet."""
    prepare(asked, out, names)
    for name in names:
        seed = load_recipe(asked.recipe, asked.of(ARMS[name])).run.seed
        if any(line["kind"] == "training" and (line["arm"], line["seed"]) == (name, seed) for line in lines(out)):
            continue
        folder = asked.work / f"full-{datetime.now(UTC):%H%M%S}-{name.replace(' ', '-').replace(',', '')}"
        process = Process(run_arm, asked, name, folder, None)
        spent = process.go(process.about["steps"], last=True)
        write(
            out,
            {"kind": "training", "arm": name, "seed": seed, **process.about, **spent._asdict(), **process.result()},
            asked,
        )


def lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of results; none if there is no file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def write(out: Path, line: dict[str, Any], asked: Asked) -> None:
    """Add a line to the results, and show it."""
    kept = [each for each in asked.overrides if not each.startswith("data=")]
    line |= {"recipe": asked.recipe, "overrides": kept, "load": [round(each, 2) for each in os.getloadavg()]}
    line = {key: round(each, 4) if isinstance(each, float) else each for key, each in line.items()}
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps({key: each for key, each in line.items() if key != "environment"}), file=sys.stderr, flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("turns", "train"):
        command = commands.add_parser(name)
        command.add_argument("recipe")
        command.add_argument("overrides", nargs="*")
        command.add_argument("--work", type=Path, required=True)
        command.add_argument("--out", type=Path, required=True)
        if name == "turns":
            command.add_argument("--turns", type=int, default=4)
        else:
            command.add_argument("--arm", action="append", choices=FULL, help="One or several; by default, all.")
    given = parser.parse_args()
    work = given.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    ffmpeg_of_pyav(work / "ffmpeg")
    torch.set_num_threads(1)
    preload()
    asked = Asked(given.recipe, tuple(given.overrides), work)
    if given.command == "turns":
        turns(asked, given.out, given.turns)
    else:
        trainings(asked, given.out, given.arm or FULL)


if __name__ == "__main__":
    main()
