"""Whether a recipe of super-resolution can be trained on its clips, and what should be known of them before."""

import math
import time
from pathlib import Path

from vcycle.data import CheckReport
from vcycle.data.video import VideoError
from vcycle.errors import DataError, RecipeError
from vcycle.plan import Plan
from vcycle.tasks.base import SPLITS, Progress, Splits
from vcycle.tasks.superres.data import every_clip
from vcycle.tasks.superres.metrics import SMALLEST
from vcycle.tasks.superres.pairs.check import SAME_DEGRADATION, agreement, survey
from vcycle.tasks.superres.pairs.check import check_clips as read_clips
from vcycle.tasks.superres.pairs.clips import ClipInfo
from vcycle.tasks.superres.pairs.journal import stores_in
from vcycle.tasks.superres.pairs.layouts import ClipPairs, read_pairs
from vcycle.tasks.superres.plans import raw_frames
from vcycle.tasks.superres.recipe import SuperresRecipe

__all__ = ["check_clips", "check_every", "described", "never_learning", "notices"]


def check_clips(recipe: SuperresRecipe, splits: Splits[ClipPairs]) -> list[str]:
    """Check that the recipe's training can take its clips, and begins with what it needs.

    Returns:
        What a user should know: clips that will be replaced by others.

    Raises:
        RecipeError: if what is frozen at first has no weights.
        DataError: if a validation clip is too small to be measured, or more of the clips than the recipe allows cannot
            be read, or are too short or small: it would show when training comes to the full shape.
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
        raise DataError(f"{told}: of {len(found):,} clips, run.bad_limit={recipe.run.bad_limit:g} allows fewer")
    return [f"{told}: others take their places"]


def check_every(recipe: SuperresRecipe | None, folder: Path, progress: Progress) -> CheckReport:
    """Read every clip of a recipe's data, or of the stores of tiles in a folder.

    Raises:
        DataError: if a store is not finished.
    """
    stores = stores_in(folder) if recipe is None else []
    splits = {str(store): read_pairs(store) for store in stores} if recipe is None else every_clip(recipe)
    bad: dict[str, str] = {}
    started, clips = time.monotonic(), 0
    for pairs in splits.values():
        bad |= {fault.path: fault.cause for fault in read_clips(pairs, lambda *done: progress("checking", *done))}
        clips += len(pairs)
    return CheckReport(videos=clips, bad=bad, damaged={}, seconds=time.monotonic() - started)


def never_learning(recipe: SuperresRecipe, plan: Plan) -> list[str]:
    """What a user should know: parts of the network that are frozen for all of a plan of the recipe."""
    return [
        f"training.{name}.frozen_steps={getattr(recipe.training, name).frozen_steps} lasts for all {len(plan):,} steps "
        f"of plan {plan.name}: what it freezes never learns"
        for name, role in plan.baseline.roles.items()
        if role.frozen_until * plan.baseline.batch >= plan.samples
    ]


def _refuse_frozen(recipe: SuperresRecipe) -> None:
    training = recipe.training
    if not recipe.init.needed or recipe.init.path is not None:
        return
    for name, section, what, whose in (
        ("flow", training.flow, "a flow network", "SpyNet's or a whole network's"),
        ("backbone", training.backbone, "all but the fusion of a network", "those of an EDVR without attention"),
    ):
        if section is not None and section.frozen_steps:
            raise RecipeError(
                f"training.{name}.frozen_steps={section.frozen_steps} freezes {what} that has no weights: give "
                f"{whose} with init=FILE; training.{name}.frozen_steps=0 trains it from the first step, and "
                "init.needed=false freezes it as it is drawn"
            )


def _refuse_unmeasurable(recipe: SuperresRecipe, val: ClipPairs) -> None:
    needed = SMALLEST + 2 * recipe.evaluation.crop
    for item, info in survey(val).items():
        if isinstance(info, ClipInfo) and min(info.height, info.width) < needed:
            raise DataError(
                f"{val.high.path(item)} is {info.width} × {info.height}, and SSIM with "
                f"evaluation.crop={recipe.evaluation.crop} needs {needed} pixels a side"
            )


def _unfit(recipe: SuperresRecipe, pairs: ClipPairs, item: int, info: ClipInfo | VideoError) -> str | None:
    """Why the full shape cannot be taken from a clip; None where it can."""
    if isinstance(info, VideoError):
        return str(info)
    frames, size, scale = raw_frames(recipe), recipe.training.size, pairs.degradation.scale
    if info.frames >= frames and min(pairs.degradation.low((info.height, info.width))) >= size:
        return None
    return (
        f"{pairs.high.path(item)} has {info.frames} frames of {info.width} × {info.height}, and "
        f"training.frames={recipe.training.frames}, training.size={size} take {frames} of {size * scale} × "
        f"{size * scale}"
    )


def described(pairs: ClipPairs) -> str:
    """How long and large clips are, in words; where they differ, the first of the smallest and of the largest kind."""
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
    """What a user should know: low-resolution frames that were made otherwise than is said."""
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
                    f"{split}: the low-resolution frames of {pairs.low.path(item)} are not those that "
                    f"{pairs.degradation.kind} makes of {pairs.high.path(item)} (PSNR {found:.1f} dB): another "
                    "degradation, or another clip"
                )
                break
    return said
