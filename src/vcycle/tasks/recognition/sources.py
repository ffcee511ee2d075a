"""Where the frames of a recipe's videos come from."""

from pathlib import Path

from vcycle.data import FileSource, FrameSource, ImageSource, KeptIndexes, PreparedSource, load_index
from vcycle.data.layouts import VideoList
from vcycle.tasks.recognition.data import was_prepared
from vcycle.tasks.recognition.recipe import RecognitionRecipe

__all__ = ["source_of"]


def source_of(recipe: RecognitionRecipe, found: VideoList, split: str, work: Path) -> FrameSource:
    """The frame source of a split without a cache; indexes of its videos are kept under `work`."""
    if was_prepared(recipe):
        return PreparedSource(load_index(found.root), split)
    kept = KeptIndexes(work / "cache" / "indexes.sqlite")
    return FileSource(found, kept=kept) if found.frame_rate is None else ImageSource(found, kept=kept)
