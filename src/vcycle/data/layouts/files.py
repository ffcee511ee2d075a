"""What the layouts share: reading annotations, finding files, and cutting a split that the data does not have.

A file of a list must be there, or the list is refused at its line. In folders, whatever has a video's name is
taken for one: what turns out not to be (a pipe, a folder, a link that leads nowhere) is then counted and named
as a bad video, like a damaged one.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vcycle.errors import DataError
from vcycle.utils import reading

__all__ = [
    "VIDEO_SUFFIXES",
    "check_file",
    "classes_in_lines",
    "cut_groups",
    "first_file",
    "first_folder",
    "folders",
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


def read_text(path: Path) -> str:
    """The text of an annotation file.

    Raises:
        DataError: If it cannot be read, or is not UTF-8.
    """
    try:
        return reading.read_text(path, encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text file in UTF-8 (byte {error.start})") from error


def read_table(path: Path, needed: Sequence[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Rows of a CSV file with a header, each with the number of its (last) line.

    Raises:
        DataError: If the header lacks a needed column, or a row has not as many values as the header.
    """
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
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
                message = f"{len(row)} values where the header has {len(header)}"
                raise DataError(f"{path}, line {reader.line_num}: {message}")
            yield reader.line_num, dict(zip(header, (value.strip() for value in row), strict=True))
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from error
    if header is None:
        raise DataError(f"{path}: empty; a header with {', '.join(needed)} is accepted")


def names_in(folder: Path) -> list[str]:
    """Names of all that lies in a folder but the hidden, sorted.

    Raises:
        DataError: If it cannot be read.
    """
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror}") from error


def suffix_of(name: str) -> str:
    """The ending of a file's name, in small letters."""
    return os.path.splitext(name)[1].lower()


def is_video(name: str) -> bool:
    """Whether a name is a video's, by its ending."""
    return suffix_of(name) in VIDEO_SUFFIXES


def videos_among(names: Sequence[str]) -> list[str]:
    """Those of some names that are videos', in their order; a GIF beside a video of its name is a preview of that."""
    found = [name for name in names if is_video(name)]
    previews = {name for name in found if name.lower().endswith(".gif")}
    if not previews:
        return found
    stems = {os.path.splitext(name)[0] for name in found if name not in previews}
    return [name for name in found if name not in previews or os.path.splitext(name)[0] not in stems]


def folders(root: Path) -> list[Path]:
    """Folders directly under a folder, sorted by name, without hidden ones."""
    return [root / name for name in names_in(root) if os.path.isdir(root / name)]


def stems(folder: Path, *, depth: int = 1) -> dict[str, str]:
    """Paths below a folder of all that has a video's name, by that name without its ending.

    Where two have the same, the first in the order of the folders holds.

    Args:
        folder: Where to look.
        depth: 1 looks in the folder alone, 2 in its folders as well.
    """
    found: dict[str, str] = {}
    names = names_in(folder)
    videos = set(videos_among(names))
    for name in names:
        if name in videos:
            found.setdefault(os.path.splitext(name)[0], name)
        elif depth > 1 and os.path.isdir(folder / name):
            for inner, path in stems(folder / name, depth=depth - 1).items():
                found.setdefault(inner, f"{name}/{path}")
    return found


def first_file(folders: Sequence[Path], names: Sequence[str]) -> Path | None:
    """The first of some names that is a file in one of some folders."""
    return next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)


def first_folder(parent: Path, names: Sequence[str]) -> Path:
    """The first of some names that is a folder in another; that other itself where none is."""
    return next((parent / name for name in names if os.path.isdir(parent / name)), parent)


def _why_no_file(path: Path) -> str | None:
    """Why a path leads to no file, in words; none where it leads to one."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return "a link to nothing" if path.is_symlink() else "no such file"
    except OSError as error:
        return (error.strerror or "cannot be read").lower()
    except ValueError:  # a zero byte
        return "no name that a file may have"
    if stat.S_ISREG(mode):
        return None
    return "a folder, not a file" if stat.S_ISDIR(mode) else "not a regular file"


def check_file(origin: str, path: Path) -> None:
    """Refuse a listed video that is no file.

    Raises:
        DataError: naming where it is listed.
    """
    if (why := _why_no_file(path)) is not None:
        raise DataError(f"{origin}: {why}: {path}")


def refuse_video(path: Path) -> None:
    """Refuse a video where a dataset is to be given.

    Raises:
        DataError: If it has a video's name.
    """
    if is_video(path.name):
        raise DataError(f"{path}: a video; a folder with a folder per class in it, or a list of videos, is accepted")


def printable(name: str) -> str:
    """A name of a file for a message; it may be of another encoding."""
    return name.encode(errors="backslashreplace").decode()


def shown(names: Sequence[str]) -> str:
    """Some names, for a message."""
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def classes_in_lines(path: Path, *, first: int) -> tuple[str, ...]:
    """Classes of a file of lines ``number name``, numbered without a gap from ``first`` on.

    Raises:
        DataError: If a line is not that, or its number not the next.
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
        raise DataError(f"{path}: no classes; lines of 'number name' are accepted")
    return tuple(names)


def label_in(origin: str, name: str, classes: Mapping[str, int]) -> int:
    """Index of a class that is named somewhere in an annotation file."""
    if name not in classes:
        raise DataError(f"{origin}: no class is called {name!r}: the classes are {shown(list(classes))}")
    return classes[name]


def key_of(name: str) -> bytes:
    """What decides the place of a name in a keyed order: the same on any machine."""
    return hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()


def cut_groups(groups: Mapping[str, int], fraction: float) -> set[str]:
    """Groups that are kept for validation: about a fraction of all clips, no group torn apart.

    Groups are taken in keyed order as long as each brings the number of clips nearer to the fraction; one is
    always taken and one always left, where there are two.

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
