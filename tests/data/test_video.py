import struct
import subprocess
import sys

import av
import numpy as np
import pytest
from av.stream import Disposition
from av.video.frame import VideoFrame

from vcycle.data.prepare.decoding import open_whole, to_rgb
from vcycle.data.video import VideoError, every_frame, probe, read_frames
from vcycle.data.video.container import Decoder, packets
from vcycle.data.video.scaling import Scaler

ALL = {"h264": {}, "no B-frames": {"options": {"bf": "0"}}, "one group": {"options": {"g": "250", "bf": "3"}}}
ALL["open groups"] = {"options": {"x264-params": "open-gop=1:keyint=10:bframes=3:b-adapt=0"}}
ALL["pyramid"] = {"options": {"x264-params": "keyint=30:bframes=5:b-adapt=0:b-pyramid=normal:ref=4"}}
ALL["mjpeg"] = {"codec": "mjpeg", "options": {"strict": "unofficial"}}
ALL["mpeg4 with B-frames"] = {"codec": "mpeg4", "options": {"bf": "2", "g": "12"}}


def numbers_in(pixels, read_number):
    return [read_number(each) for each in pixels]


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi", "ts", "mov"])
@pytest.mark.parametrize("settings", ALL.values(), ids=ALL)
def test_frames_are_the_ones_asked_for(tmp_path, write_video, read_number, settings, suffix):
    if suffix == "ts" and settings.get("codec") == "mjpeg":
        pytest.skip("transport streams hold no MJPEG")
    index = probe(str(write_video(tmp_path / f"a.{suffix}", 40, **settings)))
    assert index.info.frames == 40
    for wanted in ([0], [39], [13, 2, 2, 30], list(range(0, 40, 3)), list(range(17, 29))):
        decoded = read_frames(index, wanted)
        assert numbers_in(decoded.pixels, read_number) == wanted
        assert not decoded.filled.any()


def test_a_raw_stream_without_times_is_counted(tmp_path, write_video, read_number):
    index = probe(str(write_video(tmp_path / "a.h264")))
    assert index.sequential
    assert numbers_in(read_frames(index, [5, 38]).pixels, read_number) == [5, 38]


def test_only_packets_that_a_frame_depends_on_are_decoded(tmp_path, write_video, monkeypatch):
    index = probe(str(write_video(tmp_path / "a.mp4")))
    fed = []

    class Counting(Decoder):
        def feed(self, packet):
            fed.append(packet)
            return super().feed(packet)

    monkeypatch.setattr("vcycle.data.video.frames.Decoder", Counting)
    read_frames(index, [27])  # of the group that starts at 24
    assert len([packet for packet in fed if packet is not None]) <= 4


@pytest.mark.parametrize(
    ("suffix", "options"),
    [
        ("mp4", {}),
        ("mkv", {}),
        ("mkv", {"muxing": {"live": "1"}}),
        ("flv", {}),
        ("wmv", {"codec": "wmv2"}),
        ("mp4", {"muxing": {"movflags": "frag_keyframe+empty_moov"}}),
    ],
)
def test_frames_far_apart_are_exact(tmp_path, write_video, read_number, suffix, options):
    index = probe(str(write_video(tmp_path / f"a.{suffix}", 256, **options)))
    for wanted in ([1, 130, 249], [0, 255], [254, 3, 120], [255]):
        assert numbers_in(read_frames(index, wanted).pixels, read_number) == wanted


def test_groups_far_apart_are_sought_not_read(tmp_path, write_video, read_number, monkeypatch):
    index = probe(str(write_video(tmp_path / "a.mp4", 250)))
    read = []

    def counted(container, stream):
        for packet in packets(container, stream):
            read.append(packet)
            yield packet

    monkeypatch.setattr("vcycle.data.video.frames.packets", counted)
    decoded = read_frames(index, [1, 130, 249])
    assert numbers_in(decoded.pixels, read_number) == [1, 130, 249]
    assert len(read) < 50


