"""What a study ran on: times of different machines and versions are not to be compared."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vcycle.errors import VcycleError
from vcycle.utils.atomic import atomic_text
from vcycle.utils.reading import read_text

__all__ = ["note_environment", "read_environments"]


def read_environments(file: Path) -> list[dict[str, Any]]:
    """What is written down, the first first.

    Raises:
        VcycleError: if it is something else.
    """
    if not file.exists():
        return []
    try:
        found = json.loads(read_text(file))
    except (OSError, ValueError, RecursionError) as error:
        raise VcycleError(f"{file} cannot be read: {error}") from None
    if not isinstance(found, list) or not all(isinstance(known, dict) for known in found):
        raise VcycleError(f"{file} is no list of environments: give another --out")
    return found


def note_environment(file: Path, here: dict[str, Any], on_message: Callable[[str], None]) -> None:
    """Write down what a training ran on, unless that is known; tell if others ran on something else.

    Args:
        file: A list of all that is known.
        here: As `vcycle.train.environment.environment` gives it.
        on_message: Told of a difference.

    Raises:
        VcycleError: if the file is something else, or cannot be written.
    """
    known = read_environments(file)
    if here in known:
        return
    if known:
        last = known[-1]
        changed = [f"{key} {last.get(key)} → {here.get(key)}" for key in here if here.get(key) != last.get(key)]
        on_message(f"trainings of this study ran elsewhere: {', '.join(changed)}; mind that when you compare times")
    atomic_text(file, json.dumps([*known, here], indent=1) + "\n")
