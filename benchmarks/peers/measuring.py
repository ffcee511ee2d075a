"""Trainings by other tools beside vcycle's: what a part of each costs, in turns, and each trained to its end.

A study says which, and has a command of two parts:

    python -m benchmarks.STUDY turns RECIPE [KEY=VALUE...] --work FOLDER --out LOG
    python -m benchmarks.STUDY train RECIPE [KEY=VALUE...] --work FOLDER --out LOG

`turns` measures what a part of each training costs; `train` trains each to its end, and tests it. Processor time
decides. A line is added for each turn and training, and lines that are there are not measured again.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from benchmarks.peers.accounting import Gate, Process
from torch import nn

from vcycle.plan import Plan
from vcycle.runs.evaluate import validator
from vcycle.runs.experiment import Experiment
from vcycle.runs.train import train
from vcycle.tasks.base import Scope
from vcycle.tasks.recipes import load_recipe, with_absolute_paths
from vcycle.train.callbacks import Callbacks
from vcycle.train.environment import environment
from vcycle.train.ranks import SINGLE_PROCESS
from vcycle.train.run import RunFolder
from vcycle.utils.jsonl import JsonLines

__all__ = ["Arm", "Asked", "Job", "Study", "command_line", "vcycle"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is trained."""

    experiment: Experiment
    """Recipe and videos; of a peer, the original files."""
    plan: Plan
    """Shape, batch and LR of every step; of a peer, a constant shape."""
    work: Path
    """An empty folder."""
    begin: Callable[[], None]
    """Called once when all is set up, before a loader starts."""
    after_step: Callable[[], None]
    """Called after each step."""

    def network(self) -> nn.Module:
        """The recipe's network with its initial weights, in training mode."""
        torch.manual_seed(self.experiment.recipe.run.seed)
        random.seed(self.experiment.recipe.run.seed)
        return self.experiment.build_model(initialise=True, on_message=lambda _: None).train()


def vcycle(job: Job) -> nn.Module:
    """Train as `vcycle train` does."""
    callbacks = Callbacks(on_step=lambda _: job.after_step())
    run = RunFolder(job.work / "run")
    return train(job.experiment, job.plan, run, on_start=job.begin, callbacks=callbacks).model


@dataclass(frozen=True)
class Arm:
    """A way of training."""

    train: Callable[[Job], nn.Module] = vcycle
    """Trains by the tool, and returns the network."""
    plan: str = "constant"
    data: str | None = None
    """Folder of prepared videos, in the folder for work; None for the recipe's data."""
    overrides: tuple[str, ...] = ()
    """Of the recipe."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is trained, and how it is measured."""

    arms: Mapping[str, Arm]
    overrides: tuple[str, ...] = ()
    """Of the recipe, for every arm."""
    turns: Sequence[Sequence[str]]
    """Groups of arms whose steps are measured in turns."""
    full: Sequence[str]
    """Arms that are trained to their end."""
    short: tuple[str, ...]
    """Overrides for the turns: a training of a few seconds."""
    part: int
    """A turn is all steps of a plan, or of a constant shape this part of them."""
    prepare: Callable[["Asked"], Sequence[str]]
    """Writes what the peers read, and returns the arguments of `vcycle prepare` for the same videos, which is timed."""
    preload: Callable[["Asked"], None]
    """Imports what the trainings need: forked processes need not do it again."""
    packages: tuple[str, ...]
    """Those whose versions are noted."""
    scope: Scope
    """Of the test."""
    measure: str
    """Name of the test's value."""


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    recipe: str
    overrides: tuple[str, ...]
    common: tuple[str, ...]
    """Overrides of the study."""
    work: Path

    def of(self, arm: Arm, *more: str) -> tuple[str, ...]:
        """The overrides of an arm, and more, which those of its own replace."""
        common = ("data.workers=2", "run.device=cpu", "run.threads=1")
        quiet = ("run.validate_every=100000", "run.save_every=100000", "run.watchdog=null")
        data = (f"data.path={self.work / arm.data}",) if arm.data else ()
        return (*common, *quiet, *self.common, *self.overrides, *more, *arm.overrides, *data)

    def experiment(self, arm: Arm, folder: Path, *more: str) -> Experiment:
        """The recipe and videos of an arm, with more overrides."""
        return Experiment(with_absolute_paths(load_recipe(self.recipe, self.of(arm, *more))), folder)

    def folder(self, part: str, name: str) -> Path:
        """A new folder for an arm's training."""
        return self.work / f"{part}-{datetime.now(UTC):%H%M%S}-{name.replace(' ', '-').replace(',', '')}"


