"""Parts of a preparation that separate jobs write, such as those of a SLURM array, and what they leave for the merge.

All parts write their files to the places that the whole has for them. Each has a folder of its own for its lock, its
journal and, once it is complete, its result.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, TypeVar

from vcycle.data.locations import Location, entries
from vcycle.data.prepare.folder import PARTS, done, read_json, write_json
from vcycle.data.prepare.names import journal_of
from vcycle.errors import DataError

__all__ = ["Part", "PartResult", "finished_parts", "refuse_mixed"]

T = TypeVar("T")

_RESULT = "part.json"
_FOLDER = re.compile(r"(\d+)-of-(\d+)")


@dataclass(frozen=True, slots=True)
class Part:
    """One of several equal parts of the files, counted from 1.

    Example:
        >>> Part.parse("3/64")
        Part(number=3, of=64)
    """

    number: int
    of: int

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 1 <= self.number <= self.of:
            raise DataError(f"part {self.number}/{self.of}: K/N is accepted, with K from 1 to N")

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> Part:
        """Read ``3/64``.

        Raises:
            DataError: If it is something else.
        """
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if found is None:
            raise DataError(f"part {text}: K/N is accepted, with K from 1 to N")
        return cls(int(found[1]), int(found[2]))

    def select(self, files: Sequence[T]) -> tuple[T, ...]:
        """Return the part's files: every N-th, so that parts of a sorted list take about as long."""
        return tuple(files[self.number - 1 :: self.of])

    def folder(self, out: Location) -> Location:
        """Return the part's own folder in the prepared one."""
        return out / PARTS / f"{self.number}-of-{self.of}"


@dataclass(frozen=True, kw_only=True)
class PartResult:
    """What a complete part leaves beside its journal."""

    settings: dict[str, Any]
    """The settings and the data, as in ``prepare.json``."""

    names: str
    """Checksum of the part's file names: another list of files gives other parts."""

    failed: Mapping[str, str]
    """Files that could not be prepared: the cause by name."""

    redone: Mapping[str, str]
    """Files that were started again: the cause by name."""

    seconds: float

    def write(self, folder: Location) -> None:
        """Write it to the part's folder."""
        write_json(folder / _RESULT, asdict(self))

    @staticmethod
    def digest(names: Iterable[str]) -> str:
        """Return the checksum of file names."""
        digest = hashlib.blake2b(digest_size=16)
        for name in names:
            digest.update(name.encode("utf-8", "surrogateescape") + b"\0")
        return digest.hexdigest()


def refuse_mixed(out: Location, part: Part | None, command: str = "prepare") -> None:
    """Refuse a folder with parts of another division, or parts and a whole run, whose files two jobs would write.

    Args:
        out: The folder.
        part: The part to write; None for a whole run.
        command: The command that writes it.

    Raises:
        DataError: If it is one.
    """
    if part is None:
        if entries(out / PARTS):
            raise DataError(f"{out}: holds parts: write those that are missing with --part, then --merge")
        return
    for of in sorted({of for _, of in _parts_in(out)} - {part.of}):
        raise DataError(f"{out}: holds parts of {of}, not of {part.of}: choose another folder or delete them")
    if journal_of(out).name in entries(out):
        raise DataError(f"{out}: was {done(command)} as a whole, not in parts: leave out --part {part}")


def finished_parts(
    out: Location, settings: Mapping[str, Any], names: Sequence[str], command: str = "prepare"
) -> dict[Part, PartResult]:
    """Return the results of all parts of a folder, in order.

    Args:
        out: The folder.
        settings: The settings and the data that the parts must have.
        names: The names of all files, in the order of which the parts were cut.
        command: The command that has written them.

    Raises:
        DataError: If a part is missing or unfinished, or is of other settings or files.
    """
    found = _parts_in(out)
    if not found:
        raise DataError(f"{out}: holds no parts: run vcycle {command} with --part 1/N to N/N first")
    counts = sorted({of for _, of in found})
    if len(counts) > 1:
        raise DataError(
            f"{out / PARTS}: holds parts of {' and of '.join(map(str, counts))}: delete those of one division"
        )
    results: dict[Part, PartResult] = {}
    for part in (Part(number, counts[0]) for number, _ in sorted(found)):
        written = read_json(part.folder(out) / _RESULT)
        if written is None:
            continue
        try:
            results[part] = PartResult(**written)
        except TypeError as error:
            raise DataError(f"{part.folder(out) / _RESULT}: damaged ({error}): run --part {part} again") from error
        for key, value in settings.items():
            if results[part].settings.get(key) != value:
                had = results[part].settings.get(key)
                raise DataError(f"{out}: part {part} was {done(command)} with {key} {had}, not {value}: run it again")
        if results[part].names != PartResult.digest(part.select(names)):
            raise DataError(f"{out}: part {part} is of another list of files: run --part {part} again")
    if missing := counts[0] - len(results):
        parts = (Part(number, counts[0]) for number in range(1, counts[0] + 1))
        first = ", ".join(str(part) for part in islice((part for part in parts if part not in results), 8))
        shown = first + (f" and {missing - 8} more" if missing > 8 else "")
        raise DataError(f"{out}: unfinished parts: {shown}: run them, and merge then")
    return results


def _parts_in(out: Location) -> set[tuple[int, int]]:
    """Return the numbers of the parts in a prepared folder, and of how many each is."""
    matches = (_FOLDER.fullmatch(entry) for entry in entries(out / PARTS))
    return {(int(match[1]), int(match[2])) for match in matches if match is not None}
