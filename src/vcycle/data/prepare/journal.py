"""What a preparation has done so far: a file that only grows, line by line, so that a kill costs the last one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Self, TextIO

from vcycle.data.prepare.records import Record
from vcycle.data.prepare.sources import Source
from vcycle.data.stamp import Stamp

__all__ = ["Journal"]

Measured = tuple[int, int, int]


class Journal:
    """Measured and written videos by name, each with what its source was then."""

    def __init__(self, path: Path) -> None:
        """Read a journal, if there is one; a last line that was cut short does not count."""
        self.path = path
        self._whole = 0  # bytes of whole lines
        self._file: TextIO | None = None
        self._written: dict[str, tuple[Stamp, dict[str, Any]]] = {}
        self._measured: dict[str, tuple[Stamp, Measured]] = {}
        if path.exists():
            with open(path, "rb") as file:
                for line in file:
                    if not self._take(line):
                        break
                    self._whole += len(line)

    def written(self, source: Source) -> Record | None:
        """What was written of a file, unless it has changed since."""
        stamp, data = self._written.get(source.name, (None, {}))
        return Record.from_json(data) if stamp == source.stamp else None

    def measured(self, source: Source) -> Measured | None:
        """Frames, height and width of a file, unless it has changed since."""
        stamp, data = self._measured.get(source.name, (None, None))
        return data if stamp == source.stamp else None

    @property
    def names(self) -> set[str]:
        """Names of all files written."""
        return set(self._written)

    def note_written(self, source: Source, record: Record) -> None:
        """Remember a file; what was written of it is on the disk."""
        data = record.to_json()
        self._append({"file": source.name, "source": source.stamp, "written": data})
        self._written[source.name] = source.stamp, data

    def note_measured(self, source: Source, measured: Measured) -> None:
        """Remember the measures of a file."""
        self._append({"file": source.name, "source": source.stamp, "measured": list(measured)})
        self._measured[source.name] = source.stamp, measured

    def _take(self, line: bytes) -> bool:
        try:
            entry = json.loads(line)
            name, stamp = entry["file"], Stamp(*entry["source"])
            if "written" in entry:
                Record.from_json(entry["written"])
                self._written[name] = stamp, entry["written"]
            else:
                frames, height, width = entry["measured"]
                self._measured[name] = stamp, (frames, height, width)
        except (ValueError, KeyError, TypeError):
            return False
        return line.endswith(b"\n")

    def _append(self, entry: dict[str, Any]) -> None:
        if self._file is None:
            self._file = open(self.path, "a", encoding="ascii")  # noqa: SIM115 -- closed by close()
            os.truncate(self._file.fileno(), self._whole)
        self._file.write(json.dumps(entry, separators=(",", ":")) + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
