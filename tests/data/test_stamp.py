"""What tells that a video is another one than before."""

import os

import pytest

from vcycle.data.stamp import stamp_of


def write(path, data, changed):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, ns=(0, changed))


def test_a_file_is_known_by_its_size_and_the_time_of_its_change(tmp_path):
    write(tmp_path / "a.mp4", b"12345", 700)
    assert stamp_of(tmp_path / "a.mp4") == stamp_of(str(tmp_path / "a.mp4")) == (5, 700)
    (tmp_path / "link.mp4").symlink_to("a.mp4")
    assert stamp_of(tmp_path / "link.mp4") == (5, 700)


@pytest.mark.parametrize("link", [False, True])
def test_a_folder_is_known_by_what_lies_in_it(tmp_path, link):
    folder = tmp_path / "clip"
    for number in range(3):
        write(folder / f"{number}.png", b"1234", 700 + number)
    if link:
        (folder / "3.png").symlink_to("nothing")
        os.utime(folder / "3.png", ns=(0, 0), follow_symlinks=False)
    os.utime(folder, ns=(0, 600))
    before = stamp_of(folder)
    assert before == (12 + link * len("nothing"), 702)
    write(folder / "1.png", b"4321", 800)
    os.utime(folder, ns=(0, 600))  # which writing to a picture does not change
    assert stamp_of(folder) == (before.size, 800)
    write(folder / "1.png", b"432", 701)
    os.utime(folder, ns=(0, 600))
    assert stamp_of(folder) == (before.size - 1, 702)


@pytest.mark.parametrize("name", ["gone.mp4", "a\0b.mp4", "x" * 300])
def test_what_is_not_there_has_a_stamp_too(tmp_path, name):
    assert stamp_of(tmp_path / name) == (0, 0)
