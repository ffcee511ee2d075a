"""Errors that are the user's to mend: one line each, naming the value, its source and what is accepted.

The command line prints the message alone and exits with code 2; a traceback needs ``--debug``.
"""

import difflib
from collections.abc import Iterable

__all__ = ["CheckpointError", "DataError", "PlanError", "RecipeError", "VcycleError", "did_you_mean"]


class VcycleError(Exception):
    """Base of every error that a user can mend."""


class PlanError(VcycleError, ValueError):
    """A plan that cannot be built or run: says which stage and why."""


class DataError(VcycleError, ValueError):
    """A dataset, list file or video that cannot be used: names the file and, in a list, the line."""


class RecipeError(VcycleError, ValueError):
    """A recipe with an unknown key, a wrong type or a value out of range: names the key."""


class CheckpointError(VcycleError, ValueError):
    """A checkpoint that is damaged, or belongs to another plan or model."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known word that is nearest to a misspelt one, to follow it in a message; empty if none is near.

    Example:
        >>> did_you_mean("cascada", ["constant", "cascade"])
        " (did you mean 'cascade'?)"
    """
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
