"""Prepares frames for fast random crops: decodes once, degrades once, stores tiles.

The writer can be killed at any moment. Finished clips are recorded in a journal and kept; incomplete clips, and clips
whose source has changed, are written again. The result is the same byte for byte.
"""

import json
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from vcycle.data.prepare.journal import Journal
from vcycle.data.stamp import Stamp, stamp_of
from vcycle.data.video import VideoError
from vcycle.errors import DataError
from vcycle.tasks.superres.pairs.clips import ClipInfo
from vcycle.tasks.superres.pairs.degrade import Degradation
from vcycle.tasks.superres.pairs.journal import journal_of
from vcycle.tasks.superres.pairs.layouts import ClipPairs, read_pairs
from vcycle.tasks.superres.pairs.resized import ResizedClips, resized_pairs
from vcycle.tasks.superres.pairs.store import INDEX, StoredClip, TileStore, clip_file, write_index
from vcycle.tasks.superres.pairs.tiles import TileGrid
from vcycle.utils.atomic import atomic_path, atomic_text, too_long
from vcycle.utils.cores import cores

__all__ = ["PreparedFrames", "prepare_frames", "store_bytes", "store_needs", "write_store"]

_FAILED = "failed.jsonl"
_BYTES_AT_ONCE = 1 << 27  # of frames in memory, per worker
_TRIED = 4  # clips, and frames of each, that an estimate is made from


@dataclass(frozen=True, kw_only=True)
class PreparedFrames:
    """The result of a preparation."""

    store: TileStore
    failed: tuple[VideoError, ...]
    """Clips that could not be read and are not in the store; also listed in `failed.jsonl`."""


