"""Formats measured values for tables: the median, with the range in parentheses; headers in short lines."""

from collections.abc import Mapping
from textwrap import wrap

__all__ = ["GAP", "narrow", "number", "spread"]

GAP = (0, 1, 0, 0)
"""Padding of cells: with it, wide tables fit into 100 columns."""


def narrow(header: str) -> str:
    """A header in short lines, one below the other.

    Example:
        >>> narrow("of workers").splitlines()
        ['of', 'workers']
    """
    return "\n".join(wrap(header, max(9, *map(len, header.split())), break_on_hyphens=False))


def spread(measured: Mapping[str, float | None]) -> str:
    """`median (low to high)`, or only the median if there is no range."""
    middle, low, high = measured["median"], measured["low"], measured["high"]
    if low is None or high is None or low == high:
        return number(middle)
    return f"{number(middle)} ({number(low)} to {number(high)})"


def number(value: float | None) -> str:
    """Format a number with three digits, two below 1.

    Example:
        >>> number(1234.5), number(12.34), number(0.5), number(0.00123)
        ('1,234', '12.3', '0.50', '0.0012')
    """
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or not value else f"{value:.2g}"
