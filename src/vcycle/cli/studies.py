"""Runs the studies of `compare` and `demo`: trains plans over seeds, prints a table, saves a figure and JSON."""

from collections.abc import Callable, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcycle.console import process
from vcycle.console.figures import optional_figures, save_figure
from vcycle.console.messages import warn_of_workers
from vcycle.console.output import message, plain, print_json, result
from vcycle.console.progress import Progress, progress
from vcycle.errors import RecipeError, VcycleError

if TYPE_CHECKING:
    from vcycle.bench.runs import Arm, ArmRun, Failure
    from vcycle.config.recipe import RecipeBase
    from vcycle.tasks.base import Measure

__all__ = ["plan_names", "seed_range", "study", "target_of", "tell_of_run"]


_MOST_SEEDS = 10_000


def plan_names(text: str) -> list[str]:
    """The plans in `plan=constant,cascade`.

    Raises:
        RecipeError: if there are none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise RecipeError("plan= is empty: list plans, such as plan=constant,cascade")
    return names


def seed_range(text: str) -> range:
    """The seeds in `seeds=5` (0 to 4) or `seeds=10-14`.

    Raises:
        RecipeError: if it is neither a number above 0 nor an increasing range, or has too many seeds or too large ones.
    """
    first, dash, last = text.partition("-")
    if first.isdecimal() and (last.isdecimal() if dash else last == ""):
        seeds = range(int(first), int(last) + 1) if dash else range(int(first))
        if 0 < seeds.stop - seeds.start <= _MOST_SEEDS and seeds.stop <= 2**63:
            return seeds
    raise RecipeError(
        f"seeds={text}: a number of seeds of at least 1, or a range such as 10-14, is accepted, with at most "
        f"{_MOST_SEEDS:,} seeds"
    )


def study(
    recipe: "RecipeBase",
    plans: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    *,
    title: str,
    json: bool,
    margin: float | None = None,
    target: float | None = None,
    jobs: int = 1,
    as_data: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> dict[str, Any]:
    """Train the plans, then print and save the comparison.

    Args:
        recipe: The recipe to train.
        plans: Names of plans.
        seeds: Seeds, shared by all plans.
        folder: Output folder.
        title: Title of the table.
        json: Print one JSON object instead of a table.
        margin: Non-inferiority margin: the largest acceptable loss, in the unit of the measure's differences.
        target: Validation target, in the unit of the measure, or as a share.
        jobs: Trainings at a time.
        as_data: Converts the comparison's data to the printed JSON object.

    Returns:
        The comparison's data, as `Comparison.as_data` gives it.
    """
    from vcycle.bench.study import arm_names, compare_plans
    from vcycle.report.comparison import comparison_figure, comparison_table, failed, statements
    from vcycle.report.lengths import has_lengths, lengths_figure
    from vcycle.tasks.base import tasks
    from vcycle.tasks.plans import check_names

    task = tasks[recipe.task]
    measure = task.measure(recipe)
    accepted, wanted = _margin(measure, margin), target_of(measure, target)
    check_names(task.plans, plans)
    names = arm_names(plans)
    warn_of_workers(recipe, jobs=jobs)
    message(f"{len(names)} plans ({', '.join(names)}), {_seeds(len(seeds))} each, in {folder}")
    fresh = 0
    with process.resumable("the same command resumes it"), progress() as shown:

        def begun(arm: "Arm", seed: int) -> None:
            if jobs == 1:
                shown.begin(f"{arm.name}, seed {seed}", arm.plan)
            else:
                message(f"{arm.name}, seed {seed}: begins")

        def ended(run: "ArmRun | Failure") -> None:
            nonlocal fresh
            fresh += 1
            tell_of_run(shown, run, measure)

        comparison = compare_plans(
            recipe,
            plans,
            seeds=seeds,
            out=folder,
            margin=accepted,
            target=wanted,
            jobs=jobs,
            on_progress=shown.count,
            on_start=begun,
            on_step=shown.step,
            on_run=ended,
            on_message=message,
        )
    every = len(names) * len(seeds)
    if every > fresh:
        message(f"reusing {every - fresh} of {every} finished runs; to train them again, use another --out")
    found = comparison.as_data()
    data = as_data(found)
    _write(folder / "comparison.json", dumps(plain(data), indent=1) + "\n")
    with optional_figures():
        save_figure(comparison_figure(found), folder / "comparison.png")
        if has_lengths(found):
            save_figure(lengths_figure({Path(title).name: found}), folder / "lengths.png")
    if json:
        print_json(data)
        return found
    result(comparison_table(found, title))
    for line in (*statements(found), *failed(found)):
        result(line)
    return found


def _margin(measure: "Measure", given: float | None) -> float | None:
    """The margin in the measure's scale."""
    if given is not None and not 0 < given < float("inf"):
        raise RecipeError(f"--margin {given:g}: a loss above 0 is accepted, in {measure.points}")
    return None if given is None else given / measure.scale


def target_of(measure: "Measure", given: float | None) -> float | None:
    """The target in the measure's scale; for a share, 0.95 and 95 are the same."""
    if given is None:
        return None
    value = given / measure.scale if given > 1 else given
    if not 0 < value < float("inf") or (measure.unit == "%" and value > 1):
        accepted = "a share such as 0.95, or 95," if measure.unit == "%" else f"a number of {measure.unit} above 0"
        raise RecipeError(f"--target {given:g}: {accepted} is accepted")
    return value


def tell_of_run(shown: Progress, run: "ArmRun | Failure", measure: "Measure") -> None:
    """Print how a training of a study ended."""
    from vcycle.bench.runs import ArmRun

    shown.end()
    if isinstance(run, ArmRun):
        found = measure.text(run.val)
        message(f"{run.arm}, seed {run.seed}: {found} on validation after {run.seconds:.1f} s")
    else:
        message(f"{run.arm}, seed {run.seed} failed: {run.failed}")


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise VcycleError(f"{path} cannot be written: {error.strerror}") from error
