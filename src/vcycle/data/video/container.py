"""Opening video files: container, packets and decoder. Every fault of a file raises ``VideoError``.

FFmpeg's log level is never set: with a callback installed, closing a file can deadlock on the interpreter lock. Each
decoder runs one thread: clips are decoded in parallel, not frames.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, cast

from vcycle.data.locations import Location, Url, location
from vcycle.data.stamp import Stamp, stamp_of_url
from vcycle.errors import DataError
from vcycle.utils.extras import NotInstalledError

try:
    import av
    from av.container import InputContainer
    from av.format import ContainerFormat
    from av.packet import Packet
    from av.stream import Discard, Disposition
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream
except ImportError as error:  # report a broken decoder once, at start, not once per video
    raise ImportError(f"PyAV, which decodes videos, cannot be imported ({error}): pip install av") from error

__all__ = [
    "Decoder",
    "InputContainer",
    "Packet",
    "VideoError",
    "VideoFrame",
    "VideoStream",
    "every_packet",
    "file_stamp",
    "open_input",
    "opened",
    "packets",
    "seek",
]

_BUFFER = 1 << 18  # bytes that FFmpeg asks of a URL's file at a time
_ANY_TAGS: dict[str, Any] = {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}
"""Arguments of `av.open` for tags in any encoding; PyAV 19 accepts them without."""
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_OUTSIDE = {
    "alias_pix",
    "avisynth",
    "brender_pix",
    "concat",
    "dash",
    "dvdvideo",
    "hls",
    "image2",
    "image2pipe",
    "imf",
    "lavfi",
    "mlv",
    "rtp",
    "rtsp",
    "sap",
    "sdp",
    "vapoursynth",
    "vobsub",
    "webm_dash_manifest",
}
"""FFmpeg formats whose content names other files, addresses or scripts to read."""
_LISTS = (
    (b"#EXTM3U", "an HLS playlist"),
    (b"ffconcat", "an ffconcat list"),
    (b"<MPD", "a DASH manifest"),
    (b"<CompositionPlaylist", "an IMF playlist"),
    (b"v=0", "an SDP description"),
    (b"# VobSub", "a VobSub index"),
    (b"MLVI", "a Magic Lantern recording, which may have more parts"),
)
_PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
_OF_TEXT = {"tty", "bin", "xbin", "adf", "idf"}
"""FFmpeg formats that render text as on a terminal: with them, any text file would be a video."""
# On opening a file, FFmpeg decodes some frames to learn what the header does not tell; for large pictures, that takes
# longer than a short clip. If not needed, it looks at a single packet and decodes nothing.
_NO_ANALYSIS = {"probesize": "32", "skip_frame": "all"}


class VideoError(DataError):
    """A video cannot be read. Holds its path and the cause."""

    def __init__(self, path: str, cause: str = "") -> None:
        """Create an error with a path and a cause; a single argument is the whole message."""
        printable = path.encode(errors="backslashreplace").decode()  # its encoding may not be UTF-8
        super().__init__(f"{printable}: {cause}" if cause else printable)
        self.path = path
        self.cause = cause

    def __reduce__(self) -> tuple[type[VideoError], tuple[str, str]]:
        """Pickle with both arguments."""
        return type(self), (self.path, self.cause)


def file_stamp(path: str) -> Stamp:
    """Return the stamp of a non-empty file, or of a URL.

    It is checked before opening: opening a pipe would block.

    Raises:
        VideoError: If the file is missing, not a regular file, or empty.
        NotInstalledError: If a package that opens the URL is missing.
    """
    place = location(path)
    try:
        if isinstance(place, Url):
            stamp, mode = stamp_of_url(place), stat.S_IFREG
        else:
            status = os.stat(place)
            stamp, mode = Stamp(status.st_size, status.st_mtime_ns), status.st_mode
    except NotInstalledError:  # no fault of the file
        raise
    except (OSError, ValueError) as error:
        raise VideoError(path, _cause(error)) from error
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "no file")
        raise VideoError(path, f"{kind}, not a video")
    if not stamp.size:
        raise VideoError(path, "an empty file")
    return stamp


@cache
def _accepted_formats() -> str:
    """Return the formats that FFmpeg may detect, as a list for its options."""
    names = set()
    for name in av.formats_available:
        try:
            names.add(ContainerFormat(name, "r").name)
        except ValueError:  # it is write-only
            continue
    return ",".join(sorted(names - _OUTSIDE))


@contextmanager
def open_input(path: str, demuxer: str | None = None) -> Iterator[InputContainer]:
    """Open a file, and nothing else: formats that name other files or addresses are refused before they are read.

    FFmpeg itself never uses the network: fsspec opens a URL, and FFmpeg reads its bytes.

    Args:
        path: The file or URL, already checked by ``file_stamp``.
        demuxer: Its format, if header and packets are known to suffice for decoding: the format is then not detected,
            and no packets are analysed for what the header does not tell.

    Raises:
        VideoError: If the file has such a format.
        FFmpegError: If it cannot be opened.
    """
    options = {"format_whitelist": _accepted_formats(), "protocol_whitelist": "file"}
    if demuxer is not None:
        options |= _NO_ANALYSIS
    place = location(path)
    with ExitStack() as stack:
        # With an explicit protocol, no file name is parsed as an address.
        source: Any = f"file:{place}"
        extra: dict[str, Any] = _ANY_TAGS
        if isinstance(place, Url):
            source, extra = stack.enter_context(place.open()), {**_ANY_TAGS, "buffer_size": _BUFFER}
        try:
            container = stack.enter_context(av.open(source, format=demuxer, options=options, **extra))
        except av.error.FFmpegError as error:
            if (why := _refused(place, error)) is not None:
                raise VideoError(path, why) from error
            raise
        if container.format.name in _OUTSIDE:  # in case a version of FFmpeg ignores the limits
            raise VideoError(path, f"format {container.format.name} names other files or addresses")
        yield container


def _refused(path: Location, error: Exception) -> str | None:
    """Return why a file was refused, if its format reads other files."""
    try:
        with path.open() if isinstance(path, Url) else path.open("rb") as file:
            head = file.read(2048).lstrip(b"\xef\xbb\xbf \t\r\n")
    except (OSError, ValueError):
        return None
    for mark, name in _LISTS:
        if head.startswith(mark) or (mark[:1] == b"<" and mark in head):
            return f"{name}, which names other files: only a file that holds its frames itself is read"
    if not isinstance(error, av.error.ArgumentError):
        return None
    if path.name.lower().endswith(_PICTURES):  # a pattern as its name would make it a sequence
        return "a still image, not a video"
    return "not a video, or its format names other files"


@contextmanager
def opened(path: str, demuxer: str | None = None) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open a file and its video stream, ready to decode.

    Args:
        path: The file or URL, already checked by ``file_stamp``.
        demuxer: See ``open_input``.

    Raises:
        VideoError: For any fault of the file, also inside the context.
    """
    try:
        with open_input(path, demuxer) as container:
            chosen = _video_stream(path, container)
            chosen.codec_context.thread_count = 1
            chosen.codec_context.thread_type = "SLICE"
            yield container, chosen
    except (av.error.FFmpegError, OSError) as error:
        raise VideoError(path, _cause(error)) from error


