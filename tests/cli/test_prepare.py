"""`vcycle prepare` and `vcycle check`, from a folder of videos to a training on what they made."""

import json
import shutil

import pytest


def refused(ran, *parts):
    """The command ended with one line of error that has all the parts."""
    assert (ran.code, ran.out) == (2, "")
    (error,) = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in ran.err
    for part in parts:
        assert part in error


@pytest.fixture
def spoilt(here, videos):
    """A copy of the videos with two bad files among them."""
    root = shutil.copytree(videos, here / "data")
    (root / "train/left/empty.mp4").touch()
    (root / "val/right/text.mp4").write_text("no video")
    return root


def test_training_takes_a_prepared_folder_as_it_is(vcycle, here, videos):
    ran = vcycle("prepare", videos, "fast", "--recipe", "tiny.yaml", "--workers", "2")
    assert ran.code == 0, ran.err
    assert "32 of 32 files, 0 failed, 0 damaged" in ran.out
    assert "of disk (" in ran.err  # said before
    assert (here / "fast/20px/train/left/0.mp4").is_file()  # 1.15 times 16, and even
    planned = vcycle("plan", "tiny.yaml", "data=fast")
    assert "16 training videos in 2 classes and 8 validation videos" in planned.err
    trained = vcycle("train", "tiny.yaml", "data=fast", "--out", "run", "--json")
    assert trained.code == 0, trained.err
    assert json.loads(trained.out)["replaced"] == 0
    evaluated = vcycle("eval", "run", "--split", "test", "--json")
    assert json.loads(evaluated.out)["samples"] == 8


def test_arrays_too(vcycle, here, videos):
    assert vcycle("prepare", videos, "fast", "--levels", "12,20", "--to", "array").code == 0
    assert sorted(path.name for path in (here / "fast/12px").iterdir()) == ["test.u8", "train.u8", "val.u8"]
    trained = vcycle("train", "tiny.yaml", "data=fast", "--out", "run", "--json")
    assert trained.code == 0, trained.err
    cached = vcycle("train", "tiny.yaml", "data=fast", "data.cache=16", "--out", "run2")
    assert (cached.code, "is an array already" in cached.err) == (2, True)
    refused(vcycle("prepare", "fast", "again", "--short-side", "16"), "is already prepared as arrays")


def test_failures_are_said_listed_and_left_out(vcycle, here, spoilt):
    ran = vcycle("prepare", "data", "fast", "--short-side", "16")
    assert ran.code == 1  # 2 of 34 are more than 5 %
    assert f"failed: {spoilt / 'train/left/empty.mp4'}: an empty file" in ran.err
    assert "32 of 34 files, 2 failed" in ran.out
    listed = json.loads((here / "fast/report.json").read_text())["failed"]
    assert [entry["path"] for entry in listed] == [
        str(spoilt / "train/left/empty.mp4"),
        str(spoilt / "val/right/text.mp4"),
    ]
    again = vcycle("prepare", "data", "fast", "--short-side", "16", "--json")
    assert again.code == 1
    assert json.loads(again.out)["kept"] == 32
    assert "16 training videos in 2 classes and 8 validation videos" in vcycle("plan", "tiny.yaml", "data=fast").err


def test_few_failures_are_no_failure_of_the_command(vcycle, here, spoilt):
    (spoilt / "val/right/text.mp4").unlink()
    assert vcycle("prepare", "data", "fast", "--short-side", "16").code == 0  # 1 of 33


def test_a_dry_run_writes_nothing(vcycle, here, videos):
    ran = vcycle("prepare", videos, "fast", "--short-side", "16", "--dry-run")
    assert ran.code == 0
    assert ran.out.startswith("32 files to do (from 8 of them): about ")
    assert not (here / "fast").exists()
    ran = vcycle("prepare", videos, "fast", "--short-side", "16", "--dry-run", "--json")
    low, high = json.loads(ran.out)["estimate"]["bytes"]
    assert 0 < low < high


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(vcycle, here, videos, monkeypatch):
    monkeypatch.setattr("vcycle.data.prepare.estimate.free_bytes", lambda _: 1000)
    ran = vcycle("prepare", videos, "fast", "--short-side", "16")
    refused(ran, "fast: ", " GB are needed and 1e-06 GB are free")
    assert not (here / "fast").exists()


def test_the_estimate_is_near_what_is_written(vcycle, here, videos):
    low, high = json.loads(vcycle("prepare", videos, "a", "--short-side", "16", "--dry-run", "--json").out)["estimate"][
        "bytes"
    ]
    written = json.loads(vcycle("prepare", videos, "a", "--short-side", "16", "--json").out)["bytes"]
    assert low / 1.5 < written < high * 1.5


