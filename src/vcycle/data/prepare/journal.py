"""The journal of a preparation: an append-only file of finished work, so that a kill loses at most one line.

At a URL it is a folder of files, and a kill loses what has been noted since the last one: lines are written together,
with the first one after a minute, or 1,000 at once.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Self

from vcycle.data.locations import Location, Url
from vcycle.data.prepare.segments import SegmentedLines
from vcycle.data.stamp import Stamp
from vcycle.errors import DataError, VcycleError
from vcycle.utils.jsonl import JsonLines

__all__ = ["Journal"]


class Journal:
    """Finished work by kind and name, with the stamps of its sources; write within a ``with`` statement."""

    def __init__(self, path: Location, kinds: Mapping[str, Callable[[Any], Any]], *, lenient: bool = False) -> None:
        """Read a journal, if it exists; ignores a truncated last line.

        Args:
            path: The journal's file; at a URL, a folder of them.
            kinds: Kinds of entry, and how to decode their JSON values.
            lenient: Whether to ignore damaged lines; their work is redone.

        Raises:
            DataError: If a line is damaged, or the file cannot be read.
        """
        self.path = path
        self._kinds = kinds
        self._lines = SegmentedLines(path) if isinstance(path, Url) else JsonLines(path, lenient=lenient)
        self._found: dict[tuple[str, str], tuple[list[int], Any]] = {}
        try:
            for line in self._lines.read({"file": str, "source": list}):
                try:
                    self._take(line)
                except (ValueError, TypeError, LookupError) as error:
                    if not lenient:
                        raise DataError(f"{path}: damaged ({error})") from error
        except VcycleError as error:
            raise DataError(str(error)) from error

    def get(self, kind: str, name: str, source: Sequence[Stamp] = ()) -> Any:
        """Return the value of a kind and name; None if there is none, or its sources have changed since."""
        stamps, value = self._found.get((kind, name), (None, None))
        return value if stamps == [*chain(*source)] else None

    def names(self, kind: str) -> set[str]:
        """Return the names with a value of a kind."""
        return {name for of, name in self._found if of == kind}

    def note(self, kind: str, name: str, value: object, source: Sequence[Stamp] = ()) -> None:
        """Append a JSON value; the output made from the sources must be on disk.

        Raises:
            VcycleError: If the file cannot be written.
        """
        line = {"file": name, "source": [*chain(*source)], kind: value}
        self._lines.write(**line)
        self._take(line)

    def sync(self) -> None:
        """Sync to disk, so that notes survive a power loss."""
        self._lines.sync()

    def _take(self, line: Mapping[str, Any]) -> None:
        (kind,) = line.keys() - {"file", "source"}
        self._found[kind, line["file"]] = line["source"], self._kinds[kind](line[kind])

    def __enter__(self) -> Self:
        self._lines.keep({})  # the next line must not continue a truncated one
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
