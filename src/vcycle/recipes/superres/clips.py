"""The clips of a recipe of super-resolution, found by split and checked."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from vcycle.data.superres.check import SAME_DEGRADATION, agreement
from vcycle.data.superres.degrade import Degradation
from vcycle.data.superres.layouts import ClipPairs, read_pairs, read_reds, read_vid4, read_vimeo90k
from vcycle.data.superres.store import is_store
from vcycle.data.video import VideoError
from vcycle.errors import DataError, RecipeError
from vcycle.recipes.superres.plans import raw_frames
from vcycle.recipes.superres.schema import SuperresRecipe

__all__ = ["Clips", "check_clips", "find_clips", "notices", "split_of"]

SPLITS = ("train", "val", "test")

_LOOKED_AT = 16
"""Clips that are looked at before training begins."""


@dataclass(frozen=True, kw_only=True)
class Clips:
    """The clips of a recipe, by split."""

    train: ClipPairs
    val: ClipPairs
    test: ClipPairs | None = None


def find_clips(recipe: SuperresRecipe) -> Clips:
    """Find the recipe's clips.

    Raises:
        RecipeError: if the recipe names none to train on, or to validate on.
        DataError: if they are not there, not as they should be, or a clip is in two splits.
    """
    train = split_of(recipe, "train")
    val = split_of(recipe, "val")
    test = split_of(recipe, "test") if _has_test(recipe) else None
    _refuse_shared(train, {"val": val} | ({} if test is None else {"test": test}))
    return Clips(train=train, val=val, test=test)


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


def check_clips(recipe: SuperresRecipe, clips: Clips) -> None:
    """Check that the recipe's training can take its clips, and begins with what it needs.

    Raises:
        RecipeError: if a frozen flow network has no weights.
        DataError: if no clip of those looked at is long and large enough.
    """
    training, init = recipe.training, recipe.init
    if init.needed and init.path is None and training.flow is not None and training.flow.frozen_steps:
        raise RecipeError(
            f"training.flow.frozen_steps={training.flow.frozen_steps} freezes a flow network that has no weights: give "
            "SpyNet's or a whole network's with init=FILE; training.flow.frozen_steps=0 trains it from the first step, "
            "and init.needed=false freezes it as it is drawn"
        )
    frames, size = raw_frames(recipe), training.size
    faults: list[str] = []
    for item in _spread(len(clips.train)):
        try:
            info = clips.train.info(item)
        except VideoError:
            return  # replaced, counted and told of in training
        side = min(clips.train.degradation.low((info.height, info.width)))
        if info.frames >= frames and side >= size:
            return
        faults.append(
            f"{clips.train.high.path(item)} has {info.frames} frames of {info.width} × {info.height}, and "
            f"training.frames={training.frames}, training.size={size} take {frames} of "
            f"{size * clips.train.degradation.scale} × {size * clips.train.degradation.scale}"
        )
    if faults:
        raise DataError(faults[0] + (f" (and {len(faults) - 1} more such clips)" if faults[1:] else ""))


def notices(clips: Clips) -> list[str]:
    """What a user should know: low-resolution frames that were made otherwise than is said."""
    said = []
    for split in SPLITS:
        pairs: ClipPairs | None = getattr(clips, split)
        if pairs is None or pairs.low is None:
            continue
        try:
            found = agreement(pairs)
        except VideoError:
            continue
        if found < SAME_DEGRADATION:
            said.append(
                f"{split}: the low-resolution frames of {pairs.low.path(0)} are not those that "
                f"{pairs.degradation.kind} makes of {pairs.high.path(0)} (PSNR {found:.1f} dB): another degradation, "
                "or another clip"
            )
    return said


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
    layout = _layout(path)
    if layout == "reds":
        return _reds(path, "val", made_by)
    if layout == "vimeo90k" or (path / "sep_testlist.txt").is_file():
        return read_vimeo90k(path, "val", degradation=made_by)
    return read_pairs(path, degradation=made_by)


def _has_test(recipe: SuperresRecipe) -> bool:
    data = recipe.data
    if data.test is not None or data.path is None:
        return data.test is not None
    path = Path(data.path)
    layout = _layout(path) if data.layout == "auto" else data.layout
    return layout != "clips" or ((path / "train").is_dir() and (path / "test").is_dir())


def _refuse_shared(train: ClipPairs, others: dict[str, ClipPairs]) -> None:
    known = {os.path.realpath(train.high.path(item)) for item in range(len(train))}
    for split, pairs in others.items():
        shared = [path for item in range(len(pairs)) if os.path.realpath(path := pairs.high.path(item)) in known]
        if shared:
            raise DataError(f"{shared[0]} is among the clips of train and of {split} ({len(shared):,} in all)")


def _spread(count: int) -> Iterable[int]:
    return sorted({place * count // _LOOKED_AT for place in range(_LOOKED_AT)})
