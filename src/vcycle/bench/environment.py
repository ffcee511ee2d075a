"""Records the environments of a study: times from different machines or versions are not comparable."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vcycle.errors import VcycleError
from vcycle.utils.atomic import atomic_text
from vcycle.utils.reading import read_text

__all__ = ["note_environment", "read_environments"]


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


def note_environment(file: Path, here: dict[str, Any], on_message: Callable[[str], None]) -> None:
    """Record the environment of a training, and report a difference from earlier ones.

    Args:
        file: JSON list of recorded environments.
        here: The environment, from `vcycle.train.environment.environment`.
        on_message: Called with a message about a difference.

    Raises:
        VcycleError: if the file is something else, or cannot be written.
    """
    known = read_environments(file)
    if here in known:
        return
    if known:
        last = known[-1]
        changed = [f"{key} {last.get(key)} → {here.get(key)}" for key in here if here.get(key) != last.get(key)]
        on_message(f"this study's earlier runs used another environment: {', '.join(changed)}; times may not compare")
    atomic_text(file, json.dumps([*known, here], indent=1) + "\n")
