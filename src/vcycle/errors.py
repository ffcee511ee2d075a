"""User errors: one line each, with the value, its source and what is accepted.

The command line prints the message alone and exits with code 2; a traceback needs ``--debug``.
"""

import difflib
from collections.abc import Iterable

__all__ = ["CheckpointError", "DataError", "PlanError", "RecipeError", "VcycleError", "did_you_mean"]


class VcycleError(Exception):
    """Base class of user errors."""


class PlanError(VcycleError, ValueError):
    """A plan cannot be built or run. The message names the stage and the cause."""


class DataError(VcycleError, ValueError):
    """A dataset, list file or video cannot be used. The message names the file and, for a list, the line."""


class RecipeError(VcycleError, ValueError):
    """A recipe has an unknown key, a wrong type or a value out of range. The message names the key."""


class CheckpointError(VcycleError, ValueError):
    """A checkpoint is damaged, or belongs to another plan or model."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest the known word closest to a misspelt one, to append to a message; empty if none is close.

    Example:
        >>> did_you_mean("cascada", ["constant", "cascade"])
        " (did you mean 'cascade'?)"
    """
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
