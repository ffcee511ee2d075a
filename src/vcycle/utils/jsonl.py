"""JSON Lines files."""

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
"""Characters of a damaged line to show in a message."""


class JsonLines:
    """An append-only file with one JSON object per line; a truncated last line does no harm."""

    def __init__(self, path: Path, *, lenient: bool = False) -> None:
        """Set the path; the file is created on first write.

        Args:
            path: The file.
            lenient: Whether to skip damaged lines instead of raising.
        """
        self.path = path
        self._lenient = lenient
        self._file: TextIO | None = None

    def keep(self, wanted: Mapping[str, int]) -> None:
        """Drop lines at or past a position (`{"step": 100}`), and a truncated last line.

        Raises:
            VcycleError: if the file cannot be written, or for the reasons of `read`.
        """
        if self.path.exists():
            kept = [
                line
                for number, line in self._numbered()
                if all(self._held(number, line, key, int, 0) < end for key, end in wanted.items())
            ]
            atomic_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))

    def read(self, needed: Mapping[str, type] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the object of each line; skips empty lines and a truncated last line.

        Args:
            needed: Required keys and their types.

        Raises:
            VcycleError: if a line is damaged (names it), or the file cannot be read.
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
        """Yield the objects in the file with their line numbers."""
        if not self.path.exists():
            return
        try:
            with open_regular(self.path) as file:
                for number, line in enumerate(file, start=1):
                    found = _object(line)
                    if found is not None:
                        yield number, found
                    elif line.strip() and not _is_cut(line) and not self._lenient:
                        raise VcycleError(f"{self.path}, line {number} is damaged: {_shown(line)} is not a JSON object")
        except OSError as error:
            raise VcycleError(f"{self.path} cannot be read: {error.strerror or error}") from error

    def _held(self, number: int, line: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
        """Return the value of a key in a line.

        Raises:
            VcycleError: if it has another type.
        """
        value = line.get(key, default)
        if type(value) is not kind:
            wrong = f"is {reprlib.repr(value)}, not {kind.__name__}" if key in line else "is missing"
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
        """Sync to disk, so that written lines survive a power loss.

        Raises:
            VcycleError: if the file cannot be written.
        """
        if self._file is not None:
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                raise _cannot_be_written(self.path, error) from error

    def close(self) -> None:
        """Close the file; every line is already written."""
        if self._file is not None:
            # After a failed write, close() retries it.
            with suppress(OSError):
                self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a line; None if it is not one."""
    try:
        found = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_cut(line: bytes) -> bool:
    """Return whether a line may be truncated; after a power loss, zeros may follow it."""
    return not line.endswith(b"\n") and line.strip(b"\0")[:1] in (b"", b"{")


def _shown(line: bytes) -> str:
    """Return the beginning of a line, for messages."""
    text = line.decode(errors="replace").strip()
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _cannot_be_written(path: Path, error: OSError) -> VcycleError:
    return VcycleError(f"{path} cannot be written: {error.strerror or error}")
