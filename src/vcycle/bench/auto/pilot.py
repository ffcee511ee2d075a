"""Short trainings of a few plans, on a part of the training data, judged on the rest of it: successive halving."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from vcycle.bench.auto.candidates import Planned, Seconds, fitted
from vcycle.bench.auto.choose import Reached
from vcycle.bench.runs import Arm, ArmRun, Failure, in_turn, train_all
from vcycle.bench.study import outdated_in, run_key, train_arm
from vcycle.config.recipe import RecipeBase
from vcycle.errors import RecipeError
from vcycle.runs.experiment import Experiment
from vcycle.tasks.base import Splits
from vcycle.train.callbacks import Callbacks

__all__ = ["HeldOut", "pilot"]

_SHARE = 5
"""One of so many training items is held out."""
_FEWEST = 5
"""Training items needed to hold some of them out."""


class HeldOut(Experiment):
    """An experiment on a part of its training data, validated on the rest of it. It has no other data."""

    def __init__(self, whole: Experiment) -> None:
        """Hold out a fifth of the training items, drawn with the recipe's seed.

        Args:
            whole: The experiment.

        Raises:
            RecipeError: if there are too few items, or the task's dataset cannot be divided.
        """
        super().__init__(whole.recipe, whole.work, on_progress=whole.on_progress, on_message=whole.on_message)
        dataset = whole.dataset("train")
        items = list(range(len(dataset)))
        if len(items) < _FEWEST:
            raise RecipeError(f"a pilot holds out training data, and there are {len(items)} items: --pilot 0 has none")
        if not hasattr(dataset, "part"):
            raise RecipeError(
                f"a pilot holds out training data, which needs the method part(items) of {type(dataset).__name__}: "
                "--pilot 0 has no pilot"
            )
        Random(f"held out {whole.recipe.run.seed}").shuffle(items)
        held = max(2, len(items) // _SHARE)
        self.held, self.trained = sorted(items[:held]), sorted(items[held:])
        self._datasets = {"train": dataset.part(self.trained), "val": dataset.part(self.held)}
        self.splits = Splits(lambda _: whole.splits.train, ("train", "val"), source=str(whole.splits.train.source))


def pilot(
    held: HeldOut,
    plans: Sequence[Planned],
    seconds: Seconds,
    budgets: Sequence[float],
    out: Path,
    *,
    callbacks: Callbacks,
    on_start: Callable[[Arm, int], None] = lambda *_: None,
    on_run: Callable[[ArmRun | Failure], None] = lambda _: None,
) -> dict[str, list[Reached]]:
    """Train plans for the same predicted time, then the better half of them, and the recipe's own, for longer.

    Args:
        held: The data to train on and to judge by.
        plans: The plans, best first.
        seconds: Measured seconds of a step at each batch shape.
        budgets: Predicted seconds of each training, by rung.
        out: Folder of the trainings; finished ones are reused.
        callbacks: Receive steps, messages and progress.
        on_start: Called with the arm and seed when a training starts.
        on_run: Called with each run when it ends.

    Returns:
        What each plan reached in each rung that it was in, by its label.
    """
    reached: dict[str, list[Reached]] = {}
    left = list(plans)
    for rung, budget in enumerate(budgets):
        recipes: dict[str, RecipeBase] = {}
        arms, shortened = [], {}
        for each in left:
            short = fitted(each.candidate, held.recipe, len(held.trained), seconds, budget)
            if short is None:
                callbacks.on_message(f"{each.candidate.label} has no plan as short as the pilot: not trained")
                continue
            recipe = _quiet(each.candidate.recipe(held.recipe), short)
            recipes[each.candidate.label] = recipe
            shortened[each.candidate.label] = short
            arms.append(Arm(name=each.candidate.label, plan=short.plan, key=run_key(recipe, short.plan.fingerprint)))
        if not arms:
            break

        def train(arm: Arm, seed: int, recipes: Any = recipes, shortened: Any = shortened) -> ArmRun:
            on_start(arm, seed)
            short = shortened[arm.name]
            own = recipes[arm.name].model_copy(update={"plan": short.candidate.name(short.length)})
            return train_arm(held, arm, seed, out, recipe=own, callbacks=callbacks)

        runs, _ = train_all(
            arms,
            seeds=(held.recipe.run.seed + rung,),
            results=out / "pilot.jsonl",
            train=in_turn(train),
            outdated=outdated_in(held, out),
            on_run=on_run,
        )
        for run in runs:
            taken = shortened[run.arm].seconds
            reached.setdefault(run.arm, []).append(
                Reached(seconds=taken, value=run.val, steps=run.steps, cpu_seconds=run.cpu_seconds)
            )
        scored = {run.arm: -math.inf if math.isnan(run.val) else run.val for run in runs}
        left = sorted(
            (each for each in left if each.candidate.label in scored), key=lambda each: -scored[each.candidate.label]
        )
        half = -(-len(left) // 2)
        left = [each for place, each in enumerate(left) if place < half or each.candidate.own]
    return reached


def _quiet(recipe: RecipeBase, short: Planned) -> RecipeBase:
    """The recipe of a pilot: it is validated once, at its end, and logs to no service."""
    run = recipe.run.model_copy(update={"validate_every": max(1.0, 2 * short.plan.epochs), "loggers": ()})
    return recipe.model_copy(update={"run": run})
