"""Clips that do not fit a recipe, or each other: refused or told of before training begins, each by its name."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from vcycle.data.pictures import read_picture
from vcycle.errors import DataError
from vcycle.tasks.base import Splits
from vcycle.tasks.recipes import load_recipe, parse_recipe
from vcycle.tasks.superres import prepare_frames
from vcycle.tasks.superres.data import find_clips
from vcycle.tasks.superres.notices import check_clips, described, notices
from vcycle.tasks.superres.pairs.degrade import Degradation
from vcycle.tasks.superres.plans import never_learning
from vcycle.tasks.superres.task import SUPERRESOLUTION

TEXT = "task: superresolution\nmodel: basicvsr\ntraining: {batch: 2, frames: 4, size: 16, steps: 9, lr: 1e-3}\n"


def load(*overrides):
    return parse_recipe(TEXT, "x.yaml", overrides)


def checked(*overrides):
    """The clips of the recipe, checked as before a training."""
    recipe = load("init.needed=false", *overrides)
    found = find_clips(recipe)
    SUPERRESOLUTION.check(recipe, found, fresh=True)
    return found


@pytest.fixture
def ours(clips, tmp_path):
    """A copy of the clips that may be spoilt."""
    shutil.copytree(clips, tmp_path / "clips")
    return tmp_path / "clips"


def test_clips_of_different_lengths_and_sizes_are_told_of(ours, make_clip):
    assert described(find_clips(load(f"data={ours}")).train) == "5 frames of 96 × 80"
    make_clip(ours / "train" / "long", seed=1, frames=7)
    found = find_clips(load(f"data={ours}")).train
    assert described(found) == "from 5 frames of 96 × 80 (train0) to 7 frames of 96 × 80 (long)"


def test_a_clip_that_is_too_short_is_named_and_too_many_are_refused(ours, make_clip):
    make_clip(ours / "train" / "short", seed=1, frames=3)
    found = find_clips(load(f"data={ours}"))
    (said,) = check_clips(load("run.bad_limit=0.2"), found)
    assert "short has 3 frames of 96 × 80, but training.frames=4" in said
    assert said.endswith("need 4 of 64 × 64: replaced by other clips")
    with pytest.raises(DataError, match=r"short has 3 frames.*: of 6 clips, run.bad_limit=0.05 allows fewer"):
        check_clips(load(), found)


def test_a_freeze_that_outlasts_the_training_is_told(clips):
    frozen = load("init.needed=false", "training.flow={frozen_steps: 9}", f"data={clips}")
    (said,) = never_learning(frozen, SUPERRESOLUTION.plan(frozen, 5, "constant"))
    assert said == ("training.flow.frozen_steps=9 covers all 9 steps of plan constant: this part is never trained")
    assert never_learning(load("training.flow={frozen_steps: 8}"), SUPERRESOLUTION.plan(load(), 5, "constant")) == []


@pytest.mark.parametrize(
    ("changes", "plan", "learns"),
    [
        (["training.steps=16000"], "baseline", True),  # of 16 clips; with the minibatch of 64 there are 4,000
        (["training.steps=16000"], "constant", False),
        (["training.steps=16000"], "hierarchical+scaled@2", True),
        (["training.steps=4000"], "baseline@0.5", False),
        ([], "baseline@0.01", True),
    ],
)
def test_what_never_learns_depends_on_the_plan_that_is_trained(changes, plan, learns):
    recipe = load_recipe("reds/basicvsr_m", ["training.warmup=null", *changes])
    found = SUPERRESOLUTION.plan(recipe, name=plan)
    assert (never_learning(recipe, found) == []) is learns
    assert (found[-1].lr_of("flow") > 0) is learns


def test_a_validation_clip_that_is_too_small_for_ssim_is_named_before_training(ours, write_png):
    for number in range(2):
        write_png(ours / "val" / "tiny" / f"{number}.png", np.zeros((8, 40, 3), dtype=np.uint8))
    with pytest.raises(DataError, match=r"tiny is 40 × 8, but SSIM with evaluation.crop=0 needs 11 pixels per side"):
        check_clips(load(), find_clips(load(f"data={ours}")))


def test_a_clip_with_a_missing_frame_is_named_before_training(ours):
    (ours / "train" / "train2" / "00000003.png").unlink()
    found = find_clips(load(f"data={ours}"))
    with pytest.raises(DataError, match=r"train2: pictures are missing between 00000002.png and 00000004.png: of 5"):
        check_clips(load(), found)


def test_a_window_longer_or_larger_than_every_clip_is_refused(clips):
    found = find_clips(load(f"data={clips}"))
    with pytest.raises(DataError, match=r"train0 has 5 frames of 96 × 80, but training.frames=6.* \(and 4 more such"):
        check_clips(load("training.frames=6"), found)
    check_clips(load("training.frames=10", "sampling.mirrored=true"), found)
    with pytest.raises(DataError, match=r"has 5 frames of 96 × 80, but .*training.size=24 need 4 of 96 × 96"):
        check_clips(load("training.size=24"), found)


def test_splits_that_share_a_clip_are_refused(clips, tmp_path):
    with pytest.raises(DataError, match=r"train0 is among the clips of train and of val \(5 in all\)"):
        checked(f"data={clips}", f"data.val={clips / 'train'}")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "other").symlink_to(clips / "train" / "train3")
    with pytest.raises(DataError, match=r"other is among the clips of train and of test \(1 in all\)"):
        checked(f"data={clips}", f"data.test={tmp_path / 'test'}")


def test_tiles_of_another_scale_than_the_networks_are_refused(clips, tmp_path):
    prepare_frames(clips / "train", tmp_path / "tiles", scale=2, degradation="bicubic")
    with pytest.raises(DataError, match=r"the store's low-resolution frames are .*scale=2.*, not .*scale=4"):
        checked(f"data={tmp_path / 'tiles'}", f"data.val={clips / 'val'}")


def test_low_resolution_made_in_another_way_is_told(clips, tmp_path):
    found = find_clips(load(f"data={clips}"))
    assert notices(found) == []
    prepare_frames(clips / "train", tmp_path / "tiles", scale=4, degradation="bicubic")
    tiles = find_clips(load(f"data={tmp_path / 'tiles'}", f"data.val={clips / 'val'}"))
    assert notices(tiles) == []
    blurred = replace(tiles.train, degradation=replace(tiles.train.degradation, kind="bd"))
    (said,) = notices(Splits(lambda split: blurred if split == "train" else tiles[split], ["train", "val"], source=""))
    assert said.startswith("train: the low-resolution frames of ")
    assert "do not match bd of" in said


def lows_of(clips, folder, write_png):
    """Low-resolution clips as bicubic makes them, in a folder laid out as the clips are."""
    for path in clips.rglob("*.png"):
        made = Degradation().whole(torch.from_numpy(read_picture(path))[None])[0]
        write_png(folder / path.relative_to(clips), made.numpy())


def test_low_resolution_of_another_clip_is_told_wherever_it_is(ours, tmp_path, write_png):
    lows_of(ours, tmp_path / "low", write_png)
    paired = load(f"data={ours}", f"data.low={tmp_path / 'low'}")
    assert notices(find_clips(paired)) == []
    train = tmp_path / "low" / "train"
    (train / "train2").rename(tmp_path / "kept")
    (train / "train3").rename(train / "train2")
    (tmp_path / "kept").rename(train / "train3")
    (said,) = notices(find_clips(paired))
    assert "low/train/train2 do not match bicubic of" in said
    assert said.endswith("dB): another degradation, or another clip")


def test_low_resolution_of_another_scale_is_refused_and_named(ours, tmp_path):
    paired = load(f"data={ours}", f"data.low={tmp_path / 'low'}")
    shutil.copytree(ours, tmp_path / "low")  # at a scale of 1
    with pytest.raises(
        DataError,
        match=r"train0: 5 frames of 96 × 80 at low resolution; expected 5 of 24 × 20 \(96 × 80 "
        r"at a scale of 4; found a scale of 1\) \(and 4 more such clips\)",
    ):
        check_clips(paired, find_clips(paired))


def test_two_stores_with_one_clip_are_refused(ours, tmp_path):
    (ours / "val" / "val1").rename(tmp_path / "aside")
    shutil.copytree(ours / "train" / "train1", ours / "val" / "renamed")
    for split in ("train", "val"):
        prepare_frames(ours / split, tmp_path / split, scale=4, degradation="bicubic")
    with pytest.raises(DataError, match=r"renamed.tiles is among the clips of train and of val \(1 in all\)"):
        checked(f"data={tmp_path / 'train'}", f"data.val={tmp_path / 'val'}")


@pytest.mark.parametrize("names", [("train", "valid"), ("Train", "Validation")])
def test_folders_of_splits_have_any_usual_name(ours, names):
    for split, name in zip(("train", "val"), names, strict=True):
        (ours / split).rename(ours / name)
    found = find_clips(load(f"data={ours}"))
    assert [len(pairs) for pairs in (found.train, found.val, found.test)] == [5, 2, 3]
    shutil.copytree(ours / names[1], ours / "val")
    with pytest.raises(DataError, match=r"both \w+ and \w+ are the val split: keep one"):
        checked(f"data={ours}")


def test_a_store_of_tiles_that_lost_a_clip_is_refused_before_training(ours, tmp_path):
    for split in ("train", "val"):
        store = prepare_frames(ours / split, tmp_path / "tiles" / split).store
    tiles = f"data={tmp_path / 'tiles'}"
    assert len(checked(tiles).train) == 5
    file = store.high.path(1)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(DataError, match=rf"val1\.tiles: has {len(whole) - 1:,} bytes of {len(whole):,}: run the same"):
        checked(tiles)
    file.unlink()
    with pytest.raises(DataError, match=r"val1\.tiles: no such file or directory: run the same `vcycle prepare`"):
        checked(tiles)
    prepare_frames(ours / "val", tmp_path / "tiles" / "val")
    assert len(checked(tiles).val) == 2