def test_check_lists_bad_files_and_ends_with_1(vcycle, here, spoilt):
    ran = vcycle("check", "data")
    assert ran.code == 1
    assert ran.out.splitlines()[:3] == [
        f"bad: {spoilt / 'train/left/empty.mp4'}: an empty file",
        *[line for line in ran.out.splitlines() if "text.mp4" in line],
        "34 files: 2 bad, 0 damaged",
    ]
    data = json.loads(vcycle("check", "data", "--quick", "--json").out)
    assert set(data["bad"]) == {str(spoilt / "train/left/empty.mp4"), str(spoilt / "val/right/text.mp4")}


def test_check_of_good_videos_and_of_what_was_prepared(vcycle, here, videos):
    assert vcycle("check", videos).out.startswith("32 files: 0 bad, 0 damaged\n")
    assert vcycle("prepare", videos, "fast", "--short-side", "16").code == 0
    ran = vcycle("check", "fast")
    assert ran.code == 0
    for line in (
        "videos        32: train 16, val 8, test 8",
        "length        1.00 s; 32.0 s in all",
        "codec         h264 32",
    ):
        assert line in ran.out.splitlines()
    refused(vcycle("check", "fast", "data.val=x"), "KEY=VALUE does not apply to prepared data")
    (here / "fast/16px/val/left/0.mp4").write_bytes(b"other")
    ran = vcycle("check", "fast")
    assert ran.code == 1
    assert "val/left/0: has 5 bytes, but " in ran.out


def test_check_tells_of_every_file_that_a_list_misses(vcycle, here, videos):
    (here / "list.csv").write_text(f"{videos}/train/left/0.mp4,0\nnothing.mp4,1\nnowhere.mp4,1\n")
    ran = vcycle("check", "list.csv")
    assert ran.code == 1
    assert ran.out.count("No such file or directory") == 2
    assert "3 files: 2 bad" in ran.out


@pytest.fixture
def kinetics(here, videos):
    """A set in the layout of Kinetics, of which three of sixteen videos have vanished."""
    (here / "kinetics").mkdir()
    for split in ("train", "val"):
        rows = [f"{name},{split}-{name}-{number},1,2" for name in ("left", "right") for number in range(4)]
        text = "\n".join(["label,youtube_id,time_start,time_end", *rows])
        (here / f"kinetics/{split}.csv").write_text(text + "\n")
        (here / "kinetics" / split).mkdir()
        for name in ("left", "right"):
            for number in range(4):
                if (split, number) != ("train", 3) and (split, name, number) != ("val", "left", 0):
                    target = here / f"kinetics/{split}/{split}-{name}-{number}_000001_000002.mp4"
                    shutil.copy(videos / split / name / f"{number}.mp4", target)
    return here / "kinetics"


def test_check_names_every_video_that_has_vanished_from_kinetics_and_prepare_leaves_them_out(vcycle, here, kinetics):
    gone = [
        str(kinetics / f"{name}_000001_000002.mp4")
        for name in ("train/train-left-3", "train/train-right-3", "val/val-left-0")
    ]
    ran = vcycle("check", "kinetics")
    assert ran.code == 1
    assert ran.out.splitlines()[:4] == [
        *(f"bad: {path}: No such file or directory" for path in gone),
        "16 files: 3 bad, 0 damaged",
    ]
    assert "vcycle plan kinetics/slowfast_8x8_r50 data=kinetics" in ran.out
    ran = vcycle("prepare", "kinetics", "fast", "--short-side", "16")
    assert ran.code == 0
    assert "kinetics/train.csv: 2 of 8 videos have no file and are left out" in ran.err
    assert "13 of 13 files, 0 failed" in ran.out
    assert "6 training videos in 2 classes and 7 validation videos" in vcycle("plan", "tiny.yaml", "data=fast").err
    assert "6 training videos in 2 classes and 7 validation videos" in vcycle("plan", "tiny.yaml", "data=kinetics").err


@pytest.mark.parametrize("command", [["check", "kinetics"], ["prepare", "kinetics", "fast", "--short-side", "16"]])
def test_a_layout_that_a_folder_does_not_have_is_refused(vcycle, kinetics, command):
    ran = vcycle(*command, "--layout", "ucf101")
    assert (ran.code, ran.out) == (2, "")
    assert "kinetics: no labelled train split for layout ucf101" in ran.err


