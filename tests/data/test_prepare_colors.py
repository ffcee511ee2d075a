"""Colors of a prepared video are its source's, however that codes and names them."""

from fractions import Fraction

import av
import numpy as np
import pytest
from av.video.reformatter import ColorRange, Colorspace

from vcycle.data import FileSource, FrameCache, PreparedSource, PrepareSettings, load_index, prepare_videos, read_videos
from vcycle.tasks.superres import prepare_frames

COLORS = np.array([[[220, 30, 30], [30, 200, 40]], [[40, 40, 210], [200, 180, 40]]], dtype=np.uint8)

SOURCES = {
    "untagged": {},
    "601": {"matrix": 6, "limits": ColorRange.MPEG},
    "709": {"matrix": 1, "limits": ColorRange.MPEG},
    "2020": {"matrix": 9, "limits": ColorRange.MPEG},
    "full": {"limits": ColorRange.JPEG},
    "full-709": {"matrix": 1, "limits": ColorRange.JPEG},
    "turned-709": {"matrix": 1, "limits": ColorRange.MPEG, "rotation": 90},
    "turned-full": {"limits": ColorRange.JPEG, "rotation": 180},
    "pq": {"matrix": 9, "transfer": 16, "limits": ColorRange.MPEG},
    "hlg": {"matrix": 9, "transfer": 18, "limits": ColorRange.MPEG},
    "odd-709": {"matrix": 1, "limits": ColorRange.MPEG, "size": (67, 75)},
    "odd-full": {"limits": ColorRange.JPEG, "size": (67, 75)},
}
"""Sources by what is special about them; where nothing is named, the pixels are BT.601 of limited range."""

LOW = PrepareSettings(levels=(32,))
_MATRICES = {1: Colorspace.ITU709, 6: Colorspace.ITU601, 9: Colorspace.BT2020}


def write_colored(path, *, matrix=None, transfer=None, limits=None, rotation=0, aspect=None, size=(64, 96)):
    """Six frames of a color in each corner; of odd sizes with a full picture of chroma, as H.264 wants it."""
    pixels = "yuv444p" if size[0] % 2 else "yuv420p"
    rows, columns = (np.arange(side) * 2 // side for side in size)
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=12, options={"crf": "5"})
        stream.height, stream.width, stream.pix_fmt = *size, pixels
        context = stream.codec_context
        if matrix is not None:
            context.colorspace = context.color_primaries = matrix
            context.color_trc = transfer or matrix
        if limits is not None:
            context.color_range = limits
        if aspect is not None:
            context.sample_aspect_ratio = aspect
        if rotation:
            stream.set_display_rotation(rotation)
        for _ in range(6):
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(COLORS[rows][:, columns]), format="rgb24")
            container.mux(
                stream.encode(
                    picture.reformat(
                        format=pixels,
                        dst_colorspace=_MATRICES[matrix or 6],
                        dst_color_range=limits or ColorRange.MPEG,
                    )
                )
            )
        container.mux(stream.encode())
    return path


def corners(pixels):
    """The colors in the midst of a picture's quarters."""
    height, width = pixels.shape[:2]
    return np.asarray(pixels)[height // 4 :: height // 2, width // 4 :: width // 2][:2, :2].astype(int)


def colors(source, item, size):
    read = source.read(item, np.array([3]), resized=size, crop=(0, 0, *size), antialias=True)
    return corners(read.pixels[0])


@pytest.fixture(scope="module")
def colored(tmp_path_factory):
    root = tmp_path_factory.mktemp("colored") / "set"
    for name, options in SOURCES.items():
        write_colored(root / "a" / f"{name}.mp4", **options)
    return read_videos(root, "train", val_fraction=0)


def test_the_sources_are_read_as_they_were_drawn(colored):
    files = FileSource(colored)
    for item, path in enumerate(colored.paths):
        turns = SOURCES[path.removeprefix("a/").removesuffix(".mp4")].get("rotation", 0) // 90
        info = files.info(item)
        assert np.abs(colors(files, item, (info.height, info.width)) - np.rot90(COLORS, turns)).max() <= 4, path


@pytest.mark.parametrize("to", ["video", "array"])
@pytest.mark.parametrize("crf", [None, 1])
def test_prepared_videos_have_their_sources_colors_in_every_level(colored, tmp_path, to, crf):
    options = {} if crf is None else {"crf": crf}
    report = prepare_videos({"train": colored}, tmp_path, PrepareSettings(to=to, levels=(32, 64), **options))
    assert not report.failed
    files, index = FileSource(colored), load_index(tmp_path)
    source = PreparedSource(index, "train")
    for item, path in enumerate(colored.paths):
        for level in range(2):
            size = tuple(index.columns["size"][source.rows[item], level].tolist())
            assert source.level_for(item, size) == level
            assert np.abs(colors(source, item, size) - colors(files, item, size)).max() <= 6, (path, size)


def test_prepared_videos_say_how_their_colors_are_coded(colored, tmp_path):
    prepare_videos({"train": colored}, tmp_path, LOW)
    for name, options in SOURCES.items():
        primaries = options.get("matrix", 2)  # 2: not named
        with av.open(str(tmp_path / f"32px/train/a/{name}.mp4")) as container:
            context = container.streams.video[0].codec_context
            named = context.colorspace, context.color_primaries, context.color_trc, context.color_range
            assert named == (1, primaries, options.get("transfer", primaries), ColorRange.MPEG), name


def test_prepared_videos_keep_the_sample_aspect_ratio(tmp_path):
    for name, aspect, rotation in (
        ("wide", Fraction(32, 27), 0),
        ("turned", Fraction(32, 27), 90),
        ("square", None, 0),
    ):
        write_colored(tmp_path / f"set/a/{name}.mp4", aspect=aspect, rotation=rotation)
    prepare_videos({"train": read_videos(tmp_path / "set", "train", val_fraction=0)}, tmp_path / "out", LOW)
    for name, wanted in (("wide", Fraction(32, 27)), ("turned", Fraction(27, 32)), ("square", 1)):
        with av.open(str(tmp_path / f"out/32px/train/a/{name}.mp4")) as container:
            assert (container.streams.video[0].sample_aspect_ratio or 1) == wanted, name


def test_a_cache_and_tiles_have_them_too(colored, tmp_path):
    files = FileSource(colored)
    cache = FrameCache.build(colored, tmp_path / "cache", short_side=64)
    tiles = prepare_frames(colored.root, tmp_path / "tiles", degradation=None).store.high
    halved = prepare_frames(colored.root, tmp_path / "halved", degradation=None, resize=Fraction(1, 2)).store.high
    for name in SOURCES:
        item = colored.paths.index(f"a/{name}.mp4")
        size = files.info(item).height, files.info(item).width
        wanted = colors(files, item, size)
        assert np.abs(colors(cache, item, size) - wanted).max() <= 2, name
        for clips in (tiles, halved):
            (picture,) = clips.read(clips.names.index(f"a/{name}.mp4"), [3])
            assert np.abs(corners(picture) - wanted).max() <= 2, name
