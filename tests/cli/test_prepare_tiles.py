"""`vcycle prepare --to tiles`: frames for super-resolution."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imsave

from vcycle.data import SampleRequest
from vcycle.plan import Shape
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.superres import PairedDataset, TileStore, read_pairs
from vcycle.tasks.superres.data import every_clip


def test_a_store_of_tiles_comes_from_a_folder_of_videos_and_feeds_pairs(vcycle, here, videos):
    ran = vcycle("prepare", videos / "train", "tiles", "--to", "tiles", "--scale", "2", "--workers", "1")
    assert ran.code == 0, ran.err
    assert "of disk (" in ran.err  # said before
    assert "16 of 16 clips, 0 failed" in ran.out
    sample = PairedDataset(read_pairs(here / "tiles"))[SampleRequest(0, Shape(3, 4, 4), (0, 0, 0))]
    assert (tuple(sample.clip.shape), tuple(sample.label.shape)) == ((3, 4, 4, 3), (3, 8, 8, 3))


def test_given_again_nothing_changes_and_other_settings_are_refused(vcycle, here, videos):
    assert vcycle("prepare", videos / "train", "tiles", "--to", "tiles", "--degradation", "none").code == 0
    before = (here / "tiles/frames.json").read_bytes()
    again = vcycle("prepare", videos / "train", "tiles", "--to", "tiles", "--degradation", "none", "--json")
    assert (again.code, json.loads(again.out)["clips"]) == (0, 16)
    assert (here / "tiles/frames.json").read_bytes() == before
    assert TileStore(here / "tiles").low is None
    other = vcycle("prepare", videos / "train", "tiles", "--to", "tiles", "--degradation", "bd")
    assert (other.code, "name another folder" in other.err) == (2, True)


def test_a_dry_run_writes_nothing(vcycle, here, videos):
    ran = vcycle("prepare", videos / "train", "tiles", "--to", "tiles", "--dry-run", "--json")
    estimate = json.loads(ran.out)["estimate"]
    assert estimate["clips"] == 16
    assert estimate["bytes"] > 0 < estimate["seconds"]
    assert not (here / "tiles").exists()


def test_names_that_are_not_utf8_or_too_long_do_not_stop_the_others(vcycle, here, videos):
    (here / "clips").mkdir()
    odd, long = os.fsdecode(b"\xe4.mp4"), "x" * 246 + ".mp4"
    for name in ("a.mp4", odd, long):
        shutil.copy(videos / "train/left/0.mp4", here / "clips" / name)
    ran = vcycle("prepare", "clips", "tiles", "--to", "tiles")
    assert (ran.code, f"failed: clips/{long}: its name is too long" in ran.err) == (1, True)
    assert "2 of 3 clips, 1 failed, listed in" in ran.out
    assert sorted(clip.name for clip in TileStore(here / "tiles").clips) == ["a.mp4", odd]
    again = vcycle("prepare", "clips", "tiles", "--to", "tiles", "--json")
    assert list(json.loads(again.out)["failed"]) == [f"clips/{long}"]


def test_frames_can_be_made_smaller_first(vcycle, here, videos):
    assert vcycle("prepare", videos / "train", "whole", "--to", "tiles", "--degradation", "none").code == 0
    ran = vcycle("prepare", videos / "train", "half", "--to", "tiles", "--degradation", "none", "--resize", "0.5")
    assert ran.code == 0, ran.err
    whole, half = (TileStore(here / name).clips[0] for name in ("whole", "half"))
    assert (half.height, half.width) == (whole.height // 2, whole.width // 2)


def test_low_resolution_frames_that_are_there_are_stored_as_they_are(vcycle, here):
    for folder, side, grey in (("clips", 16, 50), ("low", 4, 200)):
        (here / folder / "a").mkdir(parents=True)
        for number in range(3):
            imsave(here / folder / f"a/{number}.png", np.full((side, side, 3), grey, dtype=np.uint8))
    for out, given, grey in (("made", [], 50), ("read", ["--low", "low"], 200)):
        ran = vcycle("prepare", "clips", out, "--to", "tiles", *given)
        assert ran.code == 0, ran.err
        sample = PairedDataset(read_pairs(here / out))[SampleRequest(0, Shape(3, 4, 4), (0, 0, 0))]
        assert (sample.clip == grey).all()
        assert (sample.label == 50).all()


def test_low_resolution_frames_of_another_size_are_no_pair(vcycle, here):
    for folder, side in (("clips", 16), ("low", 5)):
        (here / folder / "a").mkdir(parents=True)
        imsave(here / folder / "a/0.png", np.zeros((side, side, 3), dtype=np.uint8))
    ran = vcycle("prepare", "clips", "out", "--to", "tiles", "--low", "low")
    assert ran.code == 2
    assert "1 frames of 5 × 5 at low resolution; expected 1 of 4 × 4" in ran.err
    assert not (here / "out/frames.json").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--to", "tiles", "--resize", "2"], "--resize 2: must be a factor above 0 and below 1"),
        (["--to", "tiles", "--resize", "1/0"], "--resize 1/0: must be a factor above 0 and below 1"),
        (["--to", "tiles", "--resize", "half"], "--resize half: must be a factor above 0 and below 1"),
        (["--to", "tiles", "--timeout", "9"], "--timeout goes with --to video or array"),
        (["--short-side", "16", "--resize", "1/2"], "--resize goes with --to tiles"),
        (["--to", "tiles", "--short-side", "16"], "--short-side goes with --to video or array"),
        (["data.fold=2", "--to", "tiles"], "KEY=VALUE goes with --to video or array"),
        (["--to", "tiles", "--scale", "0"], "scale 0: must be a whole number from 2 to 16"),
        (["--to", "tiles", "--degradation", "blur"], "--degradation blur: must be bicubic, bd or none"),
        (["--short-side", "16", "--scale", "2"], "--scale goes with --to tiles"),
        (["--to", "film", "--short-side", "16"], "--to film: video, array or tiles"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_a_line(vcycle, videos, options, words):
    ran = vcycle("prepare", videos / "train", "out", *options)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert "Traceback" not in ran.err


def test_a_folder_without_clips_is_refused(vcycle, here):
    (here / "empty").mkdir()
    ran = vcycle("prepare", "empty", "out", "--to", "tiles")
    assert (ran.code, "no pictures" in ran.err) == (2, True)


def test_check_compares_a_store_with_what_was_written(vcycle, here, videos):
    assert vcycle("prepare", videos / "train", "tiles", "--to", "tiles").code == 0
    for recipe in ([], ["--recipe", "reds/basicvsr"]):
        assert vcycle("check", "tiles", *recipe).out.startswith("16 clips: 0 bad, 0 damaged\n")
    file = TileStore(Path("tiles")).high.path(3)
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    ran = vcycle("check", "tiles", "--json")
    assert ran.code == 1
    assert list(json.loads(ran.out)["bad"]) == [str(file)]
    refused = vcycle("check", "tiles", "data.val=x")
    assert (refused.code, "KEY=VALUE does not apply to prepared data" in refused.err) == (2, True)


def test_check_reads_every_split_of_a_recipe_of_super_resolution(vcycle, here, videos):
    for split in ("train", "val"):
        (here / "clips" / split).mkdir(parents=True)
        shutil.copy(videos / "train/left/0.mp4", here / "clips" / split / f"{split}.mp4")
    (here / "clips/val/text.mp4").write_text("no video")
    asked = ["--recipe", "reds/basicvsr", "--layout", "auto"]
    ran = vcycle("check", "clips", *asked)
    assert (ran.code, ran.out.splitlines()[1]) == (1, "3 clips: 1 bad, 0 damaged")
    assert "clips         3: train 1, val 2" in ran.out.splitlines()
    assert "frames        12; 24 in all" in ran.out.splitlines()
    assert "vcycle prepare clips clips-prepared --to tiles --degradation bicubic" in ran.out
    assert "bad: " in ran.out
    assert "val/text.mp4" in ran.out
    refused = vcycle("check", "clips", *asked, "--quick")
    assert (refused.code, "--quick applies to videos only" in refused.err) == (2, True)


def test_clips_are_not_prepared_as_videos(vcycle, here, videos):
    ran = vcycle("prepare", videos, "fast", "--recipe", "reds/basicvsr")
    assert ran.code == 2
    assert "is of superresolution: `--to tiles` prepares clips for it" in ran.err


def test_splits_stay_apart_and_are_trained_and_validated_on(vcycle, here, videos):
    ran = vcycle("prepare", videos, "tiles", "--to", "tiles", "--json")
    assert json.loads(ran.out)["clips"] == 32
    assert {split: len(TileStore(here / "tiles" / split)) for split in ("train", "val", "test")} == {
        "train": 16,
        "val": 8,
        "test": 8,
    }
    ran = vcycle("check", "tiles")
    assert ran.out.startswith("32 clips: 0 bad, 0 damaged\nclips         32: train 16, val 8, test 8\n")
    found = every_clip(load_recipe("demo/superresolution", ["data=tiles"]))
    assert {split: len(pairs) for split, pairs in found.items()} == {"train": 16, "val": 8, "test": 8}


def test_a_store_lies_beside_its_set_and_splits_beside_each_other(vcycle, here, videos):
    shutil.copytree(videos, here / "clips")
    for out in ("clips", "clips/tiles"):
        ran = vcycle("prepare", "clips", out, "--to", "tiles")
        assert (ran.code, f"{out} is the dataset itself or a folder in it" in ran.err) == (2, True)
    assert vcycle("prepare", "clips/train", "one", "--to", "tiles").code == 0
    assert vcycle("prepare", "clips", "three", "--to", "tiles").code == 0
    for data, out, store in (("clips", "one", "one"), ("clips/train", "three", "three/train")):
        ran = vcycle("prepare", data, out, "--to", "tiles")
        assert (ran.code, f"{store} is the store of another dataset" in ran.err) == (2, True)


def test_a_split_that_cannot_be_read_keeps_no_other_from_being_written_and_is_told(vcycle, here, videos):
    shutil.copytree(videos, here / "clips")
    for file in (here / "clips/val").rglob("*.mp4"):
        file.write_text("no video")
    ran = vcycle("prepare", "clips", "tiles", "--to", "tiles")
    assert (ran.code, "no clip can be read" in ran.err) == (2, True)
    assert [len(TileStore(here / "tiles" / split)) for split in ("train", "test")] == [16, 8]
    ran = vcycle("check", "tiles")
    assert (ran.code, "tiles/val: the preparation is incomplete: run the same `vcycle prepare`" in ran.err) == (2, True)


def test_low_resolution_clips_of_splits_are_taken_by_split(vcycle, here):
    for folder, side in (("clips", 16), ("low", 4)):
        for split, grey in (("train", 50), ("val", 90)):
            (here / folder / split / "a").mkdir(parents=True)
            imsave(here / folder / split / "a/0.png", np.full((side, side, 3), grey, dtype=np.uint8))
    assert vcycle("prepare", "clips", "tiles", "--to", "tiles", "--low", "low").code == 0
    for split, grey in (("train", 50), ("val", 90)):
        assert (TileStore(here / "tiles" / split).low.read(0, [0]) == grey).all()
