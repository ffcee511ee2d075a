"""Defines the super-resolution task: ×4 upscaling of every frame of a clip (Lin et al. 2022)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vcycle.console.datasets import refuse
from vcycle.plan import Baseline, Plan
from vcycle.tasks.base import CheckOptions, Demo, Evaluator, Measure, Preparer, Progress, Scope, Splits, Task
from vcycle.tasks.details import Detail
from vcycle.tasks.reference import Reference
from vcycle.tasks.superres import plans
from vcycle.tasks.superres.layouts import LAYOUTS
from vcycle.tasks.superres.models import MODELS
from vcycle.tasks.superres.recipe import SuperresRecipe
from vcycle.tasks.superres.scale import SCALE

if TYPE_CHECKING:
    from torch import Tensor, nn

    from vcycle.data import CheckReport
    from vcycle.nn.weights.files import Weights
    from vcycle.tasks.loaded_model import LoadedModel
    from vcycle.tasks.prediction import UpscaleOptions, VideoInput
    from vcycle.tasks.superres.measuring import Quality
    from vcycle.tasks.superres.objective import Restoration
    from vcycle.tasks.superres.pairs.layouts import ClipPairs
    from vcycle.train.log import Watched

__all__ = ["SUPERRESOLUTION", "SuperresTask"]


def _make_photographs(folder: Path, progress: Progress) -> Sequence[str]:
    """Generate clips of photographs under a moving camera, and prepare their tiles."""
    from vcycle.console.output import message
    from vcycle.data.layouts.splits import SPLITS
    from vcycle.tasks.superres.pairs.photographs import render_photographs
    from vcycle.tasks.superres.pairs.prepare import prepare_frames
    from vcycle.tasks.superres.pairs.store import is_store

    clips, tiles = folder / "photographs", folder / "tiles"
    render_photographs(clips, progress=lambda *done: progress("making clips", *done))
    for split in SPLITS:
        if not is_store(tiles / split):
            prepare_frames(clips / split, tiles / split, progress=lambda *done: progress("preparing", *done))
    message(f"clips: {clips}, tiles for training: {tiles}")
    return [f"data.path={tiles}"]


def _draw_crops(runs: Mapping[str, Path], folder: Path) -> None:
    """Draw one region as restored by each model, as `restored.png`."""
    from vcycle.console.figures import save_figure
    from vcycle.tasks.superres.figures import restored_crops, restored_figure

    named = {words: runs[plan] for plan, words in _SHOWN.items() if plan in runs}
    if named:
        save_figure(restored_figure(restored_crops(named)), folder / "restored.png")


_SHOWN = {"constant": "constant shape", "hierarchical": "hierarchical"}
"""Plans in the demo's figure, with their labels."""


