"""Shared helpers of the layouts: reading annotations, finding files, and cutting missing splits.

A listed file must exist, or the list is refused at its line. In folders, everything with a video's name counts as a
video: if it turns out not to be one (a pipe, a folder, a broken link), it is counted and named as a bad video, like a
damaged one.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, overload

from vcycle.data.locations import Location, Url
from vcycle.errors import DataError
from vcycle.utils import reading

if TYPE_CHECKING:
    from vcycle.data.layouts.videos import VideoList

__all__ = [
    "FRAMES_HINT",
    "PICTURES",
    "VIDEOS",
    "VIDEO_SUFFIXES",
    "Kind",
    "accepted",
    "check_file",
    "check_files",
    "classes_in_lines",
    "cut_groups",
    "first_file",
    "first_folder",
    "folder_of_frames",
    "folders",
    "is_folder",
    "is_video",
    "key_of",
    "label_in",
    "names_in",
    "printable",
    "read_table",
    "read_text",
    "refuse_video",
    "shown",
    "stems",
    "suffix_of",
    "text_blocks",
    "videos_among",
]

VIDEO_SUFFIXES = frozenset(
    f".{name}"
    for name in (
        *("264", "265", "3g2", "3gp", "amv", "asf", "avi", "divx", "dv", "f4v", "flv", "gif", "gxf", "h264", "h265"),
        *("hevc", "ivf", "m1v", "m2t", "m2ts", "m2v", "m4v", "mjpeg", "mjpg", "mk3d", "mkv", "mov", "mp4", "mp4v"),
        *("mpe", "mpeg", "mpg", "mts", "mxf", "nut", "obu", "ogm", "ogv", "qt", "rm", "rmvb", "ts", "vob", "webm"),
        *("wmv", "wtv", "xvid", "y4m"),
    )
)


_BLOCK = 1 << 20
_MOST_CHECKED = 1_000_000
_LOOKED_AT = 16  # names in a folder of frames, among which there may be a list or a thumbnail cache


@dataclass(frozen=True)
class Kind:
    """A kind of files in class folders."""

    name: str
    """One of them: ``video``."""
    suffixes: frozenset[str]

    def holds(self, name: str) -> bool:
        """Return whether a file name is of this kind, by its suffix."""
        return suffix_of(name) in self.suffixes

    def among(self, names: Sequence[str]) -> list[str]:
        """Return the names of this kind, in order; a GIF beside a video of the same name is its preview."""
        found = [name for name in names if self.holds(name)]
        previews = {name for name in found if name.lower().endswith(".gif")}
        if not previews:
            return found
        stems = {os.path.splitext(name)[0] for name in found if name not in previews}
        return [name for name in found if name not in previews or os.path.splitext(name)[0] not in stems]


FRAMES_HINT = "data.frame_rate=25 takes each folder of frames as a video of 25 frames per second"
"""For messages about folders where videos are expected."""

VIDEOS = Kind("video", VIDEO_SUFFIXES)
PICTURES = Kind("image", frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp"}))


def accepted(kind: Kind = VIDEOS) -> str:
    """Return which folders are accepted as a dataset, for a message."""
    one = kind.name.upper()
    folders = f"accepted: CLASS/{one}, or train/CLASS/{one} and val/CLASS/{one}"
    if kind is not VIDEOS:
        return folders
    return f"{folders}, or train.csv and val.csv with lines path,label, or a public dataset as distributed"


def read_text(path: Location) -> str:
    """Read an annotation file.

    Raises:
        DataError: If the file cannot be read, or is not UTF-8.
    """
    try:
        if isinstance(path, Url):
            return path.read_bytes().decode("utf-8-sig")
        return reading.read_text(path, encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text file in UTF-8 (byte {error.start})") from error


def text_blocks(path: Location) -> Iterator[str]:
    """Yield the text of an annotation file in pieces of about a megabyte, each of whole lines.

    Raises:
        DataError: If the file cannot be read, or is not UTF-8.
    """
    offset = 0
    try:
        # A server may not send parts of a file.
        with io.BytesIO(path.read_bytes()) if isinstance(path, Url) else reading.open_regular(path) as file:
            while data := file.read(_BLOCK):
                data += file.readline()  # in UTF-8, a newline's byte is part of no other character
                yield data.decode("utf-8" if offset else "utf-8-sig")
                offset += len(data)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text file in UTF-8 (byte {offset + error.start})") from error


def read_table(path: Path, needed: Sequence[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the rows of a CSV file with a header, each with its (last) line number.

    Raises:
        DataError: If the header lacks a needed column, or a row's number of values differs from it.
    """
    lines = (line for block in text_blocks(path) for line in io.StringIO(block, newline=""))
    reader = csv.reader(lines, strict=True)
    header: list[str] | None = None
    try:
        for row in reader:
            if not any(value.strip() for value in row):
                continue
            if header is None:
                header = [name.strip() for name in row]
                if absent := [name for name in needed if name not in header]:
                    columns = ", ".join(absent)
                    raise DataError(f"{path}, line {reader.line_num}: the header has no column {columns}")
                continue
            if len(row) != len(header):
                message = f"{len(row)} values, but the header has {len(header)}"
                raise DataError(f"{path}, line {reader.line_num}: {message}")
            yield reader.line_num, dict(zip(header, (value.strip() for value in row), strict=True))
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from error
    if header is None:
        raise DataError(f"{path}: empty; needs a header with {', '.join(needed)}")


