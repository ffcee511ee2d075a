"""The clips of a recipe of super-resolution, found by split."""

import os
from dataclasses import replace
from pathlib import Path

from vcycle.errors import DataError, RecipeError
from vcycle.tasks.base import SPLITS, Splits
from vcycle.tasks.superres.pairs.degrade import Degradation
from vcycle.tasks.superres.pairs.layouts import (
    ClipPairs,
    read_pairs,
    read_reds,
    read_udm10,
    read_vid4,
    read_vimeo90k,
    udm10_clips,
)
from vcycle.tasks.superres.pairs.store import TiledClips, is_store
from vcycle.tasks.superres.recipe import SuperresRecipe

__all__ = ["every_clip", "find_clips", "refuse_shared", "split_of", "splits_in"]


def find_clips(recipe: SuperresRecipe) -> Splits[ClipPairs]:
    """Find the recipe's clips; each split is read when it is asked for."""
    has = [split for split in SPLITS if split != "test" or _has(recipe, "test")]
    return Splits(lambda split: split_of(recipe, split), has, source=str(recipe.data.path))


def refuse_shared(splits: Splits[ClipPairs]) -> None:
    """Refuse a clip that is in two splits.

    Raises:
        DataError: naming the first.
    """
    others = {"val": splits.val} | ({} if splits.test is None else {"test": splits.test})
    _refuse_shared(splits.train, others)


def every_clip(recipe: SuperresRecipe) -> dict[str, ClipPairs]:
    """The clips of each split that is there.

    Raises:
        RecipeError: if the recipe names none to train on.
        DataError: if they are not as they should be.
    """
    return {split: split_of(recipe, split) for split in SPLITS if split == "train" or _has(recipe, split)}


def splits_in(path: Path) -> tuple[str, ...]:
    """The splits that a folder has folders of; none without one to train on."""
    return tuple(split for split in SPLITS if (path / split).is_dir()) if (path / "train").is_dir() else ()


def split_of(recipe: SuperresRecipe, split: str) -> ClipPairs:
    """One split of the recipe's clips.

    Raises:
        RecipeError: if there is no such split.
        DataError: if it is not as it should be.
    """
    if split not in SPLITS:
        raise RecipeError(f"split {split!r} is unknown: {', '.join(SPLITS)}")
    data = recipe.data
    made_by = Degradation(kind=data.degradation)
    given = {"val": data.val, "test": data.test}.get(split)
    if given is not None:
        return _tested_on(Path(given), made_by)
    if data.path is None:
        raise RecipeError("the recipe names no clips: give their folder with data=PATH")
    path = Path(data.path)
    low = None if data.low is None else Path(data.low)
    layout = _layout(path) if data.layout == "auto" else data.layout
    named = split == "train" and data.layout in ("reds", "vimeo90k")
    if named and path.exists() and data.layout != _layout(path):
        raise RecipeError(
            f"data.path {path} does not lie as data.layout={data.layout} says (docs/superresolution-data.md); "
            "data.layout=auto takes a folder with train and val, each of clips"
        )
    listed = "train" if split == "train" else "val"  # what the field validates on is what it tests on
    if layout == "reds":
        if low is not None:
            raise RecipeError(f"data.low {low}: REDS' low-resolution frames are beside its others; null is accepted")
        return _reds(path, listed, made_by)
    if layout == "vimeo90k":
        return read_vimeo90k(path, listed, low=low, degradation=made_by)
    if not (path / "train").is_dir() or is_store(path):
        if split != "train":
            raise RecipeError(f"data.path {path} has no folder {split}: give one with data.{split}=FOLDER")
        return read_pairs(path, low=low, degradation=made_by)
    if not (path / split).is_dir():
        raise RecipeError(f"data.path {path} has no folder {split}: give one with data.{split}=FOLDER")
    return read_pairs(path / split, low=None if low is None else low / split, degradation=made_by)


def _layout(path: Path) -> str:
    """How the clips of a folder lie, by the files in it."""
    if any((path / name).is_dir() for name in ("train_sharp", "train/train_sharp")):
        return "reds"
    return "vimeo90k" if (path / "sep_trainlist.txt").is_file() else "clips"


def _reds(path: Path, split: str, made_by: Degradation) -> ClipPairs:
    """REDS4's partition; low resolution as it came, where it did and is the one asked for."""
    ships = any((path / name / "X4").is_dir() for name in ("train_sharp_bicubic", "train/train_sharp_bicubic"))
    pairs = read_reds(path, split, shipped=ships and made_by.kind == "bicubic")
    return pairs if pairs.low is not None else replace(pairs, degradation=made_by)


def _tested_on(path: Path, made_by: Degradation) -> ClipPairs:
    """Clips of a folder to validate or test on; a set as it ships is recognised."""
    if (path / "GT").is_dir():
        came = "BIx4" if made_by.kind == "bicubic" else "BDx4"
        return read_vid4(path, kind=made_by.kind, shipped=(path / came).is_dir())
    if udm10_clips(path):
        ships = made_by.kind == "bd" and all((path / name / "blur4").is_dir() for name in udm10_clips(path))
        return read_udm10(path, kind=made_by.kind, shipped=ships)
    layout = _layout(path)
    if layout == "reds":
        return _reds(path, "val", made_by)
    if layout == "vimeo90k" or (path / "sep_testlist.txt").is_file():
        return read_vimeo90k(path, "val", degradation=made_by)
    return read_pairs(path, degradation=made_by)


def _has(recipe: SuperresRecipe, split: str) -> bool:
    """Whether the recipe's clips have a split to validate or to test on."""
    data = recipe.data
    given = {"val": data.val, "test": data.test}[split]
    if given is not None or data.path is None:
        return given is not None
    path = Path(data.path)
    layout = _layout(path) if data.layout == "auto" else data.layout
    return layout != "clips" or split in splits_in(path)


def _refuse_shared(train: ClipPairs, others: dict[str, ClipPairs]) -> None:
    known = {_identity(train, item) for item in range(len(train))}
    for split, pairs in others.items():
        shared = [pairs.high.path(item) for item in range(len(pairs)) if _identity(pairs, item) in known]
        if shared:
            raise DataError(f"{shared[0]} is among the clips of train and of {split} ({len(shared):,} in all)")


def _identity(pairs: ClipPairs, item: int) -> str | tuple[int, ...]:
    """What a clip is known by: its place or, where a store knows its content, that."""
    if isinstance(pairs.high, TiledClips):
        clip = pairs.high.store.clips[item]
        return (clip.crc32, clip.frames, clip.height, clip.width)
    return os.path.realpath(pairs.high.path(item))
