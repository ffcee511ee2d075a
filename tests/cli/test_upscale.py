"""`vcycle upscale`: a real file in, a real file out."""

import json
import re
from fractions import Fraction

import av
import numpy as np
import pytest
import torch
from av.video.reformatter import ColorRange
from matplotlib.image import imread, imsave

from vcycle.cli.app import app
from vcycle.data.video import probe, read_frames
from vcycle.errors import DataError, VcycleError
from vcycle.tasks.loaded_model import LoadedModel
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.superres.models.basicvsr.network import BasicVSR
from vcycle.tasks.superres.restoring import middle_frame
from vcycle.tasks.superres.task import SUPERRESOLUTION


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A network that has learnt nothing, and so enlarges by interpolation."""
    path = tmp_path_factory.mktemp("model") / "tiny.pth"
    torch.manual_seed(0)
    torch.save(BasicVSR(blocks=1, channels=8, head_channels=8).state_dict(), path)
    return path


@pytest.fixture
def write_cut_video():
    """Writes the first half of a file of 5 seconds."""

    def write(path):
        draw = np.random.default_rng(0)
        with av.open(str(path), "w") as container:
            stream = container.add_stream("libx264", rate=10, options={"preset": "ultrafast"})
            stream.height, stream.width, stream.pix_fmt = 24, 32, "yuv420p"
            for _ in range(50):
                pixels = draw.integers(0, 256, size=(24, 32, 3), dtype=np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            container.mux(stream.encode())
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        return path

    return write


@pytest.fixture(scope="module")
def video(digit_videos):
    return next(iter(sorted(digit_videos.rglob("*.mp4"))))


def upscale(*arguments):
    app(["upscale", *map(str, arguments)], standalone_mode=False)


def test_every_frame_is_restored_in_its_time(model, video, tmp_path, capsys):
    out = tmp_path / "out.mkv"
    upscale(model, video, "-o", out, "--chunk", 4, "--overlap", 2, "--compare", tmp_path / "pictures/c.png", "--json")
    said = json.loads(capsys.readouterr().out)
    before, after = probe(str(video)).info, probe(str(out)).info
    assert said == {
        "out": str(out),
        "frames": before.frames,
        "missing": 0,
        "width": 4 * before.width,
        "height": 4 * before.height,
    }
    assert (after.frames, after.height, after.width) == (before.frames, 4 * before.height, 4 * before.width)
    assert np.allclose(after.times - after.times[0], before.times - before.times[0], atol=1e-3)
    last = [before.frames - 1]
    small = read_frames(probe(str(video)), last).pixels[0].astype(float)
    large = read_frames(probe(str(out)), last).pixels[0].astype(float)
    averaged = large.reshape(before.height, 4, before.width, 4, 3).mean((1, 3))
    assert np.abs(averaged - small).mean() < 6
    title, larger = 24, -(-260 // (4 * before.width))  # a small picture is enlarged by a whole number
    size = (title + larger * 4 * before.height, larger * 8 * before.width)
    picture = imread(tmp_path / "pictures/c.png")[..., :3]
    assert picture.shape[:2] == size
    assert all((half[:title] < 0.5).any() for half in np.split(picture, 2, axis=1))  # both have a title


def write_video(path, *, size=(32, 48), pixels="yuv420p", colors=(2, 2, 2), aspect=None, rotation=0, mirrored=False):
    """Four frames of a bright corner; coded by BT.2020 where the colors say so, as they are named."""
    picture = np.full((*size, 3), (60, 90, 120), dtype=np.uint8)
    picture[: size[0] // 2, : size[1] // 4] = (200, 40, 30)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10, options={"crf": "5"})
        stream.height, stream.width, stream.pix_fmt = *size, pixels
        context = stream.codec_context
        context.colorspace, context.color_primaries, context.color_trc = colors
        context.color_range = ColorRange.MPEG
        if aspect is not None:
            context.sample_aspect_ratio = aspect
        if rotation or mirrored:
            stream.set_display_rotation(rotation, hflip=mirrored)
        matrix = 5 if colors[0] == 2 else colors[0]
        for _ in range(4):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            container.mux(stream.encode(frame.reformat(format=pixels, dst_colorspace=matrix, dst_color_range=1)))
        container.mux(stream.encode())
    return path


def described(path):
    """Pixel format, matrix, primaries, transfer, range and sample aspect ratio."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        found = stream.codec_context
        colors = (found.colorspace, found.color_primaries, found.color_trc, found.color_range)
        return found.pix_fmt, colors, stream.sample_aspect_ratio or 1


