"""Detects truncated videos: compares the duration that a file declares with its actual pictures."""

from __future__ import annotations

import math

from vcycle.data.video.container import InputContainer, VideoStream, every_packet, open_input

__all__ = ["missing_end"]

# Tolerance for an early end if the header does not count frames: share of the duration, and seconds.
_EARLY = 0.05
_EARLY_SECONDS = 1.0


def missing_end(
    path: str, container: InputContainer, stream: VideoStream, *, packets: int, start: float, duration: float
) -> str:
    """Return how much earlier a file's pictures end than its header says, in words; empty if nothing indicates it.

    Audio that is longer than the pictures is no evidence: the end is missing only if the whole file is shorter than
    declared, and no declared number is about the pictures alone.

    Args:
        path: The file.
        container: The open file.
        stream: The video stream.
        packets: Number of packets of the video stream.
        start: Time of the first frame in seconds, by the file's clock.
        duration: Seconds from then to the end of the last frame.
    """
    tick = float(stream.time_base or 0)
    formats = set(container.format.name.split(","))
    whole = None if container.duration is None else container.duration / 1e6
    own: float | None = None
    if stream.duration is not None:
        # Counted from the stream's first packet, which may not be shown.
        own = (stream.duration + (stream.start_time or 0)) * tick - start
    if "mp4" in formats and stream.frames:  # the header lists every frame
        return _told(duration, own or 0.0) if stream.frames > packets else ""
    if "avi" in formats and stream.average_rate:
        # FFmpeg corrects the duration by the actual content, but not the number of frames.
        return _early(duration, max(own or 0.0, stream.frames / float(stream.average_rate)))
    if own is None and (tagged := _tagged(stream)) is not None:
        # The tag may be left from the file that this one was cut from. It gives the end of the pictures.
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
    """Return the seconds in Matroska's duration tag, which has hours, minutes and seconds."""
    text = next((value for name, value in stream.metadata.items() if name.upper().startswith("DURATION")), "")
    try:
        hours, minutes, seconds = text.split(":")
        told = 3600 * int(hours) + 60 * int(minutes) + float(seconds)
    except ValueError:
        return None
    return told if math.isfinite(told) else None


def _end(path: str) -> float:
    """Return when the last stream of a file ends, in seconds by the file's clock."""
    end = 0.0
    with open_input(path) as container:
        for packet in every_packet(container):
            if packet.pts is not None:
                end = max(end, float((packet.pts + (packet.duration or 0)) * packet.time_base))
    return end
