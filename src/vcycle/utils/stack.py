"""Where in a user's code a warning belongs."""

import sys

__all__ = ["outside"]


def outside() -> int:
    """The level of the line that called vcycle, as ``warnings.warn`` counts levels in the function that asks."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("vcycle."):
        frame, level = frame.f_back, level + 1
    return level
