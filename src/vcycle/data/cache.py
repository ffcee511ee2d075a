"""Every frame of a dataset, decoded once to a small size and mapped into memory.

Coarse stages ask for many times the clips per second of the baseline; decoding cannot follow on a few cores,
reading decoded frames can. A cache of 20,000 frames of 64 x 86 pixels takes 330 MB.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray

from vcycle.data.info import VideoInfo
from vcycle.data.layouts import VideoList
from vcycle.data.source import Box, Frames, part_shown, resize
from vcycle.data.video import VideoError, VideoIndex, probe, read_frames
from vcycle.errors import DataError

__all__ = ["FrameCache"]

_FORMAT = 1
_FRAMES_AT_ONCE = 512  # bounds the memory that a long video takes while it is copied
_COLUMNS = ("frames", "stored", "displayed", "times", "durations", "tolerances", "filled", "faults")
_NOTHING = VideoInfo(times=np.empty(0), duration=0.0, height=1, width=1)  # stands for an unreadable video


class FrameCache:
    """A frame source that reads from a cache file; any number of processes may share one."""

    def __init__(self, videos: VideoList, file: Path) -> None:
        """Open a finished cache; ``build`` makes it.

        Raises:
            DataError: If the file is missing or not a whole cache of these videos.
        """
        self.videos = videos
        self.file = file
        try:
            with np.load(_table_of(file), allow_pickle=False) as table:
                self._table = {name: table[name] for name in _COLUMNS}
            size = file.stat().st_size
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise DataError(f"{file}: not a readable frame cache ({error}); delete it to build it again") from error
        counts, sizes = self._table["frames"], self._table["stored"]
        self._frames_before = np.concatenate([[0], np.cumsum(counts)])
        self._bytes_before = np.concatenate([[0], np.cumsum(counts * sizes.prod(axis=1) * 3)])
        if len(counts) != len(videos) or size != max(1, self._bytes_before[-1]):
            raise DataError(f"{file}: {size} bytes for {len(counts)} videos are not whole; delete it to build it again")
        self._pixels: NDArray[np.uint8] | None = None

    @classmethod
    def build(
        cls,
        videos: VideoList,
        folder: Path,
        *,
        short_side: int,
        progress: Callable[[int, int], None] | None = None,
        threads: int | None = None,
    ) -> FrameCache:
        """Decode every video into a folder, or open what is already there.

        The file's name follows from the videos' paths, sizes and times of change, and from the short side: a
        dataset that has changed gets another file. A file is whole or absent. A video that cannot be read is
        recorded and remains unreadable.

        Args:
            videos: The dataset.
            folder: Where caches lie; made if missing.
            short_side: Short side of the frames in pixels; smaller videos keep their size.
            progress: Called with the number of videos done and their total.
            threads: Videos decoded at a time; one per core by default.

        Raises:
            DataError: If the folder cannot be written or the disk is too small.
        """
        file = folder / f"frames-{short_side}px-{_digest(videos)}.u8"
        if not (file.exists() and _table_of(file).exists()):
            partial = file.with_suffix(f".{os.getpid()}.partial")
            try:
                folder.mkdir(parents=True, exist_ok=True)
                table = _decode_all(videos, partial, short_side, progress, threads or os.cpu_count() or 1)
                os.replace(partial, file)
                _write_table(_table_of(file), table)
            except OSError as error:
                raise DataError(f"{file}: the frame cache cannot be written: {error.strerror or error}") from error
            finally:
                partial.unlink(missing_ok=True)
        return cls(videos, file)

    @property
    def faults(self) -> dict[int, str]:
        """Causes of the videos that cannot be read, by item."""
        return {item: str(cause) for item, cause in enumerate(self._table["faults"]) if cause}

    def info(self, item: int) -> VideoInfo:
        """Times and displayed size of a video."""
        if cause := str(self._table["faults"][item]):
            raise VideoError(str(self.videos.path(item)), cause)
        height, width = self._table["displayed"][item].tolist()
        first, last = self._frames_before[item : item + 2]
        return VideoInfo(
            times=self._table["times"][first:last],
            duration=float(self._table["durations"][item]),
            height=height,
            width=width,
            tolerance=float(self._table["tolerances"][item]),
        )

    def read(
        self, item: int, frames: NDArray[np.int64], *, resized: tuple[int, int], crop: Box, antialias: bool
    ) -> Frames:
        """Frames by number, resized from their cached size."""
        stored = self._video(item)
        rows, columns = part_shown(stored.shape[1:3], resized, crop)
        part = torch.from_numpy(np.ascontiguousarray(stored[frames, rows, columns]))
        filled = int(self._table["filled"][self._frames_before[item] + frames].sum())
        return Frames(resize(part, crop[2:], antialias=antialias), filled)

    def _video(self, item: int) -> NDArray[np.uint8]:
        """The frames of one video, ``(frames, height, width, 3)``, where they lie."""
        if self._pixels is None:
            self._pixels = np.asarray(np.memmap(self.file, dtype=np.uint8, mode="r"))
        return _video_in(self._pixels, self._bytes_before, self._table["stored"], item)

    def __getstate__(self) -> dict[str, object]:
        """Leave the mapping behind: another process maps the file itself."""
        return {**self.__dict__, "_pixels": None}


def _video_in(
    pixels: NDArray[np.uint8], bytes_before: NDArray[np.int64], sizes: NDArray[np.int64], item: int
) -> NDArray[np.uint8]:
    first, last = bytes_before[item : item + 2]
    return pixels[first:last].reshape(-1, *sizes[item].tolist(), 3)


def _table_of(file: Path) -> Path:
    """The file beside the frames that says where each video lies and when its frames are shown."""
    return file.with_suffix(".npz")


def _digest(videos: VideoList) -> str:
    """A name for the content of a dataset: paths, sizes and times of change."""
    digest = hashlib.blake2b(str(_FORMAT).encode(), digest_size=8)
    for item, path in enumerate(videos.paths):
        try:
            status = videos.path(item).stat()
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        except OSError:
            digest.update(f"{path}\0missing\n".encode())
    return digest.hexdigest()


def _stored_size(info: VideoInfo, short_side: int) -> tuple[int, int]:
    scale = min(1.0, short_side / min(info.height, info.width))
    return max(1, round(info.height * scale)), max(1, round(info.width * scale))


def _probe(path: str) -> VideoIndex | VideoError:
    try:
        return probe(path)
    except VideoError as error:
        return error


def _copy(index: VideoIndex, to: NDArray[np.uint8], filled: NDArray[np.bool_]) -> str:
    """Decode a whole video into its place; returns the cause if it cannot be read."""
    height, width = to.shape[1:3]
    try:
        for first in range(0, len(to), _FRAMES_AT_ONCE):
            numbers = range(first, min(first + _FRAMES_AT_ONCE, len(to)))
            to[numbers.start : numbers.stop], filled[numbers.start : numbers.stop] = read_frames(
                index, numbers, height=height, width=width
            )
    except VideoError as error:
        return error.cause
    return ""


def _decode_all(
    videos: VideoList, file: Path, short_side: int, progress: Callable[[int, int], None] | None, threads: int
) -> dict[str, NDArray[np.generic]]:
    """Write the frames of every video, one after another; returns the table that describes them."""
    with ThreadPoolExecutor(threads) as pool:
        indexes = list(pool.map(_probe, [str(videos.path(item)) for item in range(len(videos))]))
        infos = [index.info if isinstance(index, VideoIndex) else _NOTHING for index in indexes]
        sizes = np.array([_stored_size(info, short_side) for info in infos], dtype=np.int64).reshape(-1, 2)
        counts = np.array([info.frames for info in infos], dtype=np.int64)
        frames_before = np.concatenate([[0], np.cumsum(counts)])
        bytes_before = np.concatenate([[0], np.cumsum(counts * sizes.prod(axis=1) * 3)])
        _reserve(file, max(1, int(bytes_before[-1])))
        pixels = np.memmap(file, dtype=np.uint8, mode="r+")
        filled = np.zeros(frames_before[-1], dtype=np.bool_)

        def copy(item: int) -> str:
            index = indexes[item]
            if isinstance(index, VideoError):
                return index.cause
            missing = filled[frames_before[item] : frames_before[item + 1]]
            return _copy(index, _video_in(pixels, bytes_before, sizes, item), missing)

        faults: list[str] = []
        for cause in pool.map(copy, range(len(videos))):
            faults.append(cause)
            if progress is not None:
                progress(len(faults), len(videos))
        pixels.flush()
    return {
        "frames": counts,
        "stored": sizes,
        "displayed": np.array([(info.height, info.width) for info in infos], dtype=np.int64),
        "times": np.concatenate([info.times for info in infos]),
        "durations": np.array([info.duration for info in infos]),
        "tolerances": np.array([info.tolerance for info in infos]),
        "filled": filled,
        "faults": np.array(faults, dtype=np.str_),
    }


def _reserve(file: Path, size: int) -> None:
    """Make a file of a given size whose blocks exist: a full disk is an error now, not a crash later."""
    with file.open("wb") as handle:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle.fileno(), 0, size)
        else:
            handle.truncate(size)


def _write_table(file: Path, table: dict[str, NDArray[np.generic]]) -> None:
    partial = file.with_suffix(f".{os.getpid()}.partial")
    try:
        with partial.open("wb") as handle:
            np.savez(handle, **table)  # type: ignore[arg-type]
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)
