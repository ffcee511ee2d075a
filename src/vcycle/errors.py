"""Errors that are the user's to mend: one line each, naming the value, its source and what is accepted.

The command line prints the message alone and exits with code 2; a traceback needs ``--debug``.
"""

__all__ = ["CheckpointError", "DataError", "PlanError", "RecipeError", "VcycleError"]


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
