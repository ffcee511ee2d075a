import subprocess
import sys
import tracemalloc

import pytest

from vcycle.data.layouts import files, layout_of, listing, read_folder, read_list, read_videos, splits_of
from vcycle.errors import DataError


def touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def test_a_folder_per_split_and_class(tmp_path):
    touch(tmp_path, "train/run/b.mp4", "train/run/a.MKV", "train/jump/c.avi", "val/run/d.mp4", "train/run/notes.txt")
    touch(tmp_path, "train/run/._a.mp4", "train/.hidden/x.mp4")
    train = read_videos(tmp_path, "train")
    assert list(train.paths) == ["jump/c.avi", "run/a.MKV", "run/b.mp4"]
    assert list(train.labels) == [0, 1, 1]
    assert train.classes == ("jump", "run")
    assert train.path(0) == tmp_path / "train" / "jump" / "c.avi"
    val = read_videos(tmp_path, "val")
    assert (list(val.paths), list(val.labels), val.classes) == (["run/d.mp4"], [1], ("jump", "run"))
    with pytest.raises(DataError, match="no folder test; it has train, val"):
        read_videos(tmp_path, "test")


def test_a_class_that_training_does_not_know_is_refused(tmp_path):
    touch(tmp_path, "train/run/a.mp4", "val/walk/a.mp4")
    with pytest.raises(DataError, match=r"walk: unknown class: there is no such class"):
        read_videos(tmp_path, "val")


def keyed(root, **fractions):
    return {split: set(read_folder(root, split, **fractions).paths) for split in ("train", "val")}


def test_a_folder_per_class_is_split_by_key_in_every_class(tmp_path):
    touch(tmp_path, *(f"{name}/{i:03}.mp4" for name in ("run", "jump") for i in range(50)))
    parts = keyed(tmp_path, val_fraction=0.2)
    assert {split: len(part) for split, part in parts.items()} == {"train": 80, "val": 20}
    assert sum(path.startswith("run/") for path in parts["val"]) == 10
    assert len(parts["train"] | parts["val"]) == 100
    assert parts == keyed(tmp_path, val_fraction=0.2)


def test_the_keyed_split_does_not_depend_on_where_the_dataset_lies_and_moves_little(tmp_path):
    files = [f"run/{i:03}.mp4" for i in range(60)]
    touch(tmp_path / "here", *files)
    touch(tmp_path / "there", *files, "run/new.mp4")
    here, there = (keyed(tmp_path / place, val_fraction=0.2) for place in ("here", "there"))
    for split in here:
        assert len(here[split] - there[split]) <= 1


def test_classes_named_after_splits_are_classes(tmp_path):
    touch(tmp_path, *(f"{name}/{i}.mp4" for name in ("train", "bus") for i in range(5)))
    assert read_videos(tmp_path, "train").classes == ("bus", "train")


def test_lists_in_a_folder_share_their_classes(tmp_path):
    touch(tmp_path, "a.mp4", "b.mp4")
    (tmp_path / "train.csv").write_text("a.mp4,0\n")
    (tmp_path / "val.txt").write_text("b.mp4 2\n")
    assert read_videos(tmp_path, "train").classes == read_videos(tmp_path, "val").classes == ("0", "1", "2")
    (tmp_path / "classes.txt").write_text("run\njump\nsit down\n")
    assert read_videos(tmp_path, "val").classes == ("run", "jump", "sit down")
    assert list(read_videos(tmp_path, "val").labels) == [2]
    with pytest.raises(DataError, match=r"no list test\.csv or test\.txt; it has train\.csv, val\.txt"):
        read_videos(tmp_path, "test")
    (tmp_path / "val.csv").write_text("b.mp4 2\n")
    with pytest.raises(DataError, match="both"):
        read_videos(tmp_path, "val")


def test_lists_of_names_share_their_classes(tmp_path):
    (tmp_path / "train.csv").write_text("a.mp4,run\nb.mp4,sit down\n")
    (tmp_path / "val.csv").write_text("b.mp4,sit down\nc.mp4,jump\n")
    val = read_videos(tmp_path, "val", check_files=False)
    assert (val.classes, list(val.labels)) == (("jump", "run", "sit down"), [2, 0])


