"""`vcycle check` answers: what is my dataset, what of it is ignored, and what do I run next?"""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from vcycle.data.layouts import read_videos
from vcycle.data.layouts.ignored import ignored_in
from vcycle.data.pictures import encode_png


def write(path: Path, frames: int, *, rate: int, side: int, codec: str = "libx264", group: int = 12) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate)
        stream.height, stream.width, stream.pix_fmt, stream.gop_size = side, 2 * side, "yuv420p", group
        for number in range(frames):
            picture = np.full((side, 2 * side, 3), (7 * number + frames) % 200, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


@pytest.fixture
def mixed(here: Path) -> Path:
    """Videos of two classes, sizes, rates and codecs, one in two splits, and much that is no video."""
    root = here / "set"
    for number in range(3):
        write(root / f"train/left/{number}.mp4", 20 + number, rate=10, side=32)
    write(root / "train/right/0.mp4", 75, rate=25, side=64, group=250)
    write(root / "val/left/0.mp4", 10, rate=10, side=32, codec="mpeg4")
    write(root / "val/right/0.mp4", 10, rate=25, side=64)
    shutil.copy(root / "train/left/1.mp4", root / "val/left/same.mp4")
    (root / ".git").mkdir()
    (root / "train/left/.hidden.mp4").touch()
    for name in ("train/left/notes.txt", "train/right/a.txt", "val/right/weights.bin"):
        (root / name).touch()
    (root / "train/left/nothing").mkdir()
    write(root / "train/left/deep/er/0.mp4", 5, rate=10, side=32)
    return root


def test_check_says_what_a_dataset_is_and_what_to_run_next(vcycle: Any, here: Path, mixed: Path) -> None:
    ran = vcycle("check", "set", "--workers", "1")
    lines = ran.out.splitlines()
    assert lines[:2] == ["7 files: 0 bad, 0 damaged", "videos        7: train 4, val 3"]
    for line in (
        "classes       2 in train: largest left (3 videos), smallest right (1), 3.0× imbalance",
        "length        0.40 s to 3.00 s, median 2.10 s; 12.8 s in all",
        "frames        10 to 75, median 21; 179 in all",
        "size          64x32 5, 128x64 2",
        "frame rate    10 fps 5, 25 fps 2",
        "codec         h264 6, mpeg4 1",
        "ignored       3 × not a video by the suffix (.txt 2, .bin 1); such as train/left/notes.txt",
        "ignored       2 × hidden: the name begins with a dot; such as .git",
        "ignored       1 × empty folder; such as train/left/nothing",
        "next          vcycle plan videos/small data=set",
    ):
        assert line in lines
    words = " ".join(ran.out.split())
    assert (
        "1 × video that no split has: not listed, or not directly in a class folder; such as train/left/deep/er"
        in words
    )
    assert f"1 × the same content in both train and val; such as {mixed}/train/left/1.mp4 = {mixed}/val/left" in words
    assert max(len(line) for line in lines if str(mixed) not in line) <= 100

    data = json.loads(vcycle("check", "set", "--workers", "1", "--quick", "--json", "--recipe", "tiny.yaml").out)
    summary = data["summary"]
    assert summary["splits"] == {"train": 4, "val": 3}
    assert summary["sizes"] == {"64x32": 5, "128x64": 2}
    assert summary["classes"]["without"] == 0
    assert summary["seconds"] == pytest.approx({"min": 0.4, "median": 2.1, "max": 3.0, "total": 12.8})
    assert summary["keyframe_seconds"]["max"] == pytest.approx(3.0)
    assert summary["bytes"] == sum(
        (mixed / split / "left" / file).stat().st_size
        for split, file in [("train", f"{n}.mp4") for n in range(3)] + [("val", "0.mp4"), ("val", "same.mp4")]
    ) + sum((mixed / split / "right/0.mp4").stat().st_size for split in ("train", "val"))
    # Of 64 pixels, where clips of 16 need 18: preparing pays.
    assert [step["command"].split()[1] for step in summary["next"]] == ["prepare", "plan", "plan"]
    assert summary["next"][0]["command"] == "vcycle prepare set set-prepared --recipe tiny.yaml"
    assert vcycle(*summary["next"][1]["command"].split()[1:]).code == 0


def test_check_counts_folders_of_images(vcycle: Any, here: Path) -> None:
    for name, side in (("cat", 8), ("dog", 16)):
        for number in range(2):
            path = here / "images" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            with av.open(str(path), "w", format="image2") as container:
                stream = container.add_stream("png")
                stream.height, stream.width, stream.pix_fmt = side, side, "rgb24"
                pixels = np.full((side, side, 3), 50 * number + side, dtype=np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
                container.mux(stream.encode())
    ran = vcycle("check", "images", "--recipe", "images/small", "--workers", "1")
    assert ran.code == 0
    for line in ("classes       2: 2 images each", "size          16x16 2, 8x8 2", "codec         png 4"):
        assert line in ran.out.splitlines()
    assert "length" not in ran.out
    assert "vcycle plan images/small data=images" in ran.out


def test_a_path_is_one_piece_of_one_line_whatever_is_in_it(vcycle: Any, here: Path) -> None:
    root = here / "my own set"
    for name in ("left", "right"):
        write(root / name / "0.mp4", 3, rate=10, side=16)
    note = " ".join(["a name of many words"] * 6) + ".txt"
    (root / "left" / note).touch()
    (root / "left" / "line\nbreak.mp4").write_text("no video")
    ran = vcycle("check", root.name, "--workers", "1", "--quick")
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[0].startswith(f"bad: {root}/left/line\\nbreak.mp4: ")
    assert f"{' ' * 14}left/{note}" in lines
    assert "next          vcycle plan videos/small 'data=my own set'" in lines


def test_a_wrong_folder_says_which_layouts_are_accepted(vcycle: Any, here: Path) -> None:
    (here / "empty").mkdir()
    for data, recipe in (("nowhere", []), ("empty", []), ("nowhere", ["--recipe", "images/small"])):
        ran = vcycle("check", data, *recipe)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert "accepted: CLASS/" in ran.err
        assert "and val/CLASS/" in ran.err


def test_what_is_ignored_is_counted_once_through_links_and_whatever_its_order(tmp_path: Path) -> None:
    root = tmp_path / "set"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        for number in range(3):
            (root / name / f"{number}.mp4").touch()
    (root / "a/loop").symlink_to(root)
    (root / "a/again").symlink_to(tmp_path / "other")
    (root / "b/again").symlink_to(tmp_path / "other")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/x.mp4").touch()
    found = ignored_in(root, [read_videos(root, "train", val_fraction=0)])
    assert [(one.files, one.why.split()[0]) for one in found] == [(1, "video")]
    lists = [read_videos(root, split, val_fraction=0.4) for split in ("train", "val")]
    assert [one.files for one in ignored_in(root, lists)] == [1]
    assert all(earlier.files >= later.files for earlier, later in pairwise(ignored_in(root, [])))


@pytest.mark.parametrize(
    ("most", "ignored"),
    [
        (5, {"not a video": 4}),  # all are looked at: a folder and its four files
        (4, {"not a video": 3, "not looked at": 1}),
        (1, {"not looked at": 1}),
    ],
)
def test_a_large_folder_is_looked_at_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, ignored: dict[str, int]
) -> None:
    monkeypatch.setattr("vcycle.data.layouts.ignored._MOST", most)
    (tmp_path / "set/flat").mkdir(parents=True)
    for number in range(4):
        (tmp_path / f"set/flat/{number}.txt").touch()
    found = ignored_in(tmp_path / "set", [])
    assert {one.why.partition(" by ")[0].partition(":")[0]: one.files for one in found} == ignored


def test_folders_of_frames_are_checked_trained_on_predicted_and_prepared(vcycle: Any, here: Path, videos: Path) -> None:
    for split, count in (("train", 2), ("val", 1)):
        for name in ("left", "right"):
            for number in range(count):
                folder = here / "frames" / split / name / f"v{number}"
                folder.mkdir(parents=True)
                with av.open(str(videos / split / name / f"{number}.mp4")) as container:
                    for place, frame in enumerate(container.decode(video=0)):
                        (folder / f"{place}.png").write_bytes(encode_png(frame.to_ndarray(format="rgb24")))
    ran = vcycle("check", "frames", "data.frame_rate=12", "--workers", "1")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    for line in ("6 files: 0 bad, 0 damaged", "length        1.00 s; 6.0 s in all", "codec         png 6"):
        assert line in lines
    assert "vcycle plan videos/small data=frames data.frame_rate=12" in ran.out
    ran = vcycle(
        "train",
        "tiny.yaml",
        "data=frames",
        "data.frame_rate=12",
        "plan=constant",
        "training.steps=2",
        "training.decay=constant",
        "--out",
        "run",
    )
    assert ran.code == 0, ran.err
    ran = vcycle("predict", "run", "frames/val/left/v0", "frames/val/left/none")
    assert ran.out.startswith("frames/val/left/v0: ")
    assert "frames/val/left/none: No such file or directory" in ran.err
    ran = vcycle("prepare", "frames", "fast", "--short-side", "16", "data.frame_rate=12", "--workers", "1")
    assert "6 of 6 files, 0 failed" in ran.out
    assert vcycle("plan", "tiny.yaml", "data=fast").code == 0


def test_ignored_pictures_lead_to_the_key_that_reads_them(vcycle: Any, here: Path) -> None:
    for name in ("train/left/0.mp4", "train/right/0.mp4", "val/left/0.mp4", "val/right/0.mp4"):
        write(here / "set" / name, 10 + len(name), rate=10, side=32)
    (here / "set/train/left/take").mkdir()
    for number in range(3):
        picture = encode_png(np.full((32, 32, 3), 40 * number, np.uint8))
        (here / f"set/train/left/take/{number}.png").write_bytes(picture)
    asked = "vcycle check set data.frame_rate=RATE"
    assert asked in vcycle("check", "set", "--workers", "1").out
    read = vcycle("check", "set", "--workers", "1", "data.frame_rate=10").out
    assert "data.frame_rate=RATE" not in read
    assert "train 3" in read
