"""Super-resolution: ×4 upscaling of every frame of a clip (Lin et al. 2022).

Names are imported on first use, so that planning does not import torch.
"""

from typing import TYPE_CHECKING

from vcycle.utils.lazy import lazy_names

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
    "charbonnier": ".loss",
    **dict.fromkeys(("Measured", "Measuring", "Quality", "quality_of", "restore_each"), ".measuring"),
    **dict.fromkeys(
        ("ClipQuality", "Protocol", "clip_quality", "mean_quality", "psnr", "ssim", "to_uint8"), ".metrics"
    ),
    "Restoration": ".objective",
    "check_clips": ".pairs.check",
    **dict.fromkeys(("PairedDataset", "mirror"), ".pairs.dataset"),
    **dict.fromkeys(("Degradation", "imresize"), ".pairs.degrade"),
    **dict.fromkeys(("ClipPairs", "read_pairs", "read_reds", "read_vid4", "read_vimeo90k"), ".pairs.layouts"),
    **dict.fromkeys(("prepare_frames", "write_store"), ".pairs.prepare"),
    "TileStore": ".pairs.store",
    **dict.fromkeys(("SyntheticClips", "SyntheticPairs"), ".pairs.synthetic"),
}

__all__ = sorted(_MODULES)
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
