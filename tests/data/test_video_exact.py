"""Any frames of any kind of file are the ones asked for, to the pixel: the frames carry their number."""

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcycle.data.video import probe, read_frames

FRAMES = 60

LONG = {"g": "250", "bf": "3", "b_strategy": "0"}
NOT_CONSTANT = [*np.arange(20) / 10, *(2 + np.arange(30) / 40), *(2.75 + np.arange(10) / 5)]
X264 = "keyint={}:bframes=3:b-adapt=0:{}"
AVIS = {"bf": "2", "g": "15"}

KINDS = {
    "mp4, one group": ("mp4", {"options": LONG}),
    "mp4, short groups": ("mp4", {"options": {"g": "4", "bf": "3", "b_strategy": "0"}}),
    "mp4, all key frames": ("mp4", {"options": {"g": "1", "bf": "0"}}),
    "mp4, open groups": ("mp4", {"options": {"x264-params": X264.format(10, "open-gop=1")}}),
    "mp4, pyramid": ("mp4", {"options": {"x264-params": X264.format(30, "bframes=7:b-pyramid=normal:ref=4")}}),
    "mp4, intra refresh": ("mp4", {"options": {"x264-params": "keyint=20:intra-refresh=1:bframes=0"}}),
    "mp4, four slices": ("mp4", {"options": {**LONG, "slices": "4"}}),
    "mp4, fragments": ("mp4", {"options": LONG, "muxing": {"movflags": "frag_keyframe+empty_moov"}}),
    "mp4, turned": ("mp4", {"options": LONG, "rotation": 180}),
    "mp4, ten bits": ("mp4", {"options": LONG, "pixels": "yuv420p10le"}),
    "mp4, H.265": ("mp4", {"codec": "libx265", "options": {"x265-params": "keyint=20:bframes=4:log-level=none"}}),
    "mp4, H.265, ten bits": (
        "mp4",
        {"codec": "libx265", "pixels": "yuv420p10le", "options": {"x265-params": "keyint=20:log-level=none"}},
    ),
    "mp4, MPEG-4": ("mp4", {"codec": "mpeg4", "options": AVIS}),
    "mov, ProRes": ("mov", {"codec": "prores", "pixels": "yuv422p10le"}),
    "mkv": ("mkv", {"options": LONG}),
    "mkv, variable rate": ("mkv", {"options": LONG, "times": NOT_CONSTANT}),
    "mp4, variable rate": ("mp4", {"options": LONG, "times": NOT_CONSTANT}),
    "mkv, no duration": ("mkv", {"options": LONG, "muxing": {"live": "1"}}),
    "mkv, MJPEG": ("mkv", {"codec": "mjpeg", "options": {"strict": "unofficial"}}),
    "mkv, FFV1": ("mkv", {"codec": "ffv1"}),
    "mkv, MPEG-2": ("mkv", {"codec": "mpeg2video", "options": AVIS}),
    "webm, VP8": ("webm", {"codec": "libvpx", "options": {"deadline": "realtime", "cpu-used": "8"}}),
    "webm, VP9": ("webm", {"codec": "libvpx-vp9", "options": {"deadline": "realtime", "cpu-used": "8", "g": "20"}}),
    "webm, AV1": ("webm", {"codec": "libsvtav1", "options": {"preset": "12", "g": "20", "svtav1-params": "lp=1"}}),
    "flv": ("flv", {"options": LONG}),
    "avi": ("avi", {"options": LONG}),
    "avi, MPEG-4": ("avi", {"codec": "mpeg4", "options": AVIS}),
    "avi, MJPEG": ("avi", {"codec": "mjpeg", "options": {"strict": "unofficial"}}),
    "asf, WMV": ("wmv", {"codec": "wmv2"}),
    "MPEG transport stream": ("ts", {"options": LONG}),
    "MPEG transport stream, open groups": ("ts", {"options": {"x264-params": X264.format(10, "open-gop=1")}}),
    "MPEG program stream": ("mpg", {"codec": "mpeg2video", "options": AVIS}),
    "raw H.264": ("h264", {"options": LONG}),
    "raw H.265": ("hevc", {"codec": "libx265", "options": {"x265-params": "keyint=20:log-level=none"}}),
    "gif": ("gif", {"codec": "gif", "pixels": "rgb8"}),
}


@pytest.fixture(scope="module")
def index_of(tmp_path_factory, write_video):
    """The index of a file of each kind, written when first asked for."""
    folder = tmp_path_factory.mktemp("kinds")
    known = {}

    def index(kind):
        if kind not in known:
            suffix, options = KINDS[kind]
            known[kind] = probe(str(write_video(folder / f"{len(known)}.{suffix}", FRAMES, **options)))
        return known[kind]

    return index


def decoded_in_order(path):
    with av.open(path) as container:
        frames = [frame.to_ndarray(format="rgb24", threads=1) for frame in container.decode(video=0)]
    return np.stack(frames)


@pytest.mark.parametrize("kind", KINDS)
def test_any_start_stride_and_count_gives_the_frames_asked_for(index_of, read_number, kind):
    index = index_of(kind)
    assert index.info.frames == FRAMES
    assert (np.diff(index.info.times) > 0).all()
    in_order = decoded_in_order(index.path)

    @settings(max_examples=25)
    @given(start=st.integers(0, FRAMES - 1), stride=st.integers(1, 20), count=st.integers(1, 16))
    def right(start, stride, count):
        wanted = np.minimum(start + stride * np.arange(count), FRAMES - 1)
        decoded = read_frames(index, wanted)
        shown = np.stack([index.orientation.apply(picture) for picture in in_order[wanted]])
        assert [read_number(each) for each in in_order[wanted]] == wanted.tolist()
        assert np.array_equal(decoded.pixels, shown)
        assert not decoded.filled.any()

    right()


@pytest.mark.parametrize("kind", ["mp4, one group", "mp4, open groups", "mkv, variable rate", "avi, MPEG-4"])
@settings(max_examples=30)
@given(wanted=st.lists(st.integers(0, FRAMES - 1), min_size=1, max_size=12))
def test_any_frames_in_any_order_and_with_repeats_lie_where_they_were_asked_for(index_of, read_number, kind, wanted):
    decoded = read_frames(index_of(kind), wanted)
    assert [read_number(each) for each in decoded.pixels] == wanted
