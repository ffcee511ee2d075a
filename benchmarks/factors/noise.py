"""Gradient noise along a training: how many clips a batch needs, and whether coarse clips lead the way of full ones.

python -m benchmarks.factors.noise RECIPE [KEY=VALUE...] --data FOLDER --people REGEX --plans PLAN,PLAN --seeds 30-31
    --out noise.jsonl

Trains a plan on one fold of people and, at equal distances in samples, takes the gradients of many groups of
clips, each as large as a BatchNorm group, at the coarsest shape of the cascade and at the full one. From them:

- the simple noise scale in clips, `B = tr(Σ) / |G|²` (McCandlish et al. 2018, section 2.2): batches well below it gain
  from more clips, batches above it do not;
- the cosine between the two mean gradients: what a coarse step does for full clips.

A line is added for each point of a training; trainings that are complete are not repeated.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from benchmarks.recognition.folds import add_trainings, left_out, read
from torch import Tensor, nn

import vcycle
from vcycle.plan import BatchShape
from vcycle.runs.experiment import Experiment
from vcycle.train.objective import Objective
from vcycle.train.optimizer import build_optimizer

POINTS = 8
GROUPS = 96


@dataclass(frozen=True)
class Gradients:
    """What the gradients of groups say of their mean."""

    clips: int
    """The clips of a group."""
    halves: tuple[Tensor, Tensor]
    """The mean of the even groups and that of the odd ones, which are independent."""
    variance: float
    """The trace of the covariance of a group's gradient."""

    @property
    def square(self) -> float:
        """The squared norm of the true gradient, without the noise; below 0 where there is nothing else."""
        return float(self.halves[0] @ self.halves[1])

    @property
    def noise(self) -> float | None:
        """The noise scale in clips."""
        return round(self.clips * self.variance / self.square, 1) if self.square > 0 else None

    def inner(self, other: "Gradients") -> float:
        """The inner product of two true gradients, from other clips each."""
        mine, theirs = (each.halves[0] + each.halves[1] for each in (self, other))
        return float(mine @ theirs) / 4


def main() -> None:
    """Train what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_trainings(parser)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for seed in asked.seeds:
        for plan in asked.plans.split(","):
            done = [line for line in read(asked.out) if (line["plan"], line["seed"]) == (plan, seed)]
            if len(done) == POINTS:
                continue
            with left_out(asked, 0, seed) as (experiment, _):
                lines = [{"plan": plan, "seed": seed, **point} for point in points(experiment, plan, seed)]
            with asked.out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)


def points(experiment: Experiment, name: str, seed: int) -> Iterator[dict[str, Any]]:
    """Train a plan, and measure in the middle of each of as many equal parts of its samples."""
    plan, cascade = experiment.plan(name), experiment.plan("cascade")
    shapes = {"coarse": cascade.stages[0].base, "full": cascade.stages[-1].base}
    objective = experiment.task.objective(experiment.recipe, len(experiment.classes))
    torch.manual_seed(seed)
    model = vcycle.convert_batchnorm(experiment.build_model(initialise=True), cascade.stages[-1].base.bn_batch).train()
    optimizer = build_optimizer(experiment.recipe.optimizer, model, fused=True)
    dataset = experiment.dataset("train")
    due = [(2 * number + 1) * plan.samples // (2 * POINTS) for number in range(POINTS)]
    for step, batch in vcycle.steps(dataset, plan, seed=seed):
        if due and step.first_sample + step.batch > due[0]:
            before = {key: value.clone() for key, value in model.state_dict().items()}
            coarse, full = (
                gradients(model, optimizer, objective, dataset, shape, seed=1000 + 2 * len(due) + number)
                for number, shape in enumerate(shapes.values())
            )
            model.load_state_dict(before)
            optimizer.zero_grad()
            place = {"samples": due.pop(0), "of": plan.samples, "batch": step.batch, "lr": step.lr}
            yield place | compared(coarse, full)
        vcycle.apply(step, model, optimizer)
        objective.loss(model, batch.clips, batch.labels).backward()
        optimizer.step()
        optimizer.zero_grad()


def gradients(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    objective: Objective,
    dataset: Any,
    shape: BatchShape,
    *,
    seed: int,
) -> Gradients:
    """The gradients of groups at a shape; BatchNorm sees a group, as in training."""
    clips = shape.bn_batch
    size, length = shape.shape.size, GROUPS * clips
    plan = vcycle.constant(
        vcycle.Baseline(batch=clips, frames=shape.frames, size=size, clips=length, steps=GROUPS, lr=1.0, bn_batch=clips)
    )
    sums = [torch.tensor(0.0), torch.tensor(0.0)]
    squares = 0.0
    for step, batch in vcycle.steps(dataset, plan, seed=seed):
        vcycle.apply(step, model, optimizer)
        model.zero_grad()
        objective.loss(model, batch.clips, batch.labels).backward()
        own = torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])
        sums[step.index % 2] = sums[step.index % 2] + own
        squares += float(own @ own)
    mean = (sums[0] + sums[1]) / GROUPS
    halves = (sums[0] / (GROUPS // 2), sums[1] / (GROUPS // 2))
    return Gradients(clips=clips, halves=halves, variance=(squares - GROUPS * float(mean @ mean)) / (GROUPS - 1))


def compared(coarse: Gradients, full: Gradients) -> dict[str, Any]:
    """The noise scale at both shapes, in clips, and the cosine between their true gradients."""
    norms = coarse.square * full.square
    return {
        "noise": {"coarse": coarse.noise, "full": full.noise},
        "cosine": round(coarse.inner(full) / norms**0.5, 4) if norms > 0 else None,
    }


if __name__ == "__main__":
    main()
