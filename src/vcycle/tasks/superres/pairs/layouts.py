"""Reads super-resolution datasets in their original layouts: REDS, Vimeo-90K, Vid4, UDM10, and folders of clips."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vcycle.data.layouts.layout import Layout
from vcycle.data.layouts.splits import SPLITS, folders_of_splits
from vcycle.data.video import VideoError
from vcycle.errors import DataError
from vcycle.tasks.superres.pairs.clips import ClipInfo, ClipStore, PartOfClips, PictureClips, find_clips
from vcycle.tasks.superres.pairs.degrade import Degradation
from vcycle.tasks.superres.pairs.store import TileStore, is_store
from vcycle.utils.reading import read_text

__all__ = [
    "CLIPS",
    "REDS",
    "REDS4",
    "UDM10",
    "VID4",
    "VIMEO90K",
    "ClipPairs",
    "read_pairs",
    "read_reds",
    "read_udm10",
    "read_vid4",
    "read_vimeo90k",
    "splits_in",
    "udm10_clips",
]

REDS4 = ("000", "011", "015", "020")
"""Clips of REDS' training set that the literature uses for testing."""

_REDS_TRAIN, _REDS_VAL = 240, 30
_BICUBIC4 = Degradation(kind="bicubic", scale=4)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClipPairs:
    """High-resolution clips, and the source of their low-resolution frames."""

    high: ClipStore
    low: ClipStore | None = None
    """Existing low-resolution frames; if None, they are computed on the fly."""

    degradation: Degradation = field(default_factory=Degradation)
    """The degradation of the low-resolution frames, existing or computed."""

    source: Path
    """Where the clips were found, for messages."""

    def __post_init__(self) -> None:
        """Check that both resolutions have the same clips."""
        if self.low is None or list(self.high.names) == list(self.low.names):
            return
        odd = sorted(set(self.high.names) ^ set(self.low.names))
        lacking = "low" if odd and odd[0] in set(self.high.names) else "high"
        what = f"clip {odd[0]} is missing at {lacking} resolution" if odd else "the clips are in another order"
        raise DataError(f"{self.source}: {len(self.high)} clips, {len(self.low)} at low resolution; {what}")

    def __len__(self) -> int:
        """Number of clips."""
        return len(self.high)

    def part(self, items: Sequence[int]) -> ClipPairs:
        """These clips alone, in this order."""
        low = None if self.low is None else PartOfClips(self.low, items)
        return replace(self, high=PartOfClips(self.high, items), low=low)

    def digest(self) -> dict[str, Any]:
        """Identifies the clips, wherever they are stored: their number, and a hash of names and degradation."""
        shown = json.dumps([list(self.high.names), self.low is not None, str(self.degradation)])
        return {"videos": len(self), "names": hashlib.sha256(shown.encode()).hexdigest()[:16]}

    def info(self, item: int) -> ClipInfo:
        """Length and size of a clip at high resolution; the size is cropped to a multiple of the scale.

        Raises:
            VideoError: if the clip cannot be read, or its low-resolution frames do not match in length or size.
        """
        high, scale = self.high.info(item), self.degradation.scale
        height, width = self.degradation.low((high.height, high.width))
        if not height or not width:
            size = f"{high.width} × {high.height}"
            raise VideoError(str(self.high.path(item)), f"{size} pixels are too small for a scale of {scale}")
        if self.low is not None:
            low = self.low.info(item)
            if low != ClipInfo(frames=high.frames, height=height, width=width):
                theirs = high.width // low.width
                other = low.height > 1 and theirs not in (0, scale) and theirs == high.height // low.height
                raise VideoError(
                    str(self.low.path(item)),
                    f"{low.frames} frames of {low.width} × {low.height} at low resolution; expected {high.frames} of "
                    f"{width} × {height} ({high.width} × {high.height} at a scale of {scale}"
                    f"{f'; found a scale of {theirs}' if other else ''})",
                )
        return ClipInfo(frames=high.frames, height=height * scale, width=width * scale)


def read_pairs(path: Path, *, low: Path | None = None, degradation: Degradation | None = None) -> ClipPairs:
    """Read the clips of a folder: a prepared store, image folders, or videos (see ``find_clips``).

    Args:
        path: The folder.
        low: A folder with the same clips at low resolution, if any.
        degradation: The degradation of the low-resolution frames; by default that of a prepared store, else bicubic ×4.

    Raises:
        DataError: if there are no clips, ``low`` has other clips, or a store has another degradation.
    """
    path = Path(path)
    if not is_store(path):
        clips = find_clips(path)
        lower = None if low is None else find_clips(low)
        return ClipPairs(high=clips, low=lower, degradation=degradation or _BICUBIC4, source=path)
    store = TileStore(path)
    if degradation is not None and store.degradation not in (None, degradation):
        raise DataError(f"{path}: the store's low-resolution frames are {store.degradation}, not {degradation}")
    if low is not None:
        raise DataError(f"{path}: a prepared store contains its low-resolution frames; remove {low}")
    return ClipPairs(
        high=store.high, low=store.low, degradation=store.degradation or degradation or _BICUBIC4, source=path
    )


