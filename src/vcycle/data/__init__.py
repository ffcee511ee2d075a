"""Data: the sample stream, sampling grids, decoding and the loader.

Names are loaded when first used, so that finding a dataset's files (``vcycle.data.layouts``) needs neither
torch nor a decoder.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vcycle.data.cache import FrameCache as FrameCache
    from vcycle.data.dataset import Replacement as Replacement
    from vcycle.data.dataset import ResampledDataset as ResampledDataset
    from vcycle.data.dataset import Sample as Sample
    from vcycle.data.dataset import VideoDataset as VideoDataset
    from vcycle.data.grids import Grid as Grid
    from vcycle.data.grids import GridSampler as GridSampler
    from vcycle.data.info import VideoInfo as VideoInfo
    from vcycle.data.layouts import VideoList as VideoList
    from vcycle.data.layouts import read_folder as read_folder
    from vcycle.data.layouts import read_list as read_list
    from vcycle.data.layouts import read_videos as read_videos
    from vcycle.data.loading import Batch as Batch
    from vcycle.data.loading import evaluation_loader as evaluation_loader
    from vcycle.data.loading import loader as loader
    from vcycle.data.request import SampleRequest as SampleRequest
    from vcycle.data.sampler import PlanBatchSampler as PlanBatchSampler
    from vcycle.data.sampler import rank_slice as rank_slice
    from vcycle.data.source import FileSource as FileSource
    from vcycle.data.source import FrameSource as FrameSource
    from vcycle.data.stream import SampleStream as SampleStream
    from vcycle.data.video import VideoError as VideoError
    from vcycle.data.video import VideoIndex as VideoIndex
    from vcycle.data.video import probe as probe
    from vcycle.data.video import read_frames as read_frames

_MODULES = {
    "Batch": "loading",
    "FileSource": "source",
    "FrameCache": "cache",
    "FrameSource": "source",
    "Grid": "grids",
    "GridSampler": "grids",
    "PlanBatchSampler": "sampler",
    "Replacement": "dataset",
    "ResampledDataset": "dataset",
    "Sample": "dataset",
    "SampleRequest": "request",
    "SampleStream": "stream",
    "VideoDataset": "dataset",
    "VideoError": "video",
    "VideoIndex": "video",
    "VideoInfo": "info",
    "VideoList": "layouts",
    "evaluation_loader": "loading",
    "loader": "loading",
    "probe": "video",
    "rank_slice": "sampler",
    "read_folder": "layouts",
    "read_frames": "video",
    "read_list": "layouts",
    "read_videos": "layouts",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
