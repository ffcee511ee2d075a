"""A folder of frames is a video wherever a file is: in every layout, at the rate that is given, beside video files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vcycle.data import GridSampler, VideoDataset, read_list, read_videos
from vcycle.data.layouts.ignored import ignored_in
from vcycle.data.pictures import encode_png
from vcycle.errors import DataError
from vcycle.plan import Shape
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.data import find_videos
from vcycle.tasks.recognition.unopenable import unopenable

FRAMES = 6
RATE = 10.0


@pytest.fixture(scope="module")
def frames(draw_number: Callable[[int], Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of six numbered frames, and what cameras leave beside them."""
    folder = tmp_path_factory.mktemp("frames") / "clip"
    folder.mkdir()
    for number in range(FRAMES):
        (folder / f"frame_{number + 1:06}.png").write_bytes(encode_png(draw_number(number)))
    (folder / "info.txt").write_text("30 fps")
    return folder


def by_class(root: Path, frames: Path) -> None:
    for name in ("left", "right"):
        for number in range(3):
            shutil.copytree(frames, root / name / f"v{number}")


def by_split(root: Path, frames: Path) -> None:
    by_class(root / "train", frames)
    by_class(root / "val", frames)


def listed(root: Path, frames: Path, line: str = "{name},{label}") -> None:
    for name in ("a", "b"):
        shutil.copytree(frames, root / "clips" / name)
    for split in ("train", "val"):
        lines = [line.format(name=f"clips/{name}", label=label) for label, name in enumerate(("a", "b"))]
        (root / f"{split}.txt").write_text("\n".join(lines))


def counted(root: Path, frames: Path) -> None:
    listed(root, frames, f"{{name}} {FRAMES} {{label}}")


def kinetics(root: Path, frames: Path) -> None:
    for split, place in (("train", "train/x y"), ("val", "val")):
        shutil.copytree(frames, root / place / "abc_000001_000011")
        (root / f"{split}.csv").write_text("label,youtube_id,time_start,time_end\nx y,abc,1,11\n")


def ucf101(root: Path, frames: Path) -> None:
    lists = root / "ucfTrainTestlist"
    lists.mkdir(parents=True)
    (lists / "classInd.txt").write_text("1 Run\n2 Sit\n")
    rows = [f"{name}/v_{name}_g{group:02}_c01.avi" for name in ("Run", "Sit") for group in range(3)]
    for row in rows:
        shutil.copytree(frames, root / "UCF-101" / row.removesuffix(".avi"))
    (lists / "trainlist01.txt").write_text("\n".join(rows))
    (lists / "testlist01.txt").write_text(rows[0])


def hmdb51(root: Path, frames: Path) -> None:
    lists = root / "testTrainMulti_7030_splits"
    lists.mkdir(parents=True)
    for name in ("run", "sit"):
        rows = [f"film{number}_{name}_f_cm_np1_fr_med_{number}.avi" for number in range(3)]
        (lists / f"{name}_test_split1.txt").write_text("\n".join(f"{row} 1" for row in rows))
        for row in rows:
            shutil.copytree(frames, root / "hmdb51_org" / name / row.removesuffix(".avi"))


def ssv2(root: Path, frames: Path) -> None:
    shutil.copytree(frames, root / "frames/7")
    for name, content in (
        ("train", [{"id": "7", "template": "Holding [something]"}]),
        ("validation", [{"id": "7", "template": "Holding [something]"}]),
        ("labels", {"Holding something": "0"}),
    ):
        (root / f"something-something-v2-{name}.json").write_text(json.dumps(content))


def charades(root: Path, frames: Path) -> None:
    shutil.copytree(frames, root / "Charades_v1_rgb/46GP8")
    (root / "Charades_v1_classes.txt").write_text("c000 Sitting\nc001 Running\n")
    for split in ("train", "test"):
        (root / f"Charades_v1_{split}.csv").write_text("id,actions\n46GP8,c001 0.0 0.5\n")


LAYOUTS = [by_class, by_split, listed, counted, kinetics, ucf101, hmdb51, ssv2, charades]


