"""What a preparation has done so far: a file that grows line by line, so that a kill costs the last one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Self

from vcycle.data.stamp import Stamp
from vcycle.errors import DataError, VcycleError
from vcycle.utils.jsonl import JsonLines

__all__ = ["Journal"]


class Journal:
    """Finished work by kind and name, each with the stamps that its sources had; write within a ``with`` statement."""

    def __init__(self, path: Path, kinds: Mapping[str, Callable[[Any], Any]], *, lenient: bool = False) -> None:
        """Read a journal, if there is one; a last line that was cut short does not count.

        Args:
            path: Its file.
            kinds: What is kept, and how a value of it is made from JSON data.
            lenient: Whether damaged lines do not count either: their work is done again.

        Raises:
            DataError: If a line is damaged, or the file cannot be read.
        """
        self.path = path
        self._kinds = kinds
        self._lines = JsonLines(path, lenient=lenient)
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
        """The value of a kind under a name; None if there is none, or its sources have changed since."""
        stamps, value = self._found.get((kind, name), (None, None))
        return value if stamps == [*chain(*source)] else None

    def names(self, kind: str) -> set[str]:
        """The names that have a value of a kind."""
        return {name for of, name in self._found if of == kind}

    def note(self, kind: str, name: str, value: object, source: Sequence[Stamp] = ()) -> None:
        """Append a value, as JSON data; what was made of the sources is on the disk.

        Raises:
            VcycleError: If the file cannot be written.
        """
        line = {"file": name, "source": [*chain(*source)], kind: value}
        self._lines.write(**line)
        self._take(line)

    def sync(self) -> None:
        """Wait until what was noted would survive a loss of power."""
        self._lines.sync()

    def _take(self, line: Mapping[str, Any]) -> None:
        (kind,) = line.keys() - {"file", "source"}
        self._found[kind, line["file"]] = line["source"], self._kinds[kind](line[kind])

    def __enter__(self) -> Self:
        self._lines.keep({})  # the next line must not continue one that was cut short
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
