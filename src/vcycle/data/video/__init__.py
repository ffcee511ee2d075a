"""Exact and efficient reading of video frames: a file is indexed once, then only what a clip needs is decoded.

Frames are numbered in the order of a full decode. If each packet is one frame and its time is the time shown, a frame
is identified by its time, and the decoder gets only the packets that the wanted frames depend on. If not (AVI, MPEG
transport and program streams, raw streams, separately coded fields), the file is decoded once to index it, and from
its start to read it.
"""

from vcycle.data.video.container import VideoError
from vcycle.data.video.frames import Decoded, every_frame, read_frames
from vcycle.data.video.index import VideoIndex, probe

__all__ = ["Decoded", "VideoError", "VideoIndex", "every_frame", "probe", "read_frames"]
