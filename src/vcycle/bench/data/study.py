"""Runs the data benchmark: compares readers grid by grid, and measures loader throughput and memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vcycle.bench.data.clips import FRAMES, generated_videos
from vcycle.bench.data.readers import (
    PLAIN,
    Ask,
    Read,
    asks,
    other_decoders,
    plain_loop,
    source_reader,
)
from vcycle.bench.data.targets import targets
from vcycle.bench.data.through_loader import loader_share
from vcycle.bench.memory import resident_bytes
from vcycle.bench.timing import Spread, interleaved, ratios
from vcycle.data import (
    FileSource,
    FrameSource,
    GridSampler,
    PreparedSource,
    PrepareSettings,
    VideoError,
    VideoList,
    prepare_videos,
)
from vcycle.data.stamp import stamp_of
from vcycle.errors import DataError
from vcycle.plan import Shape
from vcycle.train.environment import machine, versions

__all__ = ["DEFAULT_GRIDS", "DEFAULT_SHAPES", "Effort", "Progress", "bench_data", "some_videos"]

Progress = Callable[[str, int, int], None]

AS_THEY_ARE = "vcycle"
VIDEO = "vcycle, prepared video"
ARRAY = "vcycle, prepared array"

DEFAULT_SHAPES = (Shape(8, 112, 112), Shape(16, 112, 112))
DEFAULT_GRIDS = GridSampler(frames=16, size=112, stride=4, short_side=(128, 128))


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Size of the measurement."""

    files: int = 6
    """Number of generated videos, and of the user's videos."""

    frames: int = FRAMES
    """Frames of a generated video."""

    clips: int = 12
    """Different clips of each grid."""

    repeats: int = 9
    """Turns of each reader."""

    loader_repeats: int = 5
    """Turns of the loader."""

    loader_seconds: float = 2.0
    """Duration of a bare loop in such a turn."""

    loader_batch: int = 64
    """Batch size of the loader; smaller for slow clips."""

    decodes: int = 10_000
    """Clips decoded to measure memory growth."""

    @classmethod
    def quick(cls) -> Effort:
        """A smoke test; its numbers are not reliable."""
        return cls(
            files=1, frames=40, clips=1, repeats=1, loader_repeats=1, loader_seconds=0.01, loader_batch=2, decodes=20
        )


def some_videos(videos: VideoList, count: int) -> tuple[VideoList, list[VideoError]]:
    """Pick readable videos spread over a list, and return the errors of skipped ones.

    Raises:
        DataError: If no tried video can be read.
    """
    if videos.frame_rate is not None:
        raise DataError(f"{videos.root} has folders of images: this benchmark needs video files")
    spread = np.unique(np.linspace(0, len(videos) - 1, min(2 * count, len(videos))).astype(int)).tolist()
    chosen: list[str] = []
    errors: list[VideoError] = []
    source = FileSource(videos)
    for item in spread:
        path = str(videos.path(item))
        if len(chosen) == count or path in chosen:
            continue
        try:
            source.info(item)
            chosen.append(path)
        except VideoError as error:
            errors.append(error)
    if not chosen:
        raise DataError(f"none of the {len(errors)} tried videos can be read; last error: {errors[-1]}")
    picked = VideoList(root=videos.root, paths=chosen, labels=[0] * len(chosen), classes=("any",), source=videos.source)
    return picked, errors