@pytest.mark.parametrize("lay_out", LAYOUTS)
def test_every_layout_takes_folders_of_frames_at_the_given_rate(
    tmp_path: Path, frames: Path, read_number: Callable[[Any], int], lay_out: Callable[[Path, Path], None]
) -> None:
    root = tmp_path / "set"
    lay_out(root, frames)
    videos = read_videos(root, "train", frame_rate=RATE, val_fraction=0.34)
    assert videos.frame_rate == RATE
    assert all((root / videos.path(item)).is_dir() for item in range(len(videos)))
    dataset = VideoDataset(videos, GridSampler(frames=FRAMES, size=48, span=(1.0, 1.0)))
    info = dataset.source.info(0)
    assert (info.frames, info.duration, info.fps) == (FRAMES, FRAMES / RATE, RATE)
    clip = dataset.center(0, Shape(FRAMES, 48, 64)).clip
    assert [read_number(picture) for picture in clip.numpy()] == list(range(FRAMES))
    recipe = load_recipe("videos/small", [f"data={root}", f"data.frame_rate={RATE}", "data.val_fraction=0.34"])
    found = find_videos(recipe, tmp_path)
    assert [found.train.frame_rate, found.val.frame_rate] == [RATE, RATE]
    assert unopenable(recipe, found) == {}
    # None of the frames counts as ignored.
    lists = [found.train, found.val]
    assert not any(one.example.endswith(".png") for one in ignored_in(root, lists))


@pytest.mark.parametrize(("lay_out", "rate"), [(ssv2, 12), (charades, 24)])
def test_a_set_with_a_rate_of_its_own_needs_none(tmp_path: Path, frames: Path, lay_out: Any, rate: float) -> None:
    lay_out(tmp_path / "set", frames)
    assert read_videos(tmp_path / "set", "train").frame_rate == rate


def test_video_files_and_folders_of_frames_may_be_mixed(
    tmp_path: Path, frames: Path, write_video: Any, read_number: Callable[[Any], int]
) -> None:
    shutil.copytree(frames, tmp_path / "x/a.frames")
    write_video(tmp_path / "x/b.mp4", FRAMES, rate=5)
    (tmp_path / "x/c.mp4").write_text("no video")
    (tmp_path / "list.txt").write_text("x/a.frames 0\nx/b.mp4 1\nx/c.mp4 1\n")
    videos = read_list(tmp_path / "list.txt", frame_rate=RATE)
    dataset = VideoDataset(videos, GridSampler(frames=FRAMES, size=48, span=(1.0, 1.0)))
    for item, rate in ((0, RATE), (1, 5)):
        assert dataset.source.info(item).fps == pytest.approx(rate)
        clip = dataset.center(item, Shape(FRAMES, 48, 64)).clip
        assert [read_number(picture) for picture in clip.numpy()] == list(range(FRAMES))
    recipe = load_recipe(
        "videos/small", [f"data={tmp_path / 'list.txt'}", f"data.val={tmp_path / 'list.txt'}", "data.frame_rate=10"]
    )
    assert list(unopenable(recipe, find_videos(recipe, tmp_path))) == ["x/c.mp4"]


@pytest.mark.parametrize("lay_out", [by_class, listed])
def test_folders_of_frames_without_a_rate_are_refused_with_the_key_that_takes_them(
    tmp_path: Path, frames: Path, lay_out: Callable[[Path, Path], None]
) -> None:
    lay_out(tmp_path / "set", frames)
    with pytest.raises(DataError, match=r"data\.frame_rate=25 takes each folder of frames as a video of 25 frames"):
        read_videos(tmp_path / "set", "train")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("take 1,0\ntake 2,1\n", ["take 1", "take 2"]),
        ("path\tlabel\ntake 1\t0\ntake 2\t1\n", ["take 1", "take 2"]),
        ("take 1 6 0\ntake 2 6 1\n", ["take 1", "take 2"]),
        ("take,6,0\n", ["take"]),
    ],
)
def test_a_number_at_the_end_of_a_name_is_no_number_of_frames(
    tmp_path: Path, frames: Path, text: str, names: list[str]
) -> None:
    for name in ("take 1", "take 2", "take"):
        (tmp_path / name).symlink_to(frames)
    (tmp_path / "list.txt").write_text(text)
    assert list(read_list(tmp_path / "list.txt", frame_rate=RATE).paths) == names
