"""Datasets in the official formats of their authors, in miniature."""

import json
from math import inf

import pytest

from vcycle.data.layouts import layout_of, read_videos, splits_of
from vcycle.errors import DataError, RecipeError

KINETICS_TRAIN = """label,youtube_id,time_start,time_end,split,is_cc
"playing, the kazoo",---QUuC4vJs,84,94,train,0
abseiling,_4YTwq0-73Y,3,13,train,1
abseiling,gone0000000,0,10,train,0

zumba,--07WQ2iBlw,1,11,train,0
"""
KINETICS_VAL = """label,youtube_id,time_start,time_end,split
zumba,abcdefghijk,100,110,validate
"""

SSV2 = "something-something-v2-{}.json"
CHARADES_HEADER = "id,subject,scene,quality,relevance,verified,script,objects,descriptions,actions,length\n"
HMDB = "testTrainMulti_7030_splits/{}_test_split{}.txt"


def write(root, files):
    """Files with their text; those without one are empty videos."""
    for name, text in files.items() if isinstance(files, dict) else dict.fromkeys(files, "").items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def entries(videos):
    return {path: videos.classes[label] for path, label in zip(videos.paths, videos.labels, strict=True)}


def assert_refused(root, split, message, **options):
    with pytest.raises(DataError) as caught:
        read_videos(root, split, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def kinetics(tmp_path):
    write(tmp_path, {"train.csv": KINETICS_TRAIN, "validate.csv": KINETICS_VAL})
    write(tmp_path, ["train/playing the kazoo/---QUuC4vJs_000084_000094.mp4", "train/abseiling/_4YTwq0-73Y.webm"])
    return write(tmp_path, ["train/zumba/--07WQ2iBlw_000001_000011.mkv", "val/abcdefghijk_000100_000110.mp4"])


def test_kinetics_takes_the_videos_of_its_lists_that_are_there_and_counts_those_that_are_not(kinetics):
    assert (layout_of(kinetics), splits_of(kinetics)) == ("kinetics", ("train", "val"))
    train = read_videos(kinetics, "train")
    assert entries(train) == {
        "playing the kazoo/---QUuC4vJs_000084_000094.mp4": "playing, the kazoo",
        "abseiling/_4YTwq0-73Y.webm": "abseiling",
        "zumba/--07WQ2iBlw_000001_000011.mkv": "zumba",
    }
    assert (train.missing, list(train.lines), train.classes) == (
        1,
        [2, 3, 6],
        ("abseiling", "playing, the kazoo", "zumba"),
    )
    assert all(train.path(item).is_file() for item in range(3))
    val = read_videos(kinetics, "val")
    assert (entries(val), val.missing, val.classes) == ({"abcdefghijk_000100_000110.mp4": "zumba"}, 0, train.classes)


def test_a_whole_film_of_kinetics_is_limited_to_the_times_listed(kinetics):
    train = read_videos(kinetics, "train")
    assert [train.span(item) for item in range(3)] == [(0, inf), (3, 13), (0, inf)]
    assert list(read_videos(kinetics, "val").spans) == []


@pytest.mark.parametrize(
    ("csv", "folder"),
    [
        ("annotations/train.csv", "videos/train"),
        ("kinetics_train.csv", "videos_train"),
        ("annotations/kinetics-700_train.csv", "train/any name"),
        ("train.csv", "."),
    ],
)
def test_kinetics_is_found_wherever_its_tools_put_it(tmp_path, csv, folder):
    write(tmp_path, {csv: "label,youtube_id,time_start,time_end,split\nzumba,abcdefghijk,0,10,train\n"})
    write(tmp_path, [f"{folder}/abcdefghijk_000000_000010.mp4"])
    assert layout_of(tmp_path) == "kinetics"
    assert read_videos(tmp_path, "train").path(0).is_file()


def test_videos_may_lie_elsewhere_than_the_lists(kinetics, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for folder in ("train", "val"):
        (kinetics / folder).rename(elsewhere / folder)
    assert len(read_videos(kinetics, "train", videos=elsewhere)) == 3
    assert_refused(kinetics, "train", "4 of 4 videos have no file, such as")


def test_a_test_list_of_kinetics_counts_where_it_has_labels_and_videos(kinetics):
    write(kinetics, {"test.csv": "youtube_id,time_start,time_end,split\nabcdefghijk,0,10,test\n"})
    assert splits_of(kinetics) == ("train", "val")
    write(kinetics, {"test.csv": "label,youtube_id,time_start,time_end\nzumba,abcdefghijk,0,10\n"})
    assert splits_of(kinetics) == ("train", "val")
    write(kinetics, ["test/abcdefghijk_000000_000010.mp4"])
    assert splits_of(kinetics) == ("train", "val", "test")
    assert len(read_videos(kinetics, "test")) == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("zumba,abcdefghijk,0", "train.csv, line 3: 3 values, but the header has 5"),
        ("zumba,abcdefghijk,zero,10,train", "train.csv, line 3: 'zero' is not a time in whole seconds"),
        ("zumba,abcdefghijk,10,10,train", "train.csv, line 3: youtube_id 'abcdefghijk' from 10 to 10 s is not a video"),
        ("zumba,,0,10,train", "train.csv, line 3: youtube_id '' from 0 to 10 s is not a video"),
        (",abcdefghijk,0,10,train", "train.csv, line 3: unknown class ''"),
        ('"zumba,abcdefghijk,0,10,train', "train.csv, line 3: unexpected end of data"),
    ],
)
def test_a_malformed_row_of_kinetics_is_named(tmp_path, row, message):
    text = f"label,youtube_id,time_start,time_end,split\nzumba,a,0,10,train\n{row}\n"
    write(tmp_path, {"train.csv": text, "train/a_000000_000010.mp4": ""})
    assert_refused(tmp_path, "train", message)


