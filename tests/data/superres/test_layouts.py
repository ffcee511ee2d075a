"""REDS, Vimeo-90K and Vid4 as they lie on disk."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from vcycle.data.video import VideoError
from vcycle.errors import DataError
from vcycle.tasks.superres.pairs.clips import ClipInfo
from vcycle.tasks.superres.pairs.degrade import Degradation
from vcycle.tasks.superres.pairs.layouts import REDS4, read_pairs, read_reds, read_udm10, read_vid4, read_vimeo90k
from vcycle.tasks.superres.pairs.prepare import prepare_frames

Write = Callable[..., Path]
Noise = Callable[..., NDArray[np.uint8]]


def make_reds(root: Path, prefix: str = "") -> Path:
    for part, clips in (("train", 240), ("val", 30)):
        for kind in ("sharp", "sharp_bicubic/X4"):
            for clip in range(clips):
                (root / (part if prefix else "") / f"{part}_{kind}" / f"{clip:03d}").mkdir(parents=True)
    return root


@pytest.mark.parametrize("prefix", ["", "as unpacked"])
def test_reds_trains_on_all_but_reds4(tmp_path: Path, prefix: str) -> None:
    root = make_reds(tmp_path, prefix)
    train, val = read_reds(root, "train"), read_reds(root, "val")
    assert len(train) == 266
    assert list(val.high.names) == ["000", "011", "015", "020"]
    assert set(train.high.names).isdisjoint(REDS4)
    assert train.high.names[0] == "001"
    assert train.high.names[-1] == "269"
    place = root / "val" / "val_sharp" if prefix else root / "val_sharp"
    assert train.high.path(265) == place / "029"
    assert train.low is not None
    assert train.low.path(265) == Path(str(place).replace("sharp", "sharp_bicubic")) / "X4" / "029"


def test_reds_may_leave_the_official_validation_clips_out(tmp_path: Path) -> None:
    train = read_reds(make_reds(tmp_path), "train", merge_validation=False, shipped=False)
    assert len(train) == 236
    assert train.low is None


def test_reds_official_partition(tmp_path: Path) -> None:
    root = make_reds(tmp_path)
    train, val = (read_reds(root, split, partition="official") for split in ("train", "val"))
    assert (len(train), len(val)) == (240, 30)
    assert val.high.path(0) == root / "val_sharp" / "000"
    assert val.high.names[0] == "240"


def test_reds_that_was_merged_already_is_read_as_it_lies(tmp_path: Path) -> None:
    root = make_reds(tmp_path)
    for kind in ("sharp", "sharp_bicubic/X4"):
        for clip in range(30):
            (root / f"val_{kind}" / f"{clip:03d}").rename(root / f"train_{kind}" / f"{clip + 240:03d}")
    train = read_reds(root, "train")
    assert len(train) == 266
    assert train.high.path(265) == root / "train_sharp" / "269"


def test_reds_names_what_is_missing(tmp_path: Path) -> None:
    root = make_reds(tmp_path)
    (root / "train_sharp" / "017").rmdir()
    with pytest.raises(DataError, match="train_sharp/017: no such folder, for clip 017 of REDS"):
        read_reds(root, "train")
    with pytest.raises(DataError, match="split 'test' is unknown: must be train or val"):
        read_reds(root, "test")
    with pytest.raises(DataError, match=r"no folder train_sharp or train/train_sharp"):
        read_reds(tmp_path / "nowhere", "train")


def make_vimeo(root: Path, train: Sequence[str], test: Sequence[str]) -> Path:
    for name in (*train, *test):
        (root / "sequences" / name).mkdir(parents=True, exist_ok=True)
    (root / "sep_trainlist.txt").write_text("\n".join(train) + "\n")
    (root / "sep_testlist.txt").write_text("\n".join(test) + "\n\n")
    return root


def test_vimeo_sequences_come_from_the_lists(tmp_path: Path, write_clip: Write, noise: Noise) -> None:
    root = make_vimeo(tmp_path, ["00001/0002", "00002/0001"], ["00001/0001"])
    write_clip(root / "sequences" / "00001" / "0002", noise(7, 32, 48), name="im{}.png", first=1)
    train, val = read_vimeo90k(root, "train"), read_vimeo90k(root, "val", low=tmp_path / "low")
    assert list(train.high.names) == ["00001/0002", "00002/0001"]
    assert train.info(0) == ClipInfo(frames=7, height=32, width=48)
    assert list(val.high.names) == ["00001/0001"]
    assert val.low is not None
    assert val.low.path(0) == tmp_path / "low" / "00001" / "0001"


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (["00001/0001", "1/2"], [], r"sep_trainlist\.txt, line 2: '1/2' is not a sequence such as '00001/0001'"),
        (["00001/0001", "00001/0002"], ["00001/0002"], r"sequence 00001/0002 is in sep_testlist\.txt too \(1 in all\)"),
        ([], ["00001/0001"], r"sep_trainlist\.txt: the list is empty"),
    ],
)
def test_vimeo_lists_that_are_wrong_are_refused(
    tmp_path: Path, train: list[str], test: list[str], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_vimeo90k(make_vimeo(tmp_path, train, test or ["00009/0009"]), "train")


def test_vimeo_names_missing_lists_and_sequences(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"sep_trainlist\.txt: cannot be read: No such file"):
        read_vimeo90k(tmp_path, "train")
    root = make_vimeo(tmp_path, ["00001/0001"], ["00001/0002"])
    (root / "sequences" / "00001" / "0001").rmdir()
    with pytest.raises(DataError, match=r"sep_trainlist\.txt, line 1: no such folder"):
        read_vimeo90k(root, "train")


def test_vid4_pairs_its_folders(tmp_path: Path, write_clip: Write, noise: Noise) -> None:
    for clip in ("calendar", "walk"):
        write_clip(tmp_path / "GT" / clip, noise(2, 32, 48))
        write_clip(tmp_path / "BIx4" / clip, noise(2, 8, 12))
    write_clip(tmp_path / "BDx4" / "calendar", noise(2, 8, 12))
    pairs = read_vid4(tmp_path)
    assert list(pairs.high.names) == ["calendar", "walk"]
    assert pairs.info(1) == ClipInfo(frames=2, height=32, width=48)
    with pytest.raises(DataError, match="2 clips, 1 at low resolution; clip walk is missing at low resolution"):
        read_vid4(tmp_path, kind="bd")
    made = read_vid4(tmp_path, kind="bd", shipped=False)
    assert made.degradation == Degradation(kind="bd")
    assert made.low is None


def test_udm10_pairs_the_folders_within_its_clips(tmp_path: Path, write_clip: Write, noise: Noise) -> None:
    for clip in ("archpeople", "caffe"):
        write_clip(tmp_path / clip / "truth", noise(2, 32, 48))
        write_clip(tmp_path / clip / "blur4", noise(2, 8, 12))
    pairs = read_udm10(tmp_path)
    assert list(pairs.high.names) == ["archpeople", "caffe"]
    assert pairs.info(1) == ClipInfo(frames=2, height=32, width=48)
    assert pairs.degradation == Degradation(kind="bd")
    assert read_udm10(tmp_path, kind="bicubic", shipped=False).low is None
    with pytest.raises(DataError, match="UDM10's low-resolution frames are bd, not bicubic"):
        read_udm10(tmp_path, kind="bicubic")
    with pytest.raises(DataError, match="no folders CLIP/truth"):
        read_udm10(tmp_path / "caffe")


def test_vid4_as_a_folder_of_clips(shared_data: Path) -> None:
    assert list(read_vid4(shared_data / "vid4", shipped=False).high.names) == ["calendar", "walk"]


def test_low_resolution_of_another_size_or_length_is_refused(tmp_path: Path, write_clip: Write, noise: Noise) -> None:
    write_clip(tmp_path / "high" / "a", noise(3, 32, 48))
    write_clip(tmp_path / "low" / "a", noise(2, 8, 12))
    pairs = read_pairs(tmp_path / "high", low=tmp_path / "low")
    with pytest.raises(VideoError, match="2 frames of 12 × 8 at low resolution; expected 3 of 12 × 8"):
        pairs.info(0)


def test_a_prepared_store_is_read_like_a_folder(tmp_path: Path, write_clip: Write, noise: Noise) -> None:
    write_clip(tmp_path / "high" / "a", noise(3, 32, 48))
    prepare_frames(tmp_path / "high", tmp_path / "store", degradation="bd")
    pairs = read_pairs(tmp_path / "store")
    assert pairs.degradation == Degradation(kind="bd")
    assert pairs.low is not None
    with pytest.raises(DataError, match=r"kind='bd', scale=4.*, not .*kind='bicubic', scale=4"):
        read_pairs(tmp_path / "store", degradation=Degradation())
    with pytest.raises(DataError, match="a prepared store contains its low-resolution frames"):
        read_pairs(tmp_path / "store", low=tmp_path)
