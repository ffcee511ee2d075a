"""Frames of a video file, exactly and cheaply: a file is indexed once, then only what a clip needs decoded.

Frames are numbered as a full decode in order gives them. Where packets are frames one to one and their times are those
shown, a frame is known by its time and only the packets that the wanted frames depend on are fed to the decoder. Where
they may not be (AVI, MPEG transport and program streams, raw streams, fields coded apart), the file is decoded once to
index it, and from its start to read it.
"""

from vcycle.data.video.container import VideoError
from vcycle.data.video.frames import Decoded, every_frame, read_frames
from vcycle.data.video.index import VideoIndex, probe

__all__ = ["Decoded", "VideoError", "VideoIndex", "every_frame", "probe", "read_frames"]
