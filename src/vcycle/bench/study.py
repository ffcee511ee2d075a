"""Trains the plans of a recipe over seeds and compares them."""

import hashlib
import json
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcycle.bench.compare import Comparison, Untimed
from vcycle.bench.environment import differences, note_environment, read_environments
from vcycle.bench.jobs import Jobs, Tell, train_at_once
from vcycle.bench.runs import Arm, ArmRun, Failure, in_turn, train_all
from vcycle.bench.statistics import mean
from vcycle.bench.steps.turns import Effort, StepTimes, kept, time_steps
from vcycle.bench.steps.workload import workload_of
from vcycle.bench.warn_once import warn_once
from vcycle.config.recipe import RecipeBase
from vcycle.console.progress import work_before
from vcycle.errors import VcycleError
from vcycle.plan import BatchShape, Plan
from vcycle.runs.evaluate import evaluate_all
from vcycle.runs.experiment import Experiment
from vcycle.runs.left_out import left_out_in, record_left_out
from vcycle.runs.resume_guard import how_others
from vcycle.runs.train import config_of, probe_plans, train
from vcycle.tasks.base import SPLITS, tasks
from vcycle.tasks.plans import CONSTANT, check_names, control_name
from vcycle.tasks.recipes import with_absolute_paths
from vcycle.tasks.reference import Reference
from vcycle.train.accelerator import make_accelerator
from vcycle.train.callbacks import Callbacks
from vcycle.train.checkpoint import checkpoint_name
from vcycle.train.environment import environment, machine
from vcycle.train.lock import training_lock
from vcycle.train.micro_batching import MicroBatchRecord
from vcycle.train.ranks import SINGLE_PROCESS
from vcycle.train.run import RunFolder
from vcycle.utils.folders import make_folder

if TYPE_CHECKING:
    import torch
    from torch import nn

    from vcycle.train.outcome import EvalResult, StepReport

__all__ = ["arm_names", "compare_plans", "outdated_in", "run_folder", "run_key", "steps_key", "train_arm"]

_TURNS = 5
"""Turns in which the steps of all arms are timed."""
_SHARE = 0.1
"""Time of these turns, as a share of the trainings, each as long as the fastest: other programs only lengthen them."""
_LONGEST_TURN = 1.0
"""Seconds."""
_TOLD_EVERY = 1.0
"""Seconds after which a training in a process of its own tells of its work again."""
_LEFT_OUT = "left_out.json"


def arm_names(plans: Sequence[str]) -> list[str]:
    """The plans to train, each with its LR-matched control unless `plans` names controls."""
    names = list(dict.fromkeys(plans))
    if any(n.startswith("control:") for n in names):
        return names
    with_control = [n for n in names if n.partition("@")[0] not in CONSTANT]
    return names + list(dict.fromkeys(map(control_name, with_control)))


def run_folder(out: Path, arm: str, seed: int, key: str) -> Path:
    """The folder of a training in the study `out`."""
    return out / "runs" / f"{re.sub('[^a-z0-9.+-]', '_', arm)}-seed{seed}-{key}"