def planes(path):
    """Luma and both chromas of the second frame as they are coded, in 0..1, at the size of the source."""
    with av.open(str(path)) as container:
        frame = list(container.decode(video=0))[1]
    coded = frame.reformat(width=48, height=32, format="yuv444p16le", interpolation="AREA", threads=1)
    return coded.to_ndarray(channel_last=True).astype(float) / 65535


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "mov"])
@pytest.mark.parametrize(("rotation", "kept"), [(0, Fraction(32, 27)), (90, Fraction(27, 32)), (180, Fraction(32, 27))])
def test_the_sample_aspect_ratio_is_kept_as_a_player_shows_it(model, tmp_path, suffix, rotation, kept):
    video = write_video(tmp_path / "in.mp4", aspect=Fraction(32, 27), rotation=rotation)
    upscale(model, video, "-o", tmp_path / f"out.{suffix}")
    assert described(tmp_path / f"out.{suffix}")[2] == kept


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize(
    ("named", "pixels", "written"),
    [
        ((9, 9, 16), "yuv420p10le", (9, 9, 16)),  # PQ
        ((9, 9, 18), "yuv420p10le", (9, 9, 18)),  # HLG
        ((9, 9, 14), "yuv420p", (9, 9, 14)),  # BT.2020 that is no HDR
        ((6, 6, 6), "yuv420p", (6, 6, 6)),
        ((5, 5, 5), "yuv420p", (5, 5, 5)),
        ((1, 1, 1), "yuv420p", (1, 1, 1)),
        ((2, 2, 2), "yuv420p", (6, 2, 2)),  # players take BT.601 at this size
    ],
)
def test_colors_are_named_as_the_source_names_them_and_coded_alike(model, tmp_path, named, pixels, written, suffix):
    video = write_video(tmp_path / "in.mp4", pixels=pixels, colors=named)
    upscale(model, video, "-o", tmp_path / f"out.{suffix}")
    assert described(tmp_path / f"out.{suffix}") == (pixels, (*written, ColorRange.MPEG), 1)
    # What is enlarged by interpolation has the source's code values, but for the edge of the corner.
    before, after = planes(video), planes(tmp_path / f"out.{suffix}")
    wrong = np.abs(after - before)
    assert wrong[20:, 16:].max() < 0.02
    assert wrong[:12, :8].max() < 0.02


def test_colors_that_are_not_named_are_those_of_the_sources_size(model, tmp_path):
    upscale(model, write_video(tmp_path / "in.mp4", size=(16, 1280)), "-o", tmp_path / "out.mp4")
    assert described(tmp_path / "out.mp4")[1] == (1, 2, 2, ColorRange.MPEG)


def test_colors_that_cannot_be_converted_are_refused_in_a_line(model, tmp_path):
    named = write_video(tmp_path / "named.mkv", colors=(14, 9, 16), pixels="yuv420p10le")
    with pytest.raises(DataError, match=r"named\.mkv: its colors use matrix 14 of ITU-T H\.273, which cannot be"):
        upscale(model, named, "-o", tmp_path / "out.mp4")
    assert not (tmp_path / "out.mp4").exists()


def test_a_mirrored_video_is_restored_as_it_is_shown(model, tmp_path):
    upscale(model, write_video(tmp_path / "in.mp4", mirrored=True), "-o", tmp_path / "out.mp4")
    picture = read_frames(probe(str(tmp_path / "out.mp4")), [1]).pixels[0]
    assert picture[20, -20, 0] > 150
    assert picture[20, 20, 0] < 100


