"""`vcycle import`: translates the configuration of another tool into a recipe."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcycle.console.arguments import Json, Overrides
from vcycle.console.output import message, print_json, result
from vcycle.errors import RecipeError

if TYPE_CHECKING:
    from vcycle.tasks.importing import Imported

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
    """Translate the configuration of another tool into a recipe, and list what differs.

    Each key is translated, not needed, or different. The file is read, never executed.
    """
    from vcycle.tasks.importing import import_config
    from vcycle.utils.atomic import atomic_write

    to = Path(out)
    if out != _STDOUT and to.exists() and not force:
        raise RecipeError(f"{out} exists: choose another name with -o, or replace it with --force")
    imported = import_config(file.expanduser(), overrides or ())
    text = _commented(imported)
    if out != _STDOUT:
        try:
            with atomic_write(to) as handle:
                handle.write(text.encode())
        except OSError as error:
            raise RecipeError(f"{out}: cannot be written: {error.strerror or error}") from None
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
    titles = {"translated": "translated", "unneeded": "not needed", "differs": "different or unsupported"}
    for kind, title in titles.items():
        found = imported.of(kind)  # type: ignore[arg-type]  # a literal
        listed = every or kind == "differs"
        lines.append(f"{title}: {len(found)}{' (--all lists them)' if found and not listed else ''}")
        if listed:
            arrow = "→ " if kind == "translated" else ""
            lines += [f"  {key}: {arrow}{finding.reason}" for key, finding in found.items()]
    return lines


def _commented(imported: "Imported") -> str:
    """The recipe, under comments that say where it comes from and what differs."""
    lines = [f"Imported from {imported.source} ({imported.tool}) by `vcycle import`."]
    differing = imported.of("differs")
    if differing:
        lines.append("Different or unsupported:")
        lines += [f"  {key}: {finding.reason}" for key, finding in differing.items()]
    return (
        "".join(f"# {' '.join(line.split()) if not line.startswith(' ') else line}\n" for line in lines) + imported.text
    )


def _as_data(imported: "Imported", text: str, out: str | None) -> dict[str, object]:
    """What `--json` prints."""
    return {
        "tool": imported.tool,
        "source": imported.source,
        "out": out,
        "base": imported.base,
        "recipe": text,
        **{
            name: {key: finding.reason for key, finding in imported.of(kind).items()}  # type: ignore[arg-type]
            for kind, name in (("translated", "translated"), ("unneeded", "not_needed"), ("differs", "different"))
        },
    }