def _run_arm(gate: Gate, study: Study, asked: Asked, name: str, folder: Path, turns: int | None) -> dict[str, Any]:
    """Train an arm: in its own process.

    Args:
        gate: Lets it go on.
        study: The study.
        asked: The command line.
        name: The arm.
        folder: An empty folder.
        turns: Repeat a part as often: the short plan or, of a constant shape, a part of that; None for the whole
            training.

    Returns:
        Its test.
    """
    arm = study.arms[name]
    experiment = asked.experiment(arm, folder, *(study.short if turns else ()))
    plan = experiment.plan(arm.plan)
    steps = len(plan)
    if turns:
        stages = plan.stages
        if len(stages) == 1:
            steps //= study.part
            stages = (replace(stages[0], steps=steps),)
        plan = replace(plan, stages=stages * turns)
    about = {
        "steps": steps,
        "clips": sum(plan[step].batch for step in range(steps)),
        "environment": environment(torch.device("cpu")) | _packages(study.packages),
    }
    job = Job(
        experiment=experiment, plan=plan, work=folder, begin=lambda: gate.begin(about), after_step=gate.after_step
    )
    network = arm.train(job)
    original = asked.experiment(Arm(), folder)
    videos = original.splits.test
    if videos is None:
        raise SystemExit("the videos have no test split")
    test = validator(original.evaluator("test", study.scope), ranks=SINGLE_PROCESS)
    result = test(network.eval(), torch.device("cpu"))
    return {"videos": len(videos), study.measure: result.value, "protocol": result.protocol}


def _packages(names: Sequence[str]) -> dict[str, str]:
    """Versions of packages, of those that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _prepare(study: Study, asked: Asked, out: Path) -> None:
    """Prepare the videos unless it has been done in this folder, and note what it took the first time."""
    done = asked.work / "prepared"
    if done.exists():
        return
    command = study.prepare(asked)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "vcycle", "prepare", *command], check=True, stdout=sys.stderr)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if not any(line["kind"] == "prepared" for line in JsonLines(out).read()):
        _write(out, {"kind": "prepared", "cpu_seconds": cpu, "wall": wall}, asked)
    done.touch()


def _turns(study: Study, asked: Asked, out: Path, names: Sequence[str], count: int) -> None:
    """Measure a part of each of these arms, as often as asked for; every other turn backwards."""
    measured = [line["arm"] for line in JsonLines(out).read() if line["kind"] == "turn" and line["arm"] in names]
    done = min(measured.count(name) for name in names)
    if len(measured) != done * len(names):
        raise SystemExit(f"{out}: turn {done} was interrupted: remove its lines")
    if done >= count:
        return
    _prepare(study, asked, out)
    arms: dict[str, Process] = {}
    try:
        for name in names:
            # The first part is not counted, and the last not trained: it is loaded ahead, as the others are.
            arms[name] = Process(_run_arm, study, asked, name, asked.folder("turns", name), count - done + 2)
        for name, arm in arms.items():
            arm.go(arm.about["steps"])  # starts workers
            _write(out, {"kind": "environment", "arm": name, "environment": arm.about.pop("environment")}, asked)
        for turn in range(done, count):
            for name in names[:: -1 if turn % 2 else 1]:
                about = arms[name].about
                spent = arms[name].go(about["steps"])
                _write(out, {"kind": "turn", "turn": turn, "arm": name, **about, **spent._asdict()}, asked)
    finally:
        for arm in arms.values():
            arm.stop()


def _trainings(study: Study, asked: Asked, out: Path, names: Sequence[str]) -> None:
    """Train arms to their end, those whose seed is not in the results yet."""
    _prepare(study, asked, out)
    for name in names:
        seed = load_recipe(asked.recipe, asked.of(study.arms[name])).run.seed
        if any(
            line["kind"] == "training" and (line["arm"], line["seed"]) == (name, seed) for line in JsonLines(out).read()
        ):
            continue
        process = Process(_run_arm, study, asked, name, asked.folder("full", name), None)
        spent = process.go(process.about["steps"], last=True)
        line = {"kind": "training", "arm": name, "seed": seed, **process.about, **spent._asdict(), **process.result()}
        _write(out, line, asked)


def _write(out: Path, line: dict[str, Any], asked: Asked) -> None:
    """Add a line to the results, and show it."""
    kept = [each for each in asked.overrides if not each.startswith("data=")]
    line |= {"recipe": asked.recipe, "overrides": kept, "load": [round(each, 2) for each in os.getloadavg()]}
    line = {key: round(each, 4) if isinstance(each, float) else each for key, each in line.items()}
    with JsonLines(out) as file:
        file.write(**line)
    print(json.dumps({key: each for key, each in line.items() if key != "environment"}), file=sys.stderr, flush=True)


def command_line(study: Study, about: str | None) -> None:
    """Read the command line, and measure.

    Args:
        study: The study.
        about: What the help says of it.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
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
            command.add_argument("--arm", action="append", choices=study.full, help="One or several; by default, all.")
    given = parser.parse_args()
    work = given.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    asked = Asked(given.recipe, tuple(given.overrides), study.overrides, work)
    study.preload(asked)
    if given.command == "turns":
        for names in study.turns:
            _turns(study, asked, given.out, names, given.turns)
    else:
        _trainings(study, asked, given.out, given.arm or study.full)
