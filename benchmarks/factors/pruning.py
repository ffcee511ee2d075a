"""Trains on what is not learned yet, as InfoBatch does (Qin et al. 2024), under a plan.

    python -m benchmarks.factors.pruning RECIPE [KEY=VALUE...] --data FOLDER --people REGEX --plans PLAN,PLAN
        --seeds 30-31 [--share 0.5] --out factors.jsonl

A clip of a video whose last loss was below the mean is left out with probability `--share`, and another is drawn in
its place; where it stays, its loss counts `1 / (1 - share)` times, so that the expected gradient has the direction of
that of all videos. The last eighth of the samples is of all videos. The number of updates and samples is the plan's,
so the time is too.
"""

import argparse
import json
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from benchmarks.recognition.folds import add_trainings, left_out, read, tested_by
from torch.nn import functional

import vcycle
from vcycle.data import SampleRequest
from vcycle.runs.experiment import Experiment
from vcycle.train.optimizer import build_optimizer

WHOLE = 1 / 8
"""The share of the samples at the end that are of all videos."""


class Pruned:
    """A dataset that draws another item in place of one that is left out."""

    samples_grids = True

    def __init__(self, dataset: Any, share: float, until: int) -> None:
        """Leave out a share of the items below the mean loss, until a position in the sample stream."""
        self.dataset, self.share, self.until = dataset, share, until
        self.losses = np.full(len(dataset), np.inf)

    def __len__(self) -> int:
        """The number of items."""
        return len(self.dataset)

    def __getitem__(self, request: SampleRequest) -> Any:
        """The clip of the item, or of one drawn in its place."""
        if request.position < self.until:
            easy = self.easy
            random = request.generator(purpose=99)
            while easy[request.index] and random.random() < self.share:
                request = replace(request, index=int(random.integers(len(self))))
        return self.dataset[request]

    @property
    def easy(self) -> np.ndarray:
        """Which items had a loss below the mean of those that were seen."""
        seen = np.isfinite(self.losses)
        return self.losses < (self.losses[seen].mean() if seen.any() else -np.inf)


def trained(experiment: Experiment, name: str, seed: int, share: float) -> dict[str, Any]:
    """Train under a plan and test, as `folds.py` does."""
    plan = experiment.plan(name)
    torch.manual_seed(seed)
    model = experiment.build_model(initialise=True).to(memory_format=torch.channels_last_3d).train()
    vcycle.convert_batchnorm(model, plan.stages[-1].base.bn_batch)
    optimizer = build_optimizer(experiment.recipe.optimizer, model, fused=True)
    objective = experiment.task.objective(experiment.recipe, len(experiment.classes))
    dataset = Pruned(experiment.dataset("train"), share, round(plan.samples * (1 - WHOLE)))
    dataset.dataset[SampleRequest(0, plan[0].shape, (0, 0, 0))]  # fills the cache of frames
    spent = time.process_time()
    for step, batch in vcycle.steps(dataset, plan, seed=seed):
        vcycle.apply(step, model, optimizer)
        losses = functional.cross_entropy(objective.predict(model, batch.clips), batch.labels, reduction="none")
        weights = torch.ones(len(losses))
        if step.first_sample < dataset.until:
            weights[torch.from_numpy(dataset.easy)[batch.indices]] = 1 / (1 - share)
        (losses * weights).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        dataset.losses[batch.indices.numpy()] = losses.detach().double().numpy()
    spent = time.process_time() - spent
    return {"steps": len(plan), "samples": plan.samples, "cpu_seconds": round(spent, 2), **tested_by(model, experiment)}


def main() -> None:
    """Train what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_trainings(parser)
    parser.add_argument("--share", type=float, default=0.5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    done = {(run["fold"], run["plan"], run["seed"]) for run in read(asked.out)}
    for seed in asked.seeds:
        for plan in asked.plans.split(","):
            name = f"pruning {asked.share:g}, {plan}"
            for fold in range(2):
                if (fold, name, seed) in done:
                    continue
                with left_out(asked, fold, seed) as (experiment, tested):
                    run = trained(experiment, plan, seed, asked.share)
                line = {"fold": fold, "plan": name, "seed": seed, "people": Counter(tested), **run}
                with asked.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
