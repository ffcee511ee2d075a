"""Reads and writes stores of prepared frames: an index, and one file of tiles per clip (see ``tiles``)."""

import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vcycle.data.source import Box
from vcycle.data.video import VideoError
from vcycle.errors import DataError
from vcycle.tasks.superres.pairs.clips import ClipInfo
from vcycle.tasks.superres.pairs.degrade import Degradation
from vcycle.tasks.superres.pairs.tiles import TILE, TileGrid
from vcycle.utils.atomic import atomic_write
from vcycle.utils.reading import read_text

__all__ = ["INDEX", "StoredClip", "TileStore", "TiledClips", "is_store"]

INDEX = "frames.json"

_FORMAT = 1
_FRAMES_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredClip:
    """An entry of the index."""

    name: str
    frames: int
    height: int
    width: int
    crc32: int
    """CRC-32 of the high-resolution frames, in order."""

    low_crc32: int | None
    """CRC-32 of the low-resolution frames; None if the store has none."""


def is_store(folder: Path) -> bool:
    """Whether a folder is a finished store."""
    return (folder / INDEX).is_file()


class TileStore:
    """A finished store, open for reading by any number of processes."""

    def __init__(self, folder: Path) -> None:
        """Read the index of a store.

        Raises:
            DataError: If the index is missing, damaged, or of another format.
        """
        self.folder = Path(folder)
        file = self.folder / INDEX
        try:
            index = json.loads(read_text(file))
            degradation = index["degradation"]
            self.degradation = Degradation(**degradation) if degradation is not None else None
            """The degradation of the low-resolution frames; None if the store has none."""
            self.resized = Fraction(index["resized"]) if "resized" in index else None
            """The factor on the sides of the high-resolution frames; None if they were not resized."""
            self.clips = tuple(StoredClip(**clip) for clip in index["clips"])
            readable = (index["format"], index["tile"]) == (_FORMAT, TILE)
        except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, RecursionError) as error:
            raise DataError(f"{file}: not a readable index of frames ({error}); prepare them again") from error
        if not readable:
            raise DataError(f"{file}: written by another version (format {index['format']}); prepare them again")

    def __len__(self) -> int:
        """Number of clips."""
        return len(self.clips)

    @property
    def high(self) -> "TiledClips":
        """The high-resolution frames."""
        return TiledClips(self, scale=1)

    @property
    def low(self) -> "TiledClips | None":
        """The low-resolution frames; None if the store has none."""
        return None if self.degradation is None else TiledClips(self, scale=self.degradation.scale)

    def refuse_incomplete(self) -> None:
        """Refuse a store with missing or truncated files; it was complete when its index was written.

        Raises:
            DataError: if a file is missing or truncated; names the first, their number, and the remedy.
        """
        wrong = [(clip, why) for clip in self.clips if (why := self._incomplete(clip)) is not None]
        if wrong:
            clip, why = wrong[0]
            many = f" ({len(wrong):,} such clips of {len(self):,})" if wrong[1:] else ""
            raise DataError(
                f"{clip_file(self.folder, clip.name)}: {why}{many}: run the same `vcycle prepare` again to write what "
                f"is missing; `vcycle check {self.folder}` lists it"
            )

    def _incomplete(self, clip: StoredClip) -> str | None:
        """The fault of a clip's file, by its size alone; None if there is none."""
        needed = clip.frames * clip.height * clip.width * 3
        if self.degradation is not None:
            scale = self.degradation.scale
            needed += clip.frames * (clip.height // scale) * (clip.width // scale) * 3
        try:
            found = clip_file(self.folder, clip.name).stat().st_size
        except OSError as error:
            return (error.strerror or str(error)).lower()
        return None if found == needed else f"has {found:,} bytes of {needed:,}"

    def check(self, progress: Callable[[int, int], None] | None = None) -> Iterator[VideoError]:
        """Read every clip and yield the faults of those that have changed since they were written.

        Args:
            progress: Called with the number of clips done and their total.
        """
        for item, clip in enumerate(self.clips):
            for clips, expected in ((self.high, clip.crc32), (self.low, clip.low_crc32)):
                try:
                    if clips is not None and checksum(clips, item) != expected:
                        yield VideoError(str(clips.path(item)), "its content has changed since it was written")
                        break
                except VideoError as error:
                    yield error
                    break
            if progress is not None:
                progress(item + 1, len(self.clips))


class TiledClips:
    """The clips of a store at one of its resolutions."""

    def __init__(self, store: TileStore, *, scale: int) -> None:
        """Read the frames of a store: the high-resolution ones with a scale of 1, else the low-resolution ones."""
        self.store = store
        self.scale = scale
        self.names: Sequence[str] = tuple(clip.name for clip in store.clips)

    def __len__(self) -> int:
        """Number of clips."""
        return len(self.names)

    def path(self, item: int) -> Path:
        """File of a clip."""
        return clip_file(self.store.folder, self.names[item])

    def info(self, item: int) -> ClipInfo:
        """Length and size of a clip."""
        clip = self.store.clips[item]
        return ClipInfo(frames=clip.frames, height=clip.height // self.scale, width=clip.width // self.scale)

    def read(self, item: int, frames: Sequence[int], box: Box | None = None) -> NDArray[np.uint8]:
        """Read frames by number; only the tiles that the box touches."""
        info = self.info(item)
        clip = self.store.clips[item]
        grid = TileGrid(info, 0 if self.scale == 1 else clip.frames * clip.height * clip.width * 3)
        try:
            file = os.open(self.path(item), os.O_RDONLY | os.O_CLOEXEC)
            try:
                return grid.read(file, frames, box or (0, 0, info.height, info.width))
            finally:
                os.close(file)
        except OSError as error:
            raise VideoError(str(self.path(item)), error.strerror or str(error)) from error


def clip_file(folder: Path, name: str) -> Path:
    """The file of a clip's tiles."""
    return folder / "clips" / f"{name}.tiles"


def checksum(clips: TiledClips, item: int) -> int:
    """CRC-32 of all frames of a clip, one after another.

    Raises:
        VideoError: If the file cannot be read.
    """
    total, crc = clips.info(item).frames, 0
    for first in range(0, total, _FRAMES_AT_ONCE):
        crc = zlib.crc32(clips.read(item, range(first, min(first + _FRAMES_AT_ONCE, total))).data, crc)
    return crc


def write_index(
    folder: Path, clips: Sequence[StoredClip], degradation: Degradation | None, resized: Fraction | None = None
) -> None:
    """Write the index atomically; the same clips give the same bytes."""
    made_by = None if degradation is None else asdict(degradation)
    head: dict[str, object] = {"format": _FORMAT, "tile": TILE, "degradation": made_by}
    if resized is not None:
        head["resized"] = str(resized)
    lines = ",\n".join(json.dumps(asdict(clip)) for clip in clips)
    text = f'{json.dumps(head)[:-1]}, "clips": [\n{lines}\n]}}\n'
    with atomic_write(folder / INDEX) as file:
        file.write(text.encode())
