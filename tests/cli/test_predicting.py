"""`vcycle predict`: the classes of any file."""

import json
import re
import tracemalloc
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from vcycle import load
from vcycle.data.video import probe, read_frames
from vcycle.errors import DataError


def write(path, frames, height=24, width=32, *, noise=False):
    """A video of any length and size, grey or of noise."""
    draw = np.random.default_rng(0)
    with av.open(str(path), "w", options={"movflags": "faststart"} if path.suffix == ".mp4" else {}) as container:
        stream = container.add_stream("libx264", rate=12, options={"preset": "ultrafast"})
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        for number in range(frames):
            picture = np.full((height, width, 3), 20 + number, dtype=np.uint8)
            if noise:
                picture = draw.integers(0, 256, size=(height, width, 3), dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path


def test_each_file_has_its_classes_in_a_line(vcycle, trained, videos):
    files = [videos / "val/left/0.mp4", videos / "val/right/0.mp4"]
    ran = vcycle("predict", trained[0], *files)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [str(file) for file in files]
    assert all("left " in line and "right " in line and line.count("%") == 2 for line in lines)


def test_a_prediction_is_what_the_evaluation_saw(vcycle, trained, videos, tmp_path):
    run, _ = trained
    vcycle("eval", run, "--views", "3x2", "--out", tmp_path)
    written = json.loads((tmp_path / "eval-val-3x2.json").read_text())
    seen = written["videos"]
    ran = vcycle("predict", run, *(row["video"] for row in seen), "--views", "3x2", "--json")
    printed = json.loads(ran.out)
    assert printed["protocol"] == written["protocol"] == "3 clips × 2 crops, 4×16×16, softmax mean"
    for one, other in zip(printed["videos"], seen, strict=True):
        assert one["video"] == other["video"]
        assert one["classes"] == pytest.approx(other["scores"], abs=2e-6)


@pytest.mark.parametrize(("frames", "height", "width"), [(1, 24, 32), (2, 8, 6), (5, 200, 16), (70, 16, 128)])
@pytest.mark.parametrize("views", ["1x1", "4x3"])
def test_any_length_and_size_will_do(vcycle, trained, tmp_path, frames, height, width, views):
    ran = vcycle("predict", trained[0], write(tmp_path / "a.mp4", frames, height, width), "--views", views, "--top", 1)
    assert ran.code == 0, ran.err
    assert ran.out.count("%") == 1


def test_what_is_no_video_is_told_in_a_line_and_the_others_go_on(vcycle, trained, videos, tmp_path):
    (tmp_path / "page.mp4").write_text("<html></html>")
    (tmp_path / "folder").mkdir()
    good = videos / "val/left/0.mp4"
    bad = [tmp_path / name for name in ("page.mp4", "folder", "missing.mp4")]
    ran = vcycle("predict", trained[0], bad[0], good, *bad[1:])
    assert ran.code == 2
    assert ran.out.startswith(f"{good}: ")
    assert len(ran.out.splitlines()) == 1
    assert [line.partition(": ")[2].partition(": ")[0] for line in ran.err.splitlines()] == [str(path) for path in bad]
    printed = json.loads(vcycle("predict", trained[0], bad[1], good, "--json").out)
    assert "a folder" in printed["videos"][0]["error"]
    assert list(printed["videos"][1]) == ["video", "classes"]


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_a_cut_file_is_classified_and_called_cut(vcycle, trained, tmp_path, suffix):
    whole = write(tmp_path / f"whole.{suffix}", 60, noise=True)
    cut = tmp_path / f"cut.{suffix}"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    ran = vcycle("predict", trained[0], cut, whole, "--views", "4x1")
    assert ran.code == 0, ran.err
    assert ran.out.count("%") == 4
    (line,) = ran.err.splitlines()
    assert re.fullmatch(f"damaged video {re.escape(str(cut))}: ends after 2\\.[0-9]+ of 5\\.0 s(; .*)?", line)
    one, other = json.loads(vcycle("predict", trained[0], cut, whole, "--json").out)["videos"]
    assert one["damaged"].startswith("ends after 2.")
    assert "damaged" not in other


@pytest.mark.parametrize("name", ["live.m3u8", "live.mp4"])
def test_a_playlist_is_refused_and_not_waited_for(vcycle, trained, videos, tmp_path, name):
    playlist = tmp_path / name
    segment = videos / "val/left/0.mp4"
    playlist.write_text(f"#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{segment}\n")
    ran = vcycle("predict", trained[0], playlist)
    assert ran.code == 2
    assert ran.err.splitlines() == [
        f"error: {playlist}: an HLS playlist, which names other files: only a file that holds its frames itself is read"
    ]


def test_an_exported_model_predicts_as_its_run_does(vcycle, trained, videos, tmp_path):
    file = videos / "val/left/1.mp4"
    assert vcycle("export", trained[0], "-o", tmp_path / "model.safetensors").code == 0
    own = vcycle("predict", trained[0], file)
    assert vcycle("predict", tmp_path / "model.safetensors", file).out == own.out


def test_what_is_no_model_is_refused(vcycle, videos, tmp_path):
    ran = vcycle("predict", tmp_path, videos / "val/left/1.mp4")
    assert ran.code == 2
    assert "is not the folder of a run" in ran.err


def test_predictions_in_a_folder_are_those_that_are_printed_in_one_run_and_in_parts(vcycle, trained, videos, here):
    paths = [*sorted(videos.glob("train/*/*.mp4")), *sorted(videos.glob("val/*/*.mp4"))]
    (here / "page.mp4").write_text("<html></html>")
    (here / "list.txt").write_text("".join(f"{path}\n" for path in [*paths, "page.mp4"]))
    assert len(paths) > 16  # two chunks
    into = ("predict", trained[0], "--list", "list.txt", "--top", "1", "--out")
    ran = vcycle(*into, "whole")
    assert (ran.code, ran.out.strip()) == (2, f"whole: {len(paths) + 1} files, 1 failed")
    rows = [json.loads(line) for line in (here / "whole/predictions.jsonl").open()]
    assert [row["video"] for row in rows] == [*map(str, paths), str(here / "page.mp4")]
    assert rows[-1]["error"] == "not a video, or its header is damaged or missing"
    printed = json.loads(vcycle("predict", trained[0], *paths[:3], "--top", "1", "--json").out)["videos"]
    for one, other in zip(printed, rows, strict=False):
        assert one["classes"] == pytest.approx(other["classes"], abs=2e-6)
    for part in ("2/2", "1/2", "2/2"):
        assert vcycle(*into, "parts", "--part", part).code in (0, 2)
        assert not (here / "parts/predictions.jsonl").exists()
    mixed = "parts: holds parts: write those that are missing with --part, then --merge"
    assert mixed in vcycle(*into, "parts").err
    assert "was predicted as a whole, not in parts" in vcycle(*into, "whole", "--part", "1/2").err
    for option in (("--workers", "2"), ("--engine", "ray"), ("--gpus", "1"), ("--timeout", "9")):
        refused = vcycle(*into, "parts", "--merge", *option).err
        assert f"{option[0]} does not go with --merge, which takes all parts" in refused
    assert "--gpus needs --engine ray" in vcycle(*into, "parts", "--part", "1/2", "--gpus", "1").err
    assert "run vcycle predict with --part 1/N" in vcycle(*into, "none", "--merge").err
    assert vcycle(*into, "parts", "--merge").code == 2
    assert (here / "parts/predictions.jsonl").read_bytes() == (here / "whole/predictions.jsonl").read_bytes()
    other = vcycle(*into[:-3], "--top", "2", "--out", "whole")
    assert "was predicted with top 1, not 2" in other.err
    assert "--part needs --out FOLDER" in vcycle("predict", trained[0], paths[0], "--part", "1/2").err


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("fresh_interpreters")
def test_predictions_on_ray_are_those_of_this_machine(vcycle, trained, videos, here, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'vcycle[ray]'")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))  # of Ray's worker processes
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    into = ("predict", trained[0], *sorted(videos.glob("*/*/*.mp4")), "--out")
    assert vcycle(*into, "one", "--workers", "1").code == 0
    try:
        assert vcycle(*into, "two", "--engine", "ray", "--workers", "2").code == 0
    finally:
        ray.shutdown()
    assert (here / "two/predictions.jsonl").read_bytes() == (here / "one/predictions.jsonl").read_bytes()


def test_files_listed_twice_keep_their_order_and_odd_lists_are_read(vcycle, trained, videos, here):
    one, other = sorted(videos.glob("val/*/*.mp4"))[:2]
    (here / "list.txt").write_bytes(f"\ufeff{one}\r\n{other}\r\n{one}\r\n".encode() + b"\r\n")
    ran = vcycle("predict", trained[0], "--list", "list.txt", "odd\udcff.mp4", "--out", "found")
    assert (ran.code, ran.out.strip()) == (2, "found: 4 files, 1 failed")
    rows = [json.loads(line) for line in (here / "found/predictions.jsonl").open()]
    assert [row["video"] for row in rows] == [str(here / "odd\udcff.mp4"), str(one), str(other), str(one)]
    (here / "list.txt").write_text(str(one), encoding="utf-16")
    refused = vcycle("predict", trained[0], "--list", "list.txt", "--out", "found")
    assert (refused.code, "list.txt: not a text file in UTF-8" in refused.err) == (2, True)


def test_a_model_that_cannot_be_used_leaves_no_folder(vcycle, videos, here):
    ran = vcycle("predict", "no-such-run", videos / "val/left/0.mp4", "--out", "found")
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert not (here / "found").exists()


def cut(source, out, frames):
    """Frames of a video as a lossless file of their own, at its frame rate."""
    with av.open(str(source)) as given, av.open(str(out), "w") as container:
        rate = given.streams.video[0].average_rate
        stream = container.add_stream("libx264", rate=rate, options={"preset": "ultrafast", "qp": "0"})
        stream.height, stream.width = given.streams.video[0].height, given.streams.video[0].width
        stream.pix_fmt = given.streams.video[0].pix_fmt
        for number, frame in enumerate(given.decode(video=0)):
            if number in frames:
                frame.pts, frame.time_base = number - frames.start, 1 / rate
                container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return out


def test_a_window_of_a_real_video_is_predicted_as_that_excerpt_alone(vcycle, trained, shared_data, tmp_path):
    video = next(iter(sorted((shared_data / "mhad_depth").rglob("*.mp4"))))
    printed = vcycle("predict", trained[0], video, "--window", "0.8", "--stride", "0.6", "--json")
    (row,) = json.loads(printed.out)["videos"]
    windows = row["windows"]
    assert [part["start"] for part in windows] == pytest.approx([0.6 * number for number in range(len(windows))])
    assert all(part["end"] == pytest.approx(part["start"] + 0.8) for part in windows[:-1])
    assert len(windows) > 2
    for number, part in enumerate(windows[:-1]):  # at 30 frames per second
        alone = cut(video, tmp_path / f"{number}.mp4", range(18 * number, 18 * number + 24))
        (other,) = json.loads(vcycle("predict", trained[0], alone, "--json").out)["videos"]
        assert part["classes"] == pytest.approx(other["classes"], abs=2e-6)
    assert len({tuple(part["classes"].values()) for part in windows}) > 1  # they see different frames


def test_windows_are_lines_rows_of_a_folder_and_labels_in_a_video(vcycle, trained, here):
    video = write(here / "long.mp4", 60, 34, 62)  # 5 s
    ran = vcycle("predict", trained[0], video, "--window", "2", "--top", "1", "--overlay", "labelled.mp4")
    assert ran.code == 0, ran.err
    names = [line.partition("s: ")[0] for line in ran.out.splitlines()]
    assert names == [f"{video} {times} " for times in ("0.00-2.00", "2.00-4.00", "4.00-5.00")]
    with av.open("labelled.mp4") as made, av.open(str(video)) as given:
        assert not made.streams.audio
        before, after = ([f.to_ndarray(format="rgb24") for f in file.decode(video=0)] for file in (given, made))
    assert len(before) == len(after) == 60
    for one, other in zip(before, after, strict=True):
        changed = np.abs(one.astype(int) - other).max(-1) > 60
        assert changed[-14:, :40].any()  # white on black, at the lower left
        assert not changed[:12].any()
    out = vcycle("predict", trained[0], video, here / "no.mp4", "--window", "2", "--top", "1", "--out", "found")
    assert (out.code, out.out) == (2, "found: 2 files, 1 failed\n")
    one, other = (json.loads(line) for line in (here / "found/predictions.jsonl").open())
    assert [(part["start"], part["end"]) for part in one["windows"]] == [(0, 2), (2, 4), (4, 5)]
    (shown,) = ran.out.splitlines()[:1]
    ((name, score),) = one["windows"][0]["classes"].items()
    assert shown.endswith(f": {name} {score:.1%}")
    assert list(other) == ["video", "error"]
    refused = vcycle("predict", trained[0], video, here / "no.mp4", "--window", "1", "--top", "1", "--out", "found").err
    assert "was predicted with window 2.0, not 1.0" in refused


def test_windows_of_an_array_are_those_of_its_file(vcycle, trained, here):
    video = write(here / "long.mp4", 30, noise=True)
    index = probe(str(video))
    frames = read_frames(index, np.arange(30)).pixels
    model = load(trained[0], device="cpu")
    rows = model.predict_windows(frames, window=1.0, stride=0.5, frame_rate=12)
    of_file = model.predict_windows(video, window=1.0, stride=0.5)
    assert [(one.start, one.end) for one in rows] == [(one.start, one.end) for one in of_file]
    assert all(torch.equal(one.scores, other.scores) for one, other in zip(rows, of_file, strict=True))
    assert len(rows) == 4


def test_an_overlay_that_cannot_be_written_loses_no_predictions(vcycle, trained, here, monkeypatch):
    video = write(here / "long.mp4", 30)
    (here / "file").write_text("no folder")
    into = ("predict", trained[0], video, "--window", "1", "--json", "--overlay")
    refused = vcycle(*into, here / "file" / "a.mp4")
    assert (refused.code, refused.out) == (2, ""), "it is refused before anything is predicted"

    def full(*_, **__):
        raise DataError("no space left")

    monkeypatch.setattr("vcycle.tasks.classification.overlay.write_overlay", full)
    ran = vcycle(*into, here / "new" / "a.mp4")
    assert (ran.code, ran.err.splitlines()[-1]) == (2, "error: no space left")
    assert len(json.loads(ran.out)["videos"][0]["windows"]) == 3


def test_the_windows_of_an_array_share_its_frames(trained):
    frames = np.broadcast_to(np.arange(120, dtype=np.uint8)[:, None, None, None], (120, 128, 128, 3))  # is copied
    tracemalloc.start()
    try:
        rows = load(trained[0], device="cpu").predict_windows(frames, window=1.0, frame_rate=12)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(rows) == 10
    assert peak < 3 * frames.nbytes  # of frames, arrays alone are traced


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--stride", "1"), "--stride needs --window SECONDS"),
        (("--overlay", "a.mp4"), "--overlay a.mp4 needs --window SECONDS"),
        (("--window", "0"), "--window 0: at least 0.001 seconds are accepted"),
        (("--window", "1", "--stride", "-1"), "--stride -1: at least 0.001 seconds are accepted"),
        (("--window", "1", "--overlay", "a.gif"), "a.gif: a video cannot be written as '.gif'; accepted: .mp4"),
        (("--window", "1", "--overlay", "x.mp4"), "--overlay x.mp4 is the video itself: choose another file"),
        (("--window", "1", "--overlay", "a.mp4", "y.mp4"), "--overlay a.mp4: one video is accepted, 2 are given"),
        (("--window", "1", "--overlay", "a.mp4", "--out", "o"), "--out does not go with --overlay, which shows one"),
    ],
)
def test_options_of_windows_that_contradict_each_other_are_refused(vcycle, trained, here, options, message):
    ran = vcycle("predict", trained[0], "x.mp4", *options)
    assert (ran.code, message in ran.err) == (2, True), ran.err
