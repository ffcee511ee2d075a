"""Measured values for people: the median, and in brackets the range."""

from collections.abc import Mapping

__all__ = ["number", "spread"]


def spread(measured: Mapping[str, float | None]) -> str:
    """`median (low to high)`, or the median alone where there is no range."""
    middle = number(measured["median"])
    if measured["low"] is None or measured["high"] is None:
        return middle
    return f"{middle} ({number(measured['low'])} to {number(measured['high'])})"


def number(value: float | None) -> str:
    """Three significant digits."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
