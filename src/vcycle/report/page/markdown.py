"""Renders runs as Markdown for a README: summary, protocols, commands and environments."""

from collections.abc import Mapping, Sequence

from vcycle.report.page.runs import RunData
from vcycle.report.page.summary import environment_rows, not_evaluated, protocols, summary_rows

__all__ = ["markdown_summary"]


def markdown_summary(runs: Sequence[RunData], verdicts: Mapping[str, Sequence[str]] | None = None) -> str:
    """A table of runs, their evaluation protocols, commands, machines and versions, each listed once.

    Args:
        runs: At least one run.
        verdicts: The statements of comparisons, by the name of the study; they come first.
    """
    said = [f"{study}:\n\n" + "\n".join(f"- {line}" for line in lines) for study, lines in (verdicts or {}).items()]
    parts = [
        *said,
        _table(summary_rows(runs)),
        *(f"{line}." for line in [*protocols(runs), *([] if said else not_evaluated(runs))]),
    ]
    commands = dict.fromkeys(found["command"] for run in runs for found in run.environments)
    if commands:
        parts.append("\n".join(["```sh", *commands, "```"]))
    places = dict.fromkeys(f"{row[1]}; {row[2]}." for run in runs for row in environment_rows(run)[1:])
    return "\n\n".join([*parts, *places]) + "\n"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = rows
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rest)])
