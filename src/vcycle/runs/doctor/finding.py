"""One finding about the machine."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["LEVELS", "Finding", "Level"]

Level = Literal["stop", "slow", "note", "ok"]
LEVELS: tuple[Level, ...] = ("stop", "slow", "note", "ok")
"""In order of importance: training is impossible, is held back, may be, is not."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was looked at, what was found, and what to change."""

    level: Level
    about: str
    """The subject: `device`."""
    found: str
    change: str = ""
    """What to do, where there is something."""
