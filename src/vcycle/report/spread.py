"""Formats measured values: the median, with the range in parentheses."""

from collections.abc import Mapping

__all__ = ["number", "spread"]


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