def test_a_file_that_cannot_be_sought_in_is_read_from_the_start(tmp_path, write_video, read_number, monkeypatch):
    index = probe(str(write_video(tmp_path / "a.mp4", 40)))
    monkeypatch.setattr("vcycle.data.video.frames.seek", lambda *_: False)
    decoded = read_frames(index, [2, 30])
    assert numbers_in(decoded.pixels, read_number) == [2, 30]
    assert not decoded.filled.any()


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi", "ts"])
@pytest.mark.parametrize("settings", ALL.values(), ids=ALL)
def test_every_frame_comes_once_in_the_order_shown(tmp_path, write_video, read_number, settings, suffix):
    if suffix == "ts" and settings.get("codec") == "mjpeg":
        pytest.skip("transport streams hold no MJPEG")
    found = list(every_frame(probe(str(write_video(tmp_path / f"a.{suffix}", 40, **settings)))))
    assert [read_number(frame.to_ndarray(format="rgb24")) for frame, _ in found] == list(range(40))
    assert not any(missing for _, missing in found)


@pytest.mark.parametrize(("bad", "shown"), [(0, 1), (5, 4), (11, 10)])
@pytest.mark.parametrize("suffix", ["mkv", "avi"])
def test_every_frame_shows_another_for_one_that_cannot_be_decoded(
    tmp_path, write_video, read_number, suffix, bad, shown
):
    path = write_video(tmp_path / f"a.{suffix}", 12, codec="mjpeg", options={"strict": "unofficial"})
    spoil(path, bad)
    found = list(every_frame(probe(str(path))))
    numbers = [read_number(frame.to_ndarray(format="rgb24")) for frame, _ in found]
    missing = [missing for _, missing in found]
    assert len(found) == 12
    assert numbers == [shown if number == bad else number for number in range(12)]
    assert missing == [number == bad for number in range(12)]


def test_every_frame_leaves_out_what_an_edit_list_cuts_off(tmp_path, write_video, read_number):
    found = list(every_frame(probe(str(write_cut(tmp_path / "a.mp4", write_video)))))
    assert [read_number(frame.to_ndarray(format="rgb24")) for frame, _ in found] == list(range(10, 40))


def test_every_frame_refuses_a_file_that_has_changed(tmp_path, write_video):
    index = probe(str(write_video(tmp_path / "a.mp4", 5)))
    write_video(tmp_path / "a.mp4", 9)
    with pytest.raises(VideoError, match="changed since it was indexed"):
        next(every_frame(index))


def spoil(path, number):
    """Overwrite one frame of a file."""
    with av.open(str(path)) as container:
        payload = [bytes(packet) for packet in container.demux(video=0) if packet.size][number]
    path.write_bytes(path.read_bytes().replace(payload, bytes(len(payload))))


def write_cut(path, write_video):
    """A file of 40 frames, the first 10 of which are not shown."""
    times = [(number - 10) / 25 for number in range(40)]
    muxing = {"use_editlist": "1", "avoid_negative_ts": "disabled"}
    return write_video(path, 40, times=times, muxing=muxing, options={"g": "40"})