def test_a_class_that_the_training_list_of_kinetics_does_not_have_is_named(kinetics):
    write(kinetics, {"validate.csv": KINETICS_VAL.replace("zumba", "zumbaa")})
    assert_refused(kinetics, "val", "validate.csv, line 2: unknown class 'zumbaa': the classes are abseiling, ")
    write(kinetics, {"val.csv": KINETICS_VAL})
    assert_refused(kinetics, "val", "both val.csv and validate.csv list the val split: keep one")


@pytest.fixture
def ssv2(tmp_path):
    def entry(identity, template, **more):
        return {"id": identity, "label": "a label", "template": template, "placeholders": ["mug"], **more}

    labels = {"Holding something": "1", "Dropping something onto something": "0", "Doing nothing": "2"}
    train = [entry("78687", "Holding [something]"), entry("42326", "Dropping [something] onto [something]")]
    lists = {"train": train, "validation": [entry("74225", "Doing nothing")], "labels": labels, "test": [{"id": "1"}]}
    return write(tmp_path, {SSV2.format(name): json.dumps(content) for name, content in lists.items()})


def test_something_something_finds_its_videos_and_classes(ssv2):
    write(ssv2, [f"20bn-something-something-v2/{name}.webm" for name in (78687, 42326, 74225, 1)])
    assert (layout_of(ssv2), splits_of(ssv2)) == ("ssv2", ("train", "val"))
    train, val = (read_videos(ssv2, split) for split in ("train", "val"))
    assert train.classes == val.classes == ("Dropping something onto something", "Holding something", "Doing nothing")
    assert entries(train) == {"78687.webm": "Holding something", "42326.webm": "Dropping something onto something"}
    assert (entries(val), val.frame_rate) == ({"74225.webm": "Doing nothing"}, None)
    assert_refused(ssv2, "test", "no labelled test split for layout ssv2; it has train, val")