def read_reds(
    root: Path, split: str, *, partition: str = "reds4", merge_validation: bool = True, shipped: bool = True
) -> ClipPairs:
    """REDS: ``train_sharp/000`` to ``239``, ``val_sharp/000`` to ``029``, 100 pictures of 1280 × 720 each.

    Args:
        root: Folder that holds ``train_sharp`` (or ``train/train_sharp``).
        split: ``train`` or ``val``.
        partition: ``reds4`` validates on clips 000, 011, 015 and 020 of the training set and trains on the
            others. ``official`` trains on all 240 and validates on the official 30.
        merge_validation: With ``reds4``, train on the official validation clips too, as clips 240 to 269 (266 clips in
            all). They may already be in ``train_sharp`` under these names.
        shipped: Whether to read the low-resolution images of REDS (``train_sharp_bicubic/X4``) instead of computing
            them.

    Raises:
        DataError: if the split or partition is unknown, or a clip's folder is missing.
    """
    _check("split", split, ("train", "val"))
    _check("partition", partition, ("reds4", "official"))
    own = [f"{number:03d}" for number in range(_REDS_TRAIN)]
    official = [f"{number:03d}" for number in range(_REDS_TRAIN, _REDS_TRAIN + _REDS_VAL)]
    if partition == "official":
        names = own if split == "train" else official
    elif split == "val":
        names = list(REDS4)
    else:
        names = [name for name in own if name not in REDS4] + (official if merge_validation else [])
    high = _reds_clips(Path(root), names, "sharp")
    low = _reds_clips(Path(root), names, "sharp_bicubic/X4") if shipped else None
    return ClipPairs(high=high, low=low, degradation=_BICUBIC4, source=Path(root))


def _reds_clips(root: Path, names: Sequence[str], kind: str) -> PictureClips:
    train = _first_folder(root, (f"train_{kind}", f"train/train_{kind}"))
    folders = []
    for name in names:
        place = train / name
        if int(name) >= _REDS_TRAIN and not place.is_dir():
            place = _first_folder(root, (f"val_{kind}", f"val/val_{kind}")) / f"{int(name) - _REDS_TRAIN:03d}"
        if not place.is_dir():
            raise DataError(f"{place}: no such folder, for clip {name} of REDS")
        folders.append(str(place.relative_to(root)))
    return PictureClips(root, folders, shown=names)


def read_vimeo90k(
    root: Path, split: str, *, low: Path | None = None, degradation: Degradation | None = None
) -> ClipPairs:
    """Vimeo-90K septuplets: ``sequences/00001/0001/im1.png`` to ``im7.png``, 448 × 256.

    Args:
        root: Folder ``vimeo_septuplet``, with ``sep_trainlist.txt`` and ``sep_testlist.txt``.
        split: ``train`` or ``val`` (the test list, which is the only other one).
        low: Low-resolution images in the layout of ``sequences``; the dataset has none.
        degradation: The degradation of the low-resolution images; bicubic ×4 by default.

    Raises:
        DataError: if a list is missing, a line is malformed or names a missing folder, or both lists share a
            sequence.
    """
    _check("split", split, ("train", "val"))
    lists = {"train": Path(root) / "sep_trainlist.txt", "val": Path(root) / "sep_testlist.txt"}
    names = _sequences(lists[split])
    other = lists["val" if split == "train" else "train"]
    if other.is_file() and (shared := set(names).intersection(_sequences(other))):
        raise DataError(f"{lists[split]}: sequence {min(shared)} is in {other.name} too ({len(shared)} in all)")
    folder = Path(root) / "sequences"
    for number, name in enumerate(names, 1):
        if not (folder / name).is_dir():
            raise DataError(f"{lists[split]}, line {number}: no such folder: {folder / name}")
    lower = None if low is None else PictureClips(Path(low), names)
    return ClipPairs(
        high=PictureClips(folder, names), low=lower, degradation=degradation or _BICUBIC4, source=Path(root)
    )


def _sequences(path: Path) -> list[str]:
    try:
        lines = read_text(path).split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise DataError(f"{path}: the list is empty; expected lines such as '00001/0001'")
    for number, line in enumerate(lines, 1):
        if not re.fullmatch(r"\d{5}/\d{4}", line.strip()):
            raise DataError(f"{path}, line {number}: {line!r} is not a sequence such as '00001/0001'")
    return [line.strip() for line in lines]


def read_vid4(root: Path, *, kind: str = "bicubic", shipped: bool = True) -> ClipPairs:
    """Vid4: ``GT/calendar``, ``city``, ``foliage`` and ``walk``, low resolution in ``BIx4`` and ``BDx4``.

    Args:
        root: Folder that holds ``GT``, or the clips themselves.
        kind: ``bicubic`` (``BIx4``) or ``bd`` (``BDx4``).
        shipped: Whether to read the dataset's low-resolution images instead of computing them.

    Raises:
        DataError: if a folder is missing.
    """
    degradation = Degradation(kind=kind)
    root = Path(root)
    high = find_clips(root / "GT" if (root / "GT").is_dir() else root)
    low = find_clips(root / ("BIx4" if kind == "bicubic" else "BDx4")) if shipped else None
    return ClipPairs(high=high, low=low, degradation=degradation, source=root)


