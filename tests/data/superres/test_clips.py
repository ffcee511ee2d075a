"""Folders of pictures and videos as clips; whatever is wrong with one is an error that names it."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from vcycle.data.pictures import picture_size, read_picture
from vcycle.data.video import VideoError
from vcycle.errors import DataError
from vcycle.tasks.superres.pairs.clips import ClipInfo, PictureClips, VideoClips, find_clips

Pixels = NDArray[np.uint8]
Write = Callable[..., Path]
Noise = Callable[..., Pixels]


def test_pictures_are_read_as_they_were_written(tmp_path: Path, write_clip: Write, noise: Noise) -> None:
    frames = noise(5, 24, 40)
    write_clip(tmp_path / "a", frames)
    clips = find_clips(tmp_path)
    assert list(clips.names) == ["a"]
    assert clips.info(0) == ClipInfo(frames=5, height=24, width=40)
    assert np.array_equal(clips.read(0, [3, 1]), frames[[3, 1]])
    assert np.array_equal(clips.read(0, [4], (2, 5, 10, 20)), frames[[4], 2:12, 5:25])


def test_pictures_follow_their_numbers_not_their_letters(tmp_path: Path, write_clip: Write, noise: Noise) -> None:
    frames = noise(12, 8, 8)
    write_clip(tmp_path / "a", frames, name="Frame {}.png", first=1)
    assert np.array_equal(find_clips(tmp_path).read(0, range(12)), frames)


def test_a_missing_picture_is_named(tmp_path: Path, write_clip: Write, noise: Noise) -> None:
    write_clip(tmp_path / "a", noise(12, 8, 8), name="{}.png")
    (tmp_path / "a" / "10.png").unlink()
    with pytest.raises(VideoError, match=r"a: pictures are missing between 9\.png and 11\.png"):
        find_clips(tmp_path).info(0)


@pytest.mark.parametrize("name", ["im{}x4.png", "s03e07 {:03d} (1280x720).png"])
def test_the_number_that_counts_is_the_last_that_changes(
    tmp_path: Path, write_clip: Write, noise: Noise, name: str
) -> None:
    frames = noise(12, 8, 8)
    write_clip(tmp_path / "a", frames, name=name)
    assert np.array_equal(find_clips(tmp_path).read(0, range(12)), frames)
    (tmp_path / "a" / name.format(4)).unlink()
    with pytest.raises(VideoError, match="a: pictures are missing between "):
        find_clips(tmp_path).info(0)


def test_a_number_that_is_given_twice_is_named(tmp_path: Path, write_clip: Write, noise: Noise) -> None:
    write_clip(tmp_path / "a", noise(3, 8, 8), name="{}.png")
    (tmp_path / "a" / "01.png").write_bytes((tmp_path / "a" / "2.png").read_bytes())
    with pytest.raises(VideoError, match=r"a: pictures (1|01)\.png and (1|01)\.png have one number"):
        find_clips(tmp_path).info(0)


def test_pictures_of_another_size_are_named(tmp_path: Path, write_clip: Write, noise: Noise) -> None:
    write_clip(tmp_path / "a", noise(2, 8, 8), name="{}.png")
    write_clip(tmp_path / "a", noise(1, 8, 12), name="{}.png", first=2)
    with pytest.raises(VideoError, match=r"2\.png: 12 × 8 pixels, where 0\.png has 8 × 8"):
        find_clips(tmp_path).read(0, range(3))


def test_clips_are_found_at_any_depth_in_natural_order(tmp_path: Path, write_clip: Write, noise: Noise) -> None:
    for name in ("00010/2", "00010/10", "9", "with spaces/übung"):
        write_clip(tmp_path / name, noise(1, 8, 8))
    write_clip(tmp_path / ".hidden", noise(1, 8, 8))
    os.symlink(tmp_path, tmp_path / "00010" / "loop")
    os.symlink(tmp_path / "9", tmp_path / "10")
    assert list(find_clips(tmp_path).names) == ["9", "10", "00010/2", "00010/10", "with spaces/übung"]


def test_a_folder_of_pictures_is_one_clip(tmp_path: Path, write_clip: Write, noise: Noise) -> None:
    clips = find_clips(write_clip(tmp_path / "walk", noise(3, 8, 8)))
    assert list(clips.names) == ["walk"]
    assert clips.info(0).frames == 3


def test_videos_are_clips_where_there_are_no_pictures(
    tmp_path: Path, write_video: Write, read_number: Callable[[Pixels], int]
) -> None:
    write_video(tmp_path / "deep" / "b.mp4", 20)
    write_video(tmp_path / "a.mkv", 9)
    clips = find_clips(tmp_path)
    assert list(clips.names) == ["a.mkv", "deep/b.mp4"]
    assert clips.info(1) == ClipInfo(frames=20, height=48, width=64)
    pixels = clips.read(1, range(7, 10))
    assert [read_number(frame) for frame in pixels] == [7, 8, 9]
    assert np.array_equal(clips.read(1, range(7, 10), (4, 8, 16, 32)), pixels[:, 4:20, 8:40])
    assert list(find_clips(tmp_path / "a.mkv").names) == ["a.mkv"]


def test_a_video_that_lacks_a_frame_is_refused_rather_than_filled(tmp_path: Path, write_video: Write) -> None:
    path = write_video(tmp_path / "a.mp4", 40, muxing={"movflags": "faststart"})
    data = bytearray(path.read_bytes())
    start, stop = 2 * len(data) // 3, len(data) - 100
    data[start:stop] = bytes(stop - start)
    path.write_bytes(data)
    clips = VideoClips(tmp_path, ["a.mp4"])
    with pytest.raises(VideoError, match=r"a\.mp4: \d+ of 40 frames cannot be decoded"):
        clips.read(0, range(40))


def test_real_clips_are_found(shared_data: Path) -> None:
    scenes = find_clips(shared_data / "scenes")
    assert isinstance(scenes, VideoClips)
    assert scenes.info(0).height == 720
    assert scenes.read(0, [5, 6], (100, 200, 64, 64)).shape == (2, 64, 64, 3)
    vid4 = find_clips(shared_data / "vid4")
    assert isinstance(vid4, PictureClips)
    assert [vid4.info(item) for item in range(2)] == [
        ClipInfo(frames=15, height=576, width=720),
        ClipInfo(frames=15, height=480, width=720),
    ]


def test_nothing_to_find_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder or video"):
        find_clips(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no pictures"):
        find_clips(tmp_path)


def test_pictures_beside_videos_are_an_error_as_one_kind_would_be_left_out(
    tmp_path: Path, write_clip: Write, noise: Noise, write_video: Write
) -> None:
    write_clip(tmp_path / "a", noise(3, 8, 8))
    write_video(tmp_path / "b/0.mp4", 6)
    write_video(tmp_path / "b/1.mp4", 6)
    said = r": 1 folder of pictures, such as \S+/a, and 2 videos, such as \S+/b/0\.mp4: keep clips of one kind in it$"
    with pytest.raises(DataError, match=said):
        find_clips(tmp_path)


def test_a_jpeg_is_read_whatever_its_suffix(tmp_path: Path, jpeg: Callable[[Pixels], bytes]) -> None:
    picture = np.repeat(np.arange(0, 256, 4, dtype=np.uint8)[None, :, None], 48, axis=0).repeat(3, axis=2)
    (tmp_path / "a.png").write_bytes(jpeg(picture))
    read = read_picture(tmp_path / "a.png")
    assert np.abs(read.astype(int) - picture).mean() < 6
    assert picture_size(tmp_path / "a.png") == (48, 64)


def spoil(kind: str, data: bytes) -> bytes:
    if kind == "cut":
        return data[: len(data) // 2]
    if kind == "cut at its end":
        return data[:-20]
    if kind == "flipped":
        return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 255]) + data[len(data) // 2 + 1 :]
    return {"empty": b"", "text": b"not a picture"}[kind]


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "cut at its end", "flipped"])
def test_a_damaged_png_is_an_error(tmp_path: Path, png: Callable[[Pixels], bytes], noise: Noise, kind: str) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(spoil(kind, png(noise(1, 32, 32)[0])))
    words = r"a\.png: (not a picture in PNG, JPEG, WebP or BMP|the png picture cannot be)"
    with pytest.raises(VideoError, match=words):
        read_picture(path)


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "cut at its end"])
def test_a_damaged_jpeg_is_an_error(tmp_path: Path, jpeg: Callable[[Pixels], bytes], noise: Noise, kind: str) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(spoil(kind, jpeg(noise(1, 32, 32)[0])))
    with pytest.raises(VideoError, match=r"a\.jpg: (not a picture|the picture is truncated)"):
        read_picture(path)


def test_what_is_no_file_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    for name in ("pipe.png", "folder.png", "missing.png"):
        with pytest.raises(VideoError, match=name):
            picture_size(tmp_path / name)


def test_a_clip_whose_folder_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match="nowhere: No such file"):
        PictureClips(tmp_path, ["nowhere"]).info(0)
