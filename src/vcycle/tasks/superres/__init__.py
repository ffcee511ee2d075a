"""Super-resolution: ×4 upscaling of every frame of a clip (Lin et al. 2022).

Names are imported on first use, so that planning does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vcycle.tasks.superres.loss import charbonnier as charbonnier
    from vcycle.tasks.superres.measuring import Measured as Measured
    from vcycle.tasks.superres.measuring import Measuring as Measuring
    from vcycle.tasks.superres.measuring import Quality as Quality
    from vcycle.tasks.superres.measuring import quality_of as quality_of
    from vcycle.tasks.superres.measuring import restore_each as restore_each
    from vcycle.tasks.superres.metrics import ClipQuality as ClipQuality
    from vcycle.tasks.superres.metrics import Protocol as Protocol
    from vcycle.tasks.superres.metrics import clip_quality as clip_quality
    from vcycle.tasks.superres.metrics import mean_quality as mean_quality
    from vcycle.tasks.superres.metrics import psnr as psnr
    from vcycle.tasks.superres.metrics import ssim as ssim
    from vcycle.tasks.superres.metrics import to_uint8 as to_uint8
    from vcycle.tasks.superres.objective import Restoration as Restoration
    from vcycle.tasks.superres.pairs.check import check_clips as check_clips
    from vcycle.tasks.superres.pairs.dataset import PairedDataset as PairedDataset
    from vcycle.tasks.superres.pairs.dataset import mirror as mirror
    from vcycle.tasks.superres.pairs.degrade import Degradation as Degradation
    from vcycle.tasks.superres.pairs.degrade import imresize as imresize
    from vcycle.tasks.superres.pairs.layouts import ClipPairs as ClipPairs
    from vcycle.tasks.superres.pairs.layouts import read_pairs as read_pairs
    from vcycle.tasks.superres.pairs.layouts import read_reds as read_reds
    from vcycle.tasks.superres.pairs.layouts import read_vid4 as read_vid4
    from vcycle.tasks.superres.pairs.layouts import read_vimeo90k as read_vimeo90k
    from vcycle.tasks.superres.pairs.prepare import prepare_frames as prepare_frames
    from vcycle.tasks.superres.pairs.prepare import write_store as write_store
    from vcycle.tasks.superres.pairs.store import TileStore as TileStore
    from vcycle.tasks.superres.pairs.synthetic import SyntheticClips as SyntheticClips
    from vcycle.tasks.superres.pairs.synthetic import SyntheticPairs as SyntheticPairs

_MODULES = {
    "ClipPairs": "pairs.layouts",
    "ClipQuality": "metrics",
    "Degradation": "pairs.degrade",
    "Measured": "measuring",
    "Measuring": "measuring",
    "PairedDataset": "pairs.dataset",
    "Protocol": "metrics",
    "Quality": "measuring",
    "Restoration": "objective",
    "SyntheticClips": "pairs.synthetic",
    "SyntheticPairs": "pairs.synthetic",
    "TileStore": "pairs.store",
    "charbonnier": "loss",
    "check_clips": "pairs.check",
    "clip_quality": "metrics",
    "imresize": "pairs.degrade",
    "mean_quality": "metrics",
    "mirror": "pairs.dataset",
    "prepare_frames": "pairs.prepare",
    "psnr": "metrics",
    "quality_of": "measuring",
    "read_pairs": "pairs.layouts",
    "read_reds": "pairs.layouts",
    "read_vid4": "pairs.layouts",
    "read_vimeo90k": "pairs.layouts",
    "restore_each": "measuring",
    "ssim": "metrics",
    "to_uint8": "metrics",
    "write_store": "pairs.prepare",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