def names_in(folder: Location) -> list[str]:
    """Return the visible names in a folder, sorted.

    Raises:
        DataError: If the folder cannot be read.
    """
    try:
        names = folder.entries() if isinstance(folder, Url) else os.listdir(folder)
        return sorted(name for name in names if not name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from error


def suffix_of(name: str) -> str:
    """Return the suffix of a file name in lower case."""
    return os.path.splitext(name)[1].lower()


def is_video(name: str) -> bool:
    """Return whether a name is a video's, by its suffix."""
    return VIDEOS.holds(name)


def videos_among(names: Sequence[str]) -> list[str]:
    """Return the names that are videos', in order; a GIF beside a video of the same name is its preview."""
    return VIDEOS.among(names)


@overload
def folders(root: Path) -> list[Path]: ...
@overload
def folders(root: Location) -> list[Location]: ...
def folders(root: Location) -> Sequence[Location]:
    """Return the visible subfolders of a folder, sorted by name.

    Raises:
        DataError: If the folder cannot be read.
    """
    if isinstance(root, Url):
        try:
            return [root / name for name, below in root.entries().items() if below and not name.startswith(".")]
        except OSError as error:
            raise DataError(f"{root}: cannot be read: {error.strerror or error}") from error
    return [root / name for name in names_in(root) if os.path.isdir(root / name)]


def folder_of_frames(video: str) -> bool:
    """Return whether a path is a folder that directly holds pictures, or a link to one; looks at its first names."""
    try:
        with os.scandir(video) as entries:
            return any(PICTURES.holds(entry.name) for entry in islice(entries, _LOOKED_AT))
    except OSError:
        return False


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether a listed entry is a folder, or a link to one."""
    try:
        return entry.is_dir()
    except OSError:  # a circular link
        return False


def stems(folder: Path, *, depth: int = 1, frames: bool = False) -> dict[str, str]:
    """Return the paths of everything with a video's name in a folder, by that name without suffix.

    If several have the same name, the first in folder order is used.

    Args:
        folder: Where to look.
        depth: 1 searches only the folder, 2 its subfolders too.
        frames: Whether folders of frames count as videos, by their whole name.
    """
    found: dict[str, str] = {}
    names = names_in(folder)
    videos = set(videos_among(names))
    for name in names:
        if name in videos:
            found.setdefault(os.path.splitext(name)[0], name)
        elif frames and folder_of_frames(os.path.join(folder, name)):
            found.setdefault(name, name)
        elif depth > 1 and os.path.isdir(folder / name):
            for inner, path in stems(folder / name, depth=depth - 1, frames=frames).items():
                found.setdefault(inner, f"{name}/{path}")
    return found


def first_file(folders: Sequence[Path], names: Sequence[str]) -> Path | None:
    """Return the first existing file among names in folders."""
    return next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)


def first_folder(parent: Path, names: Sequence[str]) -> Path:
    """Return the first existing subfolder among names; the parent itself if there is none."""
    return next((parent / name for name in names if os.path.isdir(parent / name)), parent)


def _why_no_file(path: Path, *, frames: bool) -> str | None:
    """Return why a path is not a file, or with ``frames`` a folder, in words; None if it is one."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return "a broken link" if path.is_symlink() else "no such file"
    except OSError as error:
        return (error.strerror or "cannot be read").lower()
    except ValueError:  # NUL
        return "not a valid file name"
    if stat.S_ISREG(mode) or (frames and stat.S_ISDIR(mode)):
        return None
    if not stat.S_ISDIR(mode):
        return "not a regular file"
    hint = f" ({FRAMES_HINT})" if folder_of_frames(str(path)) else ""
    return f"a folder, not a file{hint}"


def check_files(videos: VideoList) -> None:
    """Refuse a list with a video that is not a file. At most a million videos are looked at, evenly spaced.

    URLs are not looked up, which may take as long as a clip.

    Raises:
        DataError: If a file is missing; names where it is listed.
    """
    if isinstance(videos.root, Url):
        return
    step = -(-len(videos) // _MOST_CHECKED)
    for number, name in enumerate(islice(videos.paths, 0, None, step)):
        if not os.path.isfile(os.path.join(videos.root, name)):
            frames = videos.frame_rate is not None
            check_file(videos.origin(number * step), videos.path(number * step), frames=frames)


def check_file(origin: str, path: Location, *, frames: bool = False) -> None:
    """Refuse a listed video that is not a file. A URL is not looked up, which may take as long as a clip.

    Args:
        origin: Where it is listed.
        path: The video.
        frames: Whether it may be a folder of frames.

    Raises:
        DataError: names where the video is listed.
    """
    if isinstance(path, Url):
        return
    if (why := _why_no_file(path, frames=frames)) is not None:
        raise DataError(f"{origin}: {why}: {path}")


def refuse_video(path: Location) -> None:
    """Refuse a video given in place of a dataset.

    Raises:
        DataError: If the path has a video's name.
    """
    if is_video(path.name):
        raise DataError(f"{path}: a video; must be a folder with a folder per class, or a list of videos")


def printable(name: str) -> str:
    """Return a file name for a message; its encoding may not be UTF-8."""
    return name.encode(errors="backslashreplace").decode()


def shown(names: Sequence[str]) -> str:
    """Return some of the names, for a message."""
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def classes_in_lines(path: Path, *, first: int) -> tuple[str, ...]:
    """Read the classes from a file of ``number name`` lines, numbered consecutively from ``first``.

    Raises:
        DataError: If a line is malformed, or its number is not the next.
    """
    names: list[str] = []
    for number, text in enumerate(read_text(path).splitlines(), 1):
        if not text.strip():
            continue
        index, _, name = text.strip().partition(" ")
        digits = index.lstrip("c")
        if not (digits.isdecimal() and name.strip()) or int(digits) != len(names) + first:
            raise DataError(f"{path}, line {number}: {text!r} is not class {len(names) + first} and its name")
        names.append(name.strip())
    if not names:
        raise DataError(f"{path}: no classes; needs lines of 'number name'")
    return tuple(names)


def label_in(origin: str, name: str, classes: Mapping[str, int]) -> int:
    """Return the index of a class named in an annotation file."""
    if name not in classes:
        raise DataError(f"{origin}: unknown class {name!r}: the classes are {shown(list(classes))}")
    return classes[name]


def key_of(name: str) -> bytes:
    """Return the sort key of a name in a hashed order that is the same on any machine."""
    return hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()


def cut_groups(groups: Mapping[str, int], fraction: float) -> set[str]:
    """Choose the groups to keep for validation: about a fraction of all clips, without splitting a group.

    Groups are taken in hashed order as long as each brings the number of clips closer to the fraction. With two or more
    groups, at least one is taken and at least one left.

    Args:
        groups: Number of clips of each group.
        fraction: Share of the clips.
    """
    wanted, taken, chosen = fraction * sum(groups.values()), 0, set[str]()
    order = sorted(groups, key=key_of)
    for group in order:
        if taken + groups[group] / 2 <= wanted and len(chosen) < len(groups) - 1:
            chosen.add(group)
            taken += groups[group]
    if not chosen and len(order) > 1 and fraction > 0:
        chosen.add(min(order, key=lambda group: groups[group]))
    return chosen
