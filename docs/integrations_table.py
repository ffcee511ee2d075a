"""Writes the table of frameworks from what the tests have measured: `python docs/integrations_table.py`."""

import json
from pathlib import Path
from typing import Any

__all__ = ["PAGE", "filled"]

PAGE = Path(__file__).with_name("integrations.md")
RECORD = Path(__file__).with_name("integrations.json")

BEGIN, END = "<!-- table: written by integrations_table.py -->", "<!-- end of table -->"

HEAD = (
    "| setup | one process | two processes | resumed at every step | lines added | for several processes | example |",
    "|---|---|---|---|---:|---:|---|",
)


def filled(page: str) -> str:
    """The page with its table as the record has it now."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    rows = [_row(row) for row in sorted(record.values(), key=lambda row: row["order"])]
    return head + "\n".join([BEGIN, *HEAD, *rows, END]) + tail


def _row(row: dict[str, Any]) -> str:
    cells = [
        row["title"],
        _difference(row.get("one_process")),
        f"≤ {row['two_processes']:.0e}".replace("e-0", "e-"),
        "–" if "resumed_at" not in row else f"{_difference(row['resumed'])} ({row['resumed_at']} resumes)",
        str(row["lines"]),
        str(row["lines_for_several"]) if row["lines_for_several"] else "none",
        f"[`{row['example']}`](../examples/{row['example']})",
    ]
    return f"| {' | '.join(cells)} |"


def _difference(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
