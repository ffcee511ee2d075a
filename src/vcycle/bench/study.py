"""A recipe's plans compared: from names of plans to trained arms."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vcycle.bench.compare import Comparison
from vcycle.bench.environment import note_environment, read_environments
from vcycle.bench.runs import CONSTANT, Arm, ArmRun, Failure, train_all
from vcycle.bench.saying import once
from vcycle.bench.subjects import measure_of, subject_of
from vcycle.tasks.plan_names import check_plan_names
from vcycle.tasks.recipes import AnyRecipe
from vcycle.tasks.recognition.plans import control_name
from vcycle.train.environment import environment
from vcycle.train.lock import claimed
from vcycle.train.run import RunFolder
from vcycle.utils.folders import make_folder

if TYPE_CHECKING:
    from vcycle.train.outcome import StepReport

__all__ = ["arm_names", "compare_plans", "run_folder"]


def arm_names(plans: Sequence[str]) -> list[str]:
    """The plans to train, each with its LR-matched control, unless controls are named already."""
    names = list(dict.fromkeys(plans))
    if any(n.startswith("control:") for n in names):
        return names
    named = [n for n in names if n.partition("@")[0] not in CONSTANT]
    return names + list(dict.fromkeys(control_name(n) for n in named))


def run_folder(out: Path, arm: str, seed: int, key: str) -> Path:
    """Where a study in `out` keeps a training."""
    return out / "runs" / f"{re.sub('[^a-z0-9.+-]', '_', arm)}-seed{seed}-{key}"


def compare_plans(
    recipe: AnyRecipe,
    plans: Sequence[str],
    *,
    seeds: Sequence[int],
    out: Path,
    margin: float | None = None,
    target: float | None = None,
    on_progress: Callable[[str, int, int], None] = lambda *_: None,
    on_start: Callable[[Arm, int], None] = lambda *_: None,
    on_step: "Callable[[StepReport], None]" = lambda _: None,
    on_run: Callable[[ArmRun | Failure], None] = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Train a recipe under several plans and seeds.

    Args:
        recipe: What is trained, of either task.
        plans: Names of plans, as `plan_of` of the task's recipes takes them.
        seeds: Shared by all arms.
        out: Folder for videos, caches, runs and results.
        margin: The loss that is accepted, in the measure's own scale; by default the measure's.
        target: What is to be reached on validation, in that scale; by default what the constant shape ends at.
        on_progress: Told of work before training: what, how much, of how much.
        on_start: Told which arm and seed begins.
        on_step: Told of every step.
        on_run: Told of every run as it ends.
        on_message: Told what a user should know, once for all seeds.

    Raises:
        RecipeError: if the recipe names no data, or a plan is unknown.
        PlanError: if a plan cannot be built, or the model cannot take its shapes.
        DataError: if the data is not as it should be.
        VcycleError: if another process is at work in the folder, it cannot be written, or no training was finished.
    """
    check_plan_names(recipe, plans)  # before the data is looked for, or made
    on_message = once(on_message)
    subject = subject_of(recipe, out, on_progress, on_message)
    measure = measure_of(recipe)
    arms = []
    for name in arm_names(plans):
        plan = subject.plan(name)
        arms.append(Arm(name=name, plan=plan, key=_key(recipe, plan.fingerprint)))
    subject.prepare()

    def train_arm(arm: Arm, seed: int) -> ArmRun:
        on_start(arm, seed)
        folder = RunFolder(run_folder(out, arm.name, seed, arm.key))
        fitted = subject.train(arm.name, arm.plan, seed, folder, on_step, on_message)
        device = next(fitted.model.parameters()).device
        note_environment(out / "environments.json", environment(device), on_message)
        tested = subject.test(fitted.model, device)
        return ArmRun(
            arm=arm.name,
            seed=seed,
            key=arm.key,
            measure=measure.name,
            steps=fitted.steps,
            samples=fitted.samples,
            work=arm.plan.work(),
            seconds=fitted.seconds,
            cpu_seconds=fitted.cpu_seconds,
            data_seconds=fitted.data_seconds,
            replaced=fitted.replaced,
            val=fitted.curve[-1].evaluation.value,
            test=None if tested is None else tested.value,
            curve=[(p.seconds, p.samples, p.evaluation.value) for p in fitted.curve],
            each=None if tested is None else tested.each,
        )

    make_folder(out)
    with claimed(out, on_message):
        runs, failures = train_all(arms, seeds=seeds, results=out / "results.jsonl", train=train_arm, on_run=on_run)
    return Comparison(
        measure=measure,
        arms=tuple(arms),
        runs=tuple(runs),
        failures=tuple(failures),
        environments=tuple(read_environments(out / "environments.json")),
        margin=margin,
        target=target,
    )


def _key(recipe: AnyRecipe, fingerprint: str) -> str:
    """A digest of all that decides a run's outcome but the seed.

    Of the recipe, what differs from its defaults: an option that a later version adds decides nothing until used.
    """
    same = recipe.model_copy(update={"description": "", "plan": "", "plans": type(recipe.plans)()})
    text = json.dumps(same.model_dump(mode="json", by_alias=True, exclude_defaults=True), sort_keys=True)
    return hashlib.sha256((text + fingerprint).encode()).hexdigest()[:10]
