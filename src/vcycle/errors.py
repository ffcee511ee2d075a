"""User errors: one line each, with the value, its source and what is accepted.

The command line prints the message alone and exits with code 2; a traceback needs ``--debug``.
"""

import difflib
import os
import reprlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

__all__ = [
    "CheckpointError",
    "DataError",
    "PlanError",
    "RecipeError",
    "UserCodeError",
    "VcycleError",
    "did_you_mean",
    "reason",
    "shown",
    "summary",
    "user_code",
]

_LONGEST = 400
"""Characters of an exception's message that an error of one line repeats; torch's can be pages."""


class VcycleError(Exception):
    """Base class of user errors."""


class PlanError(VcycleError, ValueError):
    """A plan cannot be built or run. The message names the stage and the cause."""


class DataError(VcycleError, ValueError):
    """A dataset, list file or video cannot be used. The message names the file and, for a list, the line."""


class RecipeError(VcycleError, ValueError):
    """A recipe has an unknown key, a wrong type or a value out of range. The message names the key."""


class CheckpointError(VcycleError, ValueError):
    """A checkpoint is damaged, or belongs to another plan or model."""


class UserCodeError(RecipeError):
    """An exception inside code that a user brought, which is the `__cause__`. The message says what was called."""


@contextmanager
def user_code(
    what: str,
    *called: object,
    kind: type[VcycleError] = UserCodeError,
    passing: Callable[[BaseException], bool] = lambda _: False,
) -> Iterator[None]:
    """Report an exception of code that a user brought as one error: what was called, the exception, and its line.

    A `VcycleError` passes unchanged. So does any exception if all of `called` are vcycle's own: an internal error.

    Args:
        what: What is called, for the message: `model 'nets:Net' cannot be built`.
        called: The functions, classes or instances that are called, or `module:attribute`; none if it is not known
            whose they are.
        kind: The class of the error.
        passing: Exceptions that pass unchanged too.

    Raises:
        UserCodeError: for an exception within the context; it is the `__cause__`.

    Example:
        >>> with user_code("plan 'mine' cannot be built"):  # doctest: +ELLIPSIS
        ...     [][0]
        Traceback (most recent call last):
        vcycle.errors.UserCodeError: plan 'mine' cannot be built: IndexError: list index out of range...
    """
    try:
        yield
    except VcycleError:
        raise
    except (Exception, SystemExit) as error:
        packages = {_package(each) for each in called}
        if packages == {"vcycle"} or passing(error):
            raise
        raise kind(f"{what}: {reason(error, packages)}") from error


def reason(error: BaseException, packages: Iterable[str] = ()) -> str:
    """An exception in one line: its class, its message, and the file and line of the user's code that it came from.

    Args:
        error: The exception.
        packages: The top-level packages of the code that was called.
    """
    place = _place(error, set(packages) - _LIBRARIES)
    return summary(error) if place is None else f"{summary(error)} ({place})"


def summary(error: BaseException) -> str:
    """An exception in one line: its class and its message, without the end of a long one."""
    try:
        text = " ".join(str(error).split())
    except Exception as failed:  # its own `__str__` fails
        text = f"its message raises {type(failed).__name__}"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shown(value: object) -> str:
    """A value as a message shows it: in one line, shortened; the class of an object whose `repr` is long.

    Example:
        >>> shown("3"), shown(2.5), shown(range(3)), shown([*range(100)])
        ("'3'", '2.5', 'range(0, 3)', '[0, 1, 2, 3, 4, 5, ...]')
    """
    text = reprlib.repr(value)
    if type(value).__module__ != "builtins" and ("..." in text or "\n" in text):
        return type(value).__name__
    return " ".join(text.split())


_LIBRARIES = {"vcycle", "torch", "torchvision", "pydantic", "contextlib", "importlib", *sys.stdlib_module_names}
"""Packages whose lines are not the user's."""


def _place(error: BaseException, packages: set[str]) -> str | None:
    """The file and line of the innermost frame of the user's code; None without one."""
    frames = [
        (_root(frame.f_globals.get("__name__")), frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    theirs = [found for found in frames if found[0] in packages] or [f for f in frames if f[0] not in _LIBRARIES]
    if not theirs:
        return None
    _, file, line = theirs[-1]
    with suppress(OSError):  # the current folder may be gone
        if file.startswith(os.getcwd() + os.sep):
            file = os.path.relpath(file)
    return f"{file}:{line}"


def _package(called: object) -> str:
    """The top-level package of a function, a class, an instance, or `module:attribute`."""
    if isinstance(called, str):
        return _root(called.partition(":")[0])
    return _root(getattr(called, "__module__", None) or type(called).__module__)


def _root(module: object) -> str:
    return str(module).partition(".")[0]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest the known word closest to a misspelt one, to append to a message; empty if none is close.

    Example:
        >>> did_you_mean("cascada", ["constant", "cascade"])
        " (did you mean 'cascade'?)"
    """
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
