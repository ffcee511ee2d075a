"""Checks of arguments that users give: of the right class, numbers, steps of a plan."""

from collections.abc import Iterable, Sized
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

from vcycle.errors import PlanError, VcycleError, shown

__all__ = ["check_index", "check_kind", "check_number", "check_numbers", "check_positive", "check_steps"]


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
        package = kind.__module__.split(".")
        public = ".".join([*(package[:1] if package[0] == "vcycle" else package[:2]), kind.__name__])
        raise PlanError(f"{name} is {type(value).__name__}, not a {public}: the call is {call}")


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
