"""Whatever the container, the codec and the structure: any frames in any order are those of a full decode in order."""

import itertools
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from vcycle.data.prepare.check import check_file
from vcycle.data.video import every_frame, probe, read_frames
from vcycle.data.video.container import Decoder
from vcycle.data.video.writing import written_video

FRAMES = 24
B_FRAMES = {"bf": "2", "g": "8", "b_strategy": "0"}
X264 = {"preset": "ultrafast", "threads": "1"}
OPEN = {**X264, "x264-params": "open-gop=1:keyint=8:bframes=3:b-adapt=0"}
LONG = {**X264, "bf": "3", "g": "250", "b_strategy": "0"}
X265 = {"preset": "ultrafast", "x265-params": "keyint=8:bframes=3:log-level=none:pools=none"}
AV1 = {"preset": "12", "g": "8", "svtav1-params": "lp=1"}
VPX = {"deadline": "realtime", "cpu-used": "8", "g": "8"}
ALT_REF = {"deadline": "good", "cpu-used": "5", "auto-alt-ref": "1", "lag-in-frames": "16"}
UNOFFICIAL = {"strict": "unofficial"}

CODED = {
    "h264": ("libx264", {**X264, **B_FRAMES}, ("mp4", "mov", "mkv", "flv", "ts", "avi", "mpg", "h264")),
    "h264 without B-frames": ("libx264", {**X264, "bf": "0", "g": "8"}, ("mp4", "mkv", "ts")),
    "h264 in open groups": ("libx264", OPEN, ("mp4", "mkv", "ts")),
    "h264 in one group": ("libx264", LONG, ("mp4", "mkv", "flv", "avi")),
    "h264 that may have fields": ("libx264", {**X264, "x264-params": "tff=1:keyint=8:bframes=2"}, ("mp4", "mkv", "ts")),
    "hevc": ("libx265", X265, ("mp4", "mkv", "ts")),
    "av1": ("libsvtav1", AV1, ("mp4", "mkv", "webm")),
    "vp8": ("libvpx", VPX, ("webm", "mkv", "avi", "ogg")),
    "vp9": ("libvpx-vp9", VPX, ("webm", "mp4")),
    "vp9 with hidden frames": ("libvpx-vp9", ALT_REF, ("webm", "mp4")),
    "mpeg4": ("mpeg4", {"g": "8"}, ("mp4", "mkv", "avi", "ts")),
    "mpeg4 with B-frames": ("mpeg4", {"bf": "2", "g": "8"}, ("mp4", "mkv", "avi", "ts")),
    "mpeg2": ("mpeg2video", {"bf": "2", "g": "8"}, ("mpg", "ts", "mkv", "mp4", "avi")),
    "mpeg2 of fields in a frame": (
        "mpeg2video",
        {"bf": "2", "g": "8", "flags": "+ildct+ilme"},
        ("mpg", "mkv"),
    ),
    "mjpeg": ("mjpeg", UNOFFICIAL, ("avi", "mov", "mkv", "mp4")),
    "huffyuv": ("huffyuv", {}, ("avi",)),
    "ffv1": ("ffv1", {}, ("avi", "mkv")),
    "gif": ("gif", {}, ("gif",)),
    "wmv2": ("wmv2", {}, ("wmv", "avi")),
    "flv1": ("flv", {}, ("flv", "avi")),
}
PIXELS = {"gif": "rgb8", "mjpeg": "yuvj420p", "huffyuv": "yuv422p"}
SEEKABLE = {"mp4", "mov", "mkv", "webm", "flv", "wmv", "gif", "ogg"}
"""Containers of which frames are sought; of the others they are decoded from the start."""

MATRIX = [(kind, suffix) for kind, (_, _, suffixes) in CODED.items() for suffix in suffixes]


@pytest.fixture(scope="module")
def coded(tmp_path_factory, write_video):
    """Writes the file of a kind in a container, once."""
    folder = tmp_path_factory.mktemp("matrix")
    known = {}

    def write(kind, suffix):
        if (kind, suffix) not in known:
            codec, options, _ = CODED[kind]
            path = folder / f"{len(known)}.{suffix}"
            pixels = PIXELS.get(kind, "yuv420p")
            known[kind, suffix] = write_video(path, FRAMES, codec=codec, options=options, pixels=pixels)
        return known[kind, suffix]

    return write


