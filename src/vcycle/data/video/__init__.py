"""Frames of a video file, exactly and cheaply: a file is indexed once, then only what a clip needs decoded.

Frames are numbered in the order they are shown. Where a container stores presentation times, a frame is known
by its time and only the packets that the wanted frames depend on are fed to the decoder; where it does not
(AVI, MPEG transport and program streams, raw streams), frames are counted from the start.
"""

from vcycle.data.video.container import VideoError
from vcycle.data.video.frames import Decoded, every_frame, read_frames
from vcycle.data.video.index import VideoIndex, probe

__all__ = ["Decoded", "VideoError", "VideoIndex", "every_frame", "probe", "read_frames"]
