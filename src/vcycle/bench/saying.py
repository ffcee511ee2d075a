"""What many runs would all say, said once."""

import re
from collections.abc import Callable

__all__ = ["once"]


def once(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Say the same of many runs once, whatever its percentages."""
    said: set[str] = set()

    def say(text: str) -> None:
        words = re.sub(r"[\d.]+%", "%", text)
        if words not in said:
            said.add(words)
            tell(text)

    return say