class SuperresTask(Task[SuperresRecipe, "ClipPairs"]):
    """Super-resolution on pairs of clips at two resolutions, with a scale factor of 4."""

    name = "superresolution"
    recipe = SuperresRecipe
    recipes = "vcycle.tasks.superres.recipes"
    plans = plans.PLANS
    models = MODELS
    layouts = LAYOUTS
    compared = ("constant", "hierarchical")
    measures = (
        Measure(
            name="PSNR",
            key="psnr",
            words="PSNR",
            unit="dB",
            points="dB",
            scale=1.0,
            digits=2,
            margin=0.05,
            samples="clips",
            reference="bicubic",
            reference_key="bicubic_psnr",
        ),
    )
    commands: ClassVar[Mapping[str, str]] = {"upscale": "vcycle.tasks.superres.commands:upscale"}
    preparers: ClassVar[Mapping[str, Preparer]] = {
        "tiles": Preparer(
            about="tiles for super-resolution", function="vcycle.tasks.superres.prepare_tiles:prepare_tiles"
        )
    }
    importers: ClassVar[Mapping[str, str]] = {"BasicSR": "vcycle.tasks.superres.importing:BASICSR"}
    demo = Demo(
        recipe="demo/superresolution",
        plans=("constant", "control:hierarchical", "hierarchical"),
        about="photographs under a moving camera, enlarged four times",
        folder="vcycle-demo-superresolution",
        seeds=1,
        make=_make_photographs,
        draw=_draw_crops,
    )
    scale = SCALE
    free_keys = ("data.layout", "data.low")

    def find(self, recipe: SuperresRecipe, work: Path, progress: Progress = lambda *_: None) -> "Splits[ClipPairs]":
        """Find the recipe's clips."""
        from vcycle.tasks.superres.data import find_clips

        return find_clips(recipe)

    def baseline(self, recipe: SuperresRecipe, samples: int | None) -> Baseline:
        """The recipe's baseline of constant shape, with the larger minibatch."""
        return plans.baseline_of(recipe, samples)

    def plan(self, recipe: SuperresRecipe, samples: int | None = None, name: str | None = None) -> Plan:
        """The plan of that name, with mirrored clips if `sampling.mirrored` is set."""
        return replace(super().plan(recipe, samples, name), mirrored=recipe.sampling.mirrored)

    def check_plan(self, recipe: SuperresRecipe, plan: Plan) -> None:
        """Check a plan against the model's shape constraints."""
        plans.check_plan(recipe, plan)

    def length(self, recipe: SuperresRecipe) -> int | None:
        """Samples per epoch if the recipe states them, else None."""
        return recipe.data.epoch

    def check(self, recipe: SuperresRecipe, splits: "Splits[ClipPairs]", *, fresh: bool) -> list[str]:
        """Refuse clips that are in two splits, and frozen parts without pretrained weights."""
        from vcycle.tasks.superres.data import refuse_shared
        from vcycle.tasks.superres.notices import check_clips

        refuse_shared(splits)
        return [f"warning: {note}" for note in check_clips(recipe, splits)] if fresh else []

    def describe(self, recipe: SuperresRecipe, splits: "Splits[ClipPairs]") -> str:
        """The number and sizes of the clips."""
        from vcycle.tasks.superres.notices import described

        return f"{len(splits.train):,} training clips, {described(splits.train)}; {len(splits.val):,} validation clips"

    def notices(self, recipe: SuperresRecipe, splits: "Splits[ClipPairs]", plan: Plan | None) -> list[str]:
        """Warnings about low-resolution frames of another degradation, and parts that stay frozen."""
        from vcycle.tasks.superres.notices import notices

        return [*(f"warning: {note}" for note in notices(splits)), *super().notices(recipe, splits, plan)]

    def plan_notices(self, recipe: SuperresRecipe, plan: Plan, samples: int | None) -> list[str]:
        """Warnings about parts that stay frozen."""
        return [f"warning: {note}" for note in plans.never_learning(recipe, plan)]

    def reference(self, recipe: SuperresRecipe, found: "ClipPairs", measured: float | None) -> Reference | None:
        """The PSNR of bicubic interpolation."""
        if measured is None:
            return None
        return Reference(
            name="bicubic",
            value=measured,
            words="interpolation, without a network",
            advice="train for more steps (for a short training, set training.epsilon=0.03)",
        )

    def owns(self, folder: Path) -> bool:
        """Whether a folder, or a split's folder in it, is a tile store."""
        from vcycle.tasks.superres.pairs.journal import stores_in

        return bool(stores_in(folder))

    def check_files(
        self,
        recipe: SuperresRecipe | None,
        options: CheckOptions,
        progress: Progress,
        on_message: Callable[[str], None],
    ) -> "tuple[CheckReport, str]":
        """Check clips or tile stores."""
        from vcycle.tasks.superres.notices import check_every

        of_videos = {"--quick": options.quick, "--timeout": options.timeout, "--workers": options.workers}
        refuse("applies to videos only; this data is clips for super-resolution", of_videos)
        return check_every(recipe, options, progress), "clip"

    def dataset(
        self,
        recipe: SuperresRecipe,
        splits: "Splits[ClipPairs]",
        split: str,
        work: Path,
        progress: Progress = lambda *_: None,
    ) -> Any:
        """A `PairedDataset` of a split."""
        from vcycle.tasks.superres.pairs.dataset import PairedDataset

        sampling = recipe.sampling
        return PairedDataset(
            splits[split], mirrored=sampling.mirrored, flip=sampling.flip, transpose=sampling.transpose
        )

    def details(self, evaluation: Mapping[str, Any]) -> Sequence[Detail]:
        """A table of the clips, those that gain least over bicubic interpolation first."""
        rows = [["clip", "PSNR (dB)", "bicubic (dB)", "gain (dB)", "SSIM"]]
        known = []
        for clip in evaluation.get("clips", ()):
            values = [clip["psnr"], clip["bicubic_psnr"]]
            gain = None if None in values else values[0] - values[1]
            cells = ["–" if value is None else f"{value:.2f}" for value in values]
            cells += ["–" if gain is None else f"{gain:+.2f}", f"{clip['ssim']:.4f}"]
            known.append((float("inf") if gain is None else gain, [str(clip["clip"]), *cells]))
        rows += [cells for _, cells in sorted(known, key=lambda pair: pair[0])]
        return [Detail(title="Clips", rows=rows)] if known else []

    def build_model(self, recipe: SuperresRecipe, classes: int, *, download: bool = True) -> "nn.Module":
        """The recipe's model."""
        from vcycle.tasks.superres.init_weights import build_model

        return build_model(recipe)

    def objective(self, recipe: SuperresRecipe, classes: int) -> "Restoration":
        """The Charbonnier loss."""
        from vcycle.tasks.superres.objective import Restoration

        return Restoration(mirrored=recipe.sampling.mirrored, epsilon=recipe.training.epsilon)

    def evaluator(self, recipe: SuperresRecipe, dataset: Any, classes: Sequence[str], *, scope: Scope) -> Evaluator:
        """PSNR and SSIM of whole clips."""
        from vcycle.tasks.superres.evaluate import ClipEvaluator

        return ClipEvaluator(recipe, dataset, scope=scope)

    def result(self, **fields: Any) -> "Quality":
        """An evaluation from its fields."""
        from vcycle.tasks.superres.measuring import Quality

        return Quality(**fields)

    def upscale(
        self,
        loaded: "LoadedModel",
        video: "VideoInput",
        out: Path | None,
        options: "UpscaleOptions",
    ) -> "Tensor | None":
        """Every frame of a video, four times as large."""
        from vcycle.tasks.superres.upscaling import upscale

        return upscale(loaded, video, out, options)

    def load_weights(self, model: "nn.Module", weights: "Weights", recipe: SuperresRecipe) -> None:
        """Load weights with the parameter names of vcycle, BasicSR or mmagic."""
        from vcycle.tasks.superres.init_weights import load_trained

        load_trained(model, weights, recipe)

    def init_weights(
        self,
        model: "nn.Module",
        recipe: SuperresRecipe,
        classes: Sequence[str],
        on_message: Callable[[str], None] = lambda _: None,
    ) -> bool:
        """Load a flow network, or a whole model."""
        from vcycle.tasks.superres.init_weights import initialise

        return initialise(model, recipe, on_message)

    def role_of(self, recipe: SuperresRecipe) -> Callable[[str], str | None]:
        """Maps parameters to the flow network, or to the backbone below EDVR's fusion: parts with their own LR."""
        return MODELS.find(recipe.model.name).role_of(plans.baseline_of(recipe, 1).roles)

    def monitor(self, model: "nn.Module") -> "Watched | None":
        """The largest offset of deformable convolutions; beyond tens of pixels they have diverged, as EDVR's may."""
        import torch

        from vcycle.tasks.superres.models.deform import OFFSET_LIMIT, offset_magnitude
        from vcycle.train.log import Watched

        found = offset_magnitude(model)
        if not found:
            return None
        return Watched(
            name="offsets",
            value=torch.stack(list(found.values())).max(),
            limit=OFFSET_LIMIT,
            remedy="the offsets of deformable convolutions have diverged and do not recover: lower training.lr or "
            "lengthen training.warmup, and start another run, from scratch or from an earlier checkpoint "
            "(init=RUN/checkpoints/FILE)",
        )

    def flop_counts(self) -> Mapping[Any, Callable[..., int]]:
        """FLOPs of deformable convolutions."""
        from vcycle.tasks.superres.models.deform import deform_flops

        return deform_flops()


SUPERRESOLUTION = SuperresTask()
