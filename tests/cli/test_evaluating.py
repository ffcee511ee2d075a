"""`vcycle eval`: any views, any number of ranks, and what is written down."""

import json
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from vcycle.errors import DataError
from vcycle.runs.experiment import Experiment
from vcycle.tasks.classification.evaluate import VideoEvaluator
from vcycle.tasks.loaded_model import load_model
from vcycle.tasks.recipes import override_trained
from vcycle.tasks.recognition import Scores
from vcycle.train import ranks, shards
from vcycle.train.checkpoint import load_checkpoint, save_checkpoint


@pytest.fixture
def run(trained, tmp_path):
    """A finished run of its own."""
    return Path(shutil.copytree(trained[0], tmp_path / "run"))


@pytest.fixture
def more_videos(videos, tmp_path):
    """The same classes with 21 videos to test on, and one more that is damaged."""
    root = Path(shutil.copytree(videos, tmp_path / "more"))
    for name, count in (("left", 10), ("right", 11)):
        for number in range(count):
            source = videos / ("train" if number % 2 else "val") / name / f"{number // 4}.mp4"
            shutil.copy(source, root / "test" / name / f"{number:02}.mp4")
        for number in range(4):
            (root / "test" / name / f"{number}.mp4").unlink()
    whole = (root / "test/right/03.mp4").read_bytes()
    (root / "test/right/damaged.mp4").write_bytes(whole[: len(whole) // 3])
    return root


@pytest.mark.parametrize("shard", ["false", "true"])
def test_three_ranks_find_the_same_as_one_to_the_last_digit(
    vcycle, vcycle_on, run, more_videos, shard, request, monkeypatch
):
    if shard == "true":
        request.getfixturevalue("sharding")
        monkeypatch.setattr(shards, "_LEAST", 1)
    arguments = ["eval", run, f"data={more_videos}", "--split", "test", "--views", "3x3"]
    alone = vcycle(*arguments)
    assert alone.code == 0, alone.err
    assert "on 21 test videos (3 clips × 3 crops, 4×16×16, softmax mean; 1 more cannot be read)" in alone.out
    assert alone.err.count("damaged.mp4") == 1
    file = run / "eval-test-3x3.json"
    expected = file.read_bytes()
    file.unlink()
    first, *others = vcycle_on(3, *arguments, f"run.shard={shard}")
    assert (first.code, first.out) == (0, alone.out), first.err
    assert first.err.count("damaged.mp4") == 1
    assert others == [(0, "", "")] * 2
    assert file.read_bytes() == expected


def test_the_shares_of_any_number_of_ranks_are_the_same_scores(run, more_videos, tmp_path):
    opened = load_model(run)
    recipe = override_trained(opened.recipe, [f"data={more_videos}", "evaluation.clips=2", "evaluation.crops=3"], "run")
    evaluator, cpu = Experiment(recipe, tmp_path).evaluator("test", "full"), torch.device("cpu")

    def shared(world):
        shares = [evaluator.each(opened.model, cpu, rank=rank, world=world) for rank in reversed(range(world))]
        return Scores.of(found for share in shares for found in share)

    alone = shared(1)
    assert alone.videos.tolist() == [place for place in range(22) if place != alone.unreadable[0].video]
    for world in (2, 3, 23):
        found = shared(world)
        assert torch.equal(found.videos, alone.videos)
        assert torch.equal(found.scores, alone.scores)
        assert found.unreadable == alone.unreadable


def test_each_class_and_each_video_are_written_beside_the_run(vcycle, run):
    printed = json.loads(vcycle("eval", run, "--split", "test", "--views", "2x3", "--json").out)
    written = json.loads((run / "eval-test-2x3.json").read_text())
    assert printed["file"] == str(run / "eval-test-2x3.json")
    assert {key: written[key] for key in printed if key != "file"} == {k: v for k, v in printed.items() if k != "file"}
    assert written["protocol"] == "2 clips × 3 crops, 4×16×16, softmax mean"
    assert (written["step"], written["split"], written["samples"]) == (6, "test", 8)
    assert [row["class"] for row in written["per_class"]] == ["left", "right"]
    assert sum(row["videos"] for row in written["per_class"]) == len(written["videos"]) == 8
    assert sum(row["right"] for row in written["videos"]) == round(8 * written["top1"])
    for row in written["videos"]:
        assert Path(row["video"]).is_file()
        assert Path(row["video"]).parent.name == row["class"]
        assert row["right"] == (max(row["scores"], key=row["scores"].get) == row["class"])
        assert sum(row["scores"].values()) == pytest.approx(1, abs=1e-5)


def test_results_may_go_elsewhere_with_a_picture(vcycle, run, tmp_path):
    ran = vcycle("eval", run, "--out", tmp_path / "results", "--figure", tmp_path / "confusion.png")
    assert ran.code == 0
    assert (tmp_path / "results/eval-val-1x1.json").is_file()
    assert (tmp_path / "confusion.png").read_bytes()[:4] == b"\x89PNG"
    assert not (run / "eval-val-1x1.json").exists()


def test_the_numbers_are_told_before_a_folder_turns_out_not_to_be_one(vcycle, run):
    ran = vcycle("eval", run, "--out", run / "recipe.yaml")
    assert ran.code == 2
    assert "top-1" in ran.out
    assert "recipe.yaml" in ran.err.splitlines()[-1]


def test_a_recipe_says_which_views_are_taken_at_the_end_and_training_takes_one(vcycle, here, videos):
    small = ["plan=constant", "training.steps=2", "training.decay=constant"]
    views = ["evaluation.clips=2", "evaluation.size=20", "evaluation.combine=max"]
    ran = vcycle("train", "tiny.yaml", f"data={videos}", *small, *views, "--out", "run", "--json")
    assert json.loads(ran.out)["val"]["protocol"] == "1 center clip, 4×20×20 of short side 20"
    ran = vcycle("eval", "run", "--json")
    assert json.loads(ran.out)["protocol"] == "2 clips, 4×20×20 of short side 20, softmax max"
    again = json.loads(vcycle("eval", "run", "--views", "1x1", "--json").out)
    assert again["protocol"] == "1 center clip, 4×20×20 of short side 20"


def test_larger_crops_may_be_classified_place_by_place(vcycle, run):
    pooled, placed = (
        json.loads(vcycle("eval", run, "evaluation.size=64", f"evaluation.fully_convolutional={on}", "--json").out)
        for on in ("false", "true")
    )
    assert placed["protocol"] == f"{pooled['protocol']}, fully convolutional"
    assert placed["loss"] != pooled["loss"]


def test_only_the_split_that_is_asked_for_is_cached(vcycle, run):
    assert vcycle("eval", run, "data.cache=16", "--split", "test").code == 0
    cached = [each for each in (run.parent / "cache").iterdir() if each.is_dir()]
    assert len(cached) == 1
    assert sum(1 for _ in cached[0].rglob("*")) > 0


def test_an_exported_model_is_evaluated_as_its_run_is(vcycle, run, tmp_path):
    assert vcycle("export", run, "-o", tmp_path / "model.safetensors").code == 0
    own, exported = (json.loads(vcycle("eval", m, "--json").out) for m in (run, tmp_path / "model.safetensors"))
    assert [own[key] for key in ("top1", "loss", "step")] == [exported[key] for key in ("top1", "loss", "step")]
    assert (tmp_path / "eval-val-1x1.json").is_file()


def test_a_recipe_with_weights_is_evaluated_without_training(vcycle, run, here, videos):
    own = json.loads(vcycle("eval", run, "--json").out)
    ran = vcycle("eval", "tiny.yaml", f"data={videos}", f"init={run}", "--json")
    assert ran.code == 0, ran.err
    assert [json.loads(ran.out)[key] for key in ("top1", "loss")] == [own["top1"], own["loss"]]
    ran = vcycle("eval", "tiny.yaml", f"data={videos}")
    assert ran.code == 2
    assert "the model of a recipe is untrained: give a run folder" in ran.err


def test_a_run_that_never_made_a_step_is_not_evaluated(vcycle, run):
    (last,) = [file for file in (run / "checkpoints").iterdir() if file.name == "step-000000006.pt"]
    checkpoint = load_checkpoint(last)
    shutil.rmtree(run / "checkpoints")
    save_checkpoint(run / "checkpoints", replace(checkpoint, step=0))
    for command in ("eval", "predict"):
        ran = vcycle(command, run, *(["a.mp4"] if command == "predict" else []))
        assert ran.code == 2
        assert f"error: the model in {run} is untrained" in ran.err
        assert f"`vcycle train {run} --resume` trains it" in ran.err


def test_classes_other_than_those_of_the_training_are_refused(vcycle, run, videos, tmp_path):
    other = Path(shutil.copytree(videos, tmp_path / "other"))
    for split in ("train", "val", "test"):
        (other / split / "left").rename(other / split / "down")
    ran = vcycle("eval", run, f"data={other}")
    assert ran.code == 2
    assert "has 2 classes, and the model" in ran.err
    assert "'down' where it knows 'left'" in ran.err


def test_videos_of_several_classes_are_judged_by_map_over_the_classes_that_they_have(vcycle, here, videos):
    (here / "set/Charades_v1").mkdir(parents=True)
    (here / "set/Charades_v1_classes.txt").write_text("c000 Left\nc001 Square\nc002 Nothing\n")
    for split, folder in (("train", "train"), ("test", "val")):
        rows = ["id,actions"]
        for file in sorted((videos / folder).rglob("*.mp4")):
            name = f"{split}{len(rows)}"
            shutil.copy(file, here / f"set/Charades_v1/{name}.mp4")
            rows.append(f"{name},{'c000 0 1;' * (file.parent.name == 'left')}c001 0 1")
        (here / f"set/Charades_v1_{split}.csv").write_text("\n".join(rows))
    small = ["plan=constant", "training.steps=2", "training.decay=constant", "training.multi_label=true"]
    views = ["evaluation.clips=3", "evaluation.combine=max"]
    ran = vcycle("train", "tiny.yaml", "data=set", *small, *views, "--out", "run")
    assert ran.code == 0, ran.err
    assert "mAP " in ran.out
    assert "over the 2 of 3 classes that have a video on 8 val videos (1 center clip, 4×16×16, sigmoid)" in ran.out
    assert ": mAP " in ran.err
    ran = vcycle("eval", "run")
    assert "(3 clips, 4×16×16, sigmoid max)" in ran.out
    written = json.loads(Path("run/eval-val-3x1.json").read_text())
    assert [row["average_precision"] for row in written["per_class"]][1:] == [1.0, None]
    assert {tuple(row["classes"]) for row in written["videos"]} == {("Left", "Square"), ("Square",)}
    ran = vcycle("eval", "run", "--figure", "confusion.png")
    assert ran.code == 2
    assert "--figure: a confusion matrix needs one class per video" in ran.err
    assert vcycle("predict", "run", "set/Charades_v1/test1.mp4").code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--views", "ten"], "--views ten: clips x crops, such as 1x1, 10x1 or 10x3, is accepted"),
        (["--views", "0x3"], "--views 0x3: clips x crops"),
        (["--figure", "confusion.doc"], "figure confusion.doc cannot be written: a name that ends in"),
        (["--split", "all"], "split 'all' is unknown: val, test or train"),
        (["training.batch=4"], "only keys of evaluation, data and run can be changed"),
        (["evaluation.clip=4"], "unknown key 'evaluation.clip' (did you mean 'clips'?)"),
        (["evaluation.short_side=8"], "evaluation.short_side is 8: crops of 16 pixels need 16 or more"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(vcycle, run, arguments, said):
    ran = vcycle("eval", run, *arguments)
    assert ran.code == 2
    assert said in ran.err.splitlines()[-1]
    assert len(ran.err.splitlines()) == 1


def test_views_that_the_model_cannot_take_are_refused_with_the_plan(vcycle, here, videos):
    for command in ("plan", "train"):
        ran = vcycle(command, "tiny.yaml", f"data={videos}", "evaluation.short_side=12")
        assert ran.code == 2
        assert ran.err.endswith("error: evaluation.short_side is 12: crops of 16 pixels need 16 or more\n")
    changes = ["model=i3d_nl_r50", "training.frames=8", "training.size=64", "sampling.short_side=[64, 80]"]
    ran = vcycle(
        "plan",
        "tiny.yaml",
        f"data={videos}",
        "plan=constant",
        *changes,
        "evaluation.size=1",
        "evaluation.short_side=64",
    )
    assert ran.code == 2
    assert "error: evaluation.size is 1: 1 pixels, the model needs at least" in ran.err


def test_what_ends_all_ranks_is_told_by_the_first_alone(vcycle_on, run):
    first, other = vcycle_on(2, "eval", run, "--split", "missing")
    assert (first.code, first.err) == (2, "error: split 'missing' is unknown: val, test or train\n")
    assert other == (2, "", "")


@pytest.mark.parametrize("shard", ["false", "true"])
def test_what_ends_one_rank_is_told_by_that_one(vcycle_on, run, monkeypatch, shard, request):
    if shard == "true":
        request.getfixturevalue("sharding")
    each = VideoEvaluator.each

    def evaluated_on_one(*arguments, rank, **options):
        for number, video in enumerate(each(*arguments, rank=rank, **options)):
            if (rank, number) == (1, 1):
                raise DataError("this one alone")
            yield video

    monkeypatch.setattr(ranks, "_MOMENT", timedelta(seconds=0.5))
    monkeypatch.setattr(VideoEvaluator, "each", evaluated_on_one)
    first, other = vcycle_on(2, "eval", run, f"run.shard={shard}")
    assert (first.code, other) == (2, (2, "", "error: rank 1: this one alone\n"))
    assert first.err == "error: rank 0 of 2 stops: another process has exited\n"


def test_what_was_trained_in_bf16_is_evaluated_in_bf16_and_says_so(vcycle, run):
    fp32 = json.loads(vcycle("eval", run, "--json").out)
    bf16 = json.loads(vcycle("eval", run, "run.precision=bf16", "--json").out)
    assert bf16["protocol"] == f"{fp32['protocol']}, bf16"
    assert 0 < abs(bf16["loss"] - fp32["loss"]) < 0.05


def test_a_crop_smaller_than_in_training_needs_its_picture_named(vcycle, run):
    ran = vcycle("eval", run, "evaluation.size=12")
    assert ran.code == 2
    assert "evaluation.size is 12, below training.size 16" in ran.err
    assert vcycle("eval", run, "evaluation.size=12", "evaluation.short_side=12").code == 0
