"""The store of tiles: what is read is what was written, whatever happened to the writer."""

import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from vcycle.data.video import VideoError
from vcycle.errors import DataError
from vcycle.tasks.superres.pairs.clips import ClipInfo
from vcycle.tasks.superres.pairs.degrade import Degradation
from vcycle.tasks.superres.pairs.layouts import ClipPairs, read_pairs
from vcycle.tasks.superres.pairs.prepare import prepare_frames, store_bytes, write_store
from vcycle.tasks.superres.pairs.store import TileStore
from vcycle.tasks.superres.pairs.tiles import TileGrid

Pixels = NDArray[np.uint8]
Write = Callable[..., Path]
Noise = Callable[..., Pixels]

FORK = multiprocessing.get_context("fork")  # a process of its own would have to import torch


@pytest.fixture
def clips(tmp_path: Path, write_clip: Write, noise: Noise) -> Path:
    """Three clips of different lengths and sizes, none a multiple of a tile."""
    for seed, (name, size) in enumerate({"b": (5, 72, 136), "a/1": (3, 64, 64), "a/2": (9, 90, 70)}.items()):
        write_clip(tmp_path / "source" / name, noise(*size, seed))
    return tmp_path / "source"


def files_in(folder: Path) -> dict[str, bytes]:
    """All that a reader may see of a store."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "journal.jsonl"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@given(
    size=st.tuples(st.integers(1, 12), st.integers(1, 150), st.integers(1, 150)),
    start=st.sampled_from([0, 77]),
    data=st.data(),
)
def test_any_box_of_any_frames_reads_as_written(
    tmp_path_factory: pytest.TempPathFactory, size: tuple[int, int, int], start: int, data: st.DataObject
) -> None:
    frames, height, width = size
    pixels = np.random.default_rng(frames).integers(256, size=(*size, 3), dtype=np.uint8)
    grid = TileGrid(ClipInfo(frames=frames, height=height, width=width), start)
    top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    box = (top, left, data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left)))
    wanted = data.draw(st.lists(st.integers(0, frames - 1), min_size=1, max_size=6))
    path = tmp_path_factory.getbasetemp() / "tiles"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        cut = frames // 2
        grid.write(file, cut, pixels[cut:])
        grid.write(file, 0, pixels[:cut])
        assert os.fstat(file).st_size == grid.stop == start + pixels.nbytes
        read = grid.read(file, wanted, box)
    finally:
        os.close(file)
    assert np.array_equal(read, pixels[wanted, top : top + box[2], left : left + box[3]])


def test_a_store_holds_both_resolutions_of_every_clip(tmp_path: Path, clips: Path) -> None:
    told: list[tuple[int, int]] = []
    prepared = prepare_frames(clips, tmp_path / "store", progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert prepared.failed == ()
    source, store = read_pairs(clips), TileStore(tmp_path / "store")
    assert [clip.name for clip in store.clips] == ["a/1", "a/2", "b"]
    assert store.low is not None
    for item in range(3):
        info = source.info(item)
        truth = source.high.read(item, range(info.frames))[:, : info.height, : info.width]
        assert np.array_equal(store.high.read(item, range(info.frames)), truth)
        low = Degradation().whole(torch.from_numpy(truth)).numpy()
        assert np.array_equal(store.low.read(item, [2, 0]), low[[2, 0]])
        assert np.array_equal(store.low.read(item, [1], (3, 2, 10, 11)), low[[1], 3:13, 2:13])
    assert list(store.check()) == []
    assert store_bytes(source) == sum(path.stat().st_size for path in (tmp_path / "store" / "clips").rglob("*.tiles"))


@pytest.mark.parametrize("degradation", ["bd", None])
def test_the_store_says_what_made_its_low_resolution(tmp_path: Path, clips: Path, degradation: str | None) -> None:
    prepare_frames(clips, tmp_path / "store", scale=2, degradation=degradation)
    store = TileStore(tmp_path / "store")
    if degradation is None:
        assert store.low is None
    else:
        assert store.degradation == Degradation(kind="bd", scale=2)
        assert store.low is not None
        assert store.low.info(0) == ClipInfo(frames=3, height=32, width=32)


@pytest.fixture
def low(tmp_path: Path, write_clip: Write, noise: Noise) -> Path:
    """Low resolution that ships with the clips."""
    for name, size in {"b": (5, 18, 34), "a/1": (3, 16, 16), "a/2": (9, 22, 17)}.items():
        write_clip(tmp_path / "low" / name, noise(*size, 9))
    return tmp_path / "low"


def test_low_resolution_that_ships_is_stored_as_it_is(tmp_path: Path, clips: Path, low: Path, noise: Noise) -> None:
    store = prepare_frames(clips, tmp_path / "store", low=low).store
    assert store.low is not None
    assert np.array_equal(store.low.read(2, range(5)), noise(5, 18, 34, 9))


def test_videos_are_stored_too(tmp_path: Path, write_video: Write, read_number: Callable[[Pixels], int]) -> None:
    write_video(tmp_path / "videos" / "a.mp4", 30)
    store = prepare_frames(tmp_path / "videos", tmp_path / "store").store
    assert [read_number(frame) for frame in store.high.read(0, range(30))] == list(range(30))


def test_a_store_is_the_same_whatever_the_workers_and_prepared_again(tmp_path: Path, clips: Path) -> None:
    for name, workers in (("one", 1), ("three", 3)):
        prepare_frames(clips, tmp_path / name, workers=workers)
    once = files_in(tmp_path / "one")
    assert sorted(once) == ["clips/a/1.tiles", "clips/a/2.tiles", "clips/b.tiles", "frames.json"]
    assert files_in(tmp_path / "three") == once
    stamps = [path.stat().st_mtime_ns for path in sorted((tmp_path / "one" / "clips").rglob("*.tiles"))]
    prepare_frames(clips, tmp_path / "one")
    assert files_in(tmp_path / "one") == once
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "one" / "clips").rglob("*.tiles"))] == stamps


def test_a_writer_that_is_killed_goes_on_to_the_same_store(
    tmp_path: Path, write_clip: Write, noise: Noise, wait_until: Callable[..., None]
) -> None:
    source, out = tmp_path / "source", tmp_path / "store"
    frames = noise(6, 200, 328)
    for clip in range(9):
        write_clip(source / f"{clip:03d}", np.roll(frames, clip, axis=0))
    prepare_frames(source, tmp_path / "once")
    kept: list[int] = []
    for wanted in (1, 5):  # killed when so many clips are noted, somewhere in the next ones
        writer = FORK.Process(target=prepare_frames, args=(source, out), kwargs={"workers": 2})
        writer.start()
        wait_until(lambda writer=writer, wanted=wanted: not writer.is_alive() or noted(out) >= wanted, every=0.001)
        writer.kill()
        writer.join()
        kept.append(noted(out))
    assert kept == sorted(kept)
    prepare_frames(source, out)
    assert files_in(out) == files_in(tmp_path / "once")


def noted(folder: Path) -> int:
    """Clips that the journal of an unfinished store names."""
    try:
        return (folder / "journal.jsonl").read_bytes().count(b"\n") - 1
    except FileNotFoundError:
        return 0


def test_a_torn_note_and_a_file_that_was_cut_are_done_again(tmp_path: Path, clips: Path) -> None:
    prepare_frames(clips, tmp_path / "store")
    whole = files_in(tmp_path / "store")
    journal = tmp_path / "store" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])
    (tmp_path / "store" / "frames.json").unlink()
    os.truncate(tmp_path / "store" / "clips" / "a" / "1.tiles", 1000)
    prepare_frames(clips, tmp_path / "store")
    assert files_in(tmp_path / "store") == whole


def test_a_clip_whose_pictures_are_others_of_the_same_number_and_size_is_done_again(
    tmp_path: Path, clips: Path, write_clip: Write, noise: Noise
) -> None:
    prepare_frames(clips, tmp_path / "store")
    kept = (tmp_path / "store" / "clips" / "b.tiles").stat()
    write_clip(clips / "a" / "1", noise(3, 64, 64, 77))
    store = prepare_frames(clips, tmp_path / "store").store
    assert np.array_equal(store.high.read(0, range(3)), noise(3, 64, 64, 77))
    assert list(store.check()) == []
    prepare_frames(clips, tmp_path / "once")
    assert files_in(tmp_path / "store") == files_in(tmp_path / "once")
    assert (tmp_path / "store" / "clips" / "b.tiles").stat().st_mtime_ns == kept.st_mtime_ns


def test_clips_of_another_folder_take_the_place_of_those_of_the_same_names(
    tmp_path: Path, clips: Path, write_clip: Write, noise: Noise
) -> None:
    prepare_frames(clips, tmp_path / "store")
    write_clip(tmp_path / "other" / "a" / "1", noise(3, 64, 64, 5))
    write_clip(tmp_path / "other" / "b", noise(5, 72, 136, 6))
    store = prepare_frames(tmp_path / "other", tmp_path / "store").store
    assert [clip.name for clip in store.clips] == ["a/1", "b"]
    assert np.array_equal(store.high.read(1, range(5)), noise(5, 72, 136, 6))


def test_low_resolution_that_ships_and_that_has_changed_is_stored_again(
    tmp_path: Path, clips: Path, low: Path, write_clip: Write, noise: Noise
) -> None:
    prepare_frames(clips, tmp_path / "store", low=low)
    write_clip(low / "b", noise(5, 18, 34, 10))
    store = prepare_frames(clips, tmp_path / "store", low=low).store
    assert store.low is not None
    assert np.array_equal(store.low.read(2, range(5)), noise(5, 18, 34, 10))


def test_low_resolution_that_ships_needs_another_folder_than_that_which_was_made(
    tmp_path: Path, clips: Path, low: Path
) -> None:
    prepare_frames(clips, tmp_path / "made")
    with pytest.raises(
        DataError, match=r"^\S*made: was prepared with .* bicubic ×4 \(made\), not bicubic ×4 \(given\): name"
    ):
        prepare_frames(clips, tmp_path / "made", low=low)
    prepare_frames(clips, tmp_path / "given", low=low)
    with pytest.raises(DataError, match=r"not bicubic ×4 \(made\): name another folder"):
        prepare_frames(clips, tmp_path / "given")


def test_a_store_of_which_clips_are_being_replaced_is_not_ready(
    tmp_path: Path, clips: Path, write_clip: Write, noise: Noise
) -> None:
    prepare_frames(clips, tmp_path / "store")
    write_clip(clips / "a" / "1", noise(4, 80, 96, 77))

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_frames(clips, tmp_path / "store", workers=1, progress=stop)
    with pytest.raises(DataError, match=r"frames\.json: not a readable index"):
        TileStore(tmp_path / "store")
    store = prepare_frames(clips, tmp_path / "store").store
    assert np.array_equal(store.high.read(0, range(4)), noise(4, 80, 96, 77))


def test_nor_is_one_whose_clips_cannot_be_read_any_more(tmp_path: Path, clips: Path) -> None:
    prepare_frames(clips, tmp_path / "store")
    for picture in clips.rglob("*.png"):
        picture.write_bytes(b"")
    with pytest.raises(DataError, match="no clip can be read"):
        prepare_frames(clips, tmp_path / "store")
    with pytest.raises(DataError, match=r"frames\.json: not a readable index"):
        TileStore(tmp_path / "store")


def test_a_clip_that_is_only_added_leaves_the_store_as_it_is_until_it_is_there(
    tmp_path: Path, clips: Path, write_clip: Write, noise: Noise
) -> None:
    prepare_frames(clips, tmp_path / "store")
    write_clip(clips / "c", noise(3, 64, 64, 77))

    def ready(done: int, total: int) -> None:
        assert len(TileStore(tmp_path / "store")) == 3

    assert len(prepare_frames(clips, tmp_path / "store", progress=ready).store) == 4


def test_a_store_without_its_journal_or_with_a_damaged_one_is_left_alone(tmp_path: Path, clips: Path) -> None:
    prepare_frames(clips, tmp_path / "store")
    before, journal = files_in(tmp_path / "store"), tmp_path / "store" / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"clip"', '"film"'))
    with pytest.raises(DataError, match=r"journal\.jsonl: damaged \('film'\): name another folder, or delete this one"):
        prepare_frames(clips, tmp_path / "store")
    journal.unlink()
    with pytest.raises(DataError, match=r"store: holds frames but no journal\.jsonl with their settings"):
        prepare_frames(clips, tmp_path / "store")
    assert files_in(tmp_path / "store") == before
    assert len(TileStore(tmp_path / "store")) == 3


def test_a_name_that_is_not_utf8_is_stored_as_any_other(
    tmp_path: Path, clips: Path, write_clip: Write, noise: Noise
) -> None:
    odd = os.fsdecode(b"a\xff\xe4")
    write_clip(clips / odd, noise(3, 64, 64, 3))
    (clips / odd / "bad").mkdir()
    (clips / odd / "bad" / "0.png").write_bytes(b"")
    prepared = prepare_frames(clips, tmp_path / "store")
    assert [error.path for error in prepared.failed] == [str(clips / odd / "bad" / "0.png")]
    report = (tmp_path / "store" / "failed.jsonl").read_text(encoding="ascii")
    assert json.loads(report)["path"] == str(clips / odd / "bad" / "0.png")
    store = TileStore(tmp_path / "store")
    item = store.high.names.index(odd)
    assert np.array_equal(store.high.read(item, range(3)), noise(3, 64, 64, 3))
    before = files_in(tmp_path / "store")
    prepare_frames(clips, tmp_path / "store")
    assert files_in(tmp_path / "store") == before


def test_a_name_that_leaves_no_room_for_an_ending_costs_that_clip_alone(
    tmp_path: Path, clips: Path, write_clip: Write, noise: Noise
) -> None:
    write_clip(clips / ("x" * 249), noise(3, 64, 64, 3))
    write_clip(clips / ("y" * 250), noise(3, 64, 64, 3))
    prepared = prepare_frames(clips, tmp_path / "store")
    assert [clip.name for clip in prepared.store.clips] == ["a/1", "a/2", "b", "x" * 249]
    (fault,) = prepared.failed
    assert fault.path == str(clips / ("y" * 250))
    assert fault.cause.startswith("its name is too long: the output would be called yyy")
    assert "names can have up to 255 bytes" in fault.cause


def test_clips_that_cannot_be_read_are_reported_left_out_and_tried_again(tmp_path: Path, clips: Path) -> None:
    picture = clips / "a" / "2" / "00000004.png"
    good = picture.read_bytes()
    picture.write_bytes(good[:100])
    prepared = prepare_frames(clips, tmp_path / "store")
    assert [clip.name for clip in prepared.store.clips] == ["a/1", "b"]
    assert [error.path for error in prepared.failed] == [str(picture)]
    report = (tmp_path / "store" / "failed.jsonl").read_text()
    assert json.loads(report) == {"path": str(picture), "cause": "the png picture cannot be decoded"}
    picture.write_bytes(good)
    again = prepare_frames(clips, tmp_path / "store")
    assert [clip.name for clip in again.store.clips] == ["a/1", "a/2", "b"]
    prepare_frames(clips, tmp_path / "once")
    assert files_in(tmp_path / "store") == files_in(tmp_path / "once")


def test_not_one_readable_clip_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "source" / "a").mkdir(parents=True)
    (tmp_path / "source" / "a" / "0.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"no clip can be read; the first error: .*0\.png"):
        prepare_frames(tmp_path / "source", tmp_path / "store")


def test_another_degradation_needs_another_folder(tmp_path: Path, clips: Path) -> None:
    prepare_frames(clips, tmp_path / "store")
    with pytest.raises(DataError, match=r"^\S*store: was prepared .* not bd ×4 \(made\): name another"):
        prepare_frames(clips, tmp_path / "store", degradation="bd")


def test_two_writers_of_one_folder_do_not_meet(tmp_path: Path, clips: Path) -> None:
    def intrude(done: int, total: int) -> None:
        with pytest.raises(DataError, match=rf"process {os.getpid()} on .* is preparing frames there"):
            prepare_frames(clips, tmp_path / "store")

    prepare_frames(clips, tmp_path / "store", progress=intrude)


def test_changed_missing_and_cut_files_are_found(tmp_path: Path, clips: Path) -> None:
    store = prepare_frames(clips, tmp_path / "store").store
    files = [store.high.path(item) for item in range(3)]
    os.truncate(files[0], 5000)
    data = bytearray(files[1].read_bytes())
    data[-1] ^= 1  # the last pixel at low resolution
    files[1].write_bytes(data)
    files[2].unlink()
    found = [(error.path, error.cause) for error in store.check()]
    assert found == [
        (str(files[0]), "the file ends too early"),
        (str(files[1]), "its content has changed since it was written"),
        (str(files[2]), "No such file or directory"),
    ]
    with pytest.raises(VideoError, match="ends too early"):
        store.high.read(0, [0, 1, 2])


def test_an_index_that_is_damaged_is_an_error(tmp_path: Path, clips: Path) -> None:
    prepare_frames(clips, tmp_path / "store")
    index = tmp_path / "store" / "frames.json"
    index.write_text(index.read_text()[:-9])
    with pytest.raises(DataError, match=r"frames\.json: not a readable index of frames"):
        read_pairs(tmp_path / "store")


def test_a_full_disk_is_told_before_anything_is_written(
    tmp_path: Path, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "vcycle.tasks.superres.pairs.prepare.shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})
    )
    with pytest.raises(DataError, match=r"GB needed, 0\.0 GB free"):
        prepare_frames(clips, tmp_path / "store")


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path, clips: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="file/store: frames cannot be written"):
        prepare_frames(clips, tmp_path / "file" / "store")


def test_a_store_is_written_from_pairs_of_any_layout(tmp_path: Path, clips: Path) -> None:
    pairs = ClipPairs(high=read_pairs(clips).high, degradation=Degradation(scale=3), source=clips)
    store = write_store(pairs, tmp_path / "store").store
    assert store.high.info(2) == ClipInfo(frames=5, height=72, width=135)


def test_a_real_clip_goes_through_a_store(shared_data: Path, tmp_path: Path) -> None:
    store = prepare_frames(shared_data / "vid4" / "walk", tmp_path / "store").store
    source = read_pairs(shared_data / "vid4" / "walk")
    assert np.array_equal(store.high.read(0, [14], (416, 656, 64, 64)), source.high.read(0, [14])[:, 416:, 656:])
