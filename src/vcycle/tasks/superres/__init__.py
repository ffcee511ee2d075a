"""Super-resolution: the loss of Lin et al. 2022, PSNR and SSIM as tables of the field have them, clips measured."""

from vcycle.tasks.superres.evaluation import Measured, Measuring, Quality, quality_of, restore_each
from vcycle.tasks.superres.loss import charbonnier
from vcycle.tasks.superres.metrics import ClipQuality, Protocol, clip_quality, mean_quality, psnr, ssim, to_uint8
from vcycle.tasks.superres.task import Restoration

__all__ = [
    "ClipQuality",
    "Measured",
    "Measuring",
    "Protocol",
    "Quality",
    "Restoration",
    "charbonnier",
    "clip_quality",
    "mean_quality",
    "psnr",
    "quality_of",
    "restore_each",
    "ssim",
    "to_uint8",
]
