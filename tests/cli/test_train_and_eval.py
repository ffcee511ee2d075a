"""`vcycle train` and `vcycle eval` on a folder of tiny videos."""

import json
import shutil

import pytest
import torch


def test_a_training_ends_with_its_accuracy_and_its_times(trained):
    run, printed = trained
    assert printed["run"] == str(run)
    assert printed["plan"] == "cascade"
    assert printed["steps"] == 6
    assert 0 < printed["data_seconds"] < printed["train_seconds"]
    assert printed["val"]["samples"] == 8
    assert printed["val"]["protocol"] == "1 center clip, 4×16×16"


def test_the_run_folder_holds_recipe_plan_log_and_checkpoints(trained):
    run, _ = trained
    assert {p.name for p in run.iterdir()} >= {"recipe.yaml", "plan.json", "log.jsonl", "checkpoints"}
    assert (run / "checkpoints/step-000000006.pt").is_file()


def test_videos_shorter_than_a_clip_are_told_once_in_a_training_and_its_validations(vcycle, here, videos):
    copied = shutil.copytree(videos, here / "short")
    sampling = ("sampling.span=null", "sampling.stride=8", "sampling.short=loop")
    length = ("plan=constant", "training.steps=16", "training.decay=constant", "run.validate_every=1")
    ran = vcycle("train", "tiny.yaml", f"data={copied}", *sampling, *length)
    assert ran.code == 0
    for split in ("train", "val"):
        assert ran.err.count(f"short/{split}: videos shorter than a clip at its stride: they are looped") == 1


def test_eval_finds_what_training_found(vcycle, trained):
    run, printed = trained
    found = json.loads(vcycle("eval", run, "--json").out)
    assert found["step"] == printed["steps"]
    assert found["split"] == "val"
    assert {key: found[key] for key in printed["val"]} == printed["val"]


def test_eval_shows_the_test_split_when_asked(vcycle, trained):
    ran = vcycle("eval", trained[0], "--split", "test")
    assert ran.code == 0
    assert "on 8 test videos (1 center clip, 4×16×16)" in ran.out
    assert "after step 6" in ran.out
    top1 = ran.out.partition(" on ")[0]
    assert f"warning: few videos (8): the 95 % confidence interval of {top1} is " in ran.err


def test_people_read_the_plan_where_the_run_is_and_how_to_go_on(vcycle, here, videos):
    ran = vcycle("train", "tiny.yaml", f"data={videos}", "plan=constant", "training.steps=2", "training.decay=constant")
    assert ran.code == 0
    assert "plan constant (" in ran.out
    assert "top-1 " in ran.out
    assert "2 steps, 4 samples (0 replaced)" in ran.out
    assert "16 training videos in 2 classes and 8 validation videos" in ran.err
    assert "run: runs/tiny-constant" in ran.err
    assert "`vcycle train runs/tiny-constant --resume`" in ran.err
    assert (here / "runs/tiny-constant/checkpoints/step-000000002.pt").is_file()


def test_a_second_training_in_the_same_folder_is_refused_before_anything_is_done(vcycle, trained, videos):
    run, _ = trained
    log = (run / "log.jsonl").read_bytes()
    ran = vcycle("train", run, "--json")
    assert ran.code == 2
    assert "already holds a run: `vcycle train " in ran.err
    assert " --resume` resumes it, or choose another --out" in ran.err
    assert (run / "log.jsonl").read_bytes() == log


def test_going_on_with_a_finished_run_prints_the_same_again(vcycle, trained):
    run, printed = trained
    again = json.loads(vcycle("train", run, "--resume", "--json").out)
    assert again == printed


def test_a_run_that_is_gone_on_with_ends_as_if_it_had_never_stopped(vcycle, trained, here):
    run, printed = trained
    cut = shutil.copytree(run, here / "cut")
    (cut / "checkpoints/step-000000006.pt").unlink()
    ran = vcycle("train", "cut", "--resume", "--json")
    assert "resuming at step 4 of 6" in ran.err
    assert json.loads(ran.out)["val"] == printed["val"]


def test_a_run_may_be_used_from_another_folder(vcycle, here, videos, monkeypatch):
    shutil.copytree(videos, here / "data")
    small = ["plan=constant", "training.steps=2", "training.decay=constant"]
    assert vcycle("train", "tiny.yaml", "data=data", *small, "--out", "run").code == 0
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    assert vcycle("eval", "../run").code == 0


def test_a_folder_of_videos_that_is_called_like_a_recipe_is_left_alone(vcycle, here, videos):
    folder = shutil.copytree(videos, here / "videos" / "small")
    before = sorted(folder.rglob("*"))
    changes = ["model=r3d_tiny", "model.options.widths=[4, 8, 8]", "training.size=16", "training.frames=4"]
    changes += ["training.epochs=1", "training.warmup=null"]
    changes += ["data.workers=0", "plan=constant"]
    ran = vcycle("train", "videos/small", "data=videos/small", *changes)
    assert ran.code == 0
    assert sorted(folder.rglob("*")) == before
    assert (here / "runs/small-constant/recipe.yaml").is_file()


def test_a_home_folder_is_found_whatever_the_shell_does_with_it(vcycle, here, videos, monkeypatch):
    monkeypatch.setenv("HOME", str(videos.parent))
    ran = vcycle("plan", "tiny.yaml", "data=~/videos", "--json")
    assert ran.code == 0


def test_more_workers_than_cores_are_worth_a_word(vcycle, trained, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)
    ran = vcycle("train", trained[0], "data.workers=2", "--resume", "--json")
    assert "data.workers is 2, and there is 1 processor core here" in ran.err
    assert "DataLoader" not in ran.err


@pytest.mark.parametrize("plan", ["constant", "long+short"])
def test_real_gestures_train_for_a_few_steps(vcycle, here, shared_data, plan):
    changes = ["model=r3d_tiny", "training.frames=8", "training.size=32", "training.batch=2", "training.steps=24"]
    changes += ["training.epochs=null", "training.warmup=null", "plans.long+short.cycles=1", "data.workers=0"]
    changes += [f"plan={plan}"]
    ran = vcycle("train", "videos/small", f"data={shared_data / 'gestures'}", *changes, "--json")
    assert ran.code == 0, ran.err
    printed = json.loads(ran.out)
    assert printed["steps"] == {"constant": 24, "long+short": 8}[plan]
    assert printed["replaced"] == 0
    assert printed["val"]["samples"] == 29


def test_every_command_computes_with_the_threads_of_the_recipe(vcycle, here, videos, monkeypatch):
    numbers = []
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)  # two are slow where other tests use the cores
    ran = vcycle("train", "tiny.yaml", f"data={videos}", "run.threads=2", "--out", "run", "--json")
    assert ran.code == 0, ran.err
    for arguments in (
        ["eval", "run", "--json"],
        ["predict", "run", videos / "val/left/0.mp4", "--json"],
        ["bench", "tiny.yaml", "run.threads=2", "--plans=constant", "--repeats=1", "--seconds=0", "--json"],
    ):
        assert numbers[-1] == 2
        numbers.clear()
        assert vcycle(*arguments).code == 0
    assert numbers[-1] == 2
    ran = vcycle("train", "tiny.yaml", f"data={videos}", "run.threads=0", "--out", "other")
    assert (ran.code, "run.threads" in ran.err) == (2, True)