def read_udm10(root: Path, *, kind: str = "bd", shipped: bool = True) -> ClipPairs:
    """UDM10 in its authors' layout: ``archpeople/truth`` and ``archpeople/blur4``, and so on, of 32 frames each.

    ``read_vid4`` reads the other common layout (``GT``, ``BDx4``).

    Args:
        root: Folder that holds the clips.
        kind: ``bd``, as in the dataset, or ``bicubic``.
        shipped: Whether to read the dataset's low-resolution images instead of computing them.

    Raises:
        DataError: if there are no such folders, or ``shipped`` is set with ``bicubic``.
    """
    root = Path(root)
    if shipped and kind != "bd":
        raise DataError(f"{root}: UDM10's low-resolution frames are bd, not {kind}")
    names = udm10_clips(root)
    if not names:
        raise DataError(f"{root}: no folders CLIP/truth")
    high, low = (PictureClips(root, [f"{name}/{part}" for name in names], shown=names) for part in ("truth", "blur4"))
    return ClipPairs(high=high, low=low if shipped else None, degradation=Degradation(kind=kind), source=root)


def udm10_clips(root: Path) -> list[str]:
    """Names of the clips in a folder with UDM10's layout; empty for other folders."""
    return sorted(path.parent.name for path in Path(root).glob("*/truth") if path.is_dir())


def _check(name: str, value: str, accepted: Sequence[str]) -> None:
    if value not in accepted:
        raise DataError(f"{name} {value!r} is unknown: must be {' or '.join(accepted)}")


def _first_folder(root: Path, names: Sequence[str]) -> Path:
    found = next((root / name for name in names if (root / name).is_dir()), None)
    if found is None:
        raise DataError(f"{root}: no folder {' or '.join(names)}")
    return found


def splits_in(path: Path) -> dict[str, Path]:
    """The splits that a folder has folders of, and these; none in a store, or without one to train on.

    Raises:
        DataError: If two folders are one split.
    """
    found = {} if is_store(path) else folders_of_splits(path)
    return found if "train" in found else {}


def _read_split(path: Path, split: str, *, low: Path | None = None, degradation: Degradation) -> ClipPairs:
    """Clips of a split's folder; all clips where there are no such folders."""
    places = splits_in(path)
    if not places:
        return read_pairs(path, low=low, degradation=degradation)
    lower = None if low is None else folders_of_splits(low).get(split, low / split)
    return read_pairs(places[split], low=lower, degradation=degradation)


def _reds_splits(path: Path) -> tuple[str, ...]:
    return SPLITS if any((path / name).is_dir() for name in ("train_sharp", "train/train_sharp")) else ()


def _read_reds4(path: Path, split: str, *, degradation: Degradation) -> ClipPairs:
    """REDS4's partition, with its own low-resolution frames if they exist and match the recipe."""
    ships = any((path / name / "X4").is_dir() for name in ("train_sharp_bicubic", "train/train_sharp_bicubic"))
    pairs = read_reds(path, _listed(split), shipped=ships and degradation.kind == "bicubic")
    return pairs if pairs.low is not None else replace(pairs, degradation=degradation)


def _vimeo90k_splits(path: Path) -> tuple[str, ...]:
    lists = {"train": "sep_trainlist.txt", "val": "sep_testlist.txt", "test": "sep_testlist.txt"}
    return SPLITS if (path / lists["train"]).is_file() else tuple(s for s in SPLITS if (path / lists[s]).is_file())


def _read_vimeo90k(path: Path, split: str, *, low: Path | None = None, degradation: Degradation) -> ClipPairs:
    return read_vimeo90k(path, _listed(split), low=low, degradation=degradation)


def _listed(split: str) -> str:
    """What the field validates on is what it tests on."""
    return "train" if split == "train" else "val"


def _read_vid4(path: Path, split: str, *, degradation: Degradation) -> ClipPairs:
    came = "BIx4" if degradation.kind == "bicubic" else "BDx4"
    return read_vid4(path, kind=degradation.kind, shipped=(path / came).is_dir())


def _read_udm10(path: Path, split: str, *, degradation: Degradation) -> ClipPairs:
    ships = degradation.kind == "bd" and all((path / name / "blur4").is_dir() for name in udm10_clips(path))
    return read_udm10(path, kind=degradation.kind, shipped=ships)


VID4 = Layout(read=_read_vid4, splits=lambda path: ("val", "test") if (path / "GT").is_dir() else ())
UDM10 = Layout(read=_read_udm10, splits=lambda path: ("val", "test") if udm10_clips(path) else ())
REDS = Layout(read=_read_reds4, splits=_reds_splits)
VIMEO90K = Layout(read=_read_vimeo90k, splits=_vimeo90k_splits)
CLIPS = Layout(read=_read_split, splits=lambda path: splits_in(path) or ("train",), general=True)