def test_something_something_is_also_found_as_frames_at_12_a_second(ssv2):
    write(ssv2, [f"frames/{name}/000001.jpg" for name in (78687, 42326, 74225)])
    train = read_videos(ssv2, "train")
    assert (list(train.paths), train.frame_rate) == (["78687", "42326"], 12)
    assert train.path(0).is_dir()
    (ssv2 / "frames/42326").rename(ssv2 / "frames/gone")
    assert_refused(ssv2, "train", "train.json, entry 2: no such folder of frames: ")


def test_something_something_is_found_as_it_is_shipped_today(ssv2):
    (ssv2 / "labels").mkdir()
    for name in ("train", "validation", "labels", "test"):
        (ssv2 / SSV2.format(name)).rename(ssv2 / "labels" / f"{name}.json")
    write(ssv2, [f"videos/{name}.webm" for name in (78687, 42326, 74225)])
    assert layout_of(ssv2) == "ssv2"
    assert len(read_videos(ssv2, "train")) == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("train", '[{"id": "1",\n "template"]', "train.json, line 2: Expecting ':' delimiter"),
        ("train", '{"id": "1"}', "train.json: must be a list"),
        ("train", "[]", "train.json: the list is empty"),
        (
            "train",
            '[{"id": "7", "template": "Doing nothing"}, 3]',
            "train.json, entry 2: 'id' and 'template' are needed",
        ),
        ("train", '[{"id": "7", "template": "Running"}]', "train.json, entry 1: unknown class 'Running'"),
        ("train", '[{"id": "8", "template": "Doing nothing"}]', "train.json, entry 1: no such video: "),
        ("labels", '{"a": "0", "b": "2"}', "labels.json: must map names to the numbers 0 to 1, each once"),
    ],
)
def test_a_malformed_list_of_something_something_is_named(ssv2, name, text, message):
    write(ssv2, {SSV2.format(name): text, "videos/7.webm": ""})
    assert_refused(ssv2, "train", message)


@pytest.fixture
def charades(tmp_path):
    train = """46GP8,HR43,Kitchen,6,7,Yes,"A person cooking,
on a stove.",food;stove,"A person cooks; happily.",c001 11.90 21.20;c000 0.00 12.60;c001 22 23.5,24.83
N11GT,0KZ7,Stairs,6,7,No,A person waits.,,"""
    files = {
        "Charades_v1_train.csv": CHARADES_HEADER + train + "Waiting.,,18.33\n",
        "Charades_v1_test.csv": CHARADES_HEADER + "YSKX3,X,Y,7,7,Yes,S,O,D,c002 0 3.1,30\n",
        "Charades_v1_classes.txt": "c000 Holding some clothes\nc001 Putting clothes somewhere\nc002 Taking a nap\n",
    }
    return write(tmp_path / "Charades", files)


def charades_videos(root, form="Charades_v1_480/{}.mp4"):
    return write(root, [form.format(name) for name in ("46GP8", "N11GT", "YSKX3")])


def test_charades_has_all_actions_of_a_video_with_their_times(charades):
    charades_videos(charades)
    assert (layout_of(charades), splits_of(charades)) == ("charades", ("train", "val"))
    train, val = (read_videos(charades, split) for split in ("train", "val"))
    assert train.multi_label
    assert train.classes == ("Holding some clothes", "Putting clothes somewhere", "Taking a nap")
    assert list(train.paths) == ["46GP8.mp4", "N11GT.mp4"]
    assert [train.labels_of(item) for item in range(2)] == [(1, 0, 1), ()]
    assert train.label_spans_of(0) == ((11.9, 21.2), (0, 12.6), (22, 23.5))
    assert train.span(0) == (0, inf)
    assert list(train.lines) == [3, 4]
    assert (val.labels_of(0), val.label_spans_of(0)) == ((2,), ((0, 3.1),))


