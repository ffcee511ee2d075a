import json
import os
import random
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import av
import numpy as np
import pytest

from vcycle.data import (
    GridSampler,
    PrepareSettings,
    VideoDataset,
    check_prepared,
    check_videos,
    load_index,
    prepare_videos,
    read_videos,
)
from vcycle.plan import Shape


@pytest.fixture
def root(tmp_path, write_video):
    root = tmp_path / "set"
    write_video(root / "run/good.mp4", 20)
    write_video(root / "run/gut – ö.mkv", 9)
    write_video(root / "run/old.avi", 15, codec="mpeg4")
    return root


def check(root, **options):
    report = check_videos({"train": read_videos(root, "train", val_fraction=0)}, **options)
    return report, {Path(path).name: cause for path, cause in report.bad.items()}


@pytest.mark.parametrize("quick", [False, True])
def test_good_files_are_good(root, quick):
    report, bad = check(root, quick=quick)
    assert (report.videos, bad, report.damaged) == (3, {}, {})


@pytest.mark.parametrize("quick", [False, True])
def test_bad_files_are_listed_with_their_causes(root, write_video, quick):
    run = root / "run"
    (run / "empty.mp4").touch()
    (run / "text.mp4").write_text("no video at all")
    (run / "folder.mp4").mkdir()
    (run / "gone.mp4").symlink_to("nowhere.mp4")
    (run / "loop.mp4").symlink_to("loop.mp4")
    os.mkfifo(run / "pipe.mp4")
    write_video(run / "picture.jpg", 1, codec="mjpeg", options={"strict": "unofficial"}, pixels="yuvj420p")
    os.replace(run / "picture.jpg", run / "picture.mp4")
    _, bad = check(root, quick=quick)
    expected = {"empty.mp4", "text.mp4", "folder.mp4", "gone.mp4", "loop.mp4", "pipe.mp4", "picture.mp4"}
    assert set(bad) == expected
    assert bad["empty.mp4"] == "an empty file"
    assert bad["text.mp4"] == "not a video, or its header is damaged or missing"
    assert bad["folder.mp4"] == "a folder, not a video"
    assert bad["pipe.mp4"] == "a named pipe, not a video"
    assert bad["gone.mp4"] == "No such file or directory"
    assert bad["loop.mp4"] == "Too many levels of symbolic links"


def test_files_without_a_picture_or_a_permission_are_bad(root):
    with av.open(str(root / "run/sound.mp4"), "w") as container:
        stream = container.add_stream("aac", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), dtype=np.float32), format="fltp", layout="mono")
        frame.rate = 8000
        container.mux([*stream.encode(frame), *stream.encode()])
    locked = root / "run/locked.mp4"
    shutil.copy(root / "run/good.mp4", locked)
    locked.chmod(0)
    _, bad = check(root)
    assert bad.pop("sound.mp4") == "no video stream"
    if os.geteuid():  # root may read everything
        assert bad.pop("locked.mp4") == "Permission denied"
    assert bad == {}


