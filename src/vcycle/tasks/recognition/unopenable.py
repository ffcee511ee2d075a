"""Finds videos that cannot be opened before a training starts, and leaves them out. Imports no torch."""

import math

from vcycle.data.layouts import VideoList
from vcycle.data.locations import joined
from vcycle.errors import DataError
from vcycle.tasks.base import Progress, Splits
from vcycle.tasks.recognition.recipe import RecognitionRecipe

__all__ = ["unopenable"]

_MOST_OPENED = 2_000
"""Maximum number of training videos to open one by one, which takes seconds. In a larger dataset, a few dead files are
a small share and are replaced during training."""
_FEW = 3
"""Number of dead files that is always tolerated in a small dataset, up to half of it."""


def unopenable(
    recipe: RecognitionRecipe, splits: Splits[VideoList], progress: Progress = lambda *_: None
) -> dict[str, str]:
    """Training videos that cannot be opened: maps their paths in the list to the reason.

    Only headers are read. Folders of frames, prepared datasets and datasets of more than 2,000 videos are not checked:
    unreadable videos there are replaced during training. Evaluation videos are not checked either: an evaluation leaves
    unreadable ones out.

    Raises:
        DataError: if there are more than ``run.bad_limit`` allows, and more than 3 or half of the dataset.
    """
    train = splits.train
    made = recipe.data.digits is not None or splits.layout == "prepared"
    if made:
        return {}
    names: dict[str, None] = {}
    for name in train.paths:
        names[name] = None
        if len(names) > _MOST_OPENED:
            return {}
    from vcycle.data.pictures import holds_pictures
    from vcycle.data.video.container import VideoError, file_stamp, opened

    dead: dict[str, str] = {}
    for done, name in enumerate(names, 1):
        path = str(joined(train.root, name))
        if train.frame_rate is not None and holds_pictures(path):
            continue
        try:
            file_stamp(path)
            with opened(path):
                pass
        except VideoError as error:
            dead[name] = error.cause
        progress("opening videos", done, len(names))
    limit = recipe.run.bad_limit
    if dead and len(dead) > max(limit * len(names), min(_FEW, len(names) // 2) if limit else 0):
        name, cause = next(iter(dead.items()))
        share = min(1.0, math.ceil(100 * len(dead) / len(names)) / 100)
        raise DataError(
            f"{len(dead):,} of {len(names):,} training videos cannot be opened, such as {joined(train.root, name)}: "
            f"{cause}; run.bad_limit={limit:g} allows fewer. `vcycle check` lists them; run.bad_limit={share:g} leaves "
            "them out"
        )
    return dead
