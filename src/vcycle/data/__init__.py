"""Data: the sample stream, sampling grids, decoding and the loader.

Names are imported on first use, so that finding a dataset's files (``vcycle.data.layouts``) needs neither torch nor a
decoder.
"""

from typing import TYPE_CHECKING

from vcycle.utils.lazy import lazy_names

if TYPE_CHECKING:
    from vcycle.data.augment import ClipAugment as ClipAugment
    from vcycle.data.augment import ClipErasing as ClipErasing
    from vcycle.data.augment import ClipJitter as ClipJitter
    from vcycle.data.balance import Balance as Balance
    from vcycle.data.batch import Batch as Batch
    from vcycle.data.cache import FrameCache as FrameCache
    from vcycle.data.dataset import Replacement as Replacement
    from vcycle.data.dataset import Sample as Sample
    from vcycle.data.dataset import VideoDataset as VideoDataset
    from vcycle.data.evaluating import evaluation_loader as evaluation_loader
    from vcycle.data.following import follow as follow
    from vcycle.data.grids import Grid as Grid
    from vcycle.data.grids import GridSampler as GridSampler
    from vcycle.data.images import ImageSource as ImageSource
    from vcycle.data.info import VideoInfo as VideoInfo
    from vcycle.data.layouts import VideoList as VideoList
    from vcycle.data.layouts import layout_of as layout_of
    from vcycle.data.layouts import read_folder as read_folder
    from vcycle.data.layouts import read_list as read_list
    from vcycle.data.layouts import read_videos as read_videos
    from vcycle.data.layouts import splits_of as splits_of
    from vcycle.data.loading import Loader as Loader
    from vcycle.data.loading import PlanLoader as PlanLoader
    from vcycle.data.loading import Steps as Steps
    from vcycle.data.loading import loader as loader
    from vcycle.data.loading import steps as steps
    from vcycle.data.pool.batches import Batches as Batches
    from vcycle.data.prepare.check import CheckReport as CheckReport
    from vcycle.data.prepare.check import check_prepared as check_prepared
    from vcycle.data.prepare.check import check_videos as check_videos
    from vcycle.data.prepare.index import PreparedIndex as PreparedIndex
    from vcycle.data.prepare.index import load_index as load_index
    from vcycle.data.prepare.names import is_prepared as is_prepared
    from vcycle.data.prepare.run import Preparation as Preparation
    from vcycle.data.prepare.run import PrepareReport as PrepareReport
    from vcycle.data.prepare.run import prepare_videos as prepare_videos
    from vcycle.data.prepare.settings import PrepareSettings as PrepareSettings
    from vcycle.data.prepare.source import PreparedSource as PreparedSource
    from vcycle.data.request import SampleRequest as SampleRequest
    from vcycle.data.resampled import ResampledDataset as ResampledDataset
    from vcycle.data.sampler import PlanBatchSampler as PlanBatchSampler
    from vcycle.data.source import FileSource as FileSource
    from vcycle.data.source import Frames as Frames
    from vcycle.data.source import FrameSource as FrameSource
    from vcycle.data.source import resample as resample
    from vcycle.data.stream import SampleStream as SampleStream
    from vcycle.data.video import VideoError as VideoError
    from vcycle.data.video import VideoIndex as VideoIndex
    from vcycle.data.video import probe as probe
    from vcycle.data.video import read_frames as read_frames
    from vcycle.data.video.kept import KeptIndexes as KeptIndexes
    from vcycle.data.views import Views as Views

_MODULES = {
    "Balance": ".balance",
    "Batch": ".batch",
    "Batches": ".pool.batches",
    "CheckReport": ".prepare.check",
    "ClipAugment": ".augment",
    "ClipErasing": ".augment",
    "ClipJitter": ".augment",
    "FileSource": ".source",
    "FrameCache": ".cache",
    "FrameSource": ".source",
    "Frames": ".source",
    "Grid": ".grids",
    "GridSampler": ".grids",
    "ImageSource": ".images",
    "KeptIndexes": ".video.kept",
    "Loader": ".loading",
    "PlanBatchSampler": ".sampler",
    "PlanLoader": ".loading",
    "Preparation": ".prepare.run",
    "PrepareReport": ".prepare.run",
    "PrepareSettings": ".prepare.settings",
    "PreparedIndex": ".prepare.index",
    "PreparedSource": ".prepare.source",
    "Replacement": ".dataset",
    "ResampledDataset": ".resampled",
    "Sample": ".dataset",
    "SampleRequest": ".request",
    "SampleStream": ".stream",
    "Steps": ".loading",
    "VideoDataset": ".dataset",
    "VideoError": ".video",
    "VideoIndex": ".video",
    "VideoInfo": ".info",
    "VideoList": ".layouts",
    "Views": ".views",
    "check_prepared": ".prepare.check",
    "check_videos": ".prepare.check",
    "evaluation_loader": ".evaluating",
    "follow": ".following",
    "is_prepared": ".prepare.names",
    "layout_of": ".layouts",
    "load_index": ".prepare.index",
    "loader": ".loading",
    "prepare_videos": ".prepare.run",
    "probe": ".video",
    "read_folder": ".layouts",
    "read_frames": ".video",
    "read_list": ".layouts",
    "read_videos": ".layouts",
    "resample": ".source",
    "splits_of": ".layouts",
    "steps": ".loading",
}

__all__ = sorted(_MODULES)
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
