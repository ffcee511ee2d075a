"""Prints for commands: results to stdout, everything else to stderr."""

import json
import math
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

if TYPE_CHECKING:
    from vcycle.plan import BatchShape, Plan

__all__ = [
    "as_one",
    "errors",
    "is_heard",
    "message",
    "message_of_rank",
    "plain",
    "plan_data",
    "print_json",
    "result",
    "results",
    "wrapped",
]

_WIDE = 160
"""Table width in columns if stdout is not a terminal: wide enough for every table."""

errors = Console(stderr=True, highlight=False, soft_wrap=True)
"""Console on stderr; a message is one line, however long."""


_rank = 0


@contextmanager
def as_one(rank: int) -> Iterator[None]:
    """Set the rank that prints in this block: only the first rank prints what all ranks would print."""
    global _rank
    _rank = rank
    try:
        yield
    finally:
        _rank = 0


def is_heard() -> bool:
    """Whether this process prints."""
    return _rank == 0


def result(content: Any) -> None:
    """Print a result for people: a line, or a table. A text is one line: a name with a line break is spelt out."""
    if not is_heard():
        return
    if isinstance(content, Table):
        known = sys.stdout.isatty() or "COLUMNS" in os.environ
        console = Console(highlight=False, width=None if known else _WIDE)
        for column in content.columns:
            column.overflow = "fold"  # an ellipsis would hide numbers
            if column.no_wrap:  # a cell that does not fit would be cut
                cells = (console.measure(cell).maximum for cell in (column.header, *column.cells))
                column.min_width = max(cells)
        # On a narrow terminal, no word is folded and no column dropped: the terminal wraps the lines.
        least = Measurement.get(console, console.options.update(max_width=_WIDE), content).minimum
        console.width = max(console.width, least)
        console.print(content)
    else:
        Console(highlight=False, soft_wrap=True).print(_visible(content), markup=False)


def results(text: str) -> None:
    """Print a text of several lines for people."""
    for line in text.split("\n"):
        result(line)


def print_json(data: Mapping[str, Any]) -> None:
    """Print one JSON object on one line, in ASCII whatever the terminal's encoding."""
    if is_heard():
        print(json.dumps(plain(data)))


def plain(value: Any) -> Any:
    """Convert data to plain JSON values: NaN and infinity become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def message(text: str) -> None:
    """Print a message to stderr, on the first rank only."""
    if is_heard():
        errors.print(_visible(text), markup=False)


def message_of_rank(text: str) -> None:
    """Print a message of this rank to stderr, such as an unreadable file."""
    errors.print(_visible(f"rank {_rank}: {text}" if _rank else text), markup=False)


_CONTROLS = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160), 0x2028, 0x2029)}


def wrapped(text: str, width: int, whole: Iterable[str] = ()) -> list[str]:
    """Wrap a text between words.

    Args:
        text: The text; its control characters are escaped.
        width: Columns; a longer word is not broken.
        whole: Parts that are not broken at their spaces, such as paths: they can be copied.

    Example:
        >>> wrapped("see my videos/a.mp4", 8, ["my videos/a.mp4"])
        ['see', 'my videos/a.mp4']
    """
    text = _visible(text)
    for part in sorted(map(_visible, whole), key=len, reverse=True):  # a path may begin with another
        text = text.replace(part, part.replace(" ", "\0"))
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def _visible(text: Any) -> Any:
    """A text with its control characters escaped: a file name could inject terminal sequences, or break the line."""
    return text.translate(_CONTROLS) if isinstance(text, str) else text


def plan_data(plan: "Plan", flops: "Callable[[BatchShape], int] | None" = None) -> dict[str, Any]:
    """A plan as printed by `vcycle plan --json`.

    Args:
        plan: The plan.
        flops: FLOPs of a step at a batch shape, if they are counted.
    """
    saving = plan.saving(flops)
    return {
        "plan": plan.name,
        "fingerprint": plan.fingerprint,
        "steps": len(plan),
        "samples": plan.samples,
        "epochs": plan.epochs,
        "saving": {"steps": saving.steps, "work": saving.work},
        "stages": [
            {
                "name": stage.name,
                "steps": stage.steps,
                "frames": stage.base.frames,
                "size": stage.base.size,
                "batch": stage.base.batch,
                "lr": stage.rate.at(0.0),
                "pattern": [
                    {"frames": c.frames, "size": c.size, "batch": c.batch}
                    | ({"tokens": c.tokens} if c.tokens < 1 else {})
                    | ({} if flops is None else {"gflop": flops(c) / 1e9})
                    for c in stage.pattern
                ],
            }
            for stage in plan.stages
        ],
        "notes": list(plan.notes),
    }
