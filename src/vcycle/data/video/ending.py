"""How long a file says its pictures last: where they are over earlier, its end is missing."""

from __future__ import annotations

import math

from vcycle.data.video.container import InputContainer, VideoStream, every_packet, open_input

__all__ = ["missing_end"]

# What a video may end too early where its header does not count frames: share of its duration, and seconds.
_EARLY = 0.05
_EARLY_SECONDS = 1.0


def missing_end(
    path: str, container: InputContainer, stream: VideoStream, *, packets: int, start: float, duration: float
) -> str:
    """How much earlier a file's pictures end than its header says, in words; empty where nothing says so.

    Sound that is longer than the pictures says nothing: only where the whole file is shorter than promised, and no
    number is of the pictures alone, is its end missing.

    Args:
        path: The file.
        container: The file, opened.
        stream: Its pictures.
        packets: How many packets of the pictures are there.
        start: Seconds by the file's clock at which the first frame is shown.
        duration: Seconds from then to the end of the last frame.
    """
    tick = float(stream.time_base or 0)
    formats = set(container.format.name.split(","))
    whole = None if container.duration is None else container.duration / 1e6
    own: float | None = None
    if stream.duration is not None:
        # Told from the stream's first packet on, which need not be one that is shown.
        own = (stream.duration + (stream.start_time or 0)) * tick - start
    if "mp4" in formats and stream.frames:  # the header lists every frame
        return _told(duration, own or 0.0) if stream.frames > packets else ""
    if "avi" in formats and stream.average_rate:
        # The duration is corrected by what is there; the number of frames is not.
        return _early(duration, max(own or 0.0, stream.frames / float(stream.average_rate)))
    if own is None and (tagged := _tagged(stream)) is not None:
        # Of the file that this one was cut from, a tag may tell more. It tells when the pictures are over.
        own = (tagged if whole is None else min(tagged, whole)) - max(start, 0.0)
    if own is not None:
        return _early(duration, own)
    if whole is None:
        return ""
    begin = 0.0 if container.start_time is None else container.start_time / 1e6
    if not 0 <= begin < whole:  # the clock started long before the file
        whole += begin
    ends = start + duration
    if _early(ends, whole) and (len(container.streams) == 1 or _early(_end(path), whole)):
        return _told(duration, whole - start)
    return ""


def _early(duration: float, promised: float) -> str:
    return _told(duration, promised) if duration < promised - max(_EARLY_SECONDS, _EARLY * promised) else ""


def _told(duration: float, promised: float) -> str:
    digits = 1 if f"{duration:.1f}" != f"{promised:.1f}" else 3
    return f"ends after {duration:.{digits}f} of {max(promised, duration):.{digits}f} s"


def _tagged(stream: VideoStream) -> float | None:
    """Seconds that Matroska's tag gives: hours, minutes and seconds."""
    text = next((value for name, value in stream.metadata.items() if name.upper().startswith("DURATION")), "")
    try:
        hours, minutes, seconds = text.split(":")
        told = 3600 * int(hours) + 60 * int(minutes) + float(seconds)
    except ValueError:
        return None
    return told if math.isfinite(told) else None


def _end(path: str) -> float:
    """Seconds by the file's clock at which the last of its streams ends."""
    end = 0.0
    with open_input(path) as container:
        for packet in every_packet(container):
            if packet.pts is not None:
                end = max(end, float((packet.pts + (packet.duration or 0)) * packet.time_base))
    return end