def prepare_frames(
    source: Path,
    out: Path,
    *,
    scale: int = 4,
    degradation: str | None = "bicubic",
    low: Path | None = None,
    resize: Fraction | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PreparedFrames:
    """Convert a folder of clips (image folders or videos) to a tile store; see ``write_store``.

    Args:
        source: The clips, as for ``find_clips``.
        out: Folder of the store.
        scale: Ratio of high-resolution to low-resolution sides.
        degradation: How low-resolution frames are computed, `bicubic` or `bd`; None leaves them out.
        low: Existing low-resolution clips, stored instead of computed ones.
        resize: Factor on the sides of all frames, applied first, such as ``Fraction(1, 2)``.
        workers: Clips at a time; one per core by default.
        progress: Called with the number of clips done and their total.

    Raises:
        DataError: as in ``write_store``.
    """
    made = Degradation(kind=degradation or "bicubic", scale=scale)
    pairs = read_pairs(source, low=low, degradation=made)
    if resize is not None:
        pairs = resized_pairs(pairs, resize)
    keep_low = low is not None or degradation is not None
    return write_store(pairs, out, low=keep_low, workers=workers, progress=progress)


def store_bytes(pairs: ClipPairs, *, low: bool = True) -> int:
    """Size in bytes of a store of these clips; unreadable clips count as 0."""
    return _bytes(_infos(pairs), pairs.degradation if low else None)


def store_needs(pairs: ClipPairs, *, low: bool = True, workers: int | None = None) -> tuple[int, float]:
    """``store_bytes``, and an estimate in seconds of the time to write it, from the first frames of a few clips."""
    infos = _infos(pairs)
    clips = [(item, info) for item, info in enumerate(infos) if info is not None]
    pixels, seconds = 0, 0.0
    for item, info in clips[:: max(1, len(clips) // _TRIED)][:_TRIED]:
        frames = range(min(_TRIED, info.frames))
        began = time.perf_counter()
        try:
            for level in _levels(pairs, item, frames, info, 2 if low else 1):
                zlib.crc32(level.data)
        except VideoError:
            continue
        seconds += time.perf_counter() - began
        pixels += len(frames) * info.height * info.width
    everything = sum(info.frames * info.height * info.width for _, info in clips)
    needed = _bytes(infos, pairs.degradation if low else None)
    return needed, seconds / pixels * everything / (workers or cores()) if pixels else 0.0


def write_store(
    pairs: ClipPairs,
    folder: Path,
    *,
    low: bool = True,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PreparedFrames:
    """Write the frames of clips to a store, or resume an interrupted write.

    Every clip is read back and verified, and written again if its source has changed. The same clips give the same
    files, independent of interruptions and the number of workers.

    Args:
        pairs: The clips, with their low-resolution frames if they have any; else these are computed.
        folder: Folder of the store; created if missing.
        low: Whether to store low-resolution frames too.
        workers: Clips at a time; one per core by default.
        progress: Called with the number of clips done and their total.

    Raises:
        DataError: if the folder holds another store, another process writes to it, the disk is too small, or no clip
            can be read.
    """
    try:
        degradation = pairs.degradation if low else None
        with journal_of(folder, _settings(pairs, degradation)) as journal:
            return _write(pairs, folder, journal, degradation, workers, progress)
    except OSError as error:
        raise DataError(f"{folder}: frames cannot be written: {error.strerror or error}") from error


def _write(
    pairs: ClipPairs,
    folder: Path,
    journal: Journal,
    degradation: Degradation | None,
    workers: int | None,
    progress: Callable[[int, int], None] | None,
) -> PreparedFrames:
    stamps = [_stamps(pairs, item, degradation) for item in range(len(pairs))]  # before any clip is read
    infos = _infos(pairs)
    done = {
        name: clip
        for item, name in enumerate(pairs.high.names)
        if (clip := journal.get("clip", name, stamps[item])) and _is_whole(folder, clip, degradation, infos[item])
    }
    todo = [item for item, name in enumerate(pairs.high.names) if name not in done]
    needed = _bytes([infos[item] for item in todo], degradation)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(f"{folder}: not enough disk space: {needed / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free")
    places = (clip_file(folder, pairs.high.names[item]) for item in todo)
    if any(too_long(place) is None and place.exists() for place in places):
        # The index of an earlier run would not match the new frames.
        (folder / INDEX).unlink(missing_ok=True)
    failed: dict[int, VideoError] = {}
    with ThreadPoolExecutor(workers or cores()) as pool:
        futures = {pool.submit(_write_clip, pairs, item, folder, degradation): item for item in todo}
        try:
            for future in as_completed(futures):
                try:
                    clip = future.result()
                except VideoError as error:
                    failed[futures[future]] = error
                else:
                    done[clip.name] = clip
                    journal.note("clip", clip.name, asdict(clip), stamps[futures[future]])
                    journal.sync()
                if progress is not None:
                    progress(len(done) + len(failed), len(pairs))
        finally:
            pool.shutdown(cancel_futures=True)
    clips = [done[name] for name in pairs.high.names if name in done]
    faults = tuple(failed[item] for item in sorted(failed))
    _report(folder / _FAILED, faults)
    if not clips:
        raise DataError(f"{pairs.source}: no clip can be read; the first error: {faults[0]}")
    write_index(folder, clips, degradation, _factor(pairs))
    return PreparedFrames(store=TileStore(folder), failed=faults)


def _settings(pairs: ClipPairs, degradation: Degradation | None) -> dict[str, str]:
    """The settings that may differ between two stores of the same clips."""
    low = "none"
    if degradation is not None:
        low = f"{degradation.kind} ×{degradation.scale} ({'made' if pairs.low is None else 'given'})"
    return {"low-resolution frames": low, "resize": str(_factor(pairs) or "none")}


def _factor(pairs: ClipPairs) -> Fraction | None:
    return pairs.high.factor if isinstance(pairs.high, ResizedClips) else None


def _stamps(pairs: ClipPairs, item: int, degradation: Degradation | None) -> list[Stamp]:
    """The stamps of all sources of a clip."""
    given = [] if degradation is None or pairs.low is None else [pairs.low]
    return [stamp_of(clips.path(item)) for clips in (pairs.high, *given)]


def _is_whole(folder: Path, clip: StoredClip, degradation: Degradation | None, info: ClipInfo | None) -> bool:
    if info is None:
        return False
    grids = _grids(info, degradation)
    stored = ClipInfo(frames=clip.frames, height=clip.height, width=clip.width)
    try:
        return grids[0].info == stored and clip_file(folder, clip.name).stat().st_size == grids[-1].stop
    except OSError:
        return False


def _infos(pairs: ClipPairs) -> list[ClipInfo | None]:
    """Lengths and sizes; None for unreadable clips, which the writer reports."""
    found: list[ClipInfo | None] = []
    for item in range(len(pairs)):
        try:
            found.append(pairs.info(item))
        except VideoError:
            found.append(None)
    return found


def _bytes(infos: Iterable[ClipInfo | None], degradation: Degradation | None) -> int:
    return sum(_grids(info, degradation)[-1].stop for info in infos if info is not None)


def _grids(info: ClipInfo, degradation: Degradation | None) -> list[TileGrid]:
    """The layout of a clip's file: high-resolution frames, then low-resolution frames if stored."""
    high = TileGrid(info, 0)
    if degradation is None:
        return [high]
    height, width = degradation.low((info.height, info.width))
    return [high, TileGrid(ClipInfo(frames=info.frames, height=height, width=width), high.stop)]


def _write_clip(pairs: ClipPairs, item: int, folder: Path, degradation: Degradation | None) -> StoredClip:
    """Write one clip atomically, after reading it back.

    Raises:
        VideoError: if the clip cannot be read, its name is too long, or the data read back differs.
        OSError: if it cannot be written.
    """
    info = pairs.info(item)
    grids = _grids(info, degradation)
    place = clip_file(folder, pairs.high.names[item])
    if (why := too_long(place)) is not None:
        raise VideoError(str(pairs.high.path(item)), why)
    place.parent.mkdir(parents=True, exist_ok=True)
    crcs = [0] * len(grids)
    at_once = max(1, _BYTES_AT_ONCE // (info.height * info.width * 3))
    with atomic_path(place) as partial, partial.open("w+b", buffering=0) as handle:
        file = handle.fileno()
        os.posix_fallocate(file, 0, grids[-1].stop)
        for first in range(0, info.frames, at_once):
            frames = range(first, min(first + at_once, info.frames))
            for number, pixels in enumerate(_levels(pairs, item, frames, info, len(grids))):
                grids[number].write(file, first, pixels)
                crcs[number] = zlib.crc32(pixels.data, crcs[number])
        os.fsync(file)
        clip = StoredClip(
            name=pairs.high.names[item],
            frames=info.frames,
            height=info.height,
            width=info.width,
            crc32=crcs[0],
            low_crc32=crcs[1] if len(crcs) > 1 else None,
        )
        _verify(file, grids, crcs, partial, at_once)
    return clip


def _levels(pairs: ClipPairs, item: int, frames: range, info: ClipInfo, count: int) -> Iterator[NDArray[np.uint8]]:
    """The frames at each stored resolution."""
    high = np.ascontiguousarray(pairs.high.read(item, frames, (0, 0, info.height, info.width)))
    yield high
    if count > 1 and pairs.low is not None:
        yield np.ascontiguousarray(pairs.low.read(item, frames))
    elif count > 1:
        yield pairs.degradation.whole(torch.from_numpy(high)).numpy()


def _verify(file: int, grids: list[TileGrid], crcs: list[int], path: Path, at_once: int) -> None:
    for grid, expected in zip(grids, crcs, strict=True):
        crc = 0
        for first in range(0, grid.info.frames, at_once):
            frames = range(first, min(first + at_once, grid.info.frames))
            crc = zlib.crc32(grid.read(file, frames, (0, 0, grid.info.height, grid.info.width)).data, crc)
        if crc != expected:
            raise VideoError(str(path), "the data read back from the disk differs from what was written")


def _report(file: Path, faults: tuple[VideoError, ...]) -> None:
    if not faults:
        file.unlink(missing_ok=True)
        return
    lines = [json.dumps({"path": fault.path, "cause": fault.cause}) for fault in faults]
    atomic_text(file, "\n".join(lines) + "\n")
