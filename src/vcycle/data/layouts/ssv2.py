"""Something-Something V2: the official JSON files, and videos or folders of frames.

.. code-block:: text

    ROOT/something-something-v2-train.json         or ROOT/labels/train.json, as currently distributed
    ROOT/something-something-v2-validation.json
    ROOT/something-something-v2-labels.json
    ROOT/20bn-something-something-v2/ID.webm       or ROOT/videos/ID.webm
    ROOT/frames/ID/000001.jpg                      alternative: frames at 12 fps

An entry's class is its template without brackets: ``Holding [something]`` is the class ``Holding something``. The test
list has no labels.
"""

import json
import os
from pathlib import Path
from typing import Any

from vcycle.data.layouts.files import first_file, first_folder, label_in, names_in, read_text, suffix_of, videos_among
from vcycle.data.layouts.videos import VideoList
from vcycle.errors import DataError

__all__ = ["read_ssv2", "ssv2_splits"]

_PLACES = (".", "labels", "annotations")
_LISTS = {"train": "train", "val": "validation"}
_FOLDERS = ("20bn-something-something-v2", "videos", "frames")
_FRAME_RATE = 12.0


def ssv2_splits(root: Path) -> tuple[str, ...]:
    """Return the splits for which a folder has a labelled Something-Something list."""
    if _file(root, "labels") is None:
        return ()
    return tuple(split for split, name in _LISTS.items() if _file(root, name) is not None)


def read_ssv2(
    root: Path,
    split: str,
    *,
    videos: Path | None = None,
    check_files: bool = True,
    frame_rate: float | None = None,
) -> VideoList:
    """Find the videos of a split of Something-Something V2.

    Args:
        root: Folder with the lists.
        split: ``train`` or ``val``.
        videos: Folder of the videos or of the folders of frames; found under ``root`` by default.
        check_files: Whether to check that each listed file exists.
        frame_rate: Frames per second of folders of frames; the set's own by default.

    Raises:
        DataError: If a list is missing or malformed, or a checked file is missing.
    """
    classes = _classes(_needed(root, "labels"))
    path = _needed(root, _LISTS[split])
    folder = videos or first_folder(root, _FOLDERS)
    names = names_in(folder)
    files = {os.path.splitext(name)[0]: name for name in videos_among(names)}
    as_frames = not files
    if as_frames:
        files = {name: name for name in names if not suffix_of(name)}
    label_of = {name: label for label, name in enumerate(classes)}
    paths, labels = list[str](), list[int]()
    for number, entry in enumerate(_json(path, list), 1):
        origin = f"{path}, entry {number}"
        identity, template = _entry(origin, entry)
        labels.append(label_in(origin, template.replace("[", "").replace("]", ""), label_of))
        usual = identity if as_frames else f"{identity}.webm"
        if check_files and identity not in files:
            raise DataError(f"{origin}: no such {'folder of frames' if as_frames else 'video'}: {folder / usual}")
        paths.append(files.get(identity, usual))
    if not paths:
        raise DataError(f"{path}: the list is empty")
    return VideoList(
        root=folder,
        paths=paths,
        labels=labels,
        classes=classes,
        source=path,
        frame_rate=frame_rate or (_FRAME_RATE if as_frames else None),
    )


def _file(root: Path, name: str) -> Path | None:
    return first_file([root / place for place in _PLACES], [f"something-something-v2-{name}.json", f"{name}.json"])


def _needed(root: Path, name: str) -> Path:
    found = _file(root, name)
    if found is None:
        raise DataError(f"{root}: no something-something-v2-{name}.json, and no labels/{name}.json")
    return found


def _json(path: Path, kind: type) -> Any:
    try:
        content = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: {error.msg}") from error
    if not isinstance(content, kind):
        raise DataError(f"{path}: must be {'a list' if kind is list else 'an object'}")
    return content


def _classes(path: Path) -> tuple[str, ...]:
    """Return the class names in index order; the file stores indices as text."""
    content = _json(path, dict)
    order = {str(index): name for name, index in content.items()}
    if not content or len(order) < len(content) or any(str(index) not in order for index in range(len(content))):
        raise DataError(f"{path}: must map names to the numbers 0 to {len(content) - 1}, each once")
    return tuple(order[str(index)] for index in range(len(content)))


def _entry(origin: str, entry: Any) -> tuple[str, str]:
    """Return the id and template of an entry."""
    values = [entry.get(key) for key in ("id", "template")] if isinstance(entry, dict) else [None]
    if not all(isinstance(value, str | int) and str(value) for value in values):
        raise DataError(f"{origin}: 'id' and 'template' are needed, not {str(entry)[:80]}")
    return str(values[0]), str(values[1])
