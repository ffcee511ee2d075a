"""What lies beside the videos of a dataset is told, and videos that are in two of its splits."""

import os
from pathlib import Path

import av
import numpy as np
import pytest

from vcycle.data.layouts import read_folder, read_kinetics, read_videos
from vcycle.data.video import probe, read_frames
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition import data
from vcycle.tasks.recognition.data import every_video, find_videos, left_out


def touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


FORMATS = {
    **{"gif": ("gif", "gif", "rgb8"), "f4v": ("f4v", "libx264", "yuv420p"), "mxf": ("mxf", "mpeg2video", "yuv420p")},
    **{"divx": ("avi", "mpeg4", "yuv420p"), "hevc": ("hevc", "libx265", "yuv420p"), "nut": ("nut", "mpeg4", "yuv420p")},
    **{"y4m": ("yuv4mpegpipe", "rawvideo", "yuv420p"), "rm": ("rm", "rv20", "yuv420p")},
    **{"mpe": ("mpeg", "mpeg1video", "yuv420p"), "mp4v": ("mp4", "mpeg4", "yuv420p")},
    **{"m2v": ("mpeg2video", "mpeg2video", "yuv420p"), "3g2": ("3g2", "mpeg4", "yuv420p")},
    **{"wtv": ("wtv", "mpeg2video", "yuv420p"), "dv": ("dv", "dvvideo", "yuv420p")},
}


@pytest.mark.parametrize("ending", FORMATS)
def test_a_file_of_any_container_is_taken_and_its_frames_are_found(ending, tmp_path, draw_number, read_number):
    kind, codec, pixels = FORMATS[ending]
    file = tmp_path / "train" / "class" / f"video.{ending}"
    file.parent.mkdir(parents=True)
    if codec == "libx265" and codec not in av.codecs_available:
        pytest.skip("no encoder")
    size = (576, 720) if ending == "dv" else (48, 64)
    with av.open(str(file), "w", format=kind) as container:
        stream = container.add_stream(codec, rate=25)
        (stream.height, stream.width), stream.pix_fmt = size, pixels
        for number in range(20):
            frame = av.VideoFrame.from_ndarray(draw_number(number, *size), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    (name,) = read_videos(tmp_path, "train").paths
    index = probe(str(tmp_path / "train" / name))
    shown, filled = read_frames(index, np.array([0, 7, 19]))
    assert index.info.frames == 20
    assert [read_number(picture) for picture in shown] == [0, 7, 19]
    assert not filled.any()


def test_a_gif_beside_a_video_of_its_name_is_a_preview(tmp_path):
    touch(tmp_path, "train/run/a.mp4", "train/run/a.gif", "train/run/b.GIF", "train/run/c.avi", "train/run/c.mp4")
    found = read_videos(tmp_path, "train")
    assert list(found.paths) == ["run/a.mp4", "run/b.GIF", "run/c.avi", "run/c.mp4"]
    assert found.beside == ""
    touch(tmp_path / "k400", "train/x_000000_000010.gif", "train/x_000000_000010.mp4")
    (tmp_path / "k400" / "train.csv").write_text("label,youtube_id,time_start,time_end,split\nrun,x,0,10,train\n")
    assert list(read_kinetics(tmp_path / "k400", "train").paths) == ["x_000000_000010.mp4"]


def notes(root, *overrides):
    return left_out(every_video(load_recipe("videos/small", [f"data={root}", *overrides])).values())


def test_files_of_class_folders_that_are_taken_for_no_videos_are_told_in_a_line_a_set(tmp_path):
    touch(tmp_path, *(f"train/{name}/{number}.mp4" for name in ("a", "b") for number in range(3)), "val/a/v.mp4")
    touch(tmp_path, "train/a/x.bin", "train/b/clip.mp4.part", "train/a/unnamed", "val/b/y.mp4", "val/b/videos.zip")
    assert notes(tmp_path) == [
        f"{tmp_path}/train: 3 files in class folders are not videos, such as a/unnamed",
        f"{tmp_path}/val: 1 file in a class folder is not a video, such as b/videos.zip",
    ]


def test_videos_that_lie_deeper_or_in_no_class_folder_are_told_once_where_splits_are_cut(tmp_path):
    touch(tmp_path, *(f"{name}/{number}.mp4" for name in ("a", "b") for number in range(5)))
    touch(tmp_path, "a/sub/y.mp4", "a/sub/more/z.avi", "b/c/d/e/far.mkv", "b/c/.hidden.mp4", "a/sub/notes.txt")
    said = f"{tmp_path}: 3 videos in nested folders are ignored, such as a/sub/y.mp4"
    assert notes(tmp_path, "data.val_fraction=0.4") == [said]
    touch(tmp_path, "z.mp4")
    (said,) = notes(tmp_path, "data.val_fraction=0.4")
    assert said.endswith("such as a/sub/y.mp4; 1 video outside class folders is ignored, such as z.mp4")
    assert told(tmp_path, "data.val_fraction=0.4") == [said]


def test_hidden_files_and_common_companions_are_not_told(tmp_path):
    touch(tmp_path, "train/a/1.mp4", "train/a/._1.mp4", "train/a/.DS_Store", "train/a/.cache/x.mp4", "val/a/2.mp4")
    names = ("1.txt", "1.json", "1.csv", "README.md", "1.srt", "1.JPG", "Thumbs.db", "desktop.ini", "1.wav", "1.npy")
    touch(tmp_path, *(f"train/a/{name}" for name in names), "train/a/frames/0001.jpg")
    assert notes(tmp_path) == []


def test_links_that_lead_nowhere_are_told_and_stop_nothing(tmp_path):
    touch(tmp_path, "train/a/1.mp4", "val/a/2.mp4")
    for name, target in (("loop", "loop"), ("gone", "nothing"), ("\udcff", "nothing")):
        os.symlink(target, os.path.join(tmp_path, "train", "a", name))
    assert notes(tmp_path) == [
        f"{tmp_path}/train: 3 files in class folders are not videos, such as a/gone",
    ]


def test_what_has_a_videos_name_is_not_looked_at(tmp_path, monkeypatch):
    touch(tmp_path, *(f"train/a/{number}.mp4" for number in range(50)))
    looked = []
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **options: looked.append(str(path)) or stat(path, **options))
    assert len(read_folder(tmp_path, "train")) == 50
    assert not [path for path in looked if path.endswith(".mp4")]