@pytest.mark.parametrize(
    ("text", "paths", "labels"),
    [
        ("a.mp4 0\nb/c.mp4 1\n", ("a.mp4", "b/c.mp4"), (0, 1)),
        ("a.mp4,0\nb c.mp4,1\n", ("a.mp4", "b c.mp4"), (0, 1)),
        ("my cat.mp4 0\nmy, dog.mp4 1\nb.mp4 1\n", ("my cat.mp4", "my, dog.mp4", "b.mp4"), (0, 1, 1)),
        ("a b.mp4\t3\n", ("a b.mp4",), (3,)),
        ("\ufeffpath,label\na.mp4, 0\n\n# no more\nb.mp4 , 1", ("a.mp4", "b.mp4"), (0, 1)),
        ("Path Label\na.mp4  0\n", ("a.mp4",), (0,)),
        ("video_path,label\nmy, cat.mp4,1\n", ("my, cat.mp4",), (1,)),
        ("filename\tclass_name\na.mp4\trun\nb.mp4\tjump\n", ("a.mp4", "b.mp4"), (1, 0)),
        ('label,duration,"Video Path"\n0,3.5,"a, b.mp4"\n1,2,c.mp4\n', ("a, b.mp4", "c.mp4"), (0, 1)),
        ('"a, b.mp4","run"\nc.mp4,jump\r\n', ("a, b.mp4", "c.mp4"), (1, 0)),
        ("/abs/a.mp4 0\n", ("/abs/a.mp4",), (0,)),
    ],
)
def test_lists_are_read_as_they_are_written(tmp_path, text, paths, labels):
    (tmp_path / "list.csv").write_text(text)
    found = read_list(tmp_path / "list.csv", check_files=False)
    assert (tuple(found.paths), tuple(found.labels)) == (paths, labels)


def test_relative_paths_start_at_the_list_or_at_a_root(tmp_path):
    touch(tmp_path, "videos/a.mp4")
    (tmp_path / "list.txt").write_text("a.mp4 0\n")
    assert read_list(tmp_path / "list.txt", tmp_path / "videos").path(0) == tmp_path / "videos" / "a.mp4"
    with pytest.raises(DataError, match=r"list\.txt, line 1: no such file: .*a\.mp4"):
        read_list(tmp_path / "list.txt")
    assert read_videos(tmp_path / "list.txt", "train", check_files=False).origin(0).endswith("list.txt, line 1")


@pytest.mark.parametrize(
    ("text", "classes", "said"),
    [
        ("# videos\na.mp4 0\n\nb.mp4\n", None, "line 4: 'b.mp4' has no label"),
        ("a.mp4,0\nmy file.mp4,1\nb.mp4\n", None, "line 3: 'b.mp4' has no label"),
        ("a.mp4,0\nb.mp4,\n", None, "line 2: 'b.mp4,' has no label"),
        ("a.mp4 0\nb.mp4 1O\nc.mp4 2\n", None, "line 2: bad label '1O': the other labels are integers"),
        ("a.mp4 run\nb.mp4 1\nc.mp4 run\n", None, "line 2: bad label '1': the other labels are names"),
        ("a.mp4 -1\n", None, "line 1: bad label -1"),
        ("path,label\na.mp4,2\n", ("run", "jump"), "line 2: bad label 2: must be from 0 to 1"),
        ("clip_url,action\na.mp4,run\nb.mp4,jump\n", None, "line 1: clip_url is not a video, but all others are"),
        ("a.mp4,0,train\nb.mp4,1,valid\n", None, "line 1: the last column is a split, not a label"),
        (
            "path,label,split\na.mp4,0,train\nb.mp4,1,holdout\n",
            None,
            "line 3: unknown split 'holdout': must be train (or",
        ),
        ("path,label,split\na.mp4,0,train\nb.mp4,1\n", None, "line 3: 2 values, but the header has 3"),
        ("path,label,split\na.mp4,,train\n", None, "line 2: no label"),
        ("path,video,label\na.mp4,b.mp4,0\n", None, "line 1: columns path and video: keep one"),
        ("a.mp4,walk\n", ("run", "jump"), "line 1: bad label 'walk': the classes are run, jump"),
        ("\n# nothing\n", None, "the list is empty"),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path, text, classes, said):
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(DataError) as caught:
        read_list(tmp_path / "list.csv", classes=classes, check_files=False)
    assert "list.csv" in str(caught.value)
    assert said in str(caught.value)


def test_a_missing_file_is_named_with_its_line(tmp_path):
    touch(tmp_path, "a.mp4")
    (tmp_path / "train.csv").write_text("a.mp4,0\n\ngone.mp4,1\n")
    with pytest.raises(DataError, match=r"train\.csv, line 3: no such file: .*gone\.mp4"):
        read_videos(tmp_path, "train")


def test_folders_without_videos_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        read_videos(tmp_path / "absent", "train")
    with pytest.raises(DataError, match="no class folders"):
        read_videos(tmp_path, "train")
    touch(tmp_path, "run/a.mp4", "run/b.mp4", "jump/notes.txt")
    with pytest.raises(DataError, match=r"jump: the class has no videos; .*\.mp4"):
        read_videos(tmp_path, "train")


def test_splits_that_cannot_be_are_refused(tmp_path):
    touch(tmp_path, "run/a.mp4", "run/b.mp4")
    with pytest.raises(DataError, match="must be one of train, val, test"):
        read_videos(tmp_path, "training")
    with pytest.raises(DataError, match=r"a test split of 0 "):
        read_videos(tmp_path, "test")
    with pytest.raises(DataError, match="val fraction 1: must be at least 0 and below 1"):
        read_videos(tmp_path, "val", val_fraction=1)


def test_a_list_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "list.csv").write_bytes(b"a.mp4 0\n\xff\xfe")
    with pytest.raises(DataError, match="UTF-8"):
        read_list(tmp_path / "list.csv")


