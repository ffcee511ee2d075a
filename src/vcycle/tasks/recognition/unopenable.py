"""Videos that cannot be opened: found before a training starts, and left out of it. Needs no torch."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcycle.data.layouts import VideoList
from vcycle.errors import CheckpointError, DataError
from vcycle.tasks.recognition.data import Progress, Videos
from vcycle.tasks.recognition.recipe import Recipe

if TYPE_CHECKING:
    from vcycle.train.run import RunFolder

__all__ = ["left_out_by", "left_out_in", "record_left_out", "unopenable", "without"]

_MOST_OPENED = 2_000
"""Training videos that are opened one by one, some seconds' worth. In a larger set a few dead files are a small share,
and are replaced as they come."""
_FEW = 3
"""Dead files that are left out whatever share of a small set they are, but for half of it."""


def unopenable(recipe: Recipe, videos: Videos, progress: Progress = lambda *_: None) -> dict[str, str]:
    """The training videos that cannot be opened, by their paths in the list, and why.

    Only headers are read. Folders of pictures, prepared sets and sets of more than 2,000 videos are not looked at: what
    cannot be read there is replaced in training. Neither are videos to evaluate on, which an evaluation leaves out.

    Raises:
        DataError: if they are more than ``run.bad_limit`` allows, and more than 3 or half of the set.
    """
    train = videos.train
    names = list(dict.fromkeys(train.paths))
    made = recipe.data.digits is not None or videos.layout == "prepared"
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


def without(videos: Videos, dead: Mapping[str, str]) -> Videos:
    """The videos without those to train on that cannot be opened.

    Raises:
        DataError: if none is left.
    """
    return replace(videos, train=videos.train.without(dead)) if dead else videos


def left_out_by(run: "RunFolder") -> dict[str, str]:
    """What a run has left out since its start: as it was then, whether or not it can be opened by now.

    Raises:
        CheckpointError: if its record is damaged.
    """
    if not run.videos.is_file():
        return {}
    found = _read(run.videos)
    train = found.get("train")
    return _checked(train.get("left_out", {}) if isinstance(train, Mapping) else {}, run.videos)


def left_out_in(file: Path, videos: VideoList) -> dict[str, str] | None:
    """What a study of these videos has left out since its start; None where it has no record of them.

    Raises:
        CheckpointError: if its record is damaged.
    """
    if not file.is_file():
        return None
    found = _read(file)
    return _checked(found.get("left_out"), file) if found.get("source") == str(videos.source) else None


def record_left_out(file: Path, videos: VideoList) -> None:
    """Write down for a study which of its videos are left out.

    Raises:
        VcycleError: if it cannot be written.
    """
    from vcycle.train.run import write_small

    data = {"source": str(videos.source), "left_out": dict(videos.dead)}
    write_small(file, json.dumps(data, indent=1) + "\n")


def _read(file: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from None
    return found if isinstance(found, Mapping) else {}


def _checked(found: object, file: Path) -> dict[str, str]:
    if not isinstance(found, Mapping) or not all(isinstance(text, str) for text in found.values()):
        raise CheckpointError(f"{file} is damaged: left_out is no object of paths and causes")
    return dict(found)