def test_check_and_prepare_tell_of_every_file_that_an_official_list_misses(vcycle, here, videos):
    lists, clips = here / "ucf/ucfTrainTestlist", here / "ucf/UCF-101"
    lists.mkdir(parents=True)
    names = [f"{name}/v_{name}_g{group:02}_c01.mp4" for name in ("left", "right") for group in range(4)]
    for number, name in enumerate(names):
        (clips / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(videos / "train/left" / f"{number}.mp4", clips / name)
    (lists / "classInd.txt").write_text("1 left\n2 right\n")
    (lists / "testlist01.txt").write_text("\n".join(name for name in names if "_g00_" in name))
    (lists / "trainlist01.txt").write_text("\n".join(name for name in names if "_g00_" not in name))
    for name in (names[0], names[6]):
        (clips / name).unlink()
    ran = vcycle("check", "ucf", "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["bad"] == {
        str(clips / name): "No such file or directory" for name in (names[0], names[6])
    }
    prepared = json.loads(vcycle("prepare", "ucf", "fast", "--short-side", "16", "--json").out)
    assert (prepared["videos"], set(prepared["failed"])) == (8, {str(clips / name) for name in (names[0], names[6])})
    refused(vcycle("plan", "tiny.yaml", "data=ucf"), "no such file: ")


def test_a_set_too_small_for_validation_can_be_checked(vcycle, here, videos):
    (here / "one/left").mkdir(parents=True)
    shutil.copy(videos / "train/left/0.mp4", here / "one/left")
    assert vcycle("check", "one").out.startswith("1 file: 0 bad, 0 damaged\n")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["data", "fast"], ["the size is unknown: ", "--recipe", "--short-side"]),
        (["nowhere", "fast"], ["nowhere: no such folder or list file"]),
        (["data", "fast", "--short-side", "16", "--levels", "16,32"], ["mutually exclusive"]),
        (["data", "fast", "--levels", "16,x"], ["--levels 16,x"]),
        (["data", "fast", "--levels", "32,16"], ["ascending"]),
        (["data", "fast", "--short-side", "17"], ["short sides [17]: must be even for videos"]),
        (["data", "fast", "--levels", "0,16"], ["short sides [0, 16]: must be from 1 to 16,384 pixels"]),
        (["data", "fast", "--short-side", "16", "--to", "gif"], ["--to gif", "video, array or tiles"]),
        (["nowhere", "fast", "--short-side", "16"], ["nowhere: no such folder or list file"]),
        (["data", "data/fast", "--short-side", "16"], ["cannot be inside"]),
        (["data", "full", "--short-side", "16"], ["full: is not empty and holds no prepared dataset"]),
        (["data", "tiny.yaml", "--short-side", "16"], ["tiny.yaml: not a folder"]),
        (["data", "fast", "--short-side", "16", "training.size=4"], ["without --recipe"]),
        (["data", "fast", "--short-side", "16", "--layout", "x"], ["data.layout"]),
        (["data", "fast", "--recipe", "none"], ["no recipe 'none'"]),
    ],
)
def test_mistakes_are_said_in_one_line(vcycle, here, videos, arguments, parts):
    (here / "data").symlink_to(videos)
    (here / "full").mkdir()
    (here / "full/something").touch()
    refused(vcycle("prepare", *arguments), *parts)


def test_other_settings_are_refused(vcycle, here, videos):
    assert vcycle("prepare", videos, "fast", "--short-side", "16").code == 0
    refused(vcycle("prepare", videos, "fast", "--short-side", "20"), "was prepared with levels 16, not 20")


def test_no_arguments(vcycle):
    for command in ("prepare", "check"):
        ran = vcycle(command)
        assert ran.code == 2
        assert "Missing argument" in ran.err


def test_parts_are_written_and_merged_by_the_command(vcycle, here, videos):
    command = ("prepare", videos, "fast", "--short-side", "16")
    assert "16 of 16 files, 0 failed" in vcycle(*command, "--part", "2/2").out
    refused(vcycle(*command, "--merge"), "unfinished parts: 1/2")
    assert vcycle(*command, "--part", "1/2").code == 0
    assert "32 of 32 files, 0 failed" in vcycle(*command, "--merge").out
    assert "16 training videos" in vcycle("plan", "tiny.yaml", "data=fast").err
    refused(vcycle(*command, "--part", "3/2"), "part 3/2: K/N is accepted")
    refused(vcycle(*command, "--part", "1/2", "--merge"), "--merge takes all parts: leave out --part 1/2")
    refused(vcycle(*command, "--merge", "--engine", "ray"), "--engine does not go with --merge, which takes all parts")
    refused(vcycle(*command, "--engine", "dask"), "engine dask: local or ray is accepted")
