"""The report of a preparation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["PrepareReport"]


@dataclass(frozen=True, kw_only=True)
class PrepareReport:
    """Result of a preparation; ``report.json`` in its folder has the same content."""

    videos: int
    """Number of requested files."""

    kept: int
    """Number of files written by an earlier run."""

    failed: Mapping[str, str]
    """Files that could not be prepared: the cause by path. The index omits them."""

    damaged: Mapping[str, int]
    """Files with undecodable frames: their number by path. Such a frame repeats the one before it."""

    incomplete: Mapping[str, str]
    """Files with missing frames, such as truncated ones: what is missing, by path. Their remaining frames are used."""

    redone: Mapping[str, str]
    """Files that were started again because the process or the node that worked on them died: its end, by path."""

    left_over: int
    """Number of files in the folder that no longer belong to any of the videos."""

    source_bytes: int
    bytes: int
    """Size of the sources and of the output in bytes."""

    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON data of ``report.json``."""
        data = {name: getattr(self, name) for name in PrepareReport.__dataclass_fields__}
        for key in ("failed", "incomplete", "redone"):
            data[key] = [{"path": path, "cause": cause} for path, cause in data[key].items()]
        data["damaged"] = [{"path": path, "frames": frames} for path, frames in self.damaged.items()]
        return data
