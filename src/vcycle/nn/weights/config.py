"""Finds and reads the configurations that transformers writes beside weights. Imports no torch."""

import json
from pathlib import Path
from typing import Any

from vcycle.errors import CheckpointError
from vcycle.utils.reading import LONGEST, read_text

__all__ = ["config_beside", "read_config", "weights_file"]

_SAVED = ("model.safetensors", "pytorch_model.bin")
"""The weights in a folder as `save_pretrained` of transformers writes it, the preferred first."""
_CONFIG = "config.json"
"""The configuration of the network beside them."""


def weights_file(folder: Path) -> Path | None:
    """The weights in a folder that transformers wrote; None if it holds none."""
    return next((file for name in _SAVED if (file := folder / name).is_file()), None)


def config_beside(path: Path) -> Path | None:
    """The configuration of the network beside weights that transformers saved; None if there is none.

    Args:
        path: Their file or folder.
    """
    file = weights_file(path) or path
    if file.name not in _SAVED:
        return None
    config = file.with_name(_CONFIG)
    return config if config.exists() else None


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