@pytest.mark.parametrize("rate", [25, 0.5])
def test_a_folder_of_pictures_is_restored_at_a_rate(model, tmp_path, capsys, rate):
    for number in range(5):
        (tmp_path / "in").mkdir(exist_ok=True)
        imsave(tmp_path / f"in/{number}.png", np.full((16, 24, 3), 20 + 40 * number, dtype=np.uint8))
    out = tmp_path / "out.mp4"
    upscale(model, tmp_path / "in", "-o", out, "--frame-rate", rate, "--compare", tmp_path / "c.png", "--json")
    assert json.loads(capsys.readouterr().out)["frames"] == 5
    index = probe(str(out))
    assert (index.info.frames, index.info.height, index.info.width) == (5, 64, 96)
    assert np.allclose(index.info.times, np.arange(5) / rate)
    means = read_frames(index, range(5)).pixels.mean((1, 2, 3))
    assert np.abs(means - (20 + 40 * np.arange(5))).max() < 6
    halves = np.split(imread(tmp_path / "c.png")[24:, :, :3], 2, axis=1)
    assert [half.shape for half in halves] == [(3 * 64, 3 * 96, 3)] * 2
    assert np.abs(halves[0] - 100 / 255).max() < 0.01
    assert described(out)[1] == (1, 1, 1, ColorRange.MPEG)


def test_the_original_is_shown_beside_with_the_psnr_of_both(model, tmp_path, capsys):
    draw = np.random.default_rng(0)
    for number in range(3):
        large = draw.integers(0, 256, size=(64, 96, 3), dtype=np.uint8)
        for name, pixels in (("in", large[::4, ::4]), ("original", large)):
            (tmp_path / name).mkdir(exist_ok=True)
            imsave(tmp_path / f"{name}/{number}.png", pixels)
    given = (model, tmp_path / "in", "-o", tmp_path / "out.mp4", "--frame-rate", 5)
    upscale(*given, "--compare", tmp_path / "c.png", "--reference", tmp_path / "original")
    assert re.search(r"the middle frame: bicubic, \d+\.\d\d dB; model, \d+\.\d\d dB; original", capsys.readouterr().err)
    shown = np.split(imread(tmp_path / "c.png")[24:, :, :3], 3, axis=1)[2][1::3, 1::3]
    assert np.abs(shown - imread(tmp_path / "original/1.png")[..., :3]).max() < 0.01
    with pytest.raises(VcycleError, match="give its name with --compare FILE"):
        upscale(*given, "--reference", tmp_path / "original")
    with pytest.raises(VcycleError, match=r"has 3 frames of 24 × 16; the original of .* has 3 of 96 × 64"):
        upscale(*given, "--compare", tmp_path / "c.png", "--reference", tmp_path / "in")


def test_a_folder_without_a_rate_and_a_rate_of_a_file_are_refused(model, video, tmp_path):
    (tmp_path / "in").mkdir()
    out = ("-o", tmp_path / "out.mp4")
    with pytest.raises(VcycleError, match=r"in is a folder: give the frame rate of its images with --frame-rate FPS"):
        upscale(model, tmp_path / "in", *out)
    with pytest.raises(VcycleError, match=r"frame rate 25 applies to image folders only; .* is a file"):
        upscale(model, video, *out, "--frame-rate", 25)
    with pytest.raises(VcycleError, match=r"frame rate 0: must be above 0 and at most 1000 frames per second"):
        upscale(model, tmp_path / "in", *out, "--frame-rate", 0)
    with pytest.raises(DataError, match=r"in: no pictures; supported: "):
        upscale(model, tmp_path / "in", *out, "--frame-rate", 25)
    assert not (tmp_path / "out.mp4").exists()


def test_real_files_keep_their_colors_and_the_shape_of_their_pixels(model, shared_cases, tmp_path):
    for name in ("anamorphic.mp4", "anamorphic.mkv", "hlg.mp4", "pq.mp4"):
        upscale(model, shared_cases / name, "-o", tmp_path / name)
        before, after = described(shared_cases / name), described(tmp_path / name)
        assert after[2] == before[2], name
        if before[1][0] != 2:
            assert (after[0], after[1]) == (before[0], before[1]), name


def test_a_higher_crf_makes_a_smaller_file_and_17_is_the_default(model, video, tmp_path):
    sizes = []
    for crf, given in ((5, ["--crf", 5]), (17, []), (45, ["--crf", 45])):
        out = tmp_path / f"{crf}.mp4"
        upscale(model, video, "-o", out, *given)
        assert f" crf={crf}.0 ".encode() in out.read_bytes()  # x264 writes down its settings
        sizes.append(out.stat().st_size)
    assert sizes == sorted(sizes, reverse=True)