def test_damaged_frames_are_told_apart_from_bad_files(root, write_video):
    path = write_video(root / "run/hole.mkv", 12, codec="mjpeg", options={"strict": "unofficial"})
    with av.open(str(path)) as container:
        payload = [bytes(packet) for packet in container.demux(video=0) if packet.size][5]
    path.write_bytes(path.read_bytes().replace(payload, bytes(len(payload))))
    report, bad = check(root)
    assert bad == {}
    assert report.damaged == {str(path): "1 of 12 frames cannot be decoded"}


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_check_preparation_and_training_agree_about_a_cut_file(root, write_video, tmp_path, suffix):
    muxing = {"movflags": "faststart"} if suffix == "mp4" else {}
    whole = write_video(tmp_path / f"whole.{suffix}", 100, muxing=muxing).read_bytes()
    cut = root / f"run/cut.{suffix}"
    cut.write_bytes(whole[: len(whole) // 2])
    videos = {"train": read_videos(root, "train", val_fraction=0)}
    for quick in (True, False):
        report, bad = check(root, quick=quick)
        assert bad == {}
        assert list(report.damaged) == [str(cut)]
        words = report.damaged[str(cut)]
        assert re.match(r"ends after [0-3]\.[0-9] of 4\.0 s", words)
    prepared = prepare_videos(videos, tmp_path / "out", PrepareSettings(levels=(24,)), workers=1)
    assert prepared.failed == {}
    assert prepared.incomplete == {str(cut): words.partition(";")[0]}
    written = json.loads((tmp_path / "out/report.json").read_text())
    assert written["incomplete"] == [{"path": str(cut), "cause": words.partition(";")[0]}]
    dataset = VideoDataset(videos["train"], GridSampler(frames=4, size=16))
    for item, path in enumerate(videos["train"].paths):
        fault = dataset.center(item, Shape(4, 16, 16)).fault
        assert (fault or "").startswith(f"{cut}: ends after " if path.endswith(f"cut.{suffix}") else "")
        assert (fault is None) == (not path.endswith(f"cut.{suffix}"))


def test_nothing_is_written(root):
    before = sorted((path, path.stat().st_mtime_ns) for path in [root, *root.rglob("*")])
    check(root)
    assert sorted((path, path.stat().st_mtime_ns) for path in [root, *root.rglob("*")]) == before


@pytest.mark.parametrize("to", ["video", "array"])
def test_of_a_prepared_folder_the_bytes_are_compared(root, tmp_path, to):
    out = tmp_path / "out"
    videos = {"train": read_videos(root, "train", val_fraction=0)}
    prepare_videos(videos, out, PrepareSettings(to=to, levels=(24,)))
    assert check_prepared(load_index(out)).bad == {}
    if to == "video":
        (out / "24px/train/run/old.mp4").unlink()
        flipped = out / "24px/train/run/good.mp4"
    else:
        flipped = out / "24px/train.u8"
    content = bytearray(flipped.read_bytes())
    content[900] ^= 255
    flipped.write_bytes(content)
    report = check_prepared(load_index(out))
    bad = {Path(path).name: cause for path, cause in report.bad.items()}
    assert bad.pop("good") == "its content has changed since it was written"
    assert bad == ({"old": "No such file or directory"} if to == "video" else {})


def test_a_file_of_one_frame_has_no_length_before_and_after_preparation(root, write_video, tmp_path):
    write_video(root / "run/still.mp4", 1)
    videos = {"train": read_videos(root, "train", val_fraction=0)}
    prepare_videos(videos, tmp_path / "out", PrepareSettings(levels=(24,)))
    files, prepared = check_videos(videos, quick=True).summary, check_prepared(load_index(tmp_path / "out")).summary
    assert (prepared.frames, prepared.frame_rates) == (files.frames, files.frame_rates)
    assert asdict(prepared.seconds) == pytest.approx(asdict(files.seconds))
    assert (prepared.frames.min, prepared.seconds.min) == (1, pytest.approx(9 / 25))


def test_real_odd_files_are_all_readable(shared_data, tmp_path):
    names = ["decord__corrupted.mp4", "decord__unordered.mov", "mmaction2__test.avi", "torchcodec_res__h265_10bits.mp4"]
    (tmp_path / "set/odd").mkdir(parents=True)
    for name in names:
        shutil.copy(shared_data / "odd_files" / name, tmp_path / "set/odd" / name)
    report, bad = check(tmp_path / "set")
    assert bad == {}
    assert [Path(path).name for path in report.damaged] == ["decord__corrupted.mp4"]


def test_a_video_of_which_no_frame_is_whole_is_bad_and_is_not_prepared(root, write_video, tmp_path):
    path = write_video(root / "run/grey.mp4", 12, codec="mpeg4", options={"g": "99"})
    with av.open(str(path)) as container:
        first = next(bytes(packet) for packet in container.demux(video=0) if packet.size)
    half = len(first) // 2
    path.write_bytes(path.read_bytes().replace(first[half:], random.Random(0).randbytes(len(first) - half)))
    cause = "none of its 12 frames is undamaged"
    assert check(root)[1] == {"grey.mp4": cause}
    videos = {"train": read_videos(root, "train", val_fraction=0)}
    assert prepare_videos(videos, tmp_path / "out", PrepareSettings(levels=(24,))).failed == {str(path): cause}