def decoded_in_order(path):
    """Pictures of all frames as the decoder gives them, and their times in ticks."""
    pictures, times = [], []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        for packet in container.demux(stream):
            try:
                frames = packet.decode()
            except av.error.FFmpegError:
                continue
            pictures += [frame.to_ndarray(format="rgb24", threads=1) for frame in frames]
            times += [frame.pts for frame in frames]
    return np.stack(pictures), times


def agrees(path, *, fault=""):
    """Hold every way to read a file against a full decode of it; gives its index."""
    expected, _ = decoded_in_order(path)
    index = probe(str(path))
    assert index.info.frames == len(expected)
    assert (np.diff(index.info.times) > 0).all()
    assert index.info.times[0] == 0
    found = list(every_frame(index))
    assert not any(missing for _, missing in found)
    shown = np.stack([frame.to_ndarray(format="rgb24", threads=1) for frame, _ in found])
    assert np.array_equal(shown, expected)
    draw = np.random.default_rng(0)
    last = len(expected) - 1
    for wanted in ([last], [last // 2], draw.integers(0, last + 1, size=4), draw.permutation(last + 1)):
        read = read_frames(index, wanted)
        assert not read.filled.any()
        assert np.array_equal(read.pixels, expected[np.asarray(wanted)])
    assert check_file((str(path), None, False), lambda _: None).fault == fault
    return index


@pytest.mark.parametrize(("kind", "suffix"), MATRIX, ids=["-".join(pair) for pair in MATRIX])
def test_any_frames_are_those_of_a_full_decode(coded, read_number, kind, suffix):
    index = agrees(coded(kind, suffix))
    assert index.info.frames == FRAMES
    assert np.allclose(index.info.times, np.arange(FRAMES) / 25, atol=0.0055)  # GIF counts hundredths
    assert [read_number(each) for each in read_frames(index, [5, 20]).pixels] == [5, 20]
    assert index.sequential != (suffix in SEEKABLE)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("kind", ["h264", "hevc", "vp9", "av1", "mpeg4 with B-frames"])
def test_ordinary_files_are_indexed_without_being_decoded(coded, monkeypatch, kind, suffix):
    path = coded(kind, suffix)
    fed = []

    class Counting(Decoder):
        def feed(self, packet):
            fed.append(packet)
            return super().feed(packet)

    monkeypatch.setattr("vcycle.data.video.index.Decoder", Counting)
    assert probe(str(path)).info.frames == FRAMES
    assert len(fed) < FRAMES


def rewritten(source, target, change):
    """The pictures of a file in another, each packet changed or, where that gives None, left out."""
    with av.open(str(source)) as container, av.open(str(target), "w") as out:
        stream = container.streams.video[0]
        into = out.add_stream_from_template(stream)
        packets = [packet for packet in container.demux(stream) if packet.size]
        for number, packet in enumerate(packets):
            kept = change(number, packet)
            if kept is not None:
                kept.stream = into
                out.mux(kept)
    return target


def payload(packet, data):
    """A packet with other bytes and the same times."""
    changed = av.Packet(data)
    changed.pts, changed.dts, changed.duration = packet.pts, packet.dts, packet.duration
    changed.time_base, changed.is_keyframe = packet.time_base, packet.is_keyframe
    return changed


@pytest.mark.parametrize("suffix", ["mp4", "mov", "mkv", "ts"])
@pytest.mark.parametrize("kind", ["h264", "h264 in open groups", "hevc", "mpeg4 with B-frames"])
def test_of_times_that_cannot_be_the_order_the_decoders_order_counts(coded, tmp_path, read_number, kind, suffix):
    def as_decoded(number, packet):
        packet.dts = packet.pts = round(number / 25 / packet.time_base)
        return packet

    index = agrees(rewritten(coded(kind, "ts" if suffix == "ts" else "mp4"), tmp_path / f"a.{suffix}", as_decoded))
    assert [read_number(each) for each in read_frames(index, range(FRAMES)).pixels] == list(range(FRAMES))
    assert np.allclose(index.info.times, np.arange(FRAMES) / 25, atol=2e-3)


@pytest.mark.parametrize("suffix", ["ts", "mkv", "mp4", "avi"])
@pytest.mark.parametrize("kind", ["h264", "h264 in open groups", "mpeg4", "mpeg2"])
def test_frames_missing_at_the_start_are_no_frames(coded, tmp_path, read_number, kind, suffix):
    path = rewritten(
        coded(kind, suffix),
        tmp_path / f"a.{suffix}",
        lambda number, packet: packet if number >= 5 else None,
    )
    expected, stamps = decoded_in_order(path)
    index = agrees(path)
    numbers = [read_number(each) for each in read_frames(index, range(index.info.frames)).pixels]
    assert numbers[-1] == FRAMES - 1
    if kind.startswith("h264"):
        assert numbers == list(range(FRAMES - len(expected), FRAMES))
    if suffix == "ts":
        assert index.start == pytest.approx(float(min(stamps) * Fraction(1, 90_000)))


@pytest.mark.parametrize("suffix", ["webm", "mkv", "avi"])
def test_hidden_frames_of_vp8_are_no_frames(coded, tmp_path, suffix):
    def hide(number, packet):
        data = bytearray(bytes(packet))
        if number in (3, 10, 11):
            data[0] &= ~0x10
        return payload(packet, bytes(data))

    assert agrees(rewritten(coded("vp8", "webm"), tmp_path / f"a.{suffix}", hide)).info.frames == FRAMES - 3


def test_hidden_frames_with_the_time_of_the_next_are_sought(coded, tmp_path):
    def hide(number, packet):
        data = bytearray(bytes(packet))
        if number in (4, 12):
            data[0] &= ~0x10
            packet.pts += packet.duration or 40
            packet.dts = packet.pts
        return payload(packet, bytes(data))

    path = rewritten(coded("vp8", "webm"), tmp_path / "a.webm", hide)
    index = agrees(path)
    assert index.info.frames == FRAMES - 2
    assert not index.sequential


@pytest.mark.parametrize("suffix", ["avi", "mkv"])
def test_pictures_that_repeat_the_last_are_as_the_decoder_has_them(coded, tmp_path, suffix):
    def uncoded(number, packet):
        return payload(packet, b"\0\0\1\xb6\x50\xcf") if number in (4, 13) else packet

    agrees(rewritten(coded("mpeg4", "mkv"), tmp_path / f"a.{suffix}", uncoded))


OVERWRITTEN = [
    (kind, suffix)
    for kind, suffix in itertools.product(CODED, ("mp4", "mkv", "webm", "avi", "h264"))
    if suffix in CODED[kind][2] and "fields" not in kind and kind not in ("huffyuv", "ffv1")  # zeros are a picture
]


@pytest.mark.parametrize(("kind", "suffix"), OVERWRITTEN, ids=["-".join(pair) for pair in OVERWRITTEN])
def test_a_frame_whose_packet_is_overwritten_is_reported(coded, tmp_path, kind, suffix):
    source = coded(kind, suffix)
    with av.open(str(source)) as container:
        data = max([bytes(packet) for packet in container.demux(video=0) if packet.size][5:], key=len)
    content = source.read_bytes()
    assert content.count(data) == 1
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(content.replace(data, bytes(len(data))))
    index = probe(str(path))
    told = check_file((str(path), None, False), lambda _: None).fault
    if len(index.pts):
        assert index.info.frames == FRAMES
        assert read_frames(index, range(FRAMES)).filled.any()
        assert "of 24 frames cannot be decoded" in told
    else:  # nothing tells where between the others the missing ones are
        assert index.info.frames < FRAMES
        assert "frames are missing" in told


def test_a_comment_after_the_last_picture_of_a_gif_is_no_frame(coded, tmp_path):
    content = coded("gif", "gif").read_bytes()
    assert content.endswith(b";")
    (tmp_path / "a.gif").write_bytes(content[:-1] + b"\x21\xfe\x02hi\x00;")
    assert agrees(tmp_path / "a.gif").info.frames == FRAMES


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_what_only_the_first_packet_tells_is_known_for_every_frame(tmp_path, write_video, suffix):
    """Old builds of x264 write 4:4:4 in another way, and name themselves in the first packet alone."""
    options = {"preset": "medium", "bf": "2", "g": "6", "threads": "1"}
    path = write_video(tmp_path / f"a.{suffix}", FRAMES, options=options, pixels="yuv444p")
    content = path.read_bytes()
    at = content.index(b"x264 - core ") + len(b"x264 - core ")
    path.write_bytes(content[:at] + b"142" + content[at + 3 :])
    index = probe(str(path))
    assert index.primed
    expected, _ = decoded_in_order(path)
    for wanted in ([20], [13, 2], range(FRAMES)):
        assert np.array_equal(read_frames(index, wanted).pixels, expected[np.asarray(wanted)])
    assert not probe(str(write_video(tmp_path / "new.mp4", 8, pixels="yuv444p"))).primed


class Bits:
    """Bits of an H.264 unit being written."""

    def __init__(self):
        self.bits = []

    def put(self, count, value):
        self.bits += [(value >> place) & 1 for place in range(count - 1, -1, -1)]

    def golomb(self, *values):
        for value in values:
            length = (value + 1).bit_length()
            self.put(2 * length - 1, value + 1)

    def align(self):
        self.bits += [0] * (-len(self.bits) % 8)

    def unit(self, reference, kind):
        self.bits.append(1)
        self.align()
        out, zeros = bytearray(), 0
        for byte in np.packbits(np.array(self.bits, dtype=np.uint8)).tolist():
            if zeros >= 2 and byte <= 3:
                out.append(3)
                zeros = 0
            out.append(byte)
            zeros = 0 if byte else zeros + 1
        return b"\0\0\0\1" + bytes([reference << 5 | kind]) + bytes(out)


def write_fields(path, frames):
    """H.264 whose two fields of a frame are pictures of their own, as camcorders write it; nothing is predicted."""
    data = b""
    for number in range(frames):
        picture = np.full((32, 32), 40, dtype=np.uint8)
        picture[:, : number + 1] = 220
        sequence, parameters = Bits(), Bits()
        sequence.put(24, 77 << 16 | 30)
        sequence.golomb(0, 0, 0, 4, 1)
        sequence.put(1, 0)
        sequence.golomb(1, 0)
        sequence.put(5, 0b00101)  # fields allowed, no adaptive ones, direct inference, no cropping; what follows
        sequence.put(5, 0b00001)
        sequence.put(32, 1)
        sequence.put(32, 50)
        sequence.put(5, 0b10000)
        parameters.golomb(0, 0)
        parameters.put(2, 0)
        parameters.golomb(0, 0, 0)
        parameters.put(3, 0)
        parameters.golomb(0, 0, 0)
        parameters.put(3, 0b110)
        data += b"\0\0\0\1\x09\x10" + sequence.unit(3, 7) + parameters.unit(3, 8)
        for bottom in (0, 1):
            field = Bits()
            field.golomb(0, 7, 0)
            field.put(4, 0)
            field.put(2, 2 | bottom)
            if not bottom:
                field.golomb(number % 2)
            field.put(8, bottom)
            field.put(1 if bottom else 2, 0)
            field.golomb(0, 1)
            for column in (0, 16):
                field.golomb(25)
                field.align()
                block = picture[bottom::2, column : column + 16].tobytes() + bytes([128] * 128)
                field.bits += np.unpackbits(np.frombuffer(block, dtype=np.uint8)).tolist()
            data += (b"\0\0\0\1\x09\x10" if bottom else b"") + field.unit(3, 1 if bottom else 5)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("suffix", ["h264", "mts", "mkv", "mp4"])
def test_two_fields_coded_apart_are_one_frame(tmp_path, suffix):
    raw = path = write_fields(tmp_path / "a.h264", 12)
    if suffix != "h264":
        path = tmp_path / f"b.{suffix}"
        kind = {"mts": "mpegts", "mkv": "matroska", "mp4": "mp4"}[suffix]
        with av.open(str(raw)) as container, av.open(str(path), "w", format=kind) as out:
            stream = container.streams.video[0]
            into = out.add_stream_from_template(stream)
            for number, packet in enumerate(each for each in container.demux(stream) if each.size):
                packet.time_base = Fraction(1, 90_000)
                packet.pts = packet.dts = 90_000 + number * 1800
                packet.duration = 1800
                packet.stream = into
                out.mux(packet)
    index = agrees(path)
    assert index.info.frames == 12
    assert index.info.duration == pytest.approx(12 / 25, abs=1e-3)
    pixels = read_frames(index, range(12)).pixels
    assert [int((each[8, :, 1] > 128).sum()) for each in pixels] == list(range(1, 13))


SOUNDS = {
    "mkv": ("libx264", "aac"),
    "mp4": ("libx264", "aac"),
    "mov": ("mpeg4", "aac"),
    "flv": ("libx264", "aac"),
    "avi": ("mpeg4", "libmp3lame"),
    "webm": ("libvpx", "libopus"),
    "ts": ("libx264", "mp2"),
}


def write_with_sound(path, *, pictures=8.0, heard=8.0, late=0.0):
    """Noise at 10 pictures a second, and a tone."""
    codec, sound = SOUNDS[path.suffix[1:]]
    rate = 48_000
    draw = np.random.default_rng(0)
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        options = {"libx264": {**X264, "g": "10"}, "libvpx": {**VPX, "g": "10"}, "mpeg4": {"g": "10"}}[codec]
        video = container.add_stream(codec, rate=10, options=options)
        video.width, video.height, video.pix_fmt, video.bit_rate = 64, 48, "yuv420p", 300_000
        audio = container.add_stream(sound, rate=rate, layout="mono")
        audio.bit_rate = 32_000
        size = 1152 if sound in ("libmp3lame", "mp2") else audio.codec_context.frame_size or 960
        form = {"aac": ("fltp", np.float32), "libmp3lame": ("fltp", np.float32)}.get(sound, ("s16", np.int16))
        events = [(late + number / 10, number) for number in range(round(pictures * 10))]
        events += [(number * size / rate, None) for number in range(round(heard * rate / size))]
        for seconds, number in sorted(events, key=lambda event: event[0]):
            if number is None:
                frame = av.AudioFrame.from_ndarray(np.zeros((1, size), dtype=form[1]), format=form[0], layout="mono")
                frame.sample_rate, frame.pts, frame.time_base = rate, round(seconds * rate), Fraction(1, rate)
                container.mux(audio.encode(frame))
            else:
                pixels = draw.integers(0, 256, size=(48, 64, 3), dtype=np.uint8)
                frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
                frame.pts, frame.time_base = round(seconds * 10), Fraction(1, 10)
                container.mux(video.encode(frame))
        container.mux(video.encode())
        container.mux(audio.encode())
    return path


@pytest.fixture(scope="module")
def sounding(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sounding")
    return {suffix: write_with_sound(folder / f"a.{suffix}") for suffix in SOUNDS}


def cut(source: Path, path: Path, share=0.5) -> Path:
    path.write_bytes(source.read_bytes()[: round(source.stat().st_size * share)])
    return path


@pytest.mark.parametrize("suffix", [suffix for suffix in SOUNDS if suffix != "ts"])
def test_a_cut_file_with_sound_is_called_cut(sounding, tmp_path, suffix):
    info = probe(str(cut(sounding[suffix], tmp_path / f"a.{suffix}"))).info
    words = info.incomplete.split()
    assert words[:2] == ["ends", "after"]
    assert float(words[2]) == pytest.approx(info.duration, abs=0.06)
    assert float(words[4]) == pytest.approx(8, abs=0.15)
    assert 3 < info.duration < 5
    assert check_file((str(tmp_path / f"a.{suffix}"), None, True), lambda _: None).fault == info.incomplete


@pytest.mark.parametrize("suffix", SOUNDS)
@pytest.mark.parametrize(
    "lengths",
    [{}, {"pictures": 3.0}, {"heard": 3.0}, {"pictures": 4.0, "late": 3.0}],
    ids=["as long", "longer sound", "shorter sound", "late pictures"],
)
def test_a_whole_file_is_called_healthy_whatever_its_sound(tmp_path, suffix, lengths):
    path = write_with_sound(tmp_path / f"a.{suffix}", **lengths)
    assert probe(str(path)).info.incomplete == ""
    assert check_file((str(path), None, False), lambda _: None).fault == ""


def heard(path):
    """Time and size of every packet of sound."""
    with av.open(str(path)) as container:
        stream = container.streams.audio[0]
        return [
            (float(packet.pts * packet.time_base), packet.size) for packet in container.demux(stream) if packet.size
        ]


def test_sound_stays_in_time_where_the_first_frames_do_not_decode(sounding, tmp_path):
    source = tmp_path / "a.ts"
    with av.open(str(sounding["ts"])) as container, av.open(str(source), "w") as out:
        into = {stream.index: out.add_stream_from_template(stream) for stream in container.streams}
        first = container.streams.video[0].start_time / 90_000 + 1.3  # between the key frames at 1 and 2 seconds
        for packet in container.demux():
            if packet.size and packet.pts * packet.time_base >= first:
                packet.stream = into[packet.stream.index]
                out.mux(packet)
    index = probe(str(source))
    before = heard(source)
    with av.open(str(source)) as container:
        assert index.start == pytest.approx(container.streams.video[0].start_time / 90_000 + 0.7, abs=0.01)
    written = tmp_path / "b.mkv"
    clock = Fraction(1, 10)
    with written_video(written, size=(48, 64), clock=clock, rate=10, sound_of=str(source)) as writer:
        for number, pixels in enumerate(read_frames(index, range(index.info.frames)).pixels):
            writer.put(pixels, number)
    after = heard(written)
    kept = [(time - index.start, size) for time, size in before if time >= index.start]
    assert [size for _, size in after] == [size for _, size in kept]
    assert np.allclose([time for time, _ in after], [time for time, _ in kept], atol=0.002)


def test_a_tag_of_the_file_that_a_part_was_taken_from_is_not_believed(coded, tmp_path):
    path = rewritten(coded("h264", "mkv"), tmp_path / "a.mkv", lambda number, packet: packet)
    content = path.read_bytes()
    told = b"00:00:00.96"
    assert content.count(told) == 1
    path.write_bytes(content.replace(told, b"00:01:00.96"))
    assert probe(str(path)).info.incomplete == ""


def test_the_faults_that_files_have_shown(shared_cases):
    expected = {"cut_with_sound.flv": 1, "cut_with_sound.avi": 1}
    counts = {"fields": 25, "hidden_frames_vp8": 75, "comment_after_frames": 3, "noctts": 30}
    counts |= {"begins_between_keyframes": 20, "h264_444_old_encoder": 280}
    for path in sorted(shared_cases.iterdir()):
        if path.suffix in (".py", ".md"):
            continue
        pictures, _ = decoded_in_order(path)
        index = probe(str(path))
        assert index.info.frames == counts.get(path.stem, index.info.frames), path.name
        lost = expected.get(path.name, 0)
        assert 0 <= index.info.frames - len(pictures) <= lost, path.name
        assert bool(index.info.incomplete) == path.name.startswith("cut_"), path.name
        draw = np.random.default_rng(1)
        subsets = [range(len(pictures)), *itertools.repeat(None, 3)]
        for subset in subsets:
            wanted = draw.integers(0, len(pictures) - lost, size=5) if subset is None else np.asarray(subset)
            read = read_frames(index, wanted)
            if "mirror" not in path.name:
                assert np.array_equal(read.pixels, pictures[wanted]), path.name
            assert not read.filled[: len(wanted) - lost].any(), path.name
