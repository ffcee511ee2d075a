import json
import shutil

import av
import numpy as np
import pytest
import torch

from vcycle.data import (
    FileSource,
    GridSampler,
    PreparedSource,
    PrepareSettings,
    SampleRequest,
    VideoDataset,
    VideoError,
    VideoList,
    load_index,
    prepare_videos,
    probe,
    read_frames,
    read_list,
    read_videos,
)
from vcycle.data.video.orientation import UPRIGHT
from vcycle.plan import Shape

VIDEO = PrepareSettings(levels=(24, 48))
ARRAY = PrepareSettings(to="array", levels=(24, 48))
FORMS = pytest.mark.parametrize("settings", [VIDEO, ARRAY], ids=["video", "array"])


@pytest.fixture(scope="module", params=[VIDEO, ARRAY], ids=["video", "array"])
def prepared(prepare, request, video_set, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared") / "out"
    return out, prepare(video_set, out, request.param)


def test_splits_classes_labels_and_names_are_kept(splits_of, prepared, video_set):
    index = load_index(prepared[0])
    for split, videos in splits_of(video_set).items():
        kept = index.videos(split)
        assert kept.classes == videos.classes == ("run", "sit")
        names = [path.partition("/")[2].removesuffix(index.settings.suffix) for path in kept.paths]
        originals = [f"{split}/{path}" for path in videos.paths if "none" not in path]
        assert names == [
            name if "same" in name else name.rpartition(".")[0] for name in originals
        ]  # a name that two files would share keeps its ending
        assert [kept.labels[item] for item in range(len(kept))] == [
            videos.labels[item] for item in range(len(videos)) if "none" not in videos.paths[item]
        ]


def test_every_frame_is_the_sources_at_its_time(splits_of, prepared, video_set, read_number):
    index = load_index(prepared[0])
    source = PreparedSource(index, "train")
    videos = splits_of(video_set)["train"]
    files = FileSource(videos)
    originals = [item for item in range(len(videos)) if "none" not in videos.paths[item]]
    for item, original in enumerate(originals):
        info, wanted = source.info(item), files.info(original)
        assert info.times == pytest.approx(wanted.times)
        assert (info.duration, info.height, info.width) == (
            pytest.approx(wanted.duration),
            wanted.height,
            wanted.width,
        )
        numbers = np.arange(info.frames)[::-2]
        size = (info.height, info.width)
        read, expected = (
            frames.read(n, numbers, resized=size, crop=(0, 0, *size), antialias=True)
            for frames, n in ((source, item), (files, original))
        )
        assert read.filled == 0
        assert (read.pixels.float() - expected.pixels.float()).abs().mean() < 12
        if "turned" not in videos.paths[original]:
            assert [read_number(picture.numpy()) for picture in read.pixels] == numbers.tolist()


def test_files_are_clean(prepare, video_set, tmp_path):
    prepare(video_set, tmp_path / "out", VIDEO)
    sizes = {}
    for path in (tmp_path / "out").rglob("*.mp4"):
        index = probe(str(path))
        assert not index.sequential
        assert (np.diff(index.pts) > 0).all()  # no B-frames: decoded in the order shown
        assert np.flatnonzero(index.keyframe).tolist() == list(range(0, index.info.frames, 12))
        assert index.info.times[0] == 0
        assert index.orientation == UPRIGHT
        sizes[str(path.relative_to(tmp_path / "out"))] = index.info.height, index.info.width
    assert sizes["24px/train/run/b frames.mp4"] == (24, 32)
    assert sizes["48px/train/run/b frames.mp4"] == (48, 64)
    assert sizes["24px/train/sit/turned.mp4"] == (24, 36)
    assert sizes["24px/train/sit/small.mp4"] == (18, 24)  # never enlarged
    assert "48px/train/sit/small.mp4" not in sizes  # the level below is as large


def test_the_index_says_what_probing_would(prepare, video_set, tmp_path):
    prepare(video_set, tmp_path / "out", VIDEO)
    source = PreparedSource(tmp_path / "out", "train")
    for item, row in enumerate(source.rows.tolist()):
        level = source.level_for(item, (1, 1))
        index, probed = source._video(row, level), probe(str(source.index.file(row, level)))
        for name in ("pts", "keyframe", "droppable", "shown"):
            assert getattr(index, name).tolist() == getattr(probed, name).tolist()
        assert index.info.times == pytest.approx(probed.info.times)
        assert index.info.tolerance == probed.info.tolerance
        assert (index.info.height, index.info.width) == (probed.info.height, probed.info.width)
        assert index.orientation == probed.orientation == UPRIGHT
        assert (index.sequential, index.demuxer, index.size) == (False, probed.demuxer, probed.size)


def test_the_smallest_level_that_is_large_enough_is_read(prepared):
    source = PreparedSource(prepared[0], "train")
    item = next(n for n in range(len(source.rows)) if "b frames" in source.index.name(int(source.rows[n])))
    assert [source.level_for(item, size) for size in ((16, 20), (24, 32), (24, 33), (48, 64), (96, 128))] == [
        *(0, 0, 1, 1),
        1,
    ]
    small = next(n for n in range(len(source.rows)) if "small" in source.index.name(int(source.rows[n])))
    assert source.level_for(small, (96, 128)) == 0


def test_clips_of_a_prepared_dataset_are_those_of_the_files(splits_of, prepared, video_set):
    out, _ = prepared
    videos = splits_of(video_set)["val"]
    grids = GridSampler(frames=8, size=48, field=(0.6, 1.0), flip=True)
    index = load_index(out)
    original = VideoDataset(videos, grids)
    fast = VideoDataset(index.videos("val"), grids, source=PreparedSource(index, "val"))
    for item in range(2):
        for side in (16, 24, 40):
            request = SampleRequest(item, Shape(4, side, side), (0, 0, item))
            wanted, got = original[request], fast[request]
            assert (got.label, got.clip.shape) == (wanted.label, wanted.clip.shape)
            assert (got.clip.float() - wanted.clip.float()).abs().mean() < 12


def test_nothing_is_opened_before_a_clip_is_read(prepare, video_set, tmp_path):
    out = tmp_path / "out"
    prepare(video_set, out, VIDEO)
    for folder in out.glob("*px"):
        shutil.rmtree(folder)
    source = PreparedSource(out, "train")
    assert source.info(0).frames == 30
    with pytest.raises(VideoError, match=r"b frames\.mp4: No such file"):
        source.read(0, np.array([0]), resized=(48, 64), crop=(0, 0, 48, 64), antialias=True)


def test_a_bad_file_is_left_out_and_reported(prepared, video_set):
    out, report = prepared
    assert list(report.failed) == [str(video_set / "train/sit/none.mp4")]
    assert report.videos == 11
    written = json.loads((out / "report.json").read_text())
    assert [entry["path"] for entry in written["failed"]] == list(report.failed)
    assert list(load_index(out).failures) == ["train/sit/none"]


@FORMS
def test_frames_that_could_not_be_decoded_are_still_reported(tmp_path, write_video, settings):
    path = write_video(tmp_path / "set/run/a.mkv", 12, codec="mjpeg", options={"strict": "unofficial"})
    with av.open(str(path)) as container:
        payload = [bytes(packet) for packet in container.demux(video=0) if packet.size][5]
    path.write_bytes(path.read_bytes().replace(payload, bytes(len(payload))))
    report = prepare_videos(
        {"train": read_videos(tmp_path / "set", "train", val_fraction=0)}, tmp_path / "out", settings
    )
    assert report.damaged == {str(path): 1}
    size = (48, 64)
    read = PreparedSource(tmp_path / "out", "train").read(
        0, np.arange(12), resized=size, crop=(0, 0, *size), antialias=True
    )
    assert read.filled == 1


@FORMS
def test_several_labels_and_spans_of_one_file_share_what_is_written(tmp_path, write_video, settings):
    paths = ["a.mp4", "a.mp4", "broken.mp4", "b.mp4"]
    for name in ("a.mp4", "b.mp4"):
        write_video(tmp_path / "set" / name, 12)
    (tmp_path / "set/broken.mp4").write_bytes(b"none")
    videos = VideoList(
        root=tmp_path / "set",
        paths=paths,
        labels=[0, 1, 2, 1, 0, 2],
        label_starts=[0, 2, 3, 4, 6],
        label_spans=[0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6],
        spans=[0, 0.2, 0.2, 0.4, 0, 1, 0, 1],
        classes=("x", "y", "z"),
        source=tmp_path / "set",
    )
    report = prepare_videos({"train": videos}, tmp_path / "out", settings)
    assert (report.videos, len(report.failed)) == (3, 1)
    kept = load_index(tmp_path / "out").videos("train")
    assert [kept.labels_of(item) for item in range(len(kept))] == [(0, 1), (2,), (0, 2)]
    assert kept.label_spans_of(2) == ((4, 5), (5, 6))
    assert [kept.span(item) for item in range(len(kept))] == [(0, 0.2), (0.2, 0.4), (0, 1)]
    source = PreparedSource(tmp_path / "out", "train")
    assert source.rows.tolist() == [0, 0, 1]


@FORMS
def test_folders_of_pictures_become_videos(tmp_path, read_number, draw_number, settings, request):
    if settings is VIDEO:
        request.getfixturevalue("fresh_interpreters")
    folder = tmp_path / "set/run/clip"
    folder.mkdir(parents=True)
    for number in range(8):
        with av.open(str(folder / f"{number}.png"), "w", format="image2") as container:
            stream = container.add_stream("png", rate=1)
            stream.height, stream.width, stream.pix_fmt = 48, 64, "rgb24"
            frame = av.VideoFrame.from_ndarray(draw_number(number), format="rgb24")
            container.mux([*stream.encode(frame), *stream.encode()])
    (folder / "3.png").write_bytes(b"none")
    videos = VideoList(
        root=tmp_path / "set",
        paths=["run/clip"],
        labels=[0],
        classes=("run",),
        source=tmp_path / "set",
        frame_rate=12.0,
    )
    report = prepare_videos({"train": videos}, tmp_path / "out", settings)
    assert report.damaged == {str(folder): 1}
    source = PreparedSource(tmp_path / "out", "train")
    assert source.info(0).times == pytest.approx(np.arange(8) / 12)
    read = source.read(0, np.arange(8), resized=(48, 64), crop=(0, 0, 48, 64), antialias=True)
    assert read.filled == 1
    assert [read_number(pixels.numpy()) for pixels in read.pixels] == [0, 1, 2, 2, 4, 5, 6, 7]


def test_lists_may_name_files_anywhere(tmp_path, write_video):
    write_video(tmp_path / "elsewhere/a.mp4", 5)
    write_video(tmp_path / "lists/../up.mp4", 5)
    (tmp_path / "lists").mkdir(exist_ok=True)
    (tmp_path / "lists/train.csv").write_text(f"{tmp_path}/elsewhere/a.mp4,0\n../up.mp4,1\nmissing.mp4,1\n")
    videos = read_list(tmp_path / "lists/train.csv", check_files=False)
    report = prepare_videos({"train": videos}, tmp_path / "out", VIDEO)
    assert list(report.failed.values()) == ["No such file or directory"]
    kept = load_index(tmp_path / "out").videos("train")
    assert all(kept.path(item).is_file() for item in range(2))
    assert kept.path(1) == tmp_path / "out/48px/train/up.mp4"


def test_real_files_come_out_as_they_went_in(shared_data, tmp_path):
    names = ["decord__unordered.mov", "decord__video_90.mov", "mmaction2__test.avi", "decord__video_270.mov"]
    root = tmp_path / "set/real"
    root.mkdir(parents=True)
    for name in names:
        shutil.copy(shared_data / "odd_files" / name, root / name)
    videos = read_videos(tmp_path / "set", "train", val_fraction=0)
    report = prepare_videos({"train": videos}, tmp_path / "out", PrepareSettings(levels=(96,)))
    assert not report.failed
    source = PreparedSource(tmp_path / "out", "train")
    for item in range(len(videos)):
        index = probe(str(videos.path(item)))
        row = int(source.rows[item])
        size = tuple(source.index.columns["size"][row, 0].tolist())
        numbers = np.arange(0, index.info.frames, 5)
        wanted = torch.from_numpy(read_frames(index, numbers, height=size[0], width=size[1]).pixels).float()
        got = source.read(item, numbers, resized=size, crop=(0, 0, *size), antialias=True).pixels.float()
        error = (got - wanted).square().mean(dim=(1, 2, 3))
        assert error.max() < 100  # each frame: above 28 dB
        assert source.info(item).times == pytest.approx(index.info.times, abs=1e-3)
