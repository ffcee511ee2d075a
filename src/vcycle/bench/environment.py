"""Records the environments of a study: times from different machines or versions are not comparable."""

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vcycle.errors import VcycleError
from vcycle.utils.atomic import atomic_text
from vcycle.utils.locks import file_lock
from vcycle.utils.reading import read_text

__all__ = ["differences", "note_environment", "read_environments"]


def read_environments(file: Path) -> list[dict[str, Any]]:
    """Read the recorded environments, oldest first.

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
        raise VcycleError(f"{file} is not a list of environments: use another --out")
    return found


def differences(known: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """What differs in an environment from a recorded one, of that which it has: `cores 16 → 2`."""
    return [f"{key} {known.get(key)} → {value}" for key, value in here.items() if value != known.get(key)]


def note_environment(file: Path, here: dict[str, Any], on_message: Callable[[str], None]) -> None:
    """Record the environment of a training, and report a difference from earlier ones; several processes may.

    Args:
        file: JSON list of recorded environments.
        here: The environment, from `vcycle.train.environment.environment`.
        on_message: Called with a message about a difference.

    Raises:
        VcycleError: if the file is something else, or cannot be written.
    """
    with warnings.catch_warnings(action="ignore"), file_lock(file.with_suffix(".lock")):
        known = read_environments(file)
        if here in known:
            return
        if known:
            changed = ", ".join(differences(known[-1], here))
            on_message(f"this study's earlier runs used another environment: {changed}; times may not compare")
        atomic_text(file, json.dumps([*known, here], indent=1) + "\n")
