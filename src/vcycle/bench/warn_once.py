"""Removes duplicate messages of many runs."""

import re
from collections.abc import Callable

__all__ = ["warn_once"]


def warn_once(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Wrap a callback so that each message is passed on once; messages that differ only in percentages are the same."""
    said: set[str] = set()

    def say(text: str) -> None:
        words = re.sub(r"[\d.]+%", "%", text)
        if words not in said:
            said.add(words)
            tell(text)

    return say
