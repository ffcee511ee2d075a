"""Callbacks that the trainer calls during training."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vcycle.train.outcome import StepReport, ValidationResult

__all__ = ["Callbacks"]


def _ignore(*_: Any) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Callbacks:
    """Functions that the trainer calls; the defaults do nothing.

    Example:
        >>> callbacks = Callbacks(on_message=print)
        >>> callbacks.on_message("resuming at step 100")
        resuming at step 100
    """

    on_step: Callable[[StepReport], None] = _ignore
    """Called after every step, on every rank."""
    on_validation: Callable[[ValidationResult], None] = _ignore
    """Called after every validation, on every rank."""
    on_message: Callable[[str], None] = _ignore
    """Called with a message for the user, such as a bad sample or a skipped checkpoint."""
    on_progress: Callable[[str, int, int], None] = _ignore
    """Called while a validation runs, with the unit, the number done and the total."""
