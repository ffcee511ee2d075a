"""Looks at everything that a training needs of a machine."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcycle.config.recipe import RecipeBase
from vcycle.data.locations import Location, location
from vcycle.errors import VcycleError
from vcycle.runs.doctor import disk, installed, machine
from vcycle.runs.doctor.finding import LEVELS, Finding
from vcycle.tasks.base import Task, tasks
from vcycle.train.environment import machine as machine_of
from vcycle.train.environment import versions
from vcycle.utils.cores import idle_cores

__all__ = ["Examination", "examine"]


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What was found."""

    findings: tuple[Finding, ...]
    """The most important first."""
    about: Mapping[str, object]
    """Versions and machine, for an issue."""
    places: tuple[str, ...]
    """Paths that the findings name."""

    @property
    def can_train(self) -> bool:
        """Whether nothing makes training impossible."""
        return all(finding.level != "stop" for finding in self.findings)


def examine(recipe: RecipeBase | None, data: str | None) -> Examination:
    """Examine the machine for a training; takes two or three seconds.

    Args:
        recipe: The recipe to train; without it, only what every training needs is looked at.
        data: Where the data is; by default the recipe's.
    """
    torch = installed.torch_works()
    findings = [torch]
    if torch.level == "ok":
        findings += machine.device(recipe)
    findings += installed.decoders()
    idle = idle_cores()
    places = [os.getcwd(), tempfile.gettempdir()]
    place = data if data is not None else None if recipe is None else recipe.data.path
    if place is not None:
        found = _data(recipe, location(place))
        root = None if recipe is None else getattr(recipe.data, "root", None)  # of the files that a list names
        files = location(root or place)
        findings += found if found[0].level == "stop" else [*found, disk.data_disk(files, idle)]
        places += [str(path) for path in (location(place), files, files.parent)]
    findings += [*machine.memory(), *(machine.compute(recipe, idle) if torch.level == "ok" else [])]
    findings += [
        *disk.spaces(),
        *disk.shared_memory(),
        *machine.limits(),
        *installed.optional(torch_works=torch.level == "ok"),
    ]
    ordered = sorted(findings, key=lambda finding: LEVELS.index(finding.level))  # stable
    return Examination(findings=tuple(ordered), about=_about(torch.level == "ok"), places=tuple(places))


def _data(recipe: RecipeBase | None, place: Location) -> list[Finding]:
    """Whether the data is there, the recipe's task can read it, and the recipe fits it, such as its class weights."""
    try:
        if recipe is None:
            if not (place.is_dir() or place.is_file()):
                raise VcycleError(f"{place}: no such folder or list file")
            return [Finding(level="ok", about="data", found=str(place))]
        task: Task[Any, Any] = tasks[recipe.task]
        splits = task.find(recipe, Path())
    except VcycleError as error:
        return [Finding(level="stop", about="data", found=str(error), change="give another folder: data=FOLDER")]
    found = [Finding(level="ok", about="data", found=f"{place}: {task.describe(recipe, splits)}")]
    try:
        task.check(recipe, splits, fresh=False)  # what a resume checks: opens no file
    except VcycleError as error:
        found.append(Finding(level="stop", about="recipe", found=str(error)))
    return found


def _about(torch_works: bool) -> dict[str, object]:
    """Versions and machine, and the GPUs."""
    about: dict[str, object] = {**versions(), **machine_of()}
    if torch_works:
        import torch

        gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        about["device"] = ", ".join(gpus) or "CPU"
    return about
