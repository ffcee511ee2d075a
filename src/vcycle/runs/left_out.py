"""Records training items that cannot be opened, so that a resumed run leaves out the same ones."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vcycle.errors import CheckpointError
from vcycle.tasks.base import Found
from vcycle.train.run import RunFolder
from vcycle.utils.atomic import atomic_text
from vcycle.utils.reading import read_text

__all__ = ["dead_in", "left_out_by", "left_out_in", "read_object", "record_left_out"]


def left_out_by(run: RunFolder) -> dict[str, str]:
    """Items that a run left out when it started, whether or not they can be opened now.

    Raises:
        CheckpointError: if the record is damaged.
    """
    if not run.videos.is_file():
        return {}
    found = read_object(run.videos)
    train = found.get("train")
    return _checked(train.get("left_out", {}) if isinstance(train, Mapping) else {}, run.videos)


def left_out_in(file: Path, found: Found) -> dict[str, str] | None:
    """Items that a study on this data left out when it started; None if there is no record.

    Raises:
        CheckpointError: if the record is damaged.
    """
    if not file.is_file():
        return None
    kept = read_object(file)
    return _checked(kept.get("left_out"), file) if kept.get("source") == str(found.source) else None


def record_left_out(file: Path, found: Found) -> None:
    """Record the items that a study leaves out.

    Raises:
        VcycleError: if it cannot be written.
    """
    data = {"source": str(found.source), "left_out": dead_in(found)}
    atomic_text(file, json.dumps(data, indent=1) + "\n")


def dead_in(found: Found) -> dict[str, str]:
    """Items that were left out, with the reasons."""
    return dict(getattr(found, "dead", {}))


def read_object(file: Path) -> dict[str, Any]:
    """Read a JSON object of a run's folder; an empty one if the file holds something else.

    Raises:
        CheckpointError: if it cannot be read.
    """
    try:
        found = json.loads(read_text(file))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from None
    return found if isinstance(found, dict) else {}


def _checked(found: object, file: Path) -> dict[str, str]:
    if not isinstance(found, Mapping) or not all(isinstance(text, str) for text in found.values()):
        raise CheckpointError(f"{file} is damaged: left_out must map paths to causes")
    return dict(found)
