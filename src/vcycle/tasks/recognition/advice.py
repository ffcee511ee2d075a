"""What to run after `vcycle check` of videos. Imports no torch."""

import re
from typing import TYPE_CHECKING

from vcycle.data.locations import Url
from vcycle.data.prepare.settings import short_side_for
from vcycle.tasks.base import CheckOptions
from vcycle.tasks.next_steps import command, plan_steps, prepared_folder
from vcycle.tasks.recognition.recipe import RecognitionRecipe

if TYPE_CHECKING:
    from vcycle.data.prepare.summary import NextStep, Summary

__all__ = ["next_steps"]

_FAR = 2.0
"""Seconds between key frames above which decoding most clips is mostly decoding what is not shown."""
_LARGE = 1.5
"""Short sides above this many times what a recipe needs are large."""
_MANY = 20_000
"""Number of videos from which a large network learns from scratch."""
_FEW = 50
"""Videos of the smallest class below which trained weights are worth a word."""
_PICTURES = re.compile(r"\.(?:jpe?g|png|webp|bmp)\b")
"""Suffixes of frames in the reasons for which files are ignored."""
_OF_LAYOUT = {
    "kinetics": "kinetics/slowfast_8x8_r50",
    "ssv2": "ssv2/slowfast_16x8_r50",
    "charades": "charades/slowfast_16x8_r50",
}


def next_steps(summary: "Summary", recipe: RecognitionRecipe, layout: str, options: CheckOptions) -> "list[NextStep]":
    """Preparing the videos, if that pays, and planning with the recipe that fits them.

    Args:
        summary: The dataset in numbers.
        recipe: The recipe that the command has read the data by.
        layout: Layout of the dataset.
        options: The options of the check.
    """
    from vcycle.data.prepare.summary import NextStep

    name, why = _recipe_for(summary, layout, options)
    steps = []
    if recipe.data.frame_rate is None and any(_PICTURES.search(entry.why) for entry in summary.ignored):
        given = (str(options.folder), *options.overrides, "data.frame_rate=RATE")
        why_frames = "reads folders of pictures, now ignored, as videos"
        steps.append(NextStep(command=command("check", *given), why=why_frames))
    reasons = _slow(summary, recipe.training.size)
    if reasons:
        given = (str(options.folder), prepared_folder(options), "--recipe", name, *options.overrides)
        steps.append(
            NextStep(command=command("prepare", *given), why=f"{'; '.join(reasons)}: loads faster once prepared")
        )
    steps += plan_steps(name, options, why)
    if options.recipe is None and layout not in _OF_LAYOUT and not isinstance(options.folder, Url):
        few = summary.classes is not None and summary.classes.least < _FEW
        if few and next(iter(summary.splits.values())) < _MANY:
            given = ("videos/finetune", f"data={options.folder}", "init=FILE", *options.overrides)
            steps.append(
                NextStep(
                    command=command("train", *given),
                    why=f"the smallest class has fewer than {_FEW} videos: trained weights usually help most",
                )
            )
    return steps


def _recipe_for(summary: "Summary", layout: str, options: CheckOptions) -> tuple[str, str]:
    """The recipe to begin with, and why."""
    if options.recipe is not None:
        return options.recipe, "the plan of this recipe on the data, without training"
    if layout in _OF_LAYOUT:
        return _OF_LAYOUT[layout], f"the data has the layout of {layout}"
    videos = next(iter(summary.splits.values()))
    if videos >= _MANY:
        return _OF_LAYOUT["kinetics"], f"{videos:,} videos are enough for a large network from scratch"
    return "videos/small", f"a small network suits {videos:,} videos; shows its plan, without training"


def _slow(summary: "Summary", size: int) -> list[str]:
    """Why the files load slowly, in words; empty if they do not."""
    reasons = []
    far = summary.keyframe_seconds
    if far is not None and far.median > _FAR:
        reasons.append(f"key frames are up to {far.median:.1f} s apart, all of which a clip between them decodes")
    if summary.from_start:
        reasons.append(f"{summary.from_start:,} files can only be decoded from their start")
    needed = short_side_for(size)
    if summary.short_side > _LARGE * needed:
        reasons.append(f"a short side of {summary.short_side} pixels, where {needed} are needed")
    return reasons
