"""A dataset in numbers, as lines for people."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from vcycle.console.output import wrapped
from vcycle.data.layouts.splits import WHOLE
from vcycle.utils.units import as_size, duration

if TYPE_CHECKING:
    from vcycle.data.prepare.summary import Spread, Summary

__all__ = ["summary_lines"]

_WIDTH = 100
_INDENT = 14
_SHOWN = 5


def summary_lines(summary: "Summary") -> list[str]:
    """Describe a dataset, a subject per line; long lines are wrapped and indented, but not in a path or a command."""
    item = summary.item
    total = sum(summary.splits.values())
    if list(summary.splits) == [WHOLE]:
        found = [(f"{item}s", f"{total:,}, without splits: training holds out data.val_fraction of each class")]
    else:
        found = [(f"{item}s", f"{total:,}: {_listed(summary.splits)}")]
    if summary.classes is not None and summary.classes.number:
        found.append(("classes", _classes(summary)))
    if summary.seconds is not None:
        found.append(("length", _spread(summary.seconds, "{:.2f} s") + f"; {duration(summary.seconds.total)} in all"))
    if summary.frames is not None and summary.frames.max > 1:
        found.append(("frames", _spread(summary.frames, "{:,.0f}") + f"; {summary.frames.total:,.0f} in all"))
    found += [
        (name, _listed(counts, unit))
        for name, counts, unit in (
            ("size", summary.sizes, ""),
            ("frame rate", summary.frame_rates, " fps"),
            ("codec", summary.codecs, ""),
        )
        if counts
    ]
    if summary.keyframe_seconds is not None:
        found.append(("key frames", f"at most {_spread(summary.keyframe_seconds, '{:.2f} s')} apart, by file"))
    if summary.from_start:
        found.append(("seeking", f"{summary.from_start:,} files can only be decoded from their start"))
    found.append(("disk", as_size(summary.bytes)))
    for one in summary.ignored:
        found.append(("ignored", f"{one.files:,} × {one.why}; such as {one.example}"))
    for pair in summary.duplicates:
        first, second = pair.splits
        where = (
            f"twice{'' if first == WHOLE else f' in {first}'}" if first == second else f"in both {first} and {second}"
        )
        found.append(("duplicates", f"{pair.files:,} × the same content {where}; such as {' = '.join(pair.example)}"))
    for step in summary.next:
        found += [("next", step.command), ("", step.why)]
    whole = [
        *(one.example for one in summary.ignored),
        *(path for pair in summary.duplicates for path in pair.example),
        *(step.command for step in summary.next),
    ]
    return [line for name, text in found for line in _lines(name, text, whole)]


def _lines(name: str, text: str, whole: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(wrapped(text, _WIDTH - _INDENT, whole)):
        yield f"{name if number == 0 else '':<{_INDENT}}{line}"


def _classes(summary: "Summary") -> str:
    classes, item = summary.classes, summary.item
    assert classes is not None
    if not classes.most:
        return f"{classes.number:,}"
    if classes.most == classes.least:
        ends = f"{classes.most:,} {item}s each"
    else:
        ends = (
            f"largest {classes.largest} ({classes.most:,} {item}s), smallest {classes.smallest} ({classes.least:,}), "
            f"{classes.imbalance:.1f}× imbalance"
        )
    without = f"; {classes.without:,} without any" if classes.without else ""
    split = next(iter(summary.splits))
    return f"{classes.number:,}{'' if split == WHOLE else f' in {split}'}: {ends}{without}"


def _spread(spread: "Spread", unit: str) -> str:
    """The minimum, maximum and median; once if all are equal."""
    shown = [unit.format(value) for value in (spread.min, spread.median, spread.max)]
    return shown[0] if len(set(shown)) == 1 else f"{shown[0]} to {shown[2]}, median {shown[1]}"


def _listed(counts: Mapping[str, int], unit: str = "") -> str:
    """The most frequent kinds with their counts."""
    first = [f"{kind}{unit} {count:,}" for kind, count in list(counts.items())[:_SHOWN]]
    more = len(counts) - _SHOWN
    return ", ".join(first) + (f", and {more:,} more" if more > 0 else "")
