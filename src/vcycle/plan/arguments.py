"""Checks of arguments that users give: of the right class, numbers, steps of a plan."""

import sys
from collections.abc import Iterable, Sized
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

from vcycle.errors import PlanError, VcycleError, shown

__all__ = [
    "check_cost",
    "check_each",
    "check_index",
    "check_kind",
    "check_name",
    "check_number",
    "check_numbers",
    "check_positive",
    "check_steps",
]


def check_kind(name: str, value: object, kind: type, call: str) -> None:
    """Refuse an object of another class, such as the next argument if two are swapped.

    Args:
        name: Name of the argument.
        value: The argument.
        kind: The class that it must be of, vcycle's or torch's.
        call: How the function is called, for the message.

    Raises:
        PlanError: If it is not of the class.
    """
    if not isinstance(value, kind):
        raise PlanError(f"{name} is {type(value).__name__}, not a {_public(kind)}: the call is {call}")


def check_each(name: str, values: object, kind: type) -> tuple[Any, ...]:
    """Return a tuple of a sequence's members, each of a class.

    Args:
        name: Name of the argument.
        values: The argument.
        kind: The class.

    Raises:
        PlanError: If it is not a tuple or list of them.
    """
    if not isinstance(values, tuple | list) or not all(isinstance(value, kind) for value in values):
        raise PlanError(f"{name} is {shown(values)}: a tuple of {kind.__name__} is needed")
    return tuple(values)


def check_name(name: str, value: object) -> None:
    """Check that a name is a string.

    Raises:
        PlanError: If it is not.
    """
    if not isinstance(value, str):
        raise PlanError(f"{name} is {shown(value)}: a string is needed")


def check_cost(cost: object) -> None:
    """Check that the cost of a step is given by a function of its batch shape, or not at all.

    Raises:
        PlanError: If it is not.
    """
    if cost is not None and not callable(cost):
        raise PlanError(f"cost is {shown(cost)}: a function of a BatchShape, or None, is needed")


def check_number(name: str, value: Any, *, whole: bool = False, error: type[VcycleError] = PlanError) -> Any:
    """Return a number as Python's `int`, `float` or `Fraction`; NumPy's are accepted.

    Args:
        name: Name of the argument.
        value: The argument.
        whole: Whether it must be a whole number.
        error: The class of the error.

    Raises:
        VcycleError: If it is not a number, or a boolean.
    """
    if type(value) is int or (type(value) is float and not whole):  # most: a plan checks some at each step
        return value
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        raise error(f"{name} is {shown(value)}: a {'whole ' if whole else ''}number is needed")
    if isinstance(value, int | float | Fraction):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def check_numbers(name: str, values: Any, *, whole: bool = False) -> list[Any]:
    """Return a list of numbers, each as `check_number` does.

    Raises:
        PlanError: If it is not an iterable of numbers.
    """
    try:
        if not isinstance(values, Iterable):
            raise PlanError
        return [check_number(name, value, whole=whole) for value in values]
    except PlanError:
        kind = "whole numbers" if whole else "numbers"
        raise PlanError(f"{name} is {shown(values)}: a list of {kind} is needed") from None


def check_positive(name: str, value: Any) -> Fraction:
    """Return a number above 0 as an exact fraction.

    Raises:
        PlanError: If it is none.
    """
    number = check_number(name, value)
    if not 0 < number < float("inf"):
        raise PlanError(f"{name} {value} is out of range: a number above 0 is needed")
    return Fraction(number)


def check_index(name: str, value: Any) -> None:
    """Check that a step is given by its index, a whole number.

    Raises:
        PlanError: If it is not; for a `Step`, with its index.
    """
    index = getattr(value, "index", None)
    if isinstance(index, int):
        raise PlanError(f"{name} is {type(value).__name__}, not the index of a step: give step.index, here {index}")
    check_number(name, value, whole=True)


def check_steps(plan: Sized, start: Any, stop: Any) -> None:
    """Check that a plan has the steps from ``start`` to ``stop``.

    Raises:
        PlanError: If it does not, or they are no whole numbers.
    """
    check_index("start", start)
    check_index("stop", stop)
    if not 0 <= start <= stop <= len(plan):
        raise PlanError(f"steps {start} to {stop} are not in the plan, which has steps 0 to {len(plan)}")


def _public(kind: type) -> str:
    """The name by which users know a class, vcycle's or torch's."""
    top, *inner = kind.__module__.split(".")
    is_short = top == "vcycle" and kind.__name__ in sys.modules[top].__all__
    return ".".join([top, *([] if is_short else inner[:1]), kind.__name__])