def test_resizing_happens_while_decoding(tmp_path, write_video, read_number):
    index = probe(str(write_video(tmp_path / "a.mp4")))
    decoded = read_frames(index, [7, 21], height=24, width=32)
    assert decoded.pixels.shape == (2, 24, 32, 3)
    assert numbers_in(decoded.pixels, read_number) == [7, 21]


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_turned_and_mirrored_videos_are_shown_as_a_player_shows_them(tmp_path, write_video, rotation, mirrored):
    plain = probe(str(write_video(tmp_path / "plain.mp4", 3)))
    path = str(write_video(tmp_path / "turned.mp4", 3, rotation=rotation, mirrored=mirrored))
    turned = probe(path)
    assert (turned.info.height, turned.info.width) == ((48, 64) if rotation % 180 == 0 else (64, 48))
    wanted = np.rot90(read_frames(plain, [2]).pixels[0], rotation // 90)
    wanted = wanted[:, ::-1] if mirrored else wanted
    assert np.array_equal(read_frames(turned, [2]).pixels[0], wanted)
    assert read_frames(turned, [2], height=20, width=30).pixels.shape == (1, 20, 30, 3)
    whole = open_whole(path)
    *_, (last, _) = whole.frames
    assert np.array_equal(to_rgb(last, whole.orientation, wanted.shape[:2], Scaler()).to_ndarray(), wanted)


@pytest.mark.parametrize(
    ("name", "shown"), [("mirrored", lambda coded: coded[:, ::-1]), ("upside_down_mirror", lambda coded: coded[::-1])]
)
def test_the_display_matrices_of_real_files_hold(shared_cases, name, shown):
    path = str(shared_cases / f"{name}.mp4")
    with av.open(path) as container:
        coded = next(container.decode(video=0)).to_ndarray(format="rgb24", interpolation="BILINEAR")
    assert np.array_equal(read_frames(probe(path), [0]).pixels[0], shown(coded))


@pytest.mark.parametrize("matrix", [[0] * 9, [46340, 46341, 0, -46341, 46340, 0, 0, 0, 1 << 30]])
def test_a_display_matrix_that_is_no_symmetry_gives_the_nearest(tmp_path, write_video, matrix):
    path = write_video(tmp_path / "a.mp4", 2, rotation=90)
    data = path.read_bytes()
    header = data.index(b"tkhd")
    at = data.index(struct.pack(">9i", 0, -65536, 0, 65536, 0, 0, 0, 48 << 16, 1 << 30)[:20], header)
    path.write_bytes(data[:at] + struct.pack(">9i", *matrix) + data[at + 36 :])
    index = probe(str(path))
    assert sorted((index.info.height, index.info.width)) == [48, 64]
    assert read_frames(index, [1]).pixels.shape == (1, index.info.height, index.info.width, 3)


def test_variable_frame_rate_is_read_by_time(tmp_path, write_video, read_number):
    times = [*np.arange(10) / 10, *(1 + np.arange(20) / 40), *(1.5 + np.arange(5) / 5)]
    index = probe(str(write_video(tmp_path / "a.mkv", 35, times=times)))
    assert np.allclose(index.info.times, times, atol=1e-3)
    assert index.info.duration == pytest.approx(2.3, abs=0.2)
    asked = np.array([-0.2, 0.0, 0.31, 0.99, 1.0, 1.26, 1.55, 2.25, 99.0])
    wanted = [0, 0, 3, 9, 10, 20, 30, 33, 34]
    assert index.frame_at(asked).tolist() == wanted
    assert numbers_in(read_frames(index, index.frame_at(asked)).pixels, read_number) == wanted


def test_times_rounded_to_the_clock_of_the_file_find_their_frame(tmp_path, write_video):
    index = probe(str(write_video(tmp_path / "a.mkv", 31, rate=30)))  # Matroska counts milliseconds
    assert index.frame_at(np.arange(31) / 30).tolist() == list(range(31))


def test_one_frame_is_a_video(tmp_path, write_video, read_number):
    index = probe(str(write_video(tmp_path / "a.mp4", 1)))
    assert index.info.frames == 1
    assert index.info.duration == pytest.approx(1 / 25)
    assert read_frames(index, [0, 0]).pixels.shape == (2, 48, 64, 3)


@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_a_truncated_file_gives_what_is_left_of_it(tmp_path, write_video, read_number, suffix):
    path = write_video(tmp_path / f"a.{suffix}", 120, muxing={"movflags": "faststart"} if suffix == "mp4" else {})
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    index = probe(str(path))
    assert 30 < index.info.frames < 120
    last = index.info.frames - 1
    decoded = read_frames(index, [3, last // 2, last])
    assert numbers_in(decoded.pixels[:2], read_number) == [3, last // 2]


def test_a_damaged_frame_shows_the_one_before_and_is_reported(tmp_path, write_video, read_number):
    path = write_video(tmp_path / "a.mkv", 12, codec="mjpeg", options={"strict": "unofficial"})
    spoil(path, 5)
    decoded = read_frames(probe(str(path)), range(12))
    assert numbers_in(decoded.pixels, read_number) == [0, 1, 2, 3, 4, 4, 6, 7, 8, 9, 10, 11]
    assert np.flatnonzero(decoded.filled).tolist() == [5]


def test_a_counted_file_with_fewer_frames_than_packets_holds_its_last(tmp_path, write_video, read_number):
    path = write_video(tmp_path / "a.avi", 12, codec="mjpeg", options={"strict": "unofficial"})
    spoil(path, 11)
    decoded = read_frames(probe(str(path)), [2, 10, 11])
    assert numbers_in(decoded.pixels, read_number) == [2, 10, 10]
    assert decoded.filled.tolist() == [False, False, True]


def test_frames_cut_off_by_an_edit_list_are_not_numbered(tmp_path, write_video, read_number):
    path = write_cut(tmp_path / "a.mp4", write_video)
    with av.open(str(path)) as container:
        assert sum(packet.is_discard for packet in container.demux(video=0)) == 10
    index = probe(str(path))
    assert index.info.frames == 30
    assert numbers_in(read_frames(index, [0, 1, 29]).pixels, read_number) == [10, 11, 39]


@pytest.mark.parametrize(
    ("name", "content"),
    [("empty.mp4", b""), ("text.mp4", b"no video at all\n" * 50), ("noise.mp4", bytes(range(256)) * 40)],
)
def test_what_is_no_video_is_named_with_its_cause(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(VideoError, match=name) as caught:
        probe(str(tmp_path / name))
    assert caught.value.cause
    assert "\n" not in str(caught.value)


def test_missing_files_folders_and_sound_are_named(tmp_path):
    with pytest.raises(VideoError, match="No such file"):
        probe(str(tmp_path / "absent.mp4"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(VideoError, match=r"folder"):
        probe(str(tmp_path / "folder"))
    with av.open(str(tmp_path / "sound.wav"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), dtype=np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
    with pytest.raises(VideoError, match="no video stream"):
        probe(str(tmp_path / "sound.wav"))


@pytest.mark.parametrize(
    ("suffix", "streams", "taken"),
    [
        ("mkv", [((32, 48), False), ((48, 64), True)], 1),
        ("mkv", [((32, 48), True), ((48, 64), False)], 0),
        ("mkv", [((32, 48), False), ((48, 64), False)], 1),
        ("mkv", [((48, 64), True), ((48, 64), True)], 0),
        ("mov", [((32, 48), False), ((48, 64), True)], 1),
        ("mov", [((32, 48), True), ((48, 64), True)], 1),
        ("ts", [((32, 48), False), ((48, 64), False)], 1),
        ("avi", [((48, 64), False), ((32, 48), False)], 0),
    ],
)
def test_of_two_video_streams_the_one_is_read_that_a_player_takes(tmp_path, draw_number, suffix, streams, taken):
    path = tmp_path / f"a.{suffix}"
    with av.open(str(path), "w", options={"default_mode": "passthrough"} if suffix == "mkv" else {}) as container:
        written = []
        for size, is_default in streams:
            stream = container.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
            stream.height, stream.width, stream.pix_fmt = *size, "yuv420p"
            stream.disposition = Disposition.default if is_default else Disposition(0)
            written.append(stream)
        for number in range(6):
            for at, (stream, (size, _)) in enumerate(zip(written, streams, strict=True)):
                shown = draw_number(number + 100 * (at == taken), *size)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(shown, format="rgb24")))
        for stream in written:
            container.mux(stream.encode())
    index = probe(str(path))
    height, width = streams[taken][0]
    assert (index.info.frames, index.info.height, index.info.width) == (6, height, width)
    wanted = draw_number(103, height, width).astype(int)
    assert np.abs(read_frames(index, [3]).pixels[0] - wanted).mean() < 12


def test_a_frame_that_does_not_exist_is_refused(tmp_path, write_video):
    index = probe(str(write_video(tmp_path / "a.mp4", 5)))
    with pytest.raises(IndexError, match="it has frames 0 to 4"):
        read_frames(index, [5])


def test_a_missing_decoder_is_said_at_import():
    code = "import sys; sys.modules['av'] = None; import vcycle.data.video"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: PyAV, which decodes videos, cannot be imported" in done.stderr


LOOKED_AT = 3
"""One frame of so many is compared: to make a picture of it takes as long as to decode it."""


def test_odd_files_give_the_frames_of_a_full_decode(shared_data):
    for path in sorted((shared_data / "odd_files").iterdir()):
        index = probe(str(path))
        expected = plain_decode(str(path), index.sequential)
        # A frame is known by its time or, where times cannot be trusted, by its count.
        keys = np.arange(index.info.frames) if index.sequential else index.pts[index.shown]
        missing = np.array([key not in expected for key in keys.tolist()])
        assert missing.sum() == ("corrupted" in path.name), path.name
        height, width = index.orientation.size(24, 32)
        last = index.info.frames - 1
        starts = np.linspace(0, last, 3).astype(int) // LOOKED_AT * LOOKED_AT
        clips = [np.minimum(start + LOOKED_AT * np.arange(4), last) for start in starts]
        for wanted in [np.arange(0, last + 1, LOOKED_AT), *clips]:
            decoded = read_frames(index, wanted, height=height, width=width)
            if "corrupted" not in path.name:
                assert not decoded.filled.any(), path.name
            pairs = [
                (pixels.astype(int), expected.get(key))
                for pixels, key in zip(decoded.pixels, keys[wanted], strict=True)
            ]
            wrong = [
                np.abs(pixels - index.orientation.apply(coded)).mean() for pixels, coded in pairs if coded is not None
            ]
            # How a damaged picture is mended depends on what was decoded before it.
            assert max(wrong) <= (1 if "corrupted" in path.name else 0), path.name
        found = list(every_frame(index))
        assert [missing for _, missing in found].count(True) >= missing.sum(), path.name
        assert len(found) == index.info.frames, path.name
        for (frame, _), key in zip(found, keys, strict=True):
            if expected.get(key) is not None:
                picture = frame.to_ndarray(format="rgb24", height=24, width=32, interpolation="BILINEAR", threads=1)
                assert np.array_equal(picture, expected[key]), path.name


def plain_decode(path, counted):
    """Every frame of the stream that FFmpeg finds best, by count or by time; the pictures of some."""
    found = {}
    with av.open(path) as container:
        stream = container.streams.best("video")
        stream.codec_context.thread_count = 1
        for packet in container.demux(stream):
            try:
                frames = packet.decode()
            except av.error.FFmpegError:
                continue
            for frame in frames:
                found[len(found) if counted else frame.pts] = (
                    frame.to_ndarray(format="rgb24", height=24, width=32, interpolation="BILINEAR", threads=1)
                    if len(found) % LOOKED_AT == 0
                    else None
                )
    return found


@pytest.mark.parametrize("deep", [False, True])
def test_a_scaler_used_before_converts_as_a_new_one(deep):
    """What it keeps from another size, pixel format, range or matrix must not show."""
    pixels = np.random.default_rng(0).integers(0, 256, (90, 64), dtype=np.uint8)
    frames = [VideoFrame.from_ndarray(pixels[: 3 * height // 2], format="yuv420p") for height in (60, 60, 40, 60)]
    frames[1].colorspace, frames[1].color_range = 1, 2  # BT.709, full range
    frames.append(VideoFrame.from_ndarray(pixels, format="gray"))
    used = Scaler()
    for _ in range(2):
        for frame in frames:
            for size in ((24, 40), (60, 64)):
                expected = frame.to_ndarray(
                    format="rgb48le" if deep else "rgb24", height=size[0], width=size[1], interpolation="BILINEAR"
                )
                assert np.array_equal(used(frame, *size, deep=deep).to_ndarray(), expected)
