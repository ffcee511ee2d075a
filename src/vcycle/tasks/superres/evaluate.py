"""Evaluates super-resolution: restores whole clips, and measures PSNR and SSIM.

Validations during training use a few clips, spread over the validation split.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import asdict
from functools import cached_property
from math import isfinite
from typing import Any, ClassVar

import torch
from torch import nn

from vcycle.data import Replacement
from vcycle.plan import Shape, rank_slice
from vcycle.tasks.base import Evaluator, Scope
from vcycle.tasks.superres.measuring import Measured, Measuring, Quality, quality_of, restore_each
from vcycle.tasks.superres.metrics import Protocol
from vcycle.tasks.superres.pairs.check import low_resolution
from vcycle.tasks.superres.pairs.dataset import PairedDataset
from vcycle.tasks.superres.recipe import SuperresRecipe
from vcycle.train.outcome import EvalResult

__all__ = ["ClipEvaluator", "measuring_of"]


class ClipEvaluator(Evaluator):
    """Restores whole clips, and measures PSNR and SSIM against the ground truth."""

    doing: ClassVar[str] = "restoring frames"
    item: ClassVar[str] = "clip"

    def __init__(self, recipe: SuperresRecipe, dataset: PairedDataset, *, scope: Scope) -> None:
        """Create an evaluator of a dataset.

        Args:
            recipe: The recipe.
            dataset: The clips.
            scope: Only a validation uses a few clips, spread over the dataset.
        """
        super().__init__()
        self._dataset = dataset
        self._measuring = measuring_of(recipe)
        wanted = min(recipe.evaluation.validation_clips, len(dataset)) if scope == "validation" else len(dataset)
        self._clips = [place * len(dataset) // wanted for place in range(wanted)]
        self._bicubic: dict[int, float] = {}  # by clip; the same for every model

    def each(
        self,
        model: nn.Module,
        device: torch.device,
        *,
        rank: int = 0,
        world: int = 1,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> Iterator[Measured | Replacement]:
        """Restore and measure a rank's share of the clips; there may be more ranks than clips."""
        own = [self._clips[place] for place in rank_slice(len(self._clips), 1, rank, world)]
        yield from restore_each(
            model,
            self._dataset,
            own,
            device=device,
            measuring=self._measuring,
            bicubic=self._bicubic,
            shape=self.shape,
            progress=progress,
        )

    def at(self, shape: Shape) -> "ClipEvaluator":
        """An evaluator on the center of each clip, at this shape in low-resolution pixels."""
        other = copy(self)
        other.shape, other._bicubic = shape, {}
        return other

    def result(self, found: Sequence[Any]) -> Quality:
        """Mean PSNR and SSIM."""
        return quality_of(found, self._measuring)

    def line(self, result: EvalResult, split: str) -> str:
        """PSNR with that of bicubic interpolation, SSIM, the numbers of clips and frames, and the protocol."""
        assert isinstance(result, Quality)
        equal = f", {result.identical:,} of them equal to the ground truth" if result.identical else ""
        unread = f"; {result.unreadable} more cannot be read" if result.unreadable else ""
        return (
            f"{result.headline}, SSIM {result.ssim:.4f} on {result.samples:,} {split} clips "
            f"({result.frames:,} frames{equal}; {result.protocol}{unread}), low resolution {self._low}"
        )

    def warning(self, result: EvalResult) -> str | None:
        """A warning if the model is worse than bicubic interpolation."""
        return getattr(result, "warning", None)

    def per_item(self, found: Sequence[Any]) -> list[float | None] | None:
        """PSNR of each clip; None if a clip equals the ground truth: its PSNR is infinite and not in the mean."""
        ratios = [None if isinstance(clip, Replacement) else clip.quality.psnr for clip in found]
        return [ratio if ratio is not None and isfinite(ratio) else None for ratio in ratios]

    def conditions(self) -> dict[str, Any]:
        """The degradation of the low-resolution frames."""
        return {"low_resolution": self._low}

    def details(self, found: Sequence[Any]) -> dict[str, Any]:
        """One row per clip."""
        names = self._dataset.pairs.high.names
        rows = [
            {"clip": names[clip.clip], **asdict(clip.quality), "bicubic_psnr": clip.bicubic_psnr}
            for clip in found
            if not isinstance(clip, Replacement)
        ]
        return {"clips": rows}

    @cached_property
    def _low(self) -> str:
        return low_resolution(self._dataset.pairs)


def measuring_of(recipe: SuperresRecipe) -> Measuring:
    """How the recipe restores and measures clips."""
    e = recipe.evaluation
    return Measuring(
        protocol=Protocol(channels=e.channels, crop=e.crop, frames=e.frames),
        mirrored=recipe.sampling.mirrored,
        chunk=e.chunk,
        overlap=e.overlap,
        precision=recipe.run.precision,
    )
