"""A recipe's plans compared: from names of plans to trained arms."""

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vcycle.bench.compare import Arm, ArmRun, Comparison, compare
from vcycle.recipes.build import check_plan, datasets_of, find_videos, train
from vcycle.recipes.evaluating import evaluator
from vcycle.recipes.load import dump_recipe, with_absolute_paths
from vcycle.recipes.notices import notices
from vcycle.recipes.plans import control_name, plan_of
from vcycle.recipes.schema import Recipe
from vcycle.train.run import RunFolder

if TYPE_CHECKING:
    from vcycle.tasks.recognition import Scores
    from vcycle.train.outcome import StepReport

__all__ = ["arm_names", "compare_plans"]


def arm_names(plans: Sequence[str]) -> list[str]:
    """The plans to train, each with its LR-matched control, unless controls are named already."""
    names = list(dict.fromkeys(plans))
    if any(n.startswith("control:") for n in names):
        return names
    named = [n for n in names if n.partition("@")[0] != "constant"]
    return names + list(dict.fromkeys(control_name(n) for n in named))


def compare_plans(
    recipe: Recipe,
    plans: Sequence[str],
    *,
    seeds: Sequence[int],
    out: Path,
    on_progress: Callable[[str, int, int], None] = lambda *_: None,
    on_start: Callable[[Arm, int], None] = lambda *_: None,
    on_step: "Callable[[StepReport], None]" = lambda _: None,
    on_run: Callable[[ArmRun], None] = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Train a recipe under several plans and seeds.

    Args:
        recipe: What is trained.
        plans: Names of plans, as `vcycle.recipes.plans.plan_of` takes them.
        seeds: Shared by all arms.
        out: Folder for videos, caches, runs and results.
        on_progress: Told of work before training: what, how much, of how much.
        on_start: Told which arm and seed begins.
        on_step: Told of every step.
        on_run: Told of every finished run.
        on_message: Told what a user should know, once for all seeds.
    """
    on_message = _once(on_message)
    videos = find_videos(recipe, out, on_progress)
    for note in notices(recipe, videos):
        on_message(note)
    arms = []
    for name in arm_names(plans):
        plan = plan_of(recipe, len(videos.train), name)
        check_plan(recipe, plan)
        arms.append(Arm(name=name, plan=plan, key=_key(recipe, plan.fingerprint)))
    if recipe.init.path is not None:
        from vcycle.recipes.initial import check_init

        check_init(recipe, videos.train.classes)
    splits = datasets_of(recipe, videos, out, on_progress)
    scores: list[Scores] = []
    test = None if splits.test is None else evaluator(recipe, splits.test, on_message, scores.append)

    def train_arm(arm: Arm, seed: int) -> ArmRun:
        import torch

        on_start(arm, seed)
        folder = RunFolder(out / "runs" / f"{re.sub('[^a-z0-9.+-]', '_', arm.name)}-seed{seed}-{arm.key}")
        own = _own_recipe(recipe, arm, seed, out)
        fitted = train(
            own,
            arm.plan,
            splits,
            folder,
            text=dump_recipe(own),
            resume=folder.started,
            on_step=on_step,
            on_message=on_message,
        )
        device = next(fitted.model.parameters()).device
        return ArmRun(
            arm=arm.name,
            seed=seed,
            key=arm.key,
            steps=fitted.steps,
            samples=fitted.samples,
            work=arm.plan.work(),
            seconds=fitted.seconds,
            cpu_seconds=fitted.cpu_seconds,
            data_seconds=fitted.data_seconds,
            replaced=fitted.replaced,
            val=fitted.curve[-1].evaluation.value,
            test=None if test is None else test(fitted.model, torch.device(device)).value,
            curve=[(p.seconds, p.samples, p.evaluation.value) for p in fitted.curve],
            correct=None if splits.test is None else _correct(scores.pop(), len(splits.test)),
        )

    out.mkdir(parents=True, exist_ok=True)
    return compare(arms, seeds=seeds, results=out / "results.jsonl", train=train_arm, on_run=on_run)


def _correct(scores: "Scores", videos: int) -> list[int | None] | None:
    """Whether each of the videos was recognised; None for those that could not be read."""
    if scores.labels.ndim > 1:
        return None
    right = dict(zip(scores.videos.tolist(), (scores.scores.argmax(1) == scores.labels).int().tolist(), strict=True))
    return [right.get(video) for video in range(videos)]


def _once(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Say the same of many runs once, whatever its percentages."""
    said: set[str] = set()

    def say(text: str) -> None:
        words = re.sub(r"[\d.]+%", "%", text)
        if words not in said:
            said.add(words)
            tell(text)

    return say


def _own_recipe(recipe: Recipe, arm: Arm, seed: int, out: Path) -> Recipe:
    """The recipe of one run, which is written beside it and can be evaluated from there."""
    data = recipe.data
    if data.digits is not None and data.path is None:
        data = data.model_copy(update={"path": str(out / "digits")})
    run = recipe.run.model_copy(update={"seed": seed})
    return with_absolute_paths(recipe.model_copy(update={"plan": arm.name, "data": data, "run": run}))


def _key(recipe: Recipe, fingerprint: str) -> str:
    """A digest of all that decides a run's outcome but the seed."""
    same = recipe.model_copy(update={"description": "", "plan": "", "plans": type(recipe.plans)()})
    return hashlib.sha256((dump_recipe(same) + fingerprint).encode()).hexdigest()[:10]
