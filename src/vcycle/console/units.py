"""Amounts of disk in words."""

__all__ = ["as_size"]


def as_size(count: float) -> str:
    """Bytes, to three digits.

    Example:
        >>> as_size(28_100_000)
        '28.1 MB'
    """
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count / 1e3:.3g} kB"
