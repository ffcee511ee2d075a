"""Options that tasks bring to the commands of every task: the keyword-only parameters of a function of theirs."""

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

from typer.models import ArgumentInfo

from vcycle.errors import DataError

__all__ = ["options_for", "with_options"]

C = TypeVar("C", bound=Callable[..., None])
Owners = Mapping[str, Callable[..., Any]]
"""Functions of tasks, by the name of what they are for."""


def with_options(owners: Owners) -> Callable[[C], C]:
    """Add the options of all owners to a command, which takes them as `**options`; a decorator."""

    def extend(command: C) -> C:
        own = signature(command, eval_str=True).parameters
        known = {name: each for name, each in own.items() if each.kind is not Parameter.VAR_KEYWORD}
        for function in owners.values():
            known |= _options(function)
        keywords = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in known.values()]
        command.__signature__ = Signature(keywords)  # type: ignore[attr-defined]  # which typer reads
        return command

    return extend


def options_for(owner: str, given: Mapping[str, Any], owners: Owners, kind: str) -> dict[str, Any]:
    """The options for one owner's function.

    Args:
        owner: The owner; it need not have options.
        given: The options of the command line.
        owners: All owners.
        kind: What an owner is called in messages: `task `.

    Raises:
        DataError: if an option of another owner is given.
    """
    own = _options(owners[owner]) if owner in owners else {}
    for name, value in given.items():
        if name in own or value in (None, [], False):
            continue
        those = {other: _options(function) for other, function in owners.items()}
        having = [other for other, options in those.items() if name in options]
        if value != those[having[0]][name].default:
            raise DataError(f"{_written(those[having[0]][name])} goes with {kind}{' or '.join(having)}")
    return {name: given[name] for name in own}


def _options(function: Callable[..., Any]) -> dict[str, Parameter]:
    found = signature(function, eval_str=True).parameters
    return {name: each for name, each in found.items() if each.kind is Parameter.KEYWORD_ONLY}


def _written(option: Parameter) -> str:
    """An option as on the command line."""
    (about,) = option.annotation.__metadata__
    return str(about.metavar) if isinstance(about, ArgumentInfo) else f"--{option.name.replace('_', '-')}"