def bench_data(
    folder: Path,
    *,
    effort: Effort,
    own: VideoList | None = None,
    shapes: Sequence[Shape] = DEFAULT_SHAPES,
    grids: GridSampler = DEFAULT_GRIDS,
    short_side: int = 128,
    progress: Progress = lambda *_: None,
) -> dict[str, Any]:
    """Measure data throughput on generated videos and, if given, the user's videos.

    Args:
        folder: Folder for generated and prepared videos; existing ones are reused.
        effort: Size of the measurement.
        own: The user's videos, from ``some_videos``.
        shapes: Clip shapes to read.
        grids: Sampler of the clips.
        short_side: Short side of the prepared videos, in pixels.
        progress: Called with the name of the work, the amount done and the total.

    Returns:
        Data for JSON. Times are CPU milliseconds per clip, with median, low and high over the turns.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        load = os.getloadavg()[0]
        others, absent = other_decoders()
        generated = generated_videos(
            folder / "videos",
            effort.files,
            frames=effort.frames,
            progress=lambda done, total: progress("generating videos", done, total),
        )
        sets = {"generated": generated} | ({} if own is None else {"your": own})
        sources = {name: _sources(videos, folder / name, short_side, progress) for name, videos in sets.items()}
        # Measured first, while this process has little free heap that would hide growth.
        memory = _memory(generated, sources["generated"][VIDEO], shapes[0], grids, effort.decodes, progress)
        measured = []
        for name, videos in sets.items():
            tell = partial(progress, f"reading {name} videos")
            measured.append(
                {"name": name}
                | _described(videos, sources[name][AS_THEY_ARE])
                | {"grids": _grids_read(videos, sources[name], others, shapes, grids, effort, tell)}
            )
        through = loader_share(
            generated,
            sources["generated"],
            grids,
            shapes[-1],
            repeats=effort.loader_repeats,
            seconds=effort.loader_seconds,
            batch=effort.loader_batch,
            progress=partial(progress, "loading"),
        )
        found = {
            "machine": machine(),
            "versions": versions(),
            "load": load,
            "state": "page cache and indexes warm; one thread a reader",
            "effort": asdict(effort),
            "sampling": asdict(grids),
            "short_side": short_side,
            "absent": absent,
            "sets": measured,
            "loader": through,
            "memory": memory,
        }
        return found | {"targets": targets(found, standard=tuple(shapes) == DEFAULT_SHAPES)}
    finally:
        torch.set_num_threads(threads)


def _sources(videos: VideoList, folder: Path, short_side: int, progress: Progress) -> dict[str, FrameSource]:
    """Sources of the original videos and of both prepared forms."""
    sources: dict[str, FrameSource] = {AS_THEY_ARE: FileSource(videos)}
    forms: tuple[tuple[str, Any], ...] = ((VIDEO, "video"), (ARRAY, "array"))
    for name, form in forms:
        out = folder / form
        report = prepare_videos(
            {"train": videos}, out, PrepareSettings(to=form, levels=(short_side,)), progress=progress
        )
        if report.failed:
            path, cause = next(iter(report.failed.items()))
            raise DataError(f"{path}: {cause}")
        sources[name] = PreparedSource(out, "train")
    return sources


def _described(videos: VideoList, source: FrameSource) -> dict[str, Any]:
    """Describe the files: count, size, duration."""
    infos = [source.info(item) for item in range(len(videos))]
    return {
        "files": len(videos),
        "height": infos[0].height,
        "width": infos[0].width,
        "seconds": sum(info.duration for info in infos) / len(infos),
        "megabytes": sum(stamp_of(videos.path(item)).size for item in range(len(videos))) / len(videos) / 1e6,
    }


def _grids_read(
    videos: VideoList,
    sources: Mapping[str, FrameSource],
    others: Mapping[str, Read],
    shapes: Sequence[Shape],
    grids: GridSampler,
    effort: Effort,
    tell: Callable[[int, int], None],
) -> list[dict[str, Any]]:
    """Time every reader on every grid."""
    readers: dict[str, Read] = {PLAIN: plain_loop, **others}
    readers |= {name: source_reader(source, antialias=grids.antialias) for name, source in sources.items()}
    done, total = 0, len(shapes) * effort.repeats * len(readers)

    def count() -> None:
        nonlocal done
        done += 1
        tell(done, total)

    results = []
    for shape in shapes:
        asked = asks(videos, sources[AS_THEY_ARE], grids, shape, effort.clips)
        working, faults = _working(readers, asked, same=grids.antialias)
        turns = interleaved(
            {name: partial(_read_all, read, asked) for name, read in working.items()}, effort.repeats, count
        )
        cpu = {name: [turn.cpu for turn in taken] for name, taken in turns.items()}
        compared = PLAIN in cpu
        results.append(
            {
                "frames": shape.frames,
                "size": shape.height,
                "faults": faults,
                "readers": {
                    name: {
                        "cpu_ms": Spread.of([1e3 * seconds for seconds in taken])._asdict(),
                        "wall_ms": Spread.of([1e3 * turn.wall for turn in turns[name]])._asdict(),
                        "clips_per_second": Spread.of([1 / seconds for seconds in taken])._asdict(),
                        "over_plain": ratios(cpu[PLAIN], taken)._asdict() if compared else None,
                        "under_vcycle": ratios(taken, cpu[AS_THEY_ARE])._asdict(),
                    }
                    for name, taken in cpu.items()
                },
            }
        )
    return results


def _working(
    readers: Mapping[str, Read], asked: Sequence[Ask], *, same: bool
) -> tuple[dict[str, Read], dict[str, str]]:
    """Readers that return every clip, and the faults of the others.

    If vcycle resizes with antialiasing, as the plain loop does, both must return the ``same`` pixels.
    """
    right = [np.asarray(readers[AS_THEY_ARE](ask)) for ask in asked]
    working: dict[str, Read] = {}
    faults: dict[str, str] = {}
    for name, read in readers.items():
        try:
            given = [np.asarray(read(ask)) for ask in asked]
        except Exception as error:  # other libraries raise any type
            if name.startswith(AS_THEY_ARE):
                raise
            faults[name] = f"fails: {(str(error).strip().splitlines() or [type(error).__name__])[0]}"
            continue
        working[name] = read
        if name == PLAIN and same:
            wrong = sum(not np.array_equal(a, b) for a, b in zip(given, right, strict=True))
            if wrong:
                faults[name] = f"{wrong} of {len(asked)} clips differ from vcycle's"
    return working, faults


def _read_all(read: Read, asked: Sequence[Ask]) -> int:
    for ask in asked:
        read(ask)
    return len(asked)


def _memory(
    videos: VideoList, source: FrameSource, shape: Shape, grids: GridSampler, decodes: int, progress: Progress
) -> dict[str, Any]:
    """Measure the memory growth of this process over many decodes."""
    read = source_reader(source, antialias=grids.antialias)
    asked = asks(videos, source, grids, shape, 200)
    before = 0
    warm = min(200, decodes // 2)
    for number in range(warm + decodes):
        if number == warm:
            before = resident_bytes()
        read(asked[number % len(asked)])
        if number % 100 == 0:
            progress("decoding to watch memory", number, warm + decodes)
    return {"decodes": decodes, "megabytes": (resident_bytes() - before) / 1e6}