def test_charades_lies_beside_its_lists_or_above_them_as_videos_or_as_frames(charades):
    charades_videos(charades.parent)
    assert read_videos(charades.parent, "train").path(0).is_file()
    charades_videos(charades.parent, "Charades_v1_rgb/{0}/{0}-000001.jpg")
    assert read_videos(charades.parent, "train").frame_rate is None
    (charades.parent / "Charades_v1_480").rename(charades.parent / "else")
    frames = read_videos(charades.parent, "train")
    assert (frames.path(0), frames.frame_rate) == (charades.parent / "Charades_v1_rgb/46GP8", 24)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ("c001 1", "line 2: 'c001 1' is not an action such as 'c092 11.90 21.20'"),
        ("c001 1 x", "line 2: 'c001 1 x' is not an action such as"),
        ("c003 1 2", "line 2: unknown class 'c003': must be c000 to c002"),
        ("c001 3 2", "line 2: 'c001 3 2' ends before it starts"),
        ("c001 nan 2", "line 2: 'c001 nan 2' ends before it starts"),
    ],
)
def test_a_malformed_action_of_charades_is_named(charades, actions, message):
    write(charades, {"Charades_v1_train.csv": CHARADES_HEADER + f"46GP8,,,,,,,,,{actions},9\n"})
    charades_videos(charades)
    assert_refused(charades, "train", f"Charades_v1_train.csv, {message}")


def test_a_listed_video_of_charades_must_be_there(charades):
    assert_refused(charades, "train", "Charades_v1_train.csv, line 3: no such video: ")
    write(charades, {"Charades_v1_train.csv": "id,subject\n46GP8,HR43\n"})
    assert_refused(charades, "train", "Charades_v1_train.csv, line 1: the header has no column actions")
    write(charades, {"Charades_v1_train.csv": "\n"})
    assert_refused(charades, "train", "Charades_v1_train.csv: empty; needs a header with id, actions")
    write(charades, {"Charades_v1_classes.txt": "c000 Holding\nc002 Putting\n"})
    assert_refused(charades, "train", "Charades_v1_classes.txt, line 2: 'c002 Putting' is not class 1 and its name")


def ucf_name(name, group, clip):
    return f"{name}/v_{name}_g{group:02}_c{clip:02}.avi"


UCF = {
    name: [ucf_name(name, group, clip) for group in range(1, 26) for clip in (1, 2)] for name in ("Archery", "Bowling")
}


@pytest.fixture
def ucf101(tmp_path):
    write(tmp_path, [f"UCF-101/{file}" for files in UCF.values() for file in files])
    lists = {"classInd.txt": "1 Archery\n2 Bowling\n"}
    for fold in (1, 2, 3):
        cut = slice(14 * (fold - 1), 14 * fold)  # the test groups of a fold
        lists[f"testlist0{fold}.txt"] = "".join(f"{file}\n" for files in UCF.values() for file in files[cut])
        lists[f"trainlist0{fold}.txt"] = "".join(
            f"{file} {label}\r\n"
            for label, files in enumerate(UCF.values(), 1)
            for file in files
            if file not in files[cut]
        )
    write(tmp_path / "ucfTrainTestlist", lists)
    return tmp_path


def groups(videos):
    return {path.rpartition("_")[0] for path in videos.paths}


@pytest.mark.parametrize("fold", [1, 2, 3])
def test_ucf101_keeps_whole_groups_of_its_training_list_for_validation(ucf101, fold):
    assert (layout_of(ucf101), splits_of(ucf101)) == ("ucf101", ("train", "val", "test"))
    train, val, test = (read_videos(ucf101, split, fold=fold, val_fraction=0.15) for split in ("train", "val", "test"))
    assert train.classes == val.classes == test.classes == ("Archery", "Bowling")
    assert (len(train) + len(val), len(test)) == (72, 28)
    assert not groups(train) & groups(val) | groups(train) & groups(test) | groups(val) & groups(test)
    for name in ("Archery", "Bowling"):
        assert 2 <= sum(name in path for path in val.paths) <= 8, "about 15 % of 36"
    assert all(
        videos.classes[label] == path.partition("/")[0]
        for videos in (train, val, test)
        for path, label in zip(videos.paths, videos.labels, strict=True)
    )
    assert val == read_videos(ucf101, "val", fold=fold, val_fraction=0.15)
    assert test.origin(0).endswith(f"testlist0{fold}.txt, line 1")


