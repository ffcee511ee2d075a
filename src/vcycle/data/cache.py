"""A frame cache: every frame of a dataset, decoded once to a small size and memory-mapped.

Coarse stages need many times the baseline's clips per second. A few cores cannot decode that fast, but they can read
decoded frames. A cache of 20,000 frames of 64 x 86 pixels takes 330 MB. It has the format of
``vcycle prepare --to array``, for a dataset that stays where it is.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vcycle.data.info import VideoInfo
from vcycle.data.layouts import VideoList
from vcycle.data.prepare.names import array_file, is_prepared
from vcycle.data.prepare.run import prepare_videos
from vcycle.data.prepare.settings import PrepareSettings
from vcycle.data.prepare.source import PreparedSource
from vcycle.data.stamp import stamp_of
from vcycle.data.video import VideoError
from vcycle.errors import DataError
from vcycle.utils.folders import make_folder
from vcycle.utils.locks import file_lock

__all__ = ["FrameCache"]

_FORMAT = 3  # version of the cached frames and of how they are displayed
_SPLIT = "frames"


class FrameCache(PreparedSource):
    """A frame source that reads from a cache. Any number of processes may share it."""

    def __init__(self, videos: VideoList, folder: Path) -> None:
        """Open a finished cache; see ``build``.

        Raises:
            DataError: If it is missing, incomplete, or a cache of other videos.
        """
        self.videos = videos
        self.folder = folder
        try:
            super().__init__(folder, _SPLIT, failed=True)
        except DataError as error:
            raise DataError(f"{error}; delete {folder} to build the frame cache again") from error
        if len(self.rows) != len(videos):
            raise DataError(f"{folder}: the cache has {len(self.rows)} videos, the dataset has {len(videos)}")

    @classmethod
    def build(
        cls,
        videos: VideoList,
        folder: Path,
        *,
        short_side: int,
        progress: Callable[[int, int], None] | None = None,
        workers: int | None = None,
    ) -> "FrameCache":
        """Decode every video into a folder, or open an existing cache.

        The cache's name depends on the videos' paths, sizes and modification times, and on the short side: a changed
        dataset gets a new cache. An interrupted build resumes. A video that cannot be read is recorded and stays
        unreadable.

        Args:
            videos: The dataset.
            folder: Folder of the caches; created if missing.
            short_side: Short side of the frames in pixels; smaller videos keep their size.
            progress: Called with the MB read and their total.
            workers: Number of videos decoded in parallel; one per core by default.

        Raises:
            DataError: If the folder cannot be written, the disk is too small, or no video can be read.
        """
        path = folder / f"{_SPLIT}-{short_side}px-{_digest(videos)}"
        if not is_prepared(path):
            make_folder(folder)
            with file_lock(path.with_name(f"{path.name}.lock")):
                if not is_prepared(path):  # by another process, in the meantime
                    prepare_videos(
                        {_SPLIT: videos},
                        path,
                        PrepareSettings(to="array", levels=(short_side,)),
                        workers=workers,
                        progress=lambda _, done, total: None if progress is None else progress(done, total),
                    )
        return cls(videos, path)

    @property
    def file(self) -> Path:
        """The file of frames."""
        return self.folder / array_file(self.index.settings.levels[0], _SPLIT)

    @property
    def faults(self) -> dict[int, str]:
        """Return why videos cannot be read, by item."""
        causes = list(self.index.failures.values())
        return {item: causes[-1 - int(self.rows[item])] for item in np.flatnonzero(self.rows < 0).tolist()}

    def info(self, item: int) -> VideoInfo:
        """Return the times and displayed size of a video."""
        try:
            return super().info(item)
        except VideoError as error:
            raise VideoError(str(self.videos.path(item)), error.cause) from error


def _digest(videos: VideoList) -> str:
    """Return a hash of a dataset's paths, sizes and modification times."""
    rate = "" if videos.frame_rate is None else f"\0{videos.frame_rate}"
    digest = hashlib.blake2b(f"{_FORMAT}{rate}".encode(), digest_size=8)
    for item, path in enumerate(videos.paths):
        stamp = stamp_of(videos.path(item))
        digest.update(f"{path}\0{stamp.size}\0{stamp.changed}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
