"""Builds the datasets of a recipe: frame source, clip sampling and augmentation."""

from pathlib import Path
from typing import TYPE_CHECKING

from vcycle.data.layouts import VideoList
from vcycle.tasks.base import Progress
from vcycle.tasks.classification.sampling import augmentation_of, grids_of
from vcycle.tasks.recognition.data import was_prepared
from vcycle.tasks.recognition.recipe import RecognitionRecipe

if TYPE_CHECKING:
    from vcycle.data import FrameSource, VideoDataset

__all__ = ["dataset_of"]


def dataset_of(
    recipe: RecognitionRecipe, found: VideoList, split: str, work: Path, progress: Progress = lambda *_: None
) -> "VideoDataset":
    """Build the dataset of a split; frames are cached under `work` if the recipe sets a cache."""
    from vcycle.data import FileSource, FrameCache, ImageSource, KeptIndexes, PreparedSource, VideoDataset, load_index

    grids = grids_of(recipe)
    transform = augmentation_of(recipe) if split == "train" else None
    if recipe.data.cache is None:
        kept = KeptIndexes(work / "cache" / "indexes.sqlite")
        source: FrameSource
        if was_prepared(recipe):
            source = PreparedSource(load_index(found.root), split)
        elif found.frame_rate is None:
            source = FileSource(found, kept=kept)
        else:
            source = ImageSource(found, kept=kept)
        return VideoDataset(found, grids, source=source, transform=transform)
    cache = FrameCache.build(
        found,
        work / "cache",
        short_side=recipe.data.cache,
        progress=lambda done, total: progress(f"decoding {split} videos once", done, total),
    )
    return VideoDataset(found, grids, source=cache, transform=transform)