def test_the_first_fold_is_the_default_and_a_fold_that_is_not_there_is_refused(ucf101):
    assert read_videos(ucf101, "test") == read_videos(ucf101, "test", fold=1) != read_videos(ucf101, "test", fold=2)
    assert_refused(ucf101, "test", "fold=4: must be one of 1, 2, 3", fold=4)
    (ucf101 / "ucfTrainTestlist/testlist02.txt").unlink()
    assert_refused(ucf101, "test", "testlist02.txt: cannot be read: No such file or directory", fold=2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Archery 1", "line 2: 'Archery 1' is not 'CLASS/VIDEO' and perhaps a label"),
        ("Archery/v_Archery_g09_c01.avi one", "is not 'CLASS/VIDEO' and perhaps a label"),
        ("Archery/v_Archery_g09_c01.avi 2", "line 2: label 2 does not match Archery/v_Archery_g09_c01.avi: expected 1"),
        ("Diving/v_Diving_g09_c01.avi 1", "line 2: unknown class 'Diving': the classes are Archery, Bowling"),
        ("Archery/v_Archery_g99_c01.avi 1", "line 2: no such file: "),
    ],
)
def test_a_malformed_line_of_ucf101_is_named(ucf101, line, message):
    (ucf101 / "ucfTrainTestlist/trainlist01.txt").write_text(f"Archery/v_Archery_g08_c01.avi 1\n{line}\n")
    with pytest.raises(DataError, match=r"trainlist01\.txt") as caught:
        _ = [read_videos(ucf101, split) for split in ("train", "val")]
    assert message in str(caught.value)


def hmdb_name(film, name, number):
    return f"{film}_{name}_u_nm_np1_ba_goo_{number}.avi"


