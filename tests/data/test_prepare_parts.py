"""Preparations in parts, such as the jobs of an array, and their merge."""

import contextlib
import json
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest

from vcycle.data import Preparation, PrepareSettings, VideoError
from vcycle.data.engines.jobs import Outcome
from vcycle.data.locations import Url
from vcycle.data.prepare.folder import locked_folder
from vcycle.data.prepare.journal import Journal
from vcycle.data.prepare.parts import Part
from vcycle.errors import DataError

SETTINGS = PrepareSettings(levels=(16, 24))


def content(folder):
    wanted = [*folder.glob("*px/**/*.*"), folder / "index.npz"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in wanted}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, video_set, prepare):
    out = tmp_path_factory.mktemp("whole") / "out"
    return out, prepare(video_set, out, SETTINGS)


@pytest.fixture(scope="module")
def parts(tmp_path_factory, video_set, prepare):
    """All three parts, not merged."""
    out = tmp_path_factory.mktemp("parts") / "out"
    for number in (2, 1, 3):
        prepare(video_set, out, SETTINGS, part=Part(number, 3))
    return out


@pytest.fixture
def out(tmp_path, parts):
    return shutil.copytree(parts, tmp_path / "out")


@pytest.fixture
def merge(video_set, splits_of):
    return lambda out, settings=SETTINGS: Preparation(splits_of(video_set), out, settings).merge()


def test_three_parts_one_of_them_written_twice_are_merged_to_the_bytes_of_one_run(
    whole, out, video_set, prepare, merge
):
    again = prepare(video_set, out, SETTINGS, part=Part(2, 3))
    assert (again.videos, again.kept, len(again.failed)) == (4, 4, 0)
    report = merge(out)
    assert content(out) == content(whole[0])
    assert (report.videos, report.failed, report.bytes) == (11, whole[1].failed, whole[1].bytes)
    assert set(json.loads((out / "report.json").read_text())) == set(json.loads((whole[0] / "report.json").read_text()))
    index = (out / "index.npz").read_bytes()
    prepare(video_set, out, SETTINGS, part=Part(3, 3))  # harmless after the merge too
    merge(out)
    assert (out / "index.npz").read_bytes() == index


def test_parts_of_separate_disks_may_be_copied_into_one_folder(whole, out, tmp_path, video_set, prepare, merge):
    for line in (out / "parts/3-of-3/journal.jsonl").open():
        for side in ("16px", "24px"):
            (out / side / f"{json.loads(line)['file']}.mp4").unlink(missing_ok=True)
    shutil.rmtree(out / "parts/3-of-3")
    prepare(video_set, tmp_path / "other", SETTINGS, part=Part(3, 3))
    shutil.copytree(tmp_path / "other", out, dirs_exist_ok=True)
    merge(out)
    assert content(out) == content(whole[0])


def test_parts_may_start_at_the_same_moment(tmp_path):
    def start(number):
        with locked_folder(tmp_path / "out", {"crf": 20}, data=None, parts=[Part(number, 20).folder(tmp_path / "out")]):
            return json.loads((tmp_path / "out/prepare.json").read_text())

    with warnings.catch_warnings(), ThreadPoolExecutor(20) as pool:
        warnings.simplefilter("ignore")  # that one waits for another
        assert list(pool.map(start, range(1, 21))) == [{"crf": 20}] * 20


def test_a_missing_part_is_named(out, merge):
    shutil.rmtree(out / "parts/1-of-3")
    (out / "parts/3-of-3/part.json").unlink()
    with pytest.raises(DataError, match=r"unfinished parts: 1/3, 3/3: run them"):
        merge(out)
    assert not (out / "index.npz").exists()


def test_parts_that_do_not_belong_together_are_refused(out, video_set, prepare, merge, splits_of, tmp_path):
    with pytest.raises(DataError, match=r"was prepared with levels 16, 24, not 16"):
        merge(out, PrepareSettings(levels=(16,)))
    with pytest.raises(DataError, match=r"holds parts: write those that are missing with --part, then --merge"):
        prepare(video_set, out, SETTINGS)
    result = out / "parts/2-of-3/part.json"
    written = json.loads(result.read_text())
    result.write_text(json.dumps(written | {"settings": written["settings"] | {"crf": 30}}))
    with pytest.raises(DataError, match="part 2/3 was prepared with crf 30, not 20"):
        merge(out)
    result.write_text(json.dumps(written))
    fewer = {"train": splits_of(video_set)["train"]}
    with pytest.raises(DataError, match=r"part 1/3 is of another list of files"):
        Preparation(fewer, out, SETTINGS).merge()
    shutil.copytree(out / "parts/2-of-3", out / "parts/2-of-4")
    with pytest.raises(DataError, match=r"holds parts of 3 and of 4"):
        merge(out)


def test_a_file_that_is_gone_or_has_changed_is_named(out, video_set, splits_of, tmp_path):
    (out / "24px/val/run/a.mp4").write_bytes(b"short")
    with pytest.raises(DataError, match=r"24px/val/run/a.mp4: has 5 bytes, but \d+ were written"):
        Preparation(splits_of(video_set), out, SETTINGS).merge()
    journal = out / "parts/2-of-3/journal.jsonl"
    journal.write_text("".join(line for line in journal.open() if "val/" not in line))
    with pytest.raises(DataError, match=r"has changed since part 2/3 was written: run --part 2/3"):
        Preparation(splits_of(video_set), out, SETTINGS).merge()


