"""Predicted and taken on a machine that others use: steps of `vcycle bench` between the steps of a training.

python benchmarks/steps/shared.py NAME RECIPE [KEY=VALUE ...] [--plans constant,cascade] [--out shared.jsonl]

What a step costs then changes from minute to minute, so both take turns every few steps, in one process, and what is
compared is the processor's time. The bench's steps are taken while the training's clock stands still.
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vcycle.bench.steps.stepper import Stepper
from vcycle.bench.steps.workload import Workload, workload_of
from vcycle.data import Batch, loader
from vcycle.plan import BatchShape, Plan, Shape, Stage
from vcycle.runs.experiment import Experiment
from vcycle.tasks.recipes import load_recipe, with_absolute_paths
from vcycle.train.callbacks import Callbacks
from vcycle.train.outcome import StepReport
from vcycle.train.run import RunFolder
from vcycle.train.trainer import fit


@dataclass(frozen=True)
class Nothing:
    """An evaluation of nothing."""

    measure: str = "nothing"
    value: float = 0.0
    headline: str = ""
    protocol: str = ""

    @property
    def numbers(self) -> dict[str, float]:
        """None."""
        return {}


class Turns:
    """Steps of a bench, as many and of the same shapes as the training has just taken."""

    def __init__(self, workload: Workload, plan: Plan, dataset: Any) -> None:
        self._stepper, self._plan, self._dataset = Stepper(workload, plan), plan, dataset
        self._batches: dict[BatchShape, Iterator[Batch]] = {}
        self._since: Counter[BatchShape] = Counter()
        self._left = time.process_time()
        self.pairs: list[tuple[float, float]] = []
        """Processor seconds of the bench and of the training, turn by turn."""

    def step(self, report: StepReport) -> None:
        """Note a step of the training."""
        step = report.step
        shape = BatchShape(batch=step.batch, frames=step.shape.frames, size=step.shape.size, bn_batch=step.bn_batch)
        self._since[shape] += 1

    def turn(self) -> None:
        """Take as many."""
        taken, bench = time.process_time() - self._left, 0.0
        for shape, steps in self._since.items():
            if shape not in self._batches:
                self._batches[shape] = self._load(shape)
                self._stepper.run(shape, 1, self._batches[shape].__next__)
            bench += steps * self._stepper.run(shape, steps, self._batches[shape].__next__).cpu
        self._since.clear()
        self.pairs.append((bench, taken))
        self._left = time.process_time()

    def _load(self, shape: BatchShape) -> Iterator[Batch]:
        stage = Stage(name="turns", steps=100_000, pattern=(shape,), rate=self._plan.stages[0].rate)
        baseline = self._plan.baseline.with_(warmup=None, clips=len(self._dataset))
        return iter(loader(self._dataset, replace(self._plan, baseline=baseline, stages=(stage,), warmup_samples=0.0)))


def measured(workload: Workload, plan: Plan, dataset: Any, folder: Path, clips: int) -> list[tuple[float, float]]:
    """Train, and take the bench's steps every so many clips."""
    turns = Turns(workload, plan, dataset)

    def validate(model: nn.Module, device: torch.device, /, shape: Shape | None = None) -> Nothing:
        turns.turn()
        return Nothing()

    every = workload.config.run.model_copy(update={"validate_every": clips / len(dataset)})
    fit(
        replace(workload.config, run=every),
        plan=plan,
        model=workload.build(),
        dataset=dataset,
        objective=workload.objective,
        run=RunFolder(folder),
        validate=validate,
        callbacks=Callbacks(on_step=turns.step),
    )
    return turns.pairs


def interval(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Predicted over taken, and 95 % of a bootstrap over turns."""
    draw = random.Random(0)
    drawn = sorted(ratio([draw.choice(pairs) for _ in pairs]) for _ in range(2000))
    return ratio(pairs), drawn[50], drawn[1949]


def ratio(pairs: list[tuple[float, float]]) -> float:
    """Of sums."""
    return sum(bench for bench, _ in pairs) / sum(taken for _, taken in pairs)


def main() -> None:
    """Measure each plan, and write a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--plans", default="constant,cascade")
    parser.add_argument("--clips", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("shared.jsonl"))
    asked = parser.parse_intermixed_args()
    recipe = with_absolute_paths(load_recipe(asked.recipe, [*asked.overrides, "data.workers=0"]))
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        experiment = Experiment(recipe, work)
        dataset = experiment.dataset("train")
        workload = workload_of(recipe, len(experiment.classes))
        for name in asked.plans.split(","):
            plan = experiment.plan(name)
            pairs = measured(workload, plan, dataset, work / name, asked.clips)[1:]  # the first begins everything
            middle, low, high = interval(pairs)
            line = {"name": asked.name, "plan": name, "steps": len(plan), "turns": len(pairs)}
            line |= {"predicted_over_taken": [middle, low, high], "load": os.getloadavg()[0]}
            line |= {"median": statistics.median(a / b for a, b in pairs), "pairs": pairs}
            with asked.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{name}: {middle:.3f} ({low:.3f} to {high:.3f}), {len(pairs)} turns, load {line['load']:.1f}")


if __name__ == "__main__":
    main()
