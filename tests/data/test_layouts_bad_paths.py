"""What lies where a video or a folder is expected, and is none."""

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from vcycle.data.layouts import read_list, read_videos
from vcycle.errors import DataError

NOBODY = 65534


@contextmanager
def without_privileges():
    """As a user who may not read everything; root could."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder():
    """A folder that any user may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def make(path, kind):
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "dangling":
        path.symlink_to(path.with_name("nothing here"))
    else:
        path.write_bytes(b"")
    return path


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("pipe", "not a regular file"),
        ("folder", "a folder, not a file"),
        ("loop", "too many levels of symbolic links"),
        ("dangling", "a broken link"),
    ],
)
def test_what_a_list_names_must_be_a_file(tmp_path, kind, said):
    make(tmp_path / "good.mp4", "file")
    make(tmp_path / "bad.mp4", kind)
    (tmp_path / "train.csv").write_text("good.mp4,0\nbad.mp4,1\n")
    with pytest.raises(DataError, match=rf"train\.csv, line 2: {said}: .*bad\.mp4$"):
        read_videos(tmp_path, "train")


def test_a_listed_file_behind_a_closed_folder_is_named(open_folder):
    make(open_folder / "closed/a.mp4", "file")
    (open_folder / "closed").chmod(0)
    (open_folder / "list.csv").write_text("closed/a.mp4,0\n")
    with without_privileges(), pytest.raises(DataError, match="permission denied"):
        read_list(open_folder / "list.csv")
    (open_folder / "closed").chmod(0o755)


@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "dangling"])
def test_in_a_folder_of_a_class_a_videos_name_makes_a_video_which_reading_then_judges(tmp_path, kind):
    make(tmp_path / "train/run/a.mp4", "file")
    make(tmp_path / "train/run/b.mp4", kind)
    make(tmp_path / "val/run/c.mp4", "file")
    assert list(read_videos(tmp_path, "train").paths) == ["run/a.mp4", "run/b.mp4"]


def test_a_folder_that_links_to_itself_or_above_ends_the_search(tmp_path):
    make(tmp_path / "run/a.mp4", "file")
    make(tmp_path / "loop", "loop")
    assert len(read_videos(tmp_path, "train", val_fraction=0)) == 1
    (tmp_path / "up").symlink_to(tmp_path)
    with pytest.raises(DataError, match=r"up: the class has no videos"):
        read_videos(tmp_path, "train")
    text = "label,youtube_id,time_start,time_end\nrun,a,0,10\n"
    (tmp_path / "train.csv").write_text(text)
    assert read_videos(tmp_path, "train").path(0) == tmp_path / "run/a.mp4"


def test_a_folder_that_may_not_be_read_is_named(open_folder):
    make(open_folder / "run/a.mp4", "file")
    make(open_folder / "sit/a.mp4", "file")
    (open_folder / "sit").chmod(0)
    with without_privileges(), pytest.raises(DataError, match=r"sit: cannot be read: Permission denied"):
        read_videos(open_folder, "train")
    (open_folder / "sit").chmod(0o755)


@pytest.mark.parametrize("name", ["with blanks in it", "été 映像", "#1, 100 %; 'q' & \"d\"", "a\\b", "x\udcff"])
def test_any_name_that_a_file_may_have_is_kept(tmp_path, name):
    for number in range(3):
        make(tmp_path / name / f"{name} {number}.mp4", "file")
    found = read_videos(tmp_path, "train", val_fraction=0)
    assert (len(found), found.classes) == (3, (name,))
    assert all(found.path(item).is_file() for item in range(3))


@pytest.mark.parametrize("name", ["with blanks in it", "été 映像"])
def test_lists_name_such_files_as_they_are(tmp_path, name):
    make(tmp_path / name / "a.mp4", "file")
    (tmp_path / "train.csv").write_text(f"{name}/a.mp4,{name}\n", encoding="utf-8")
    found = read_videos(tmp_path, "train")
    assert found.path(0).is_file()
    assert found.classes == (name,)


def test_a_number_that_can_be_no_class_is_refused(tmp_path):
    (tmp_path / "train.csv").write_text("a.mp4,0\nb.mp4,20261128\n")
    with pytest.raises(DataError, match=r"train\.csv, line 2: bad label 20261128: must be below 1,000,000"):
        read_videos(tmp_path, "train")
