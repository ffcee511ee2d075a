"""Files of JSON lines."""

import json
import os
import reprlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TextIO

from vcycle.errors import VcycleError
from vcycle.utils.atomic import atomic_text
from vcycle.utils.reading import open_regular

__all__ = ["JsonLines"]

_SHOWN = 40
"""Characters of a damaged line that a message shows."""


class JsonLines:
    """A file of one JSON object per line, which grows by whole lines and survives being cut short."""

    def __init__(self, path: Path, *, lenient: bool = False) -> None:
        """Name the file; it is made when something is written.

        Args:
            path: Its name.
            lenient: Whether to leave out damaged lines instead of raising.
        """
        self.path = path
        self._lenient = lenient
        self._file: TextIO | None = None

    def keep(self, wanted: Mapping[str, int]) -> None:
        """Drop lines at or past a position (`{"step": 100}`), and a last line that was cut short.

        Raises:
            VcycleError: if the file cannot be written, or as `read`.
        """
        if self.path.exists():
            kept = [
                line
                for number, line in self._numbered()
                if all(self._held(number, line, key, int, 0) < end for key, end in wanted.items())
            ]
            atomic_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))

    def read(self, needed: Mapping[str, type] | None = None) -> Iterator[dict[str, Any]]:
        """The objects in the file, one of each line; empty lines and a last one that was cut short are left out.

        Args:
            needed: Keys that each has, and of which kind they are.

        Raises:
            VcycleError: naming the line that is something else; or if the file cannot be read.
        """
        for number, found in self._numbered():
            try:
                for key, kind in (needed or {}).items():
                    self._held(number, found, key, kind)
            except VcycleError:
                if not self._lenient:
                    raise
                continue
            yield found

    def _numbered(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The objects in the file, with the numbers of their lines."""
        if not self.path.exists():
            return
        try:
            with open_regular(self.path) as file:
                for number, line in enumerate(file, start=1):
                    found = _object(line)
                    if found is not None:
                        yield number, found
                    elif line.strip() and not _is_cut(line) and not self._lenient:
                        raise VcycleError(f"{self.path}, line {number} is damaged: {_shown(line)} is no JSON object")
        except OSError as error:
            raise VcycleError(f"{self.path} cannot be read: {error.strerror or error}") from error

    def _held(self, number: int, line: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
        """What a line has under a key.

        Raises:
            VcycleError: if it is of another kind.
        """
        value = line.get(key, default)
        if type(value) is not kind:
            wrong = f"is {reprlib.repr(value)}: {kind.__name__} is accepted" if key in line else "is missing"
            raise VcycleError(f"{self.path}, line {number} is damaged: key {key!r} {wrong}")
        return value

    def write(self, **values: Any) -> None:
        """Append an object.

        Raises:
            VcycleError: if the file cannot be written.
        """
        try:
            if self._file is None:
                self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 -- closed by close()
            self._file.write(json.dumps(values) + "\n")
            self._file.flush()
        except OSError as error:
            raise _cannot_be_written(self.path, error) from error

    def sync(self) -> None:
        """Wait until what was written would survive a loss of power.

        Raises:
            VcycleError: if it cannot be written.
        """
        if self._file is not None:
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                raise _cannot_be_written(self.path, error) from error

    def close(self) -> None:
        """Close the file; each line is written already."""
        if self._file is not None:
            # After a failed write, closing tries it again.
            with suppress(OSError):
                self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _object(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None if it is something else."""
    try:
        found = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_cut(line: bytes) -> bool:
    """Whether a line may be the beginning of one that was being written; after a loss of power, zeros may follow it."""
    return not line.endswith(b"\n") and line.strip(b"\0")[:1] in (b"", b"{")


def _shown(line: bytes) -> str:
    """The beginning of a line, as a message shows it."""
    text = line.decode(errors="replace").strip()
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _cannot_be_written(path: Path, error: OSError) -> VcycleError:
    return VcycleError(f"{path} cannot be written: {error.strerror or error}")