def _video_stream(path: str, container: InputContainer) -> VideoStream:
    if container.format.name.endswith("_pipe"):
        raise VideoError(path, "a still image, not a video")
    if container.format.name in _OF_TEXT:
        raise VideoError(path, "text, not a video")
    # Cover art of a music file is also a video stream, with one picture.
    moving = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
    if not moving:
        raise VideoError(path, "no video stream")
    decodable = [stream for stream in moving if getattr(stream, "codec_context", None) is not None]
    if not decodable:
        raise VideoError(path, "no decoder for its codec")
    # Of several streams, use the one a player takes. FFmpeg's own choice also counts the packets that it has analysed,
    # so it would differ without analysis.
    chosen = max(decodable, key=_rank)
    for stream in container.streams:
        if stream is not chosen:
            stream.discard = Discard.all  # not read from the disk
    return chosen


def _rank(stream: VideoStream) -> tuple[int, int]:
    """Return the sort key by which players choose a stream: disposition, then picture size."""
    is_default = bool(stream.disposition & Disposition.default)
    is_for_all = not stream.disposition & (Disposition.hearing_impaired | Disposition.visual_impaired)
    return is_default + is_for_all, stream.width * stream.height


def _cause(error: Exception) -> str:
    """Return only the reason in one line, without error number and path."""
    if isinstance(error, av.error.InvalidDataError):
        return "not a video, or its header is damaged or missing"
    return str(getattr(error, "strerror", None) or error).partition("\n")[0] or type(error).__name__


def packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
    """Yield packets up to the end of the file or to where it is broken; the last one is empty."""
    try:
        yield from container.demux(stream)
    except av.error.FFmpegError:
        yield cast("Packet[VideoStream]", Packet())


def every_packet(container: InputContainer) -> Iterator[Packet[Any]]:
    """Yield the packets of all streams up to the end of the file or to where it is broken."""
    try:
        yield from container.demux()
    except av.error.FFmpegError:
        return


def seek(container: InputContainer, stream: VideoStream, pts: int) -> bool:
    """Seek to the keyframe at a time; return whether the file is seekable."""
    try:
        container.seek(pts, stream=stream, backward=True)
    except av.error.FFmpegError:
        return False
    return True


class Decoder:
    """Decodes a stream's packets to frames, each with a damaged flag."""

    def __init__(self, stream: VideoStream) -> None:
        """Start decoding at a keyframe."""
        self._decode = stream.codec_context.decode
        self._damaged = False
        self._broken_from: float | None = None
        self.failed: list[int | None] = []
        """Times of packets that could not be decoded."""

    def feed(self, packet: Packet[VideoStream] | None) -> list[tuple[VideoFrame, bool]]:
        """Return the frames that a packet completes; none if it is broken, so that decoding resumes after it.

        A frame is damaged if its own packet is, and so are those up to the next keyframe, which build on it. An empty
        packet, or None, ends the stream: the decoder returns the frames it holds back.
        """
        ends = packet is None or not packet.size
        if packet is not None and packet.is_corrupt:
            self._break(packet)
        try:
            frames = self._decode(None if ends else packet)
        except av.error.FFmpegError:
            self._break(packet)
            self.failed.append(None if packet is None else packet.pts)
            return []
        return [(frame, self._is_damaged(frame)) for frame in frames]

    def _break(self, packet: Packet[VideoStream] | None) -> None:
        """Mark the frames shown from this packet on as damaged."""
        self._broken_from = -math.inf if packet is None or packet.pts is None else packet.pts

    def _is_damaged(self, frame: VideoFrame) -> bool:
        broken = self._broken_from
        if broken is not None and (frame.pts is None or frame.pts >= broken):
            self._broken_from = None
            self._damaged = frame.pts == broken or not frame.key_frame
        elif frame.key_frame:
            self._damaged = False
        self._damaged |= frame.is_corrupt
        return self._damaged
