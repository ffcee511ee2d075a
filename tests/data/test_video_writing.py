"""A video written with the time stamps and the sound of another."""

from fractions import Fraction

import av
import numpy as np
import pytest

from vcycle.data.prepare.decoding import open_whole, to_rgb
from vcycle.data.video import probe, read_frames
from vcycle.data.video.scaling import Scaler
from vcycle.data.video.writing import written_video
from vcycle.errors import DataError


def rewritten(source, out, size=(64, 96), **options):
    whole, scale = open_whole(str(source)), Scaler()
    with written_video(out, size=size, clock=whole.clock, rate=whole.info.fps, **options) as writer:
        for number, (frame, _) in enumerate(whole.frames):
            writer.put(to_rgb(frame, whole.orientation, size, scale).to_ndarray(), int(whole.pts[number]))
    return probe(str(source)), probe(str(out))


def sound(path):
    """Codec of a file's sound, and time and size of its packets."""
    with av.open(str(path)) as container:
        if not container.streams.audio:
            return None
        stream = container.streams.audio[0]
        packets = [(float(p.pts * p.time_base), p.size) for p in container.demux(stream) if p.pts is not None]
        return stream.codec_context.name, packets


@pytest.mark.parametrize("kind", ["mp4", "mov", "mkv"])
@pytest.mark.parametrize("times", [None, [0.0, 0.04, 0.12, 0.14, 0.26, 0.3, 0.34, 0.42, 0.44, 0.56]])
def test_frames_keep_their_times(kind, times, tmp_path, write_video):
    source = write_video(tmp_path / "in.mkv", 10, **({} if times is None else {"times": times, "options": {"bf": "0"}}))
    before, after = rewritten(source, tmp_path / f"out.{kind}")
    assert after.info.frames == 10
    assert (after.info.height, after.info.width) == (64, 96)
    shown = after.info.times - after.info.times[0]
    assert np.allclose(shown, before.info.times - before.info.times[0], atol=2e-3)


def test_colors_come_back_and_are_named(tmp_path):
    colors = [(200, 30, 40), (20, 180, 60), (10, 40, 220), (128, 128, 128), (255, 255, 255), (0, 0, 0)]
    with written_video(tmp_path / "c.mp4", size=(64, 96), clock=Fraction(1, 24), rate=24) as writer:
        for number, color in enumerate(colors):
            writer.put(np.full((64, 96, 3), color, dtype=np.uint8), number)
    pixels = read_frames(probe(str(tmp_path / "c.mp4")), range(len(colors))).pixels
    assert np.abs(pixels[:, 30, 40].astype(int) - colors).max() <= 3
    with av.open(str(tmp_path / "c.mp4")) as container:
        context = container.streams.video[0].codec_context
        assert (context.colorspace, context.color_primaries, context.color_trc) == (1, 1, 1)


def test_sound_is_copied_packet_by_packet(tmp_path, shared_data):
    for name in ("scenes/01_dog.mp4", "odd_files/decord__flipping_a_pancake.mkv", "odd_files/mmaction2__test.avi"):
        source, out = shared_data / name, tmp_path / "out.mkv"
        before, after = rewritten(source, out, size=(36, 64), sound_of=str(source))
        assert after.info.frames == before.info.frames
        (codec, heard), (copied_codec, copied) = sound(source), sound(out)
        assert copied_codec == codec
        # What was to be heard before the first picture is left out: an encoder's run-up of a packet.
        kept = [(time, size) for time, size in heard if time >= 0][-len(copied) :]
        assert len(heard) - len(copied) <= 1
        assert [size for _, size in copied] == [size for _, size in kept]
        assert np.allclose([time for time, _ in copied], [time for time, _ in kept], atol=0.03)


def heard_video(path, codec, begin):
    """A second of pictures and sound that both begin at a time; its packets' times of sound."""
    with av.open(str(path), "w") as container:
        pictures = container.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
        pictures.height = pictures.width = 32
        pictures.pix_fmt = "yuv420p"
        voice = container.add_stream(codec, rate=48_000)
        voice.layout = "mono"
        for number in range(25):
            frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), dtype=np.uint8), format="rgb24")
            frame.pts, frame.time_base = number + 25 * begin, Fraction(1, 25)
            container.mux(pictures.encode(frame))
            kind = voice.codec_context.format.name
            silence = np.zeros((1, 1920), dtype=np.float32 if "flt" in kind else np.int16)
            samples = av.AudioFrame.from_ndarray(silence, format=kind, layout="mono")
            samples.rate, samples.pts, samples.time_base = 48_000, 1920 * (number + 25 * begin), Fraction(1, 48_000)
            container.mux(voice.encode(samples))
        container.mux(pictures.encode(None))
        container.mux(voice.encode(None))


@pytest.mark.parametrize("name", ["in.mkv", "in.ts", "in.mp4"])
@pytest.mark.parametrize("begin", [0, 3])
def test_sound_begins_with_the_pictures_wherever_those_began(name, begin, tmp_path):
    heard_video(tmp_path / name, "aac", begin)
    for out in (tmp_path / "out.mkv", tmp_path / "out.mp4"):
        rewritten(tmp_path / name, out, size=(32, 32), sound_of=str(tmp_path / name))
        with av.open(str(out)) as container:
            starts = [float(stream.start_time * stream.time_base) for stream in container.streams]
        assert starts == pytest.approx([0, 0], abs=0.05)
        assert sound(out)[1][-1][0] == pytest.approx(1, abs=0.08)


def test_sound_that_does_not_fit_is_refused_before_a_frame_is_written(tmp_path):
    heard_video(tmp_path / "in.mkv", "flac", 0)
    with (
        pytest.raises(DataError, match=r"\.mov cannot hold the audio of .*in\.mkv \(flac\); use \.mkv"),
        written_video(
            tmp_path / "x.mov", size=(32, 32), clock=Fraction(1, 25), rate=25, sound_of=str(tmp_path / "in.mkv")
        ),
    ):
        pytest.fail("it was begun")
    assert [path.name for path in tmp_path.iterdir()] == ["in.mkv"]


def test_a_video_without_sound_is_written_without(tmp_path, write_video):
    source = write_video(tmp_path / "in.mp4", 5)
    rewritten(source, tmp_path / "out.mp4", sound_of=str(source))
    assert sound(tmp_path / "out.mp4") is None


def test_what_was_cut_short_leaves_nothing(tmp_path):
    def broken():
        with written_video(tmp_path / "x.mp4", size=(32, 32), clock=Fraction(1, 10), rate=10) as writer:
            writer.put(np.zeros((32, 32, 3), dtype=np.uint8), 0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x.gif", r"x\.gif: a video cannot be written as '\.gif'; accepted: \.mp4, \.m4v, \.mov, \.mkv"),
        ("x", r"accepted: \.mp4"),
        ("no folder/x.mp4", r"no folder/x\.mp4: cannot be written: No such file or directory"),
    ],
)
def test_where_it_cannot_be_written_is_one_line(name, said, tmp_path):
    with (
        pytest.raises(DataError, match=said),
        written_video(tmp_path / name, size=(32, 32), clock=Fraction(1, 10), rate=10),
    ):
        pass
