"""Warns about settings that are allowed but probably unintended, before a training starts. Imports no torch."""

from vcycle.data.layouts import VideoList
from vcycle.data.layouts.folder import folder_splits
from vcycle.data.layouts.splits import split_called
from vcycle.data.locations import location
from vcycle.data.prepare.names import is_prepared
from vcycle.data.prepare.settings import short_side_for
from vcycle.tasks.base import Splits
from vcycle.tasks.recognition.data import notes
from vcycle.tasks.recognition.recipe import RecognitionRecipe

__all__ = ["notices"]


def notices(recipe: RecognitionRecipe, splits: Splits[VideoList]) -> list[str]:
    """Warnings about the videos found, a single split given as the dataset, and stored frames that are too small."""
    return [*notes(splits), *_one_split(recipe, splits), *_too_small(recipe)]


def _one_split(recipe: RecognitionRecipe, splits: Splits[VideoList]) -> list[str]:
    """`data=videos/train` is allowed: it takes the validation videos from the training split."""
    path = location(recipe.data.path or "").absolute()
    if recipe.data.path is None or splits.layout != "folder" or split_called(path.name) is None:
        return []
    others = [place.name for place in folder_splits(path.parent).values() if place.name != path.name]
    if not others:
        return []
    return [f"data.path {path} is one split of several: data={path.parent} takes its {' and '.join(others)} as well"]


def _too_small(recipe: RecognitionRecipe) -> list[str]:
    """Warn if the stored frames have fewer pixels than any clip at full resolution needs."""
    size = recipe.training.size
    needed = _least_short_side(recipe)
    room = max(needed, short_side_for(size))
    clips = f"a clip of training.size {size} needs a short side of {needed} pixels or more"
    kept = recipe.data.cache
    if kept is not None:
        if kept >= needed:
            return []
        return [f"data.cache={kept}: {clips}, so every clip is upscaled; data.cache={room} is enough"]
    path = location(recipe.data.path or "")
    if recipe.data.digits is not None or recipe.data.path is None or not is_prepared(path):
        return []
    from vcycle.data import load_index

    index = load_index(path)
    shown = index.columns["displayed"].min(axis=1)
    stored = shown.clip(max=index.settings.levels[-1])
    small = stored < needed
    if not small.any():
        return []
    count = f"{small.sum():,} of {len(stored):,} videos" if not small.all() else "all videos"
    said = (
        f"{path}: {count} are stored at a short side of {stored[small].max()} pixels or less, and {clips}: they are "
        "upscaled"
    )
    if (shown > stored)[small].any():
        return [f"{said}; run `vcycle prepare` with --short-side {room + room % 2} into another folder"]
    return [f"{said}; the originals have no more pixels, so a smaller training.size loses nothing"]


def _least_short_side(recipe: RecognitionRecipe) -> int:
    """Minimum short side in pixels of the frames that a clip at full resolution is sampled from."""
    sampling, size = recipe.sampling, recipe.training.size
    if sampling.field is not None:
        return int(size / sampling.field[1])
    return sampling.short_side[0] if sampling.short_side is not None else size
