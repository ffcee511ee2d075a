"""Lists of videos from anywhere: read, or refused with the line; none leads out of the folder that was named."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vcycle.data.layouts import read_list, read_videos
from vcycle.errors import DataError
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.data import every_video, find_videos

NASTY = (
    *("a.mp4,0", "b.mp4 1", "a\tb", "..", "/etc/passwd,0", "../../x.mp4,1", "a.mp4,-1", "a.mp4,+0", "a.mp4,٣"),
    *("a.mp4," + "9" * 5000, "a.mp4,1e3", '"a,b".mp4,0', "path,label", "#", ",", ",,", " ", "\0.mp4,0", "x" * 5000),
    *(
        "a.mp4,0,1",
        "'",
        '"',
        '"a\nb",0',
        "\r",
        "a.mp4,\u00a0",
        "con,0",
        "a/../a.mp4,0",
        "a.mp4,nan",
        "\ufeff",
        "\u2028",
    ),
)
rows = st.one_of(st.sampled_from(NASTY), st.text(max_size=12))
texts = st.one_of(
    st.lists(rows, max_size=8).map(lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass")),
    st.binary(max_size=60),
)
unshared = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def tried(read, *args, **more):
    try:
        return read(*args, **more)
    except DataError as error:
        said = str(error)
    assert "\n" not in said
    return None


@unshared
@given(texts, st.booleans())
def test_a_list_of_anything_is_read_or_refused_in_one_line(tmp_path, content, check_files):
    file = tmp_path / "list.csv"
    file.write_bytes(content)
    found = tried(read_list, file, check_files=check_files)
    if found is not None:
        assert all(0 <= label < len(found.classes) for label in found.labels)


OFFICIAL = {
    "kinetics": {"train.csv": "label,youtube_id,time_start,time_end,split", "val.csv": "label,youtube_id"},
    "ssv2": {"labels.json": '{"a": "0"}', "train.json": '[{"id": "1", "template": "a"}]', "validation.json": "[]"},
    "charades": {"Charades_v1_train.csv": "id,actions,length", "Charades_v1_classes.txt": "c000 a"},
    "ucf101": {"classInd.txt": "1 a", "trainlist01.txt": "a/v_a_g01_c01.avi 1", "testlist01.txt": "a/x.avi"},
    "hmdb51": {"run_test_split1.txt": "x.avi 1", "sit_test_split1.txt": "y.avi 2"},
}


@unshared
@given(
    st.sampled_from(sorted(OFFICIAL)),
    texts,
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from(["train", "val", "test"]),
)
def test_so_are_the_official_files_of_every_layout(tmp_path_factory, layout, content, which, behind, split):
    folder = tmp_path_factory.mktemp("layout")
    files = OFFICIAL[layout]
    for number, (name, text) in enumerate(files.items()):
        rest = content if number == which % len(files) else b""
        whole = text.encode() + b"\n" + rest if behind else rest
        (folder / name).write_bytes(whole if rest else text.encode())
    tried(read_videos, folder, split, layout=layout)


@pytest.fixture
def lists(tmp_path):
    """A folder of videos with one beside it, and what makes lists of them."""
    (tmp_path / "videos").mkdir()
    for name in ("videos/a.mp4", "videos/b.mp4", "outside.mp4"):
        (tmp_path / name).write_bytes(b"")

    def write(*names):
        for split in ("train", "val"):
            lines = [f"{name},{label}\n" for label, name in enumerate(names)]
            (tmp_path / f"{split}.csv").write_text("".join(lines))
        return tmp_path

    return write


@pytest.mark.parametrize(
    "escape", ["../outside.mp4", "/etc/hostname", "a/../../outside.mp4", "{folder}/outside.mp4", "{folder}/videos/../x"]
)
def test_no_path_leads_out_of_the_root_that_is_named(lists, escape):
    folder = lists()
    lists("a.mp4", escape.format(folder=folder))
    for data in (f"data={folder}", f"data={folder / 'train.csv'}"):
        more = [f"data.val={folder / 'val.csv'}"] if data.endswith("csv") else []
        recipe = load_recipe("videos/small", [data, f"data.root={folder / 'videos'}", *more])
        with pytest.raises(DataError, match=r"train\.csv, line 2: .* leads out of data\.root .*videos$"):
            every_video(recipe)


def test_paths_within_it_may_be_written_in_any_way(lists):
    folder = lists()
    lists("a.mp4", f"{folder}/videos/b.mp4", "x/../a.mp4", "./b.mp4")
    recipe = load_recipe("videos/small", [f"data={folder}", f"data.root={folder / 'videos'}"])
    assert len(every_video(recipe)["train"]) == 4


def test_links_within_it_are_followed(lists):
    folder = lists("a.mp4", "c.mp4")
    (folder / "videos/c.mp4").symlink_to(folder / "outside.mp4")
    recipe = load_recipe("videos/small", [f"data={folder}", f"data.root={folder / 'videos'}"])
    assert len(find_videos(recipe, folder).train) == 2


def test_without_a_root_a_list_may_name_any_file(lists):
    folder = lists()
    lists("videos/a.mp4", f"{folder}/outside.mp4")
    assert len(find_videos(load_recipe("videos/small", [f"data={folder}"]), folder).train) == 2
