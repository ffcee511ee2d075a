"""`vcycle import`: translates the configuration of another tool into a recipe."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcycle.console.arguments import Json, Overrides
from vcycle.console.output import message, print_json, result
from vcycle.errors import RecipeError

if TYPE_CHECKING:
    from vcycle.tasks.importing import Imported, Kind

__all__ = ["import_"]

_STDOUT = "-"


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A configuration of another tool.")],
    overrides: Overrides = None,
    out: Annotated[str, typer.Option("--out", "-o", help="The recipe to write; - prints it.")] = "recipe.yaml",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    every: Annotated[bool, typer.Option("--all", help="List every key, not only those that differ.")] = False,
    json: Json = False,
) -> None:
    """Translate the configuration of another tool into a recipe.

    It lists what differs: each key is translated, not needed, or different. The file is read, never executed.
    """
    from vcycle.tasks.importing import import_config
    from vcycle.utils.atomic import atomic_text

    to = Path(out)
    if out != _STDOUT and to.exists() and not force:
        raise RecipeError(f"{out} exists: choose another name with -o, or replace it with --force")
    imported = import_config(file.expanduser(), overrides or ())
    text = _commented(imported)
    if out != _STDOUT:
        atomic_text(to, text)
    if json:
        print_json(_as_data(imported, text, None if out == _STDOUT else out))
        return
    if out == _STDOUT:
        print(text, end="")
    say = message if out == _STDOUT else result
    for line in _report(imported, every=every):
        say(line)
    if out != _STDOUT:
        say(f"next: {' '.join(filter(None, ('vcycle plan', shlex.quote(out), imported.missing)))}")


def _report(imported: "Imported", *, every: bool) -> list[str]:
    """What became of the configuration, in lines."""
    what = f"{imported.keys} keys" if imported.base is None else f"{imported.base} and {imported.keys} keys"
    lines = [f"{imported.source}, {imported.tool}: {what}"]
    titles: dict[Kind, str] = {
        "translated": "translated",
        "unneeded": "not needed",
        "differs": "different or unsupported",
    }
    for kind, title in titles.items():
        found = imported.of(kind)
        listed = every or kind == "differs"
        lines.append(f"{title}: {len(found)}{' (--all lists them)' if found and not listed else ''}")
        if listed:
            arrow = "→ " if kind == "translated" else ""
            lines += [f"  {_line(key)}: {arrow}{_line(finding.reason)}" for key, finding in found.items()]
    return lines


def _commented(imported: "Imported") -> str:
    """The recipe, under comments that say where it comes from and what differs."""
    lines = [f"Imported from {_line(imported.source)} ({imported.tool}) by `vcycle import`."]
    differing = imported.of("differs")
    if differing:
        lines.append("Different or unsupported:")
        lines += [f"  {_line(key)}: {_line(finding.reason)}" for key, finding in differing.items()]
    return "".join(f"# {line}\n" for line in lines) + imported.text


def _line(text: str) -> str:
    """A text of the configuration in one line of characters that YAML accepts: it must not end a comment."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in " ".join(text.split()))


def _as_data(imported: "Imported", text: str, out: str | None) -> dict[str, object]:
    """What `--json` prints."""
    return {
        "tool": imported.tool,
        "source": imported.source,
        "out": out,
        "base": imported.base,
        "recipe": text,
        "translated": _reasons(imported, "translated"),
        "not_needed": _reasons(imported, "unneeded"),
        "different": _reasons(imported, "differs"),
    }


def _reasons(imported: "Imported", kind: "Kind") -> dict[str, str]:
    return {key: finding.reason for key, finding in imported.of(kind).items()}
