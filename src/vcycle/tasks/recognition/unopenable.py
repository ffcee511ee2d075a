"""Videos that cannot be opened: found before a training starts, and left out of it. Needs no torch."""

import math

from vcycle.data.layouts import VideoList
from vcycle.errors import DataError
from vcycle.tasks.base import Progress, Splits
from vcycle.tasks.recognition.recipe import RecognitionRecipe

__all__ = ["unopenable"]

_MOST_OPENED = 2_000
"""Training videos that are opened one by one, some seconds' worth. In a larger set a few dead files are a small share,
and are replaced as they come."""
_FEW = 3
"""Dead files that are left out whatever share of a small set they are, but for half of it."""


def unopenable(
    recipe: RecognitionRecipe, splits: Splits[VideoList], progress: Progress = lambda *_: None
) -> dict[str, str]:
    """The training videos that cannot be opened, by their paths in the list, and why.

    Only headers are read. Folders of pictures, prepared sets and sets of more than 2,000 videos are not looked at: what
    cannot be read there is replaced in training. Neither are videos to evaluate on, which an evaluation leaves out.

    Raises:
        DataError: if they are more than ``run.bad_limit`` allows, and more than 3 or half of the set.
    """
    train = splits.train
    names = list(dict.fromkeys(train.paths))
    made = recipe.data.digits is not None or splits.layout == "prepared"
    if made or train.frame_rate is not None or len(names) > _MOST_OPENED:
        return {}
    from vcycle.data.video.container import VideoError, file_status, opened

    dead: dict[str, str] = {}
    for done, name in enumerate(names, 1):
        path = str(train.root / name)
        try:
            file_status(path)
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
            f"{len(dead):,} of {len(names):,} training videos cannot be opened, such as {train.root / name}: {cause}; "
            f"run.bad_limit={limit:g} allows fewer. `vcycle check` lists them, and run.bad_limit={share:g} leaves them "
            "out"
        )
    return dead
