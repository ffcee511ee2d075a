"""JSON Lines at a URL, where files cannot be appended to: a folder of files that are each written once."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from vcycle.data.locations import Url, entries
from vcycle.errors import DataError

__all__ = ["SegmentedLines"]

_LINES = 1000
_SECONDS = 60.0
"""Once these have passed, the next line is written, with those before."""

_FILE = re.compile(r"[0-9]+\.jsonl")


class SegmentedLines:
    """Has the methods of ``JsonLines`` that a journal needs.

    Damaged lines are skipped, so that their work is redone, and so are other files.
    """

    def __init__(self, folder: Url) -> None:
        """Set the folder; nothing is written yet."""
        self._folder = folder
        self._count = 0
        self._lines: list[str] = []
        self._written = time.monotonic()

    def read(self, needed: Mapping[str, type]) -> Iterator[dict[str, Any]]:
        """Yield the object of each line that has the needed keys.

        Raises:
            DataError: If the folder cannot be read.
        """
        try:
            for name in sorted(filter(_FILE.fullmatch, entries(self._folder))):
                self._count = max(self._count, int(name.partition(".")[0]) + 1)
                for line in (self._folder / name).read_bytes().splitlines():
                    try:
                        found = json.loads(line)
                    except (ValueError, RecursionError):
                        continue
                    if isinstance(found, dict) and all(type(found.get(key)) is kind for key, kind in needed.items()):
                        yield found
        except OSError as error:
            raise DataError(f"{self._folder}: cannot be read: {error}") from error

    def keep(self, _: Mapping[str, int]) -> None:
        """Do nothing: no line is cut."""

    def write(self, **values: Any) -> None:
        """Add an object, which may be written later.

        Raises:
            OSError: If a file cannot be written.
        """
        self._lines.append(json.dumps(values))
        if len(self._lines) >= _LINES or time.monotonic() - self._written >= _SECONDS:
            self.sync()

    def sync(self) -> None:
        """Write what has been added.

        Raises:
            OSError: If the file cannot be written.
        """
        if self._lines:
            text = "\n".join(self._lines) + "\n"
            (self._folder / f"{self._count:08}.jsonl").write_bytes(text.encode())
            self._count += 1
            self._lines = []
        self._written = time.monotonic()

    def close(self) -> None:
        """Write what has been added."""
        self.sync()