def lists(root: Path, **videos: list[str]) -> Path:
    for split, names in videos.items():
        touch(root, *(name for name in names if not name.startswith("/")))
        (root / f"{split}.csv").write_text("".join(f"{name},{number % 2}\n" for number, name in enumerate(names)))
    return root


def told(root, *overrides):
    return data.notes(find_videos(load_recipe("videos/small", [f"data={root}", *overrides]), root))


def test_videos_that_are_in_train_and_in_another_split_are_told(tmp_path):
    train = [f"{number}.mp4" for number in range(6)]
    root = lists(tmp_path, train=train, val=["6.mp4", "./1.mp4", "7.mp4", f"{tmp_path}/sub/../3.mp4"], test=["8.mp4"])
    (tmp_path / "sub").mkdir()
    assert told(root) == [
        f"{root}/val.csv: 2 of 4 videos of val are in train too, such as ./1.mp4: they tell nothing of videos that the "
        "model has not seen",
    ]
    lists(root, val=train, test=train[:2])
    first, second = told(root)
    assert first.startswith(f"{root}/val.csv: 6 of 6 videos of val are in train too, such as 0.mp4")
    assert second.startswith(f"{root}/test.csv: 2 of 2 videos of test are in train too, such as 0.mp4")


def test_splits_that_share_no_video_are_not_told(tmp_path):
    root = lists(tmp_path, train=["a/1.mp4", "a/2.mp4"], val=["b/1.mp4", "b/2.mp4"], test=["b/1.mp4", "b/2.mp4"])
    assert told(root) == []
    folders = tmp_path / "folders"
    touch(folders, *(f"{split}/{name}/1.mp4" for split in ("train", "val") for name in ("a", "b")))
    assert told(folders) == []


def test_parts_of_one_film_are_videos_of_their_own(tmp_path):
    touch(tmp_path, "film.mp4", "other.mp4")
    for split, times in (("train", (0, 10)), ("val", (20, 30))):
        row = "{},{},{},{},{}\n".format("run", "film", *times, split) + f"sit,other,0,10,{split}\n"
        (tmp_path / f"{split}.csv").write_text("label,youtube_id,time_start,time_end,split\n" + row)
    _, said = told(tmp_path)
    assert said.startswith(f"{tmp_path}/val.csv: 1 of 2 videos of val are in train too, such as other.mp4")
