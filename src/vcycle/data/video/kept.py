"""A persistent cache of video indexes: one file, shared by many processes.

Indexing a file reads all of its packets, about a sixth of the time of decoding a clip. The file is only a cache: what
cannot be read or written is recomputed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import warnings
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from vcycle.data.info import VideoInfo
from vcycle.data.locations import Url, location
from vcycle.data.video.container import file_stamp
from vcycle.data.video.index import VideoIndex, probe
from vcycle.data.video.orientation import Orientation

__all__ = ["KeptIndexes"]

_FORMAT = 4  # version of the stored data and of `probe`
_MOST_BYTES = 2 << 30  # of the file: about a million videos of ten seconds
_PATIENCE = 0.5  # seconds to wait for other writers
_ARRAYS = {"times": "<f8", "pts": "<i8", "keyframe": "?", "droppable": "?", "shown": "<i8"}
_INFO = ("duration", "height", "width", "tolerance", "incomplete")
_ABOUT = ("orientation", "sequential", "start", "primed", "demuxer", "codec")
_TABLE = """
CREATE TABLE IF NOT EXISTS indexes (
    path TEXT PRIMARY KEY, size INTEGER, modified INTEGER, maker TEXT, content BLOB
) WITHOUT ROWID
"""


class KeptIndexes:
    """Returns the index of a file or URL: a stored one for the same path and stamp, or a new one."""

    def __init__(self, file: Path) -> None:
        """Use a cache file, which is created on first write.

        A damaged file is reported and replaced.
        """
        self.file = Path(file)
        self._maker = f"{_FORMAT}, av {version('av')}"
        self._opened: dict[tuple[int, int], sqlite3.Connection | None] = {}
        if self.file.exists():
            try:
                with contextlib.closing(self._connect()) as connection:
                    connection.execute("SELECT path FROM indexes LIMIT 1").fetchall()
            except sqlite3.OperationalError:
                pass  # busy, read-only, or empty
            except sqlite3.DatabaseError as error:
                warnings.warn(f"{self.file} is damaged ({error}): rebuilding the video indexes", stacklevel=2)
                with contextlib.suppress(OSError):
                    self.file.unlink()

    def __reduce__(self) -> tuple[type[KeptIndexes], tuple[Path]]:
        """Pickle without the connection."""
        return type(self), (self.file,)

    def __call__(self, path: str) -> VideoIndex:
        """Return the index of a file.

        Raises:
            VideoError: For the reasons of ``probe``.
        """
        stamp = file_stamp(path)
        key = (_whole(path).encode(errors="surrogateescape"), *stamp, self._maker)
        kept = self._ask("SELECT content FROM indexes WHERE path=? AND size=? AND modified=? AND maker=?", key)
        if kept and (index := _decoded(kept[0][0], path, *stamp)) is not None:
            return index
        index = probe(path)
        if (index.size, index.modified) == key[1:3]:
            self._ask("INSERT OR REPLACE INTO indexes VALUES (?, ?, ?, ?, ?)", (*key, _encoded(index)))
        return index

    def _ask(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        """Execute a statement; returns nothing if the file is not usable now."""
        here = os.getpid(), threading.get_ident()
        try:
            if here not in self._opened:
                # A connection belongs to one thread of one process; others are left alone.
                self._opened[here] = None
                self.file.parent.mkdir(parents=True, exist_ok=True)
                connection = self._connect()
                connection.execute(_TABLE)
                self._opened[here] = connection
            found = self._opened[here]
            return [] if found is None else found.execute(statement, values).fetchall()
        except (sqlite3.Error, OSError):
            return []

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.file, timeout=_PATIENCE, isolation_level=None)
        try:
            # Safe if a process ends; after a power loss, checksums detect damage.
            connection.execute("PRAGMA synchronous=OFF")
            page = connection.execute("PRAGMA page_size").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count={_MOST_BYTES // page}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def _whole(path: str) -> str:
    place = location(path)
    return str(place.absolute()) if isinstance(place, Url) else os.path.abspath(path)


def _encoded(index: VideoIndex) -> bytes:
    arrays = {"times": index.info.times} | {name: getattr(index, name) for name in _ARRAYS if name != "times"}
    about = {name: getattr(index, name) for name in _ABOUT}
    about |= {name: getattr(index.info, name) for name in _INFO}
    about["lengths"] = [len(arrays[name]) for name in _ARRAYS]
    raw = b"".join(arrays[name].astype(kind).tobytes() for name, kind in _ARRAYS.items())
    return zlib.compress(json.dumps(about).encode() + b"\n" + raw, 1)


def _decoded(content: bytes, path: str, size: int, modified: int) -> VideoIndex | None:
    """Restore an index; None if its content is damaged."""
    try:
        head, _, raw = zlib.decompress(content).partition(b"\n")
        about: dict[str, Any] = json.loads(head)
        arrays: dict[str, Any] = {}
        start = 0
        for (name, kind), length in zip(_ARRAYS.items(), about.pop("lengths"), strict=True):
            arrays[name] = np.frombuffer(raw, dtype=kind, count=length, offset=start)
            start += arrays[name].nbytes
        info = {name: about.pop(name) for name in _INFO}
        return VideoIndex(
            path=path,
            info=VideoInfo(times=arrays.pop("times"), **info),
            size=size,
            modified=modified,
            orientation=Orientation(*about.pop("orientation")),
            **about,
            **arrays,
        )
    except (zlib.error, ValueError, KeyError, TypeError):
        return None
