"""Human-readable numbers: sizes, durations, counts."""

__all__ = ["as_size", "counted", "duration"]


def counted(count: int, noun: str) -> str:
    """Format a number of things, whose plural has an s.

    Example:
        >>> counted(1, "video"), counted(2_000, "test video")
        ('1 video', '2,000 test videos')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def as_size(count: float) -> str:
    """Format bytes with three significant digits.

    Example:
        >>> as_size(28_100_000)
        '28.1 MB'
    """
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count / 1e3:.3g} kB"


def duration(seconds: float) -> str:
    """Format seconds in a suitable unit: 61.0 s, 2.5 min, 3.0 h."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
