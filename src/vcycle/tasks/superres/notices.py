"""Checks the clips of a super-resolution recipe before training, and warns about unintended settings."""

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from vcycle.data import CheckReport
from vcycle.data.locations import local_path
from vcycle.data.prepare.summary import FileFacts, NextStep, Tally
from vcycle.data.stamp import stamp_of
from vcycle.data.video import VideoError
from vcycle.errors import DataError, RecipeError
from vcycle.tasks.base import SPLITS, CheckOptions, Progress, Splits
from vcycle.tasks.next_steps import command, prepared_folder
from vcycle.tasks.superres.data import every_clip
from vcycle.tasks.superres.metrics import SMALLEST
from vcycle.tasks.superres.pairs.check import SAME_DEGRADATION, agreement, survey
from vcycle.tasks.superres.pairs.check import check_clips as read_clips
from vcycle.tasks.superres.pairs.clips import ClipInfo
from vcycle.tasks.superres.pairs.journal import stores_in
from vcycle.tasks.superres.pairs.layouts import ClipPairs, read_pairs
from vcycle.tasks.superres.pairs.store import TiledClips
from vcycle.tasks.superres.plans import raw_frames
from vcycle.tasks.superres.recipe import SuperresRecipe

__all__ = ["check_clips", "check_every", "described", "notices"]


def check_clips(recipe: SuperresRecipe, splits: Splits[ClipPairs]) -> list[str]:
    """Check that the clips fit the recipe, and that frozen parts have pretrained weights.

    Returns:
        Notes for the user about clips that will be replaced by others.

    Raises:
        RecipeError: if a part that starts frozen has no weights.
        DataError: if a validation clip is too small for SSIM, or more clips than the recipe allows are unreadable, too
            short or too small. Otherwise training would only fail once it reaches the full shape.
    """
    _refuse_frozen(recipe)
    _refuse_unmeasurable(recipe, splits.val)
    found = survey(splits.train)
    faults = [fault for item, info in found.items() if (fault := _unfit(recipe, splits.train, item, info)) is not None]
    if not faults:
        return []
    told = f"{faults[0]} (and {len(faults) - 1} more such clips)" if faults[1:] else faults[0]
    if len(faults) == len(found):
        raise DataError(told)
    if len(faults) > recipe.run.bad_limit * len(found):
        share = math.ceil(100 * len(faults) / len(found)) / 100
        raise DataError(
            f"{told}: of {len(found):,} clips, run.bad_limit={recipe.run.bad_limit:g} allows fewer; set "
            f"run.bad_limit={share:g} to replace them by other clips"
        )
    return [f"{told}: replaced by other clips"]


def check_every(recipe: SuperresRecipe | None, options: CheckOptions, progress: Progress) -> CheckReport:
    """Read every clip of a recipe's data, or of the tile stores in a folder, and count them.

    Raises:
        DataError: if a store is incomplete.
    """
    folder = local_path(str(options.folder), "data")
    stores = stores_in(folder) if recipe is None else []
    splits = {store.name: read_pairs(store) for store in stores} if recipe is None else every_clip(recipe)
    bad: dict[str, str] = {}
    started, tally = time.monotonic(), Tally(splits={split: len(pairs) for split, pairs in splits.items()})
    for pairs in splits.values():
        bad |= {fault.path: fault.cause for fault in read_clips(pairs, lambda *done: progress("checking", *done))}
        for item in range(len(pairs)):
            tally.bytes += stamp_of(pairs.high.path(item)).size
            with suppress(VideoError):
                info = pairs.info(item)
                tally.add(FileFacts(info.frames, 0.0, info.height, info.width, "", 0.0))
    summary = replace(tally.summary(), item="clip", next=_next_steps(recipe, splits, options))
    return CheckReport(
        videos=sum(map(len, splits.values())), bad=bad, damaged={}, seconds=time.monotonic() - started, summary=summary
    )


