"""Dataset layouts on disk; each module shows the folder tree that it expects.

Finding the files of a dataset needs neither torch nor a decoder.
"""

from vcycle.data.layouts.charades import read_charades
from vcycle.data.layouts.files import VIDEO_SUFFIXES
from vcycle.data.layouts.find import LAYOUTS, layout_of, read_videos, splits_of
from vcycle.data.layouts.folder import read_folder
from vcycle.data.layouts.folds import read_hmdb51, read_ucf101
from vcycle.data.layouts.kinetics import read_kinetics
from vcycle.data.layouts.layout import Layout
from vcycle.data.layouts.lists import read_list
from vcycle.data.layouts.splits import SPLITS
from vcycle.data.layouts.ssv2 import read_ssv2
from vcycle.data.layouts.videos import Strings, VideoList

__all__ = [
    "LAYOUTS",
    "SPLITS",
    "VIDEO_SUFFIXES",
    "Layout",
    "Strings",
    "VideoList",
    "layout_of",
    "read_charades",
    "read_folder",
    "read_hmdb51",
    "read_kinetics",
    "read_list",
    "read_ssv2",
    "read_ucf101",
    "read_videos",
    "splits_of",
]
