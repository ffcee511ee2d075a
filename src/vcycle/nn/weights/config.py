"""Reads the configurations that transformers writes beside weights. Imports no torch."""

import json
from pathlib import Path
from typing import Any

from vcycle.errors import CheckpointError
from vcycle.utils.reading import LONGEST, read_text

__all__ = ["read_config"]


def read_config(file: Path) -> dict[str, Any]:
    """Read a configuration: a JSON object.

    Raises:
        CheckpointError: if it cannot be read, or is something else.
    """
    try:
        config = json.loads(read_text(file, LONGEST))
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} is not JSON: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{file} holds a {type(config).__name__}; accepted: a JSON object")
    return config
