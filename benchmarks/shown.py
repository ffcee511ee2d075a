"""What the pages show of several studies together."""

__all__ = ["sentences"]


def sentences() -> dict[str, list[str]]:
    """By page."""
    return {}