def test_what_cannot_be_is_refused_in_a_line(model, video, tmp_path):
    with pytest.raises(VcycleError, match="is the video itself"):
        upscale(model, video, "-o", video)
    with pytest.raises(VcycleError, match=r"--device 'tpu' is unknown: auto, cpu or cuda"):
        upscale(model, video, "-o", tmp_path / "x.mp4", "--device", "tpu")
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    with pytest.raises(DataError, match=r"bad\.mp4"):
        upscale(model, tmp_path / "bad.mp4", "-o", tmp_path / "x.mp4")
    with pytest.raises(VcycleError, match=r"figure c\.doc cannot be written: a name that ends in"):
        upscale(model, video, "-o", tmp_path / "x.mp4", "--compare", "c.doc")
    with pytest.raises(DataError, match=r"accepted: \.mp4"):
        upscale(model, video, "-o", tmp_path / "x.gif")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.mp4"]


def test_output_that_is_not_numbers_ends_it_and_leaves_no_file(video, tmp_path):
    network = BasicVSR(blocks=1, channels=8, head_channels=8)
    for parameter in network.head.parameters():
        torch.nn.init.constant_(parameter, 1e30)  # of two layers in a row: whatever comes in, what comes out is none
    torch.save(network.state_dict(), tmp_path / "large.pth")
    with pytest.raises(
        DataError, match=rf"{video.name}: the model's output is not finite: its weights are not finite, or"
    ):
        upscale(tmp_path / "large.pth", video, "-o", tmp_path / "x.mp4")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["large.pth"]


def test_a_cut_file_is_restored_and_called_cut(model, write_cut_video, tmp_path, capsys):
    cut = write_cut_video(tmp_path / "cut.mkv")
    upscale(model, cut, "-o", tmp_path / "out.mp4", "--json")
    said = capsys.readouterr()
    info = probe(str(cut)).info
    assert info.incomplete.startswith("ends after 2.")
    assert f"warning: {cut}: {info.incomplete}; the readable part is restored" in said.err.replace("\n", " ")
    assert json.loads(said.out)["incomplete"] == info.incomplete
    assert probe(str(tmp_path / "out.mp4")).info.frames == info.frames


@pytest.fixture(scope="module")
def loaded():
    network = BasicVSR(blocks=1, channels=8, head_channels=8).eval()
    recipe = load_recipe("reds/basicvsr_m")
    return LoadedModel(model=network, task=SUPERRESOLUTION, recipe=recipe, classes=(), origin="", step=0)


def test_in_python_too_a_cut_file_is_called_cut(loaded, write_cut_video, tmp_path):
    cut = write_cut_video(tmp_path / "cut.mkv")
    with pytest.warns(UserWarning, match=r"cut\.mkv: ends after 2\..* s; the readable part is restored"):
        loaded.upscale(cut, tmp_path / "out.mp4")
    assert probe(str(tmp_path / "out.mp4")).info.frames == probe(str(cut)).info.frames


def test_in_python_too_what_cannot_be_is_refused_in_a_line(loaded, video, tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "link.mp4").symlink_to(video)
    before, frames, out = video.read_bytes(), np.zeros((2, 16, 24, 3), np.uint8), tmp_path / "out.mp4"
    for message, given, options in (
        ("is the video itself: choose another file", (video, video), {}),
        ("is the video itself: choose another file", (str(video), tmp_path / "link.mp4"), {}),
        ("frame rate 25 applies to image folders only; .* is a file", (video, out), {"frame_rate": 25}),
        ("pictures is a folder: give the frame rate .*frame_rate=FPS", (tmp_path / "pictures", out), {}),
        ("frame rate 0: must be above 0", (tmp_path / "pictures", out), {"frame_rate": 0}),
        ("out=.*: for a video at a path", (frames, out), {}),
        ("crf=23: for a video at a path", (frames,), {"crf": 23}),
        ("frame_rate=25: for a video at a path", (frames,), {"frame_rate": 25}),
    ):
        with pytest.raises(DataError, match=message):
            loaded.upscale(*given, **options)
    assert video.read_bytes() == before
    assert not out.exists()


def test_a_file_has_its_own_colors_whatever_the_rate(tmp_path):
    video = write_video(tmp_path / "in.mp4", size=(16, 1280))  # no matrix is named: that of BT.709
    assert np.array_equal(middle_frame(str(video), frame_rate=25), middle_frame(str(video)))