def test_real_sets_are_found(shared_data):
    gestures = {split: read_videos(shared_data / "gestures", split) for split in ("train", "val", "test")}
    assert {split: len(videos) for split, videos in gestures.items()} == {"train": 140, "val": 29, "test": 48}
    assert len(gestures["train"].classes) == 10
    assert all(
        path.startswith(f"{videos.classes[label]}/")
        for videos in gestures.values()
        for path, label in zip(videos.paths, videos.labels, strict=True)
    )
    assert len(read_videos(shared_data / "fights", "train")) == 200
    assert len(read_videos(shared_data / "gestures_raw", "train").classes) == 10


def test_finding_videos_needs_neither_torch_nor_numpy():
    code = "import sys, vcycle.data.layouts; sys.exit(bool({'torch', 'numpy', 'av'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_class_named_twice_is_refused(tmp_path):
    (tmp_path / "train.csv").write_text("a.mp4,0\n")
    (tmp_path / "classes.txt").write_text("run\njump\nrun\n")
    with pytest.raises(DataError, match=r"classes\.txt: the class 'run' is named twice"):
        read_videos(tmp_path, "train")


ALIASES = [("train", "valid"), ("Train", "Val"), ("training", "validation"), ("TRAIN", "validate")]


@pytest.mark.parametrize(("train", "val"), ALIASES)
def test_folders_of_splits_have_any_usual_name(tmp_path, train, val):
    touch(tmp_path, f"{train}/run/a.mp4", f"{train}/jump/b.mp4", f"{val}/run/c.mp4", "Test/jump/d.mp4")
    assert layout_of(tmp_path) == "folder"
    assert splits_of(tmp_path) == ("train", "val", "test")
    found = {split: [str(read_videos(tmp_path, split).path(0))] for split in ("train", "val", "test")}
    expected = {"train": f"{train}/jump/b.mp4", "val": f"{val}/run/c.mp4", "test": "Test/jump/d.mp4"}
    assert found == {split: [str(tmp_path / path)] for split, path in expected.items()}
    assert read_videos(tmp_path, "val").classes == ("jump", "run")


@pytest.mark.parametrize(("train", "val"), ALIASES)
def test_lists_of_splits_have_any_usual_name(tmp_path, train, val):
    (tmp_path / f"{train}.csv").write_text("a.mp4,run\n")
    (tmp_path / f"{val}.txt").write_text("b.mp4 jump\n")
    assert splits_of(tmp_path) == ("train", "val")
    found = read_videos(tmp_path, "val", check_files=False)
    assert (list(found.paths), found.classes) == (["b.mp4"], ("jump", "run"))


def test_two_names_of_one_split_are_refused_with_both(tmp_path):
    touch(tmp_path / "folders", "train/run/a.mp4", "val/run/b.mp4", "valid/run/c.mp4")
    with pytest.raises(DataError, match="folders: both val and valid are the val split: keep one"):
        read_videos(tmp_path / "folders", "train")
    touch(tmp_path / "lists", "train.csv", "val.csv", "Validation.csv")
    with pytest.raises(DataError, match=r"lists: both Validation\.csv and val\.csv are the val split: keep one"):
        read_videos(tmp_path / "lists", "train")


def test_a_folder_that_may_be_a_split_is_not_advised_to_be_the_whole_set(tmp_path):
    touch(tmp_path, "train/run/a.mp4", "train/jump/a.mp4", "holdout/run/b.mp4", "holdout/jump/b.mp4")
    with pytest.raises(DataError, match=r"holdout: not a class, .* splits are called .*val \(or valid, validation"):
        read_videos(tmp_path, "train")


LISTED = "video_path,label,split\na.mp4,run,train\nb.mp4,jump,valid\nc.mp4,run,Test\nd.mp4,run,train\n"