@pytest.fixture
def hmdb51(tmp_path):
    for name in ("brush_hair", "sit"):
        files = [
            hmdb_name(film, name, number) for film in ("April_09", "A & B!", "#20_Rhythm", "x") for number in range(4)
        ]
        write(tmp_path, [f"hmdb51_org/{name}/{file}" for file in files])
        for fold in (1, 2, 3):
            uses = {file: (2 if number // 4 == fold - 1 else 1) for number, file in enumerate(files)}
            uses[files[-1]] = 0
            write(tmp_path, {HMDB.format(name, fold): "".join(f"{file} {use} \n" for file, use in uses.items())})
    return tmp_path


@pytest.mark.parametrize("fold", [1, 2, 3])
def test_hmdb51_keeps_the_clips_of_a_film_together(hmdb51, fold):
    assert (layout_of(hmdb51), splits_of(hmdb51)) == ("hmdb51", ("train", "val", "test"))
    train, val, test = (read_videos(hmdb51, split, fold=fold, val_fraction=0.3) for split in ("train", "val", "test"))
    assert train.classes == ("brush_hair", "sit")
    assert (len(train) + len(val), len(test)) == (22, 8)
    films = [{(path.partition("/")[0], path.partition("_u_nm")[0]) for path in v.paths} for v in (train, val, test)]
    assert not films[0] & films[1] | films[0] & films[2] | films[1] & films[2]
    assert {label for _, label in zip(val.paths, val.labels, strict=True)} == {0, 1}
    assert all(part.path(item).is_file() for part in (train, val, test) for item in range(len(part)))


@pytest.mark.parametrize("line", ["a.avi 3", "a.avi", "1"])
def test_a_malformed_line_of_hmdb51_is_named(hmdb51, line):
    write(hmdb51, {HMDB.format("sit", 1): f"\n{line}\n"})
    assert_refused(hmdb51, "train", f"sit_test_split1.txt, line 2: '{line}' is not 'VIDEO' and 0, 1 or 2")


def test_a_listed_video_of_hmdb51_must_be_there(hmdb51):
    write(hmdb51, {HMDB.format("sit", 1): "gone.avi 1\n"})
    with pytest.raises(DataError, match=r"sit_test_split1\.txt, line 1: no such file: .*sit/gone\.avi"):
        read_videos(hmdb51, "train")


def unlooked(root, split, **options):
    """Names of the videos that a split lists, whether or not they are there, and of those that are not."""
    found = read_videos(root, split, check_files=False, **options)
    assert found.missing == 0
    return list(found.paths), [path for item, path in enumerate(found.paths) if not found.path(item).exists()]


def test_videos_that_are_listed_and_not_there_are_in_the_list_where_files_are_not_looked_for(
    kinetics, ssv2, charades, ucf101, hmdb51
):
    paths, gone = unlooked(kinetics, "train", layout="kinetics")
    assert (len(paths), gone) == (4, ["gone0000000_000000_000010.mp4"])
    write(ssv2, ["videos/78687.mkv"])
    assert unlooked(ssv2, "train", layout="ssv2") == (["78687.mkv", "42326.webm"], ["42326.webm"])
    write(charades, ["Charades_v1_480/N11GT.avi"])
    assert unlooked(charades, "train", layout="charades") == (["46GP8.mp4", "N11GT.avi"], ["46GP8.mp4"])
    for root, layout in ((ucf101, "ucf101"), (hmdb51, "hmdb51")):
        whole = read_videos(root, "test", layout=layout)
        whole.path(3).unlink()
        assert unlooked(root, "test", layout=layout) == (list(whole.paths), [whole.paths[3]])
        assert_refused(root, "test", f"no such file: {whole.path(3)}", layout=layout)


def test_folders_of_frames_that_are_listed_and_not_there_are_in_the_list_too(ssv2, charades):
    write(ssv2, ["frames/78687/000001.jpg"])
    assert unlooked(ssv2, "train", layout="ssv2") == (["78687", "42326"], ["42326"])
    write(charades, ["Charades_v1_rgb/46GP8/46GP8-000001.jpg"])
    assert unlooked(charades, "train", layout="charades") == (["46GP8", "N11GT"], ["N11GT"])


def test_a_list_of_kinetics_of_which_nothing_is_there_can_be_looked_through(kinetics, tmp_path_factory):
    paths, gone = unlooked(kinetics, "train", videos=tmp_path_factory.mktemp("empty"))
    assert paths == gone
    assert "---QUuC4vJs_000084_000094.mp4" in gone


def test_a_layout_may_be_named_and_must_then_be_there(ucf101, tmp_path_factory):
    assert read_videos(ucf101, "test", layout="ucf101") == read_videos(ucf101, "test")
    assert_refused(ucf101, "train", "no labelled train split for layout kinetics; it has none of", layout="kinetics")
    assert_refused(ucf101, "train", "no list train.csv or train.txt; it has no list", layout="list")
    with pytest.raises(
        RecipeError, match=r"layout=ucf: unknown \(did you mean 'ucf101'\?\); accepted: auto, charades, "
    ):
        read_videos(ucf101, "train", layout="ucf")
    folder = read_videos(ucf101 / "UCF-101", "train", val_fraction=0.2)
    assert (len(folder), folder.classes) == (80, ("Archery", "Bowling"))
    assert_refused(ucf101 / "UCF-101", "train", "fold=2: layout folder of", fold=2)
    assert_refused(ucf101 / "UCF-101", "train", "videos cannot be in another folder", videos=ucf101)
    assert_refused(ucf101 / "ucfTrainTestlist/classInd.txt", "train", "a file, but the layout", layout="ucf101")