def _next_steps(
    recipe: SuperresRecipe | None, splits: Mapping[str, ClipPairs], options: CheckOptions
) -> list[NextStep]:
    """Preparing clips that are not, and planning with the recipe."""
    name = options.recipe or "reds/basicvsr_m"
    why = "the plan of this recipe on the clips, without training"
    steps = [
        NextStep(command=command("plan", name, f"data={options.folder}", *options.overrides), why=why),
    ]
    if recipe is None or all(isinstance(pairs.high, TiledClips) for pairs in splits.values()):
        return steps
    given = ["--to", "tiles", "--degradation", recipe.data.degradation]
    into = command("prepare", str(options.folder), prepared_folder(options), *given)
    return [NextStep(command=into, why="a crop then reads its tiles alone, not whole frames"), *steps]


def _refuse_frozen(recipe: SuperresRecipe) -> None:
    training = recipe.training
    if not recipe.init.needed or recipe.init.path is not None:
        return
    for name, section, what, whose in (
        ("flow", training.flow, "a flow network", "those of SpyNet or of a whole model"),
        ("backbone", training.backbone, "all but the fusion of a model", "those of an EDVR without attention"),
    ):
        if section is not None and section.frozen_steps:
            raise RecipeError(
                f"training.{name}.frozen_steps={section.frozen_steps} freezes {what} without pretrained weights: give "
                f"{whose} with init=FILE; training.{name}.frozen_steps=0 trains it from the first step; "
                "init.needed=false freezes its random weights"
            )


def _refuse_unmeasurable(recipe: SuperresRecipe, val: ClipPairs) -> None:
    needed = SMALLEST + 2 * recipe.evaluation.crop
    for item, info in survey(val).items():
        if isinstance(info, ClipInfo) and min(info.height, info.width) < needed:
            raise DataError(
                f"{val.high.path(item)} is {info.width} × {info.height}, but SSIM with "
                f"evaluation.crop={recipe.evaluation.crop} needs {needed} pixels per side"
            )


def _unfit(recipe: SuperresRecipe, pairs: ClipPairs, item: int, info: ClipInfo | VideoError) -> str | None:
    """The reason why a clip does not fit the full shape; None if it fits."""
    if isinstance(info, VideoError):
        return str(info)
    frames, size, scale = raw_frames(recipe), recipe.training.size, pairs.degradation.scale
    if info.frames >= frames and min(pairs.degradation.low((info.height, info.width))) >= size:
        return None
    return (
        f"{pairs.high.path(item)} has {info.frames} frames of {info.width} × {info.height}, but "
        f"training.frames={recipe.training.frames}, training.size={size} need {frames} of {size * scale} × "
        f"{size * scale}"
    )


def described(pairs: ClipPairs) -> str:
    """Describe the length and size of clips; if they differ, the smallest and the largest kind with an example each."""
    infos = {item: info for item, info in survey(pairs).items() if isinstance(info, ClipInfo)}
    kinds = sorted({(i.frames, i.height, i.width) for i in infos.values()}, key=lambda kind: (math.prod(kind), kind))
    if not kinds:
        return "none of which can be read"
    ends = [f"{frames} frames of {width} × {height}" for frames, height, width in (kinds[0], kinds[-1])]
    if len(kinds) == 1:
        return ends[0]
    first = {(i.frames, i.height, i.width): item for item, i in reversed(infos.items())}
    names = [pairs.high.names[first[kind]] for kind in (kinds[0], kinds[-1])]
    return f"from {ends[0]} ({names[0]}) to {ends[1]} ({names[1]})"


def notices(splits: Splits[ClipPairs]) -> list[str]:
    """Warn about low-resolution frames that do not match the recipe's degradation."""
    said = []
    for split in SPLITS:
        if split not in splits or (pairs := splits[split]).low is None:
            continue
        for item in sorted({0, len(pairs) // 2, len(pairs) - 1}):
            try:
                found = agreement(pairs, item)
            except VideoError:
                continue
            if found < SAME_DEGRADATION:
                said.append(
                    f"{split}: the low-resolution frames of {pairs.low.path(item)} do not match "
                    f"{pairs.degradation.kind} of {pairs.high.path(item)} (PSNR {found:.1f} dB): another degradation, "
                    "or another clip"
                )
                break
    return said
