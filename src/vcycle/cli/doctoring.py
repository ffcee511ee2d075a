"""`vcycle doctor`: what will hold a training back on this machine, and what to change."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from vcycle.console.arguments import Json
from vcycle.console.output import print_json, result, wrapped

if TYPE_CHECKING:
    from vcycle.runs.doctor import Finding

__all__ = ["doctor"]

_WIDTH = 100
_INDENT = 20
_WORDS = {"stop": "STOP", "slow": "slow", "note": "note", "ok": "ok"}


def doctor(
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE|RUN] [KEY=VALUE]",
            help="What to train, a recipe or the folder of a run, and changes to it, such as data=videos/. "
            "data=videos/ alone examines a folder.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Say what holds a training back on this machine.

    Looks at versions, devices, decoders, data, disks, memory, cores and limits: most important first. The exit code is
    1 if something makes training impossible.
    """
    from vcycle.errors import RecipeError
    from vcycle.runs.doctor import examine
    from vcycle.tasks.recipes import load_given

    names = [text for text in given or () if "=" not in text]
    overrides = [text for text in given or () if "=" in text]
    if len(names) > 1:
        raise RecipeError(f"{names[1]!r}: one recipe or run is accepted, here {names[0]!r}, and changes KEY=VALUE")
    recipe = load_given(names[0], overrides) if names else None
    data = None
    for text in overrides if recipe is None else ():
        key, _, data = text.partition("=")
        if key not in ("data", "data.path") or not data:
            raise RecipeError(f"{text!r}: without a recipe, only data=FOLDER is accepted")
    found = examine(recipe, data)
    about = ", ".join(f"{key} {value}" for key, value in found.about.items())
    if json:
        findings = [asdict(finding) for finding in found.findings]
        print_json({"can_train": found.can_train, "findings": findings, "about": found.about})
    else:
        for line in (line for finding in found.findings for line in _lines(finding, found.places)):
            result(line)
        for line in ("", "paste this into an issue:", *wrapped(about, _WIDTH)):
            result(line)
    if not found.can_train:
        raise typer.Exit(1)


def _lines(finding: "Finding", places: Iterable[str]) -> Iterator[str]:
    """A finding, and below it what to change."""
    head = f"{_WORDS[finding.level]:<5} {finding.about:<{_INDENT - 6}}"
    for text, begin in ((finding.found, head), (finding.change and f"→ {finding.change}", " " * _INDENT)):
        for number, line in enumerate(wrapped(text, _WIDTH - _INDENT, places)):
            yield f"{begin if number == 0 else ' ' * _INDENT}{line}"