def test_a_list_may_name_the_split_of_each_video(tmp_path):
    (tmp_path / "all.csv").write_text(LISTED)
    assert splits_of(tmp_path / "all.csv") == ("train", "val", "test")
    found = {split: read_videos(tmp_path / "all.csv", split, check_files=False) for split in ("train", "val", "test")}
    assert {split: list(videos.paths) for split, videos in found.items()} == {
        "train": ["a.mp4", "d.mp4"],
        "val": ["b.mp4"],
        "test": ["c.mp4"],
    }
    assert all(videos.classes == ("jump", "run") for videos in found.values())
    assert found["train"].origin(1).endswith("all.csv, line 5")
    assert len(read_list(tmp_path / "all.csv", check_files=False)) == 4
    (tmp_path / "train.csv").write_text(LISTED)
    (tmp_path / "val.csv").write_text("e.mp4,run\n")
    with pytest.raises(DataError, match=r"train\.csv, line 3: the video is of split val, but the list is of train"):
        read_videos(tmp_path, "train", check_files=False)


def test_names_of_classes_beside_a_list_hold_for_it(tmp_path):
    (tmp_path / "mine.csv").write_text("a.mp4,1\nb.mp4,0\n")
    (tmp_path / "classes.txt").write_text("run\njump\nsit down\n")
    assert read_list(tmp_path / "mine.csv", check_files=False).classes == ("run", "jump", "sit down")
    assert read_list(tmp_path / "mine.csv", classes=("a", "b"), check_files=False).classes == ("a", "b")


def test_a_list_of_megabytes_is_read_line_by_line(tmp_path):
    names = [f"映像/{'é' * (number % 7)} {number}.mp4" for number in range(60_000)]
    text = "\ufeff# all of them\r\npath,label\r\n" + "".join(
        f"{name},{number % 3}\r\n" + ("\r\n# more\r\n" if number % 1000 == 0 else "")
        for number, name in enumerate(names)
    )
    (tmp_path / "train.csv").write_text(text, encoding="utf-8", newline="")
    found = read_videos(tmp_path, "train", check_files=False)
    assert list(found.paths) == names
    assert list(found.labels) == [number % 3 for number in range(60_000)]
    lines = text.split("\r\n")
    assert all(lines[found.lines[item] - 1] == f"{names[item]},{item % 3}" for item in range(0, 60_000, 97))
    (tmp_path / "train.csv").write_text(text + "last.mp4,\n", encoding="utf-8", newline="")
    with pytest.raises(DataError, match=rf"line {len(lines)}: 'last\.mp4,' has no label"):
        read_videos(tmp_path, "train", check_files=False)
    (tmp_path / "train.csv").write_bytes(text.encode() + b"\xff.mp4,0\n")
    with pytest.raises(DataError, match=rf"not a text file in UTF-8 \(byte {len(text.encode())}\)"):
        read_videos(tmp_path, "train", check_files=False)


@pytest.mark.parametrize("header", ["", "label,path,split\n"])
def test_a_long_list_takes_little_more_memory_than_its_file(tmp_path, header):
    count = 200_000
    lines = (f"class_{number % 400}/{number:011}_000010_000020.mp4" for number in range(count))
    plain = not header
    text = header + "".join(
        f"{line},{n % 400}\n" if plain else f"{n % 400},{line},train\n" for n, line in enumerate(lines)
    )
    (tmp_path / "train.csv").write_text(text)
    tracemalloc.start()
    found = read_videos(tmp_path, "train", check_files=False)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == count
    assert kept < len(text) + 20 * count
    assert peak < kept + 12e6, "one block of lines, whatever the length of the list"


def test_of_a_longer_list_as_many_files_are_looked_for_evenly_spaced(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_CHECKED", 3)
    touch(tmp_path, "0.mp4", "2.mp4")
    (tmp_path / "train.csv").write_text("".join(f"{number}.mp4 0\n" for number in range(4)))
    assert len(read_videos(tmp_path, "train")) == 4
    (tmp_path / "2.mp4").unlink()
    with pytest.raises(DataError, match=r"train\.csv, line 3: no such file: .*2\.mp4"):
        read_videos(tmp_path, "train")


def test_labels_that_all_differ_are_refused_before_they_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "_MOST_CLASSES", 3)
    (tmp_path / "train.csv").write_text("".join(f"{number}.mp4,id{number}\n" for number in range(9)))
    with pytest.raises(DataError, match=r"train\.csv, line 4: bad label 'id3': more than 3 labels differ"):
        read_videos(tmp_path, "train", check_files=False)