def test_jobs_that_would_write_the_files_of_others_are_refused(whole, out, tmp_path, video_set, prepare, merge):
    with pytest.raises(DataError, match=r"holds parts of 3, not of 4"):
        prepare(video_set, out, SETTINGS, part=Part(1, 4))
    assert not (out / "parts/1-of-4").exists()
    single = shutil.copytree(whole[0], tmp_path / "single")
    with pytest.raises(DataError, match=r"was prepared as a whole, not in parts: leave out --part 1/2"):
        prepare(video_set, single, SETTINGS, part=Part(1, 2))
    assert not (single / "parts").exists()
    folder = Part(2, 3).folder(out)
    with locked_folder(out, {}, data=None, parts=[folder]), pytest.raises(DataError, match=r"2-of-3|is writing to it"):
        merge(out)
    assert not (out / "index.npz").exists()


def test_the_missing_of_very_many_parts_are_counted(out, merge):
    shutil.rmtree(out / "parts")
    Part(2, 999_999_999).folder(out).mkdir(parents=True)
    with pytest.raises(DataError, match=r"unfinished parts: 1/999999999, 2/999999999, .* and 999999991 more"):
        merge(out)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3"])
def test_a_part_is_one_of_n(text):
    with pytest.raises(DataError, match=r"K/N is accepted"):
        Part.parse(text)


class Here:
    """An engine in this process, whose memory is the store."""

    workers = 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, function, jobs, on_share=None):
        for job in jobs:
            try:
                yield Outcome(job=job, result=function(job.payload, lambda _: None), cause="")
            except VideoError as error:
                yield Outcome(job=job, result=None, cause=error.cause)


class Elsewhere(Here):
    """An engine that works in another folder."""

    def run(self, function, jobs, on_share=None):
        with contextlib.chdir("/"):
            yield from list(super().run(function, jobs))


def test_an_engine_that_works_in_another_folder_writes_to_the_same_output(
    whole, tmp_path, video_set, prepare, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    prepare(video_set, Path("out"), SETTINGS, engine=Elsewhere())
    assert content(tmp_path / "out") == content(whole[0])


@pytest.fixture
def store():
    """A store of objects."""
    yield Url("memory://vcycle/prepared")
    fsspec.filesystem("memory").rm("/vcycle", recursive=True)


def objects():
    files = fsspec.filesystem("memory")
    return {name.removeprefix("/vcycle/prepared/"): files.cat_file(name) for name in files.find("/vcycle/prepared")}


def test_a_store_gets_the_bytes_of_a_folder_and_a_second_run_keeps_them(whole, store, video_set, prepare):
    report = prepare(video_set, store, SETTINGS, engine=Here())
    found = objects()
    assert {name: found[name] for name in content(whole[0])} == content(whole[0])
    assert {name.partition("/")[0] for name in found} == {
        *("16px", "24px", "index.npz", "journal", "prepare.json", "report.json")
    }
    assert (report.kept, report.failed) == (0, whole[1].failed)
    assert prepare(video_set, store, SETTINGS, engine=Here()).kept == 10
    (store / "24px/train/run/old.mp4").unlink()
    assert prepare(video_set, store, SETTINGS, engine=Here()).kept == 9
    assert objects()["index.npz"] == found["index.npz"]
    with pytest.raises(DataError, match="was prepared with levels 16, 24, not 24"):
        prepare(video_set, store, PrepareSettings(levels=(24,)))
    with pytest.raises(DataError, match="an array is one file on a disk"):
        prepare(video_set, store, PrepareSettings(to="array", levels=(24,)))


def test_parts_are_merged_at_a_store(whole, store, video_set, prepare, merge):
    for number in (1, 2):
        prepare(video_set, store, SETTINGS, part=Part(number, 2), engine=Here())
    assert "index.npz" not in objects()
    merge(store)
    assert objects()["index.npz"] == (whole[0] / "index.npz").read_bytes()


def test_damaged_lines_and_stray_files_of_a_journal_at_a_store_are_skipped(store):
    place, kinds = store / "journal", {"rows": list}
    with Journal(place, kinds, lenient=True) as journal:
        journal.note("rows", "a", [1])
        journal.sync()
        journal.note("rows", "b", [2])
    first = place / "00000000.jsonl"
    first.write_bytes(b'{"file": "c", "sour\n\xff\n[]\n{"file": "c", "source": []}\n' + first.read_bytes())
    for stray in ("notes.txt", "00000007.jsonl.partial", ".jsonl"):
        (place / stray).write_bytes(b"\0")
    with Journal(place, kinds, lenient=True) as journal:
        assert [journal.get("rows", name) for name in "abc"] == [[1], [2], None]
        journal.note("rows", "c", [3])
    assert Journal(place, kinds, lenient=True).get("rows", "c") == [3]
    assert "journal/00000002.jsonl" in objects()


def test_a_store_that_refuses_a_file_ends_the_run(store, video_set, prepare, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("Access Denied")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.put_file", refuse)
    with pytest.raises(DataError, match=r"memory://vcycle/prepared/.*Access Denied; 0 of 11 videos are done"):
        prepare(video_set, store, SETTINGS, engine=Here())
