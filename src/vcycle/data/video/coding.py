"""Inspection of coded packets without decoding: whether a packet holds one whole frame, and whether that is shown.

An index can be made from packets alone only if each is one frame and their times give the order shown. What cannot be
determined here counts as unsure; the file is then decoded once instead. A packet damaged beyond recognition counts as
a missing frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from vcycle.data.video.container import Packet, VideoStream

__all__ = ["Coded", "coding_of", "needs_first_packet"]

_HIGH_444 = 244  # profile of H.264
_X264_444 = 151  # the first x264 build with standard 4:4:4; decoders correct older builds
_X264_DIRECT = 34  # likewise of spatial direct prediction
_NOT_CODED = 20  # bytes: an MPEG-4 packet this small may hold no picture
_B_SLICE = 1
_IDR = 5  # NAL unit type: neither it nor any later picture needs an earlier one
_PARAMETERS = 7  # NAL unit type of a sequence parameter set
_PICTURE = b"\0\0\1\0"
_EXTENSION = b"\0\0\1\xb5"
_VOP = b"\0\0\1\xb6"


class Coded(NamedTuple):
    """What the bytes of a packet tell."""

    plain: bool = True
    """It holds exactly one whole frame, or one that is never shown."""

    shown: bool = True
    """Its frame is shown."""

    bidirectional: bool = False
    """Its frame may refer to one that is shown later."""

    opens: bool = False
    """No frame that follows refers to one before; False if the bytes do not tell."""

    unreferenced: bool | None = None
    """No other frame refers to it; None if the bytes do not tell."""


_UNSURE = Coded(plain=False)

_Look = Callable[["Packet[VideoStream]"], Coded]


def coding_of(stream: VideoStream) -> _Look:
    """Return the function that inspects the packets of a stream."""
    context = stream.codec_context
    name = context.codec.canonical_name
    if name == "h264":
        return _H264(context.extradata or b"")
    # AV1 and HEVC decoders return one frame per packet; the header tells whether HEVC's are reordered.
    if name == "hevc":
        reordered = Coded(bidirectional=bool(context.has_b_frames))
        return lambda packet: reordered
    if name in _LOOKS:
        return _LOOKS[name]
    return _plain if context.codec.intra_only or name == "av1" else _unsure


def needs_first_packet(stream: VideoStream, first: bytes) -> bool:
    """Return whether a decoder must see the first packet of an H.264 stream to decode any other.

    x264 writes its build number only there; decoders work around the bugs of old builds.
    """
    if stream.codec_context.codec.canonical_name != "h264":
        return False
    _, found, text = first.partition(b"x264 - core ")
    build = text[:8].split(b" ")[0]
    if not found or not build.isdigit():
        return False
    extradata = stream.codec_context.extradata or b""
    profile = extradata[1] if extradata[:1] == b"\1" and len(extradata) > 1 else _HIGH_444
    return int(build) < (_X264_444 if profile == _HIGH_444 else _X264_DIRECT)


def _plain(packet: Packet[VideoStream]) -> Coded:
    return _PLAIN


def _unsure(packet: Packet[VideoStream]) -> Coded:
    return _UNSURE


class _H264:
    """All slices of a picture agree on whether it is referenced; the first slice starts at macroblock 0."""

    def __init__(self, extradata: bytes) -> None:
        described = len(extradata) >= 7 and extradata[0] == 1  # as in MP4 and Matroska
        self._length = (extradata[4] & 3) + 1 if described else 0
        size = int.from_bytes(extradata[6:8], "big")
        sets = [extradata[8 : 8 + size]] if described and extradata[5] & 31 else _marked(extradata)
        self._fields = any(_may_have_fields(unit) for unit in sets if unit[0] & 31 == _PARAMETERS)

    def __call__(self, packet: Packet[VideoStream]) -> Coded:
        data = bytes(packet)
        units = _measured(data, self._length) if self._length else _marked(data)
        pictures = 0
        bidirectional = unreferenced = opens = False
        for unit in units:
            kind = unit[0] & 31
            if kind == _PARAMETERS:
                self._fields |= _may_have_fields(unit)
            elif 1 <= kind <= 5:
                begins, is_b = _FIRST_SLICES.get(unit[1:2]) or _slice_header(unit[1:12])
                pictures += begins
                bidirectional |= is_b
                unreferenced = not unit[0] & 0x60
                opens |= kind == _IDR
        plain = (pictures == 1 or not units) and not self._fields
        return Coded(plain=plain, bidirectional=bidirectional, opens=opens, unreferenced=unreferenced)


def _measured(data: bytes, length: int) -> list[bytes]:
    """Return the length-prefixed units of a packet; none if lengths do not add up and no picture is among them."""
    units: list[bytes] = []
    at = 0
    damaged = False
    while at + length < len(data):
        size = int.from_bytes(data[at : at + length], "big")
        unit = data[at + length : at + length + size]
        damaged |= len(unit) < size or not size
        if unit:
            units.append(unit)
        at += length + size
    damaged |= at != len(data)
    return [] if damaged and not any(1 <= unit[0] & 31 <= 5 for unit in units) else units


def _marked(data: bytes) -> list[bytes]:
    """Return the units of a packet, each after a start code."""
    units = data.split(b"\0\0\1")[1:]
    return [unit for unit in units if unit]


def _vp8(packet: Packet[VideoStream]) -> Coded:
    """RFC 6386, section 9.1: the fifth bit of a frame says whether it is shown."""
    data = bytes(memoryview(packet)[:6])
    damaged = not data[0] & 1 and data[3:] != b"\x9d\x01\x2a"  # a key frame has this code
    return Coded(shown=damaged or bool(data[0] & 0x10))


def _vp9(packet: Packet[VideoStream]) -> Coded:
    """A superframe (VP9 bitstream specification, annex B) holds hidden frames before the one that is shown."""
    data = memoryview(packet)
    last = data[len(data) - 1]
    count, width = (last & 7) + 1, (last >> 3 & 3) + 1
    table = len(data) - 2 - count * width
    if last & 0xE0 != 0xC0 or table < 0 or data[table] != last:
        return Coded(shown=_vp9_is_shown(data[0]))
    at = shown = 0
    for number in range(count):
        entry = table + 1 + number * width
        size = int.from_bytes(data[entry : entry + width], "little")
        if not size or at + size > table:
            return _UNSURE
        shown += _vp9_is_shown(data[at])
        at += size
    return Coded(plain=shown <= 1, shown=bool(shown))


def _vp9_is_shown(first: int) -> bool:
    """Section 6.2: marker, two bits of profile, (in profile 3 one more,) existing frame, key frame, shown."""
    bits = first << 1 if first & 0x30 == 0x30 else first
    return first & 0xC0 != 0x80 or bool(bits & 0x08 or bits & 0x02)


def _mpeg4(packet: Packet[VideoStream]) -> Coded:
    """Packets may hold two pictures (packed B-frames) or one that repeats the last."""
    data = bytes(packet)
    at = data.find(_VOP)
    if len(data) < _NOT_CODED or data.count(_VOP) > 1:
        return _UNSURE
    if not 0 <= at < len(data) - len(_VOP):
        return _PLAIN
    return Coded(bidirectional=data[at + 4] >> 6 == 2)


def _mpeg2(packet: Packet[VideoStream]) -> Coded:
    """Two packets may hold the fields of one frame (ISO/IEC 13818-2, section 6.3.10)."""
    data = bytes(packet)
    at = data.find(_PICTURE)
    extension = data.find(_EXTENSION, at) if at >= 0 else -1
    while extension >= 0 and extension + 6 < len(data) and data[extension + 4] >> 4 != 8:
        extension = data.find(_EXTENSION, extension + 4)
    whole = extension < 0 or (extension + 6 < len(data) and data[extension + 6] & 3 == 3)
    if not 0 <= at < len(data) - 5:
        return _PLAIN
    if data.count(_PICTURE) > 1 or not whole:
        return _UNSURE
    return Coded(bidirectional=data[at + 5] >> 3 & 7 == 3)


_PLAIN = Coded()
_LOOKS: dict[str, _Look] = {
    "vp8": _vp8,
    "vp9": _vp9,
    "mpeg4": _mpeg4,
    "mpeg1video": _mpeg2,
    "mpeg2video": _mpeg2,
}


class _Bits:
    """Bits of an H.264 unit, first to last; zeros follow its end."""

    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data, "big")
        self._left = 8 * len(data)

    def take(self, count: int) -> int:
        self._left -= count
        shifted = self._value >> self._left if self._left >= 0 else self._value << -self._left
        return shifted & (1 << count) - 1

    def unsigned(self) -> int:
        """An Exp-Golomb code (ITU-T H.264, section 9.1)."""
        zeros = 0
        while not self.take(1):
            zeros += 1
            if self._left <= 0 or zeros > 32:
                return 0
        return (1 << zeros) - 1 + self.take(zeros)

    def signed(self) -> int:
        code = self.unsigned()
        return (code + 1) // 2 if code % 2 else -(code // 2)


def _slice_header(data: bytes) -> tuple[bool, bool]:
    """Return whether a slice begins a picture, and whether it is a B slice (ITU-T H.264, section 7.3.3)."""
    bits = _Bits(data)
    begins = bits.unsigned() == 0
    return begins, bits.unsigned() % 5 == _B_SLICE


# With the macroblock's number 0, all types that there are (0 to 9) fit in the first byte: looking it up saves a third
# of the time of indexing a short file.
_FIRST_SLICES = {bytes([value]): _slice_header(bytes([value])) for value in range(0x88, 0x100)}


def _may_have_fields(unit: bytes) -> bool:
    """Return whether a sequence parameter set allows fields (ITU-T H.264, section 7.3.2.1.1: frame_mbs_only_flag)."""
    if len(unit) < 5:
        return True
    bits = _Bits(unit[4:].replace(b"\0\0\3", b"\0\0"))
    bits.unsigned()  # the set's number
    if unit[1] in {100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135}:
        chroma = bits.unsigned()
        if chroma == 3:
            bits.take(1)
        bits.unsigned(), bits.unsigned()  # bits of luma and chroma
        bits.take(1)
        if bits.take(1):
            _skip_scaling(bits, 12 if chroma == 3 else 8)
    bits.unsigned()  # of frame numbers
    order = bits.unsigned()
    if order == 0:
        bits.unsigned()
    elif order == 1:
        bits.take(1)
        bits.signed(), bits.signed()
        for _ in range(min(bits.unsigned(), 255)):
            bits.signed()
    bits.unsigned()  # reference frames
    bits.take(1)
    bits.unsigned(), bits.unsigned()  # width and height
    return not bits.take(1)


def _skip_scaling(bits: _Bits, lists: int) -> None:
    for number in range(lists):
        if not bits.take(1):
            continue
        last = following = 8
        for _ in range(16 if number < 6 else 64):
            if following:
                following = (last + bits.signed()) % 256
            last = following or last
