"""The clips of a recipe of super-resolution, found by split."""

import os

from vcycle.data.locations import local_path
from vcycle.errors import DataError, RecipeError
from vcycle.tasks.base import SPLITS, Splits
from vcycle.tasks.superres.layouts import LAYOUTS
from vcycle.tasks.superres.pairs.degrade import Degradation
from vcycle.tasks.superres.pairs.layouts import ClipPairs, read_pairs
from vcycle.tasks.superres.pairs.store import TiledClips
from vcycle.tasks.superres.recipe import SuperresRecipe

__all__ = ["every_clip", "find_clips", "refuse_shared", "split_of"]


def find_clips(recipe: SuperresRecipe) -> Splits[ClipPairs]:
    """Find the recipe's clips; each split is read on first use."""
    has = [split for split in SPLITS if split != "test" or _has(recipe, "test")]
    return Splits(lambda split: split_of(recipe, split), has, source=str(recipe.data.path))


def refuse_shared(splits: Splits[ClipPairs]) -> None:
    """Refuse a clip that is in two splits, and a store that is not complete.

    Raises:
        DataError: naming the first.
    """
    others = {"val": splits.val} | ({} if splits.test is None else {"test": splits.test})
    for pairs in (splits.train, *others.values()):
        if isinstance(pairs.high, TiledClips):
            pairs.high.store.refuse_incomplete()
    _refuse_shared(splits.train, others)


def every_clip(recipe: SuperresRecipe) -> dict[str, ClipPairs]:
    """The clips of each split that is there.

    Raises:
        RecipeError: if the recipe names none to train on.
        DataError: if they are not as they should be.
    """
    return {split: split_of(recipe, split) for split in SPLITS if split == "train" or _has(recipe, split)}


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
        place = local_path(given, f"data.{split}")
        set_name = LAYOUTS.recognised(place, split)  # a set as it ships
        if set_name is None or LAYOUTS[set_name].general:
            return read_pairs(place, degradation=made_by)
        return LAYOUTS.read(ClipPairs, set_name, place, split, degradation=made_by)
    if data.path is None:
        raise RecipeError("the recipe names no clips: give their folder with data=PATH")
    path, name = local_path(data.path, "data.path"), _layout(recipe)
    layout, low = LAYOUTS[name], None if data.low is None else local_path(data.low, "data.low")
    splits = layout.splits_in(path)
    if path.exists() and not splits:
        raise RecipeError(
            f"data.path {path} does not have the layout data.layout={name} says (docs/superresolution-data.md); "
            "data.layout=auto takes a folder with train and val, each of clips"
        )
    if low is not None and not layout.takes("low"):
        raise RecipeError(
            f"data.low {low}: clips of the layout {name} have their low-resolution frames beside them; null is accepted"
        )
    if path.exists() and split != "train" and split not in splits:
        raise RecipeError(f"data.path {path} has no folder {split}: give one with data.{split}=FOLDER")
    return LAYOUTS.read(ClipPairs, name, path, split, low=low, degradation=made_by)


def _layout(recipe: SuperresRecipe) -> str:
    """Layout of the training clips and of their low-resolution copies."""
    data = recipe.data
    if data.layout != "auto":
        return data.layout
    return LAYOUTS.recognised(local_path(data.path or "", "data.path"), "train") or "clips"


def _has(recipe: SuperresRecipe, split: str) -> bool:
    """Whether the recipe's clips have a split to validate or to test on."""
    data = recipe.data
    given = {"val": data.val, "test": data.test}[split]
    if given is not None or data.path is None:
        return given is not None
    return split in LAYOUTS[_layout(recipe)].splits_in(local_path(data.path, "data.path"))


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
