"""Amounts of disk and time in words."""

__all__ = ["as_size", "as_time"]


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


def as_time(seconds: float) -> str:
    """Seconds, in the unit that suits them.

    Example:
        >>> as_time(600)
        '10 min'
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