def compare_plans(
    recipe: RecipeBase,
    plans: Sequence[str],
    *,
    seeds: Sequence[int],
    out: Path,
    margin: float | None = None,
    target: float | None = None,
    jobs: int = 1,
    on_progress: Callable[[str, int, int], None] = lambda *_: None,
    on_start: Callable[[Arm, int], None] = lambda *_: None,
    on_step: "Callable[[StepReport], None]" = lambda _: None,
    on_run: Callable[[ArmRun | Failure], None] = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Train a recipe under several plans and seeds, then time the steps of all of them in turns.

    Args:
        recipe: The recipe to train, of any task.
        plans: Names of the task's plans.
        seeds: Seeds, shared by all arms.
        out: Folder for videos, caches, runs and results.
        margin: Non-inferiority margin, in the measure's scale; by default the measure's.
        target: Validation target, in the same scale; by default the final value of the constant shape.
        jobs: Trainings at a time, each in a process of its own with its GPU or its share of the cores.
        on_progress: Called during other work with its name, the amount done and the total, and with the work of all
            trainings where there are several at a time.
        on_start: Called with the arm and seed when a training starts.
        on_step: Called after every step, where there is one training at a time.
        on_run: Called with every run when it ends.
        on_message: Called with messages for the user, each once for all seeds.

    Raises:
        RecipeError: if the recipe names no data, or a plan is unknown.
        PlanError: if a plan cannot be built, or the model cannot take its shapes.
        DataError: if the data is invalid.
        VcycleError: if another process is using the folder, it cannot be written, or no training finished.
    """
    task = tasks[recipe.task]
    check_names(task.plans, plans)  # fail before reading or generating data
    on_message = warn_once(on_message)
    at_once = Jobs.of(jobs, recipe)
    experiment = _experiment(recipe, out, on_progress=on_progress, on_message=on_message)
    measure = task.measure(recipe)
    arms = []
    for name in arm_names(plans):
        plan = experiment.plan(name)
        for note in (*task.notices(recipe, experiment.splits, plan), *(f"plan {name}: {n}" for n in plan.notes)):
            on_message(note)
        arms.append(Arm(name=name, plan=plan, key=run_key(recipe, plan.fingerprint)))
    for note in (*experiment.check(arms[0].plan, fresh=True), *at_once.notices()):
        on_message(note)
    probe_plans(recipe, len(experiment.classes), [arm.plan for arm in arms])  # of all, before hours of the first
    make_folder(out)
    record_left_out(out / _LEFT_OUT, experiment.splits.train)

    callbacks = Callbacks(on_step=on_step, on_message=on_message, on_progress=on_progress)
    fresh = False

    def ended(run: ArmRun | Failure) -> None:
        nonlocal fresh
        fresh |= isinstance(run, ArmRun)  # a training that fails leaves nothing to time
        on_run(run)

    def train_one(arm: Arm, seed: int) -> ArmRun:
        on_start(arm, seed)
        own = _own(experiment, arm.name)
        return train_arm(experiment, arm, seed, out, recipe=own, callbacks=callbacks)

    def train_many(wanted: Sequence[tuple[Arm, int]]) -> Generator[ArmRun | Failure]:
        make_accelerator(config_of(recipe).run)  # a missing device is one error, not one of each process
        for split in SPLITS:
            if split in experiment.splits:
                experiment.dataset(split)  # a cache of frames is built once
        return train_at_once(
            wanted,
            jobs=at_once,
            modules=recipe.imports,
            trainer=partial(_trainer, recipe, out, at_once),
            on_start=on_start,
            on_progress=on_progress,
            on_message=on_message,
        )

    with training_lock(out, on_message):
        runs, failures = train_all(
            arms,
            seeds=seeds,
            results=out / "results.jsonl",
            train=in_turn(train_one) if jobs == 1 else train_many,
            outdated=outdated_in(experiment, out),
            on_run=ended,
        )
        environments = read_environments(out / "environments.json")
        steps = _times_of_steps(experiment, arms, runs, out, environments, jobs=at_once, fresh=fresh)
    return Comparison(
        measure=measure,
        arms=tuple(arms),
        runs=tuple(runs),
        steps=steps,
        failures=tuple(failures),
        environments=tuple(environments),
        margin=margin,
        target=target,
        references=_references(experiment, runs),
    )


def _times_of_steps(
    experiment: Experiment,
    arms: Sequence[Arm],
    runs: Sequence[ArmRun],
    out: Path,
    environments: Sequence[Mapping[str, Any]],
    *,
    jobs: Jobs,
    fresh: bool,
) -> StepTimes | Untimed:
    """The time of a step at each batch shape of the trained arms, in turns, or why it is not known.

    Measured once per folder and machine, and only where a training ran; a study whose trainings are all done keeps the
    times that it has.
    """
    recipe, say = experiment.recipe, experiment.on_message
    trained = [arm for arm in arms if any(run.arm == arm.name for run in runs)]
    plans = [arm.plan for arm in trained]

    def measure() -> StepTimes:
        _refuse_elsewhere(recipe, environments)
        turns = _TURNS * len({shape for plan in plans for shape in plan.shapes})
        seconds = min(_LONGEST_TURN, _SHARE * len(runs) * min(run.seconds for run in runs) / turns)
        return time_steps(
            workload_of(jobs.own(recipe), len(experiment.classes)),  # with the threads of the trainings
            plans,
            experiment.dataset("train"),
            effort=Effort(repeats=_TURNS, seconds=seconds),
            micro=_micro_batches(runs, out),
            progress=experiment.on_progress,
            on_message=say,
        )

    try:
        steps = kept(out / "steps.json", steps_key(recipe, plans), measure, anywhere=not fresh)
    except VcycleError as error:  # the trainings are done, and have times of their own
        say(f"steps cannot be timed: {error}; speed-ups are by the wall clock of the trainings")
        return Untimed(reason=str(error))
    if changed := differences(machine(), steps.machine):
        say(f"speed-ups are by steps timed on another machine ({', '.join(changed)})")
    return steps


def _micro_batches(runs: Sequence[ArmRun], out: Path) -> dict[BatchShape, int]:
    """The smallest micro-batch, in clips, in which any training computed a batch shape; without shapes that fit."""
    found: dict[BatchShape, int] = {}
    for run in runs:
        sizes = MicroBatchRecord(RunFolder(run_folder(out, run.arm, run.seed, run.key)).fit).read()
        for cell, size in sizes.items():
            if size.micro < cell.batch:
                found[cell] = min(size.micro, found.get(cell, size.micro))
    return found


def _refuse_elsewhere(recipe: RecipeBase, environments: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to time steps on a machine or device that no training of the study used.

    Raises:
        VcycleError: if none did, or the recipe's device is missing.
    """
    used = environment(make_accelerator(config_of(recipe).run).device)
    here = {key: used[key] for key in ("device", *machine())}
    changed = [differences(known, here) for known in environments]
    if not changed:
        raise VcycleError("environments.json does not tell on which machine the trainings ran")
    if all(changed):
        raise VcycleError(f"the trainings ran on another machine ({', '.join(changed[-1])})")


def _experiment(
    recipe: RecipeBase,
    out: Path,
    *,
    on_progress: Callable[[str, int, int], None] = lambda *_: None,
    on_message: Callable[[str], None],
) -> Experiment:
    """The recipe's data in the folder of a study, without the items that the study leaves out."""
    experiment = Experiment(recipe, out, on_progress=on_progress, on_message=on_message)
    experiment.leave_out(left_out_in(out / _LEFT_OUT, experiment.splits.train))
    return experiment


def train_arm(
    experiment: Experiment, arm: Arm, seed: int, out: Path, *, recipe: RecipeBase, callbacks: Callbacks
) -> ArmRun:
    """Train one run of a study in its folder under `out`, or resume it, and test it if the data has a test split.

    Args:
        experiment: The recipe and its data.
        arm: The arm.
        seed: The seed.
        out: Folder of the study.
        recipe: The recipe of the run, with the arm's plan.
        callbacks: Receive steps, messages and progress.
    """
    measure = experiment.task.measure(recipe)
    folder = RunFolder(run_folder(out, arm.name, seed, arm.key))
    own = recipe.model_copy(update={"run": recipe.run.model_copy(update={"seed": seed})})
    own = with_absolute_paths(own)
    trained = train(experiment, arm.plan, folder, recipe=own, resume=folder.started, callbacks=callbacks)
    device = next(trained.model.parameters()).device
    note_environment(out / "environments.json", environment(device), callbacks.on_message)
    last = trained.curve[-1].evaluation
    tested, each = _test(experiment, trained.model, device)
    evaluated = {"val": last} | ({} if tested is None else {"test": tested})
    plain = {split: measure.reference_in(asdict(found)) for split, found in evaluated.items()}
    return ArmRun(
        arm=arm.name,
        seed=seed,
        key=arm.key,
        measure=measure.name,
        steps=trained.steps,
        samples=trained.samples,
        work=arm.plan.work(),
        seconds=trained.seconds,
        cpu_seconds=trained.cpu_seconds,
        data_seconds=trained.data_seconds,
        replaced=trained.replaced,
        val=last.value,
        test=None if tested is None else tested.value,
        curve=[(p.seconds, p.samples, p.evaluation.value) for p in trained.curve],
        each=each,
        references={split: value for split, value in plain.items() if value is not None},
        data=_data(experiment),
    )


def _trainer(recipe: RecipeBase, out: Path, jobs: Jobs, tell: Tell) -> Callable[[Arm, int], ArmRun]:
    """What trains in a process of a study; its data is there, as the study's process has prepared it."""
    say = partial(tell, "message")
    experiment = _experiment(recipe, out, on_message=say)

    def train_one(arm: Arm, seed: int) -> ArmRun:
        last = time.monotonic()

        def step(report: "StepReport") -> None:
            nonlocal last
            if (now := time.monotonic()) - last >= _TOLD_EVERY:
                last = now
                tell("work", work_before(arm.plan, report.step.index + 1))

        return train_arm(
            experiment,
            arm,
            seed,
            out,
            recipe=jobs.own(_own(experiment, arm.name)),
            callbacks=Callbacks(on_step=step, on_message=say),
        )

    return train_one


def outdated_in(experiment: Experiment, out: Path) -> Callable[[ArmRun], bool]:
    """What tells whether a finished run was trained, validated or tested on other items than runs are now.

    Such a run goes through `train_arm` again, and a message says what that does: if the data of its test alone is other
    and its finished training is in its folder, the run is tested again without a step of training; without the folder,
    it is trained again. A folder with other training or validation data is refused there, by an error that says so.

    Args:
        experiment: The recipe and its data.
        out: Folder of the study.
    """
    data, test = _data(experiment), experiment.splits.test

    def how(run: ArmRun) -> tuple[str, str] | None:
        for split, now in data.items():
            if (differs := how_others(run.data.get(split), now)) is not None:
                return split, f"on other {split} data: {differs}"
        if (run.test is None) != (test is None):
            return "test", "without a test split" if run.test is None else "on a test split, which the data has no more"
        if run.each is not None and test is not None and len(run.each) != len(test):
            return "test", f"on {len(run.each):,} of the {len(test):,} test items"
        return None

    def outdated(run: ArmRun) -> bool:
        if (found := how(run)) is None:
            return False
        split, differs = found
        folder = RunFolder(run_folder(out, run.arm, run.seed, run.key))
        if split == "test" or not folder.started:
            last = Path(checkpoint_name(run.steps)).stem
            is_kept = any(path.stem == last for path in folder.checkpoints.glob("*"))
            again = "evaluated again, without training" if is_kept else "trained again"
            experiment.on_message(f"{run.arm}, seed {run.seed}, was measured {differs}; it is {again}")
        return True

    return outdated


def _data(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """What identifies the items of each split."""
    return {split: experiment.splits[split].digest() for split in SPLITS if split in experiment.splits}


def _references(experiment: Experiment, runs: Sequence[ArmRun]) -> dict[str, Reference]:
    """What each evaluated split gives without training; empty if the task knows of nothing."""
    found = {}
    for split in ("val", *(["test"] if experiment.splits.test is not None else [])):
        measured = [run.references[split] for run in runs if split in run.references]
        value = mean(measured) if measured else None
        reference = experiment.task.reference(experiment.recipe, experiment.splits[split], value)
        if reference is not None:
            found[split] = reference
    return found


def _own(experiment: Experiment, name: str) -> RecipeBase:
    """The recipe of an arm's runs; each is saved in its folder so that it can be evaluated from there."""
    recipe = experiment.recipe
    data = experiment.task.embedded_data(recipe, experiment.work)
    return recipe.model_copy(update={"plan": name} | ({} if data is None else {"data": data}))


def _test(
    experiment: Experiment, model: "nn.Module", device: "torch.device"
) -> "tuple[EvalResult | None, list[float | None] | None]":
    """The evaluation on the test split and the measure of each item; None if there is no test split."""
    if experiment.splits.test is None:
        return None, None
    evaluator = experiment.evaluator("test", "comparison")
    found = evaluate_all(
        evaluator,
        model,
        device,
        ranks=SINGLE_PROCESS,
        on_message=experiment.on_message,
        on_progress=experiment.on_progress,
    )
    assert found is not None
    return evaluator.result(found), evaluator.per_item(found)


def steps_key(recipe: RecipeBase, plans: Sequence[Plan]) -> str:
    """A digest of everything that the time of a step depends on at each batch shape of some plans, but the machine."""
    return run_key(recipe, json.dumps(sorted({str(asdict(shape)) for plan in plans for shape in plan.shapes})))


def run_key(recipe: RecipeBase, fingerprint: str) -> str:
    """A digest of everything that determines a run's outcome except the seed.

    Only recipe values that differ from their defaults count, so an option added by a later version changes nothing.
    """
    same = recipe.model_copy(update={"description": "", "plan": "", "plans": type(recipe.plans)()})
    text = json.dumps(same.model_dump(mode="json", by_alias=True, exclude_defaults=True), sort_keys=True)
    return hashlib.sha256((text + fingerprint).encode()).hexdigest()[:10]
