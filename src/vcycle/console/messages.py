"""Messages shared by several commands."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcycle.console.output import message

if TYPE_CHECKING:
    import torch

    from vcycle.config.recipe import RecipeBase
    from vcycle.plan import Plan
    from vcycle.train.outcome import TrainResult, ValidationResult

__all__ = [
    "plan_line",
    "totals_line",
    "training_data",
    "warn_of_precision",
    "warn_of_workers",
]

_SLOW_DATA = 0.1
"""A batch shape is named if it spends more than this share of its time waiting for data."""


def plan_line(planned: "Plan", point: "ValidationResult") -> str:
    """The position in training, and its validation result."""
    where = f"epoch {planned.epochs_before(point.step):.1f} of {planned.epochs:.1f}, step {point.step:,}"
    stage = "" if point.stage is None else f" ({point.stage.headline} at its own {point.stage_shape})"
    return f"{where}: {point.evaluation.headline} on validation{stage}"


def totals_line(fitted: "TrainResult") -> str:
    """The totals of a training: steps, samples, time."""
    waiting = fitted.data_seconds / max(fitted.seconds, 1e-9)
    skipped = f" ({fitted.skipped:,} skipped)" if fitted.skipped else ""
    return (
        f"{fitted.steps:,} steps{skipped}, {fitted.samples:,} samples ({fitted.replaced:,} replaced), "
        f"{fitted.seconds:.1f} s of training, {waiting:.0%} of it waiting for data{_slow_shapes(fitted)}"
    )


def _slow_shapes(fitted: "TrainResult") -> str:
    """The shapes that spent much of their time waiting for data, worst first."""
    shares = {shape: row["data_seconds"] / max(row["seconds"], 1e-9) for shape, row in fitted.waiting.items()}
    slow = sorted((shape for shape, share in shares.items() if share > _SLOW_DATA), key=lambda s: -shares[s])
    return f" ({', '.join(f'{shape}: {shares[shape]:.0%}' for shape in slow)})" if slow else ""


def training_data(folder: Path, planned: "Plan", fitted: "TrainResult") -> dict[str, Any]:
    """A finished training as `vcycle train --json` prints it."""
    return {
        "run": str(folder),
        "plan": planned.name,
        "fingerprint": planned.fingerprint,
        "steps": fitted.steps,
        "samples": fitted.samples,
        "train_seconds": fitted.seconds,
        "cpu_seconds": fitted.cpu_seconds,
        "data_seconds": fitted.data_seconds,
        "replaced": fitted.replaced,
        "skipped": fitted.skipped,
        "waiting": fitted.waiting,
        "val": asdict(fitted.curve[-1].evaluation),
    }


def warn_of_precision(recipe: "RecipeBase", device: "torch.device") -> None:
    """Warn of a precision that is slow on the device."""
    from vcycle.train.accelerator import slowness

    if (slow := slowness(recipe.run.precision, device)) is not None:
        message(slow)


def warn_of_workers(recipe: "RecipeBase", *, jobs: int = 1) -> None:
    """Warn of more loader workers than CPU cores, which ranks and several trainings at a time share."""
    from vcycle.utils.cores import cores
    from vcycle.utils.ranks import launched_here

    local = launched_here(1)
    here = max(1, cores() // local // jobs)
    if recipe.data.workers > here:
        there = "is 1 processor core" if here == 1 else f"are {here} processor cores"
        there += " for each rank" * (local > 1) + " for each training" * (jobs > 1)
        message(f"data.workers is {recipe.data.workers}, and there {there} here: data.workers={here} may be faster")
