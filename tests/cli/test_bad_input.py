"""What a user may get wrong: one line that says what and where, exit code 2, and nothing lost."""

import json
import os
import re
import shlex
import shutil

import pytest
import safetensors
import safetensors.torch


def refused(ran, *parts):
    """The command ended with one line of error that has all the parts, and printed nothing else."""
    assert ran.code == 2
    assert ran.out == ""
    errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert ran.err.endswith(errors[0] + "\n")
    assert "Traceback" not in ran.err
    for part in parts:
        assert part in errors[0]


@pytest.fixture
def folder(here, videos):
    """A copy of the videos to spoil."""
    return shutil.copytree(videos, here / "data")


@pytest.mark.parametrize("command", ["plan", "train", "compare"])
def test_a_missing_folder(vcycle, here, command):
    refused(vcycle(command, "tiny.yaml", "data=nowhere"), "nowhere: no such folder or list file")


@pytest.mark.parametrize("command", ["plan", "train"])
def test_an_empty_folder(vcycle, here, command):
    (here / "empty").mkdir()
    refused(vcycle(command, "tiny.yaml", "data=empty"), "empty: no class folders with videos, no train.csv")


def test_a_class_with_no_videos(vcycle, folder):
    for video in (folder / "train/left").iterdir():
        video.unlink()
    refused(vcycle("train", "tiny.yaml", "data=data"), "data/train/left: the class has no videos")


def test_videos_of_a_single_class_are_refused_before_a_run_is_begun(vcycle, folder, here):
    for split in ("train", "val", "test"):
        shutil.rmtree(folder / split / "left")
    refused(vcycle("train", "tiny.yaml", "data=data"), "data: its videos are of 1 class (right): at least 2 are needed")
    assert sorted(path.name for path in here.iterdir()) == ["data", "tiny.yaml"]


def test_videos_of_several_labels_are_refused_before_a_run_is_begun(vcycle, here, videos):
    (here / "set/Charades_v1_480").mkdir(parents=True)
    shutil.copy(videos / "train/left/0.mp4", here / "set/Charades_v1_480/A.mp4")
    (here / "set/Charades_v1_classes.txt").write_text("c000 Running\nc001 Sitting\n")
    for split in ("train", "test"):
        (here / f"set/Charades_v1_{split}.csv").write_text("id,actions,length\nA,c000 0 1;c001 0.5 1,1\n")
    refused(vcycle("train", "tiny.yaml", "data=set"), "set: its videos have any number of labels")
    assert sorted(path.name for path in here.iterdir()) == ["set", "tiny.yaml"]


def test_no_videos_given(vcycle, here):
    refused(vcycle("train", "tiny.yaml"), "the recipe names no videos", "data=PATH")


def test_a_folder_above_the_dataset(vcycle, folder, here):
    refused(
        vcycle("train", "tiny.yaml", f"data={here}"),
        f"{here}/data: the class has no videos",
        f"did you mean {here}/data?",
    )


def test_the_folder_of_a_class(vcycle, folder):
    refused(
        vcycle("train", "tiny.yaml", "data=data/train/left"),
        "data/train/left: its videos are not in class folders",
        f"the parent folder, if this is a class itself ({folder}/train)",
    )


@pytest.mark.parametrize("command", ["plan", "train", "check"])
def test_a_video_in_place_of_a_dataset(vcycle, here, videos, command):
    video = videos / "val/left/0.mp4"
    arguments = [video] if command == "check" else ["tiny.yaml", f"data={video}"]
    refused(vcycle(command, *arguments), f"{video}: a video; must be a folder with a folder per class")


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("train/left/nothing.mp4 0", ["train.csv, line 3", "no such file", "nothing.mp4"]),
        ("train/left/0.mp4 7", ["train.csv, line 3", "bad label 7", "0 to 1"]),
        ("train/left/0.mp4 -1", ["train.csv, line 3", "bad label -1"]),
        ("train/left/0.mp4 left", ["train.csv, line 3", "bad label 'left'"]),
        ("train/left/0.mp4", ["train.csv, line 3", "no label"]),
    ],
)
def test_a_bad_line_of_a_list(vcycle, folder, line, parts):
    (folder / "classes.txt").write_text("l\nr\n")
    (folder / "train.csv").write_text(f"train/left/0.mp4 0\ntrain/right/0.mp4 1\n{line}\n")
    (folder / "val.csv").write_text("val/left/0.mp4 0\nval/right/0.mp4 1\n")
    refused(vcycle("train", "tiny.yaml", "data=data"), *parts)


def test_a_list_without_a_list_for_validation(vcycle, folder):
    (folder / "all.txt").write_text("train/left/0.mp4 0\ntrain/right/0.mp4 1\n")
    refused(vcycle("train", "tiny.yaml", "data=data/all.txt"), "data.val=FILE")


def test_a_path_where_a_change_to_the_recipe_belongs(vcycle, here, videos):
    refused(vcycle("train", "tiny.yaml", videos), f"data={videos}")


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("trainign.batch=2", ["unknown key 'trainign'", "did you mean 'training'?"]),
        ("seeds=3", ["unknown key 'seeds' (did you mean 'run.seed'?)"]),
        ("training.bach=2", ["unknown key 'training.bach'", "did you mean 'batch'?"]),
        ("training.batch=many", ["'training.batch'", "'many'", "integer"]),
        ("training.batch=0", ["'training.batch'", "greater than 0"]),
        ("training.batch", ["'training.batch' is not of the form key=value"]),
        ("model=r3d_tinny", ["model 'r3d_tinny' is unknown", "did you mean 'r3d_tiny'?"]),
        ("model.options.depth=3", ["option 'depth'", "r3d_tiny"]),
        ("plan=cascada", ["plan 'cascada' is unknown", "did you mean 'cascade'?"]),
        ("plan=cascade@0", ["epoch factor '0'"]),
        ("training.decay.milestones=[24]", ["milestone 24 is at or after the end of training (training.steps=24)"]),
        ("data.root=elsewhere", ["data.root", "list file"]),
        ("augment.mixup=1e-300", ["'augment.mixup'", "greater than or equal to 0.001"]),
        ("training.batch.size=2", ["override 'training.batch.size=2': key 'training.batch' is"]),
        ("sampling.span=[1, 0.5]", ["sampling.span=(1.0, 0.5): must be two ascending numbers from 0.01 to 1"]),
        ("sampling.short_side=[8, 20]", ["sampling.short_side=(8, 20): must be two ascending numbers from 16"]),
        ("sampling.stride=2", ["sampling.stride=2.0 and span=(0.8, 1.0) exclude each other"]),
        ("sampling.std=[0, 1, 1]", ["'sampling.std.0' is 0", "greater than 0"]),
        ("optimizer={name: adamw, betas: [0.9, 1]}", ["'optimizer.betas.1' is 1", "less than 1"]),
    ],
)
@pytest.mark.parametrize("command", ["plan", "train"])
def test_a_bad_change_to_the_recipe(vcycle, here, videos, command, override, parts):
    refused(vcycle(command, "tiny.yaml", f"data={videos}", override), *parts)
    assert sorted(p.name for p in here.iterdir()) == ["tiny.yaml"]


def test_a_recipe_file_that_is_not_yaml(vcycle, here):
    (here / "bad.yaml").write_text("training: {batch: [\n")
    refused(vcycle("plan", "bad.yaml"), "bad.yaml: not valid YAML")


def test_a_recipe_with_a_section_missing(vcycle, here):
    (here / "bad.yaml").write_text("model: r3d_tiny\n")
    refused(vcycle("plan", "bad.yaml"), "bad.yaml: key 'training' is missing (and 1 more)")


def test_a_recipe_file_that_is_a_video(vcycle, videos):
    refused(vcycle("plan", videos / "val/left/0.mp4"), "0.mp4: cannot be read as a recipe")


def test_an_unknown_recipe(vcycle):
    refused(vcycle("train", "videos/smal"), "no recipe 'videos/smal'", "did you mean 'videos/small'?")


@pytest.mark.parametrize("command", ["plan", "train"])
def test_a_shape_that_the_model_cannot_take_names_the_step_at_which_it_would_come(vcycle, here, videos, command):
    # The cascade begins with half the frames, and SlowFast takes a multiple of 4.
    changes = ["model={name: slowfast_tiny, options: {}}", "training.frames=6"]
    ran = vcycle(command, "tiny.yaml", f"data={videos}", *changes)
    refused(ran, "model 'slowfast_tiny' cannot take the shape 3×8×8 that comes at step 0", "3 frames")
    refused(ran, "; the full shape 6×16×16 is refused too: change it first")


def test_a_comparison_is_refused_before_anything_is_trained(vcycle, here, videos):
    ran = vcycle("compare", "tiny.yaml", f"data={videos}", "plan=constant,long+short", "training.steps=14")
    refused(ran, "plan 'long+short'", "without a step")
    assert not list(here.glob("runs/*/runs"))


def test_more_stages_than_steps(vcycle, here, videos):
    ran = vcycle("plan", "tiny.yaml", f"data={videos}", "plan=long+short", "training.steps=14")
    refused(ran, "long+short", "steps for", "without a step")


def test_a_refused_resume_leaves_the_run_as_it_was(vcycle, trained):
    run, _ = trained
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert vcycle("train", run, "training.lr=0.01", "--resume", "--json").code == 2
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_every_checkpoint_damaged(vcycle, trained, here):
    run = shutil.copytree(trained[0], here / "run")
    for path in (run / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:200])
    refused(vcycle("eval", "run"), "no checkpoint in run/checkpoints can be read")


def test_the_folder_of_a_run_that_is_none(vcycle, here):
    refused(vcycle("eval", "."), "not the folder of a run: it has no recipe.yaml")
    refused(vcycle("eval", "nowhere"), "no recipe 'nowhere': not a file, a run folder or a shipped recipe")


@pytest.mark.parametrize("command", ["eval", "export", "report"])
def test_a_folder_above_runs_names_one_of_them(vcycle, trained, command):
    run, _ = trained
    refused(vcycle(command, run.parent), f"{run.parent} is not the folder of a run", f"(did you mean {run}")


def test_a_name_that_no_file_can_have(vcycle, here):
    refused(vcycle("plan", "n" * 5000), "File name too long")
    refused(vcycle("plan", "tiny.yaml", "data=" + "n" * 5000), "File name too long")


def test_an_unknown_split(vcycle, trained):
    refused(vcycle("eval", trained[0], "--split", "trian"), "split 'trian' is unknown: val, test or train")


@pytest.mark.parametrize("command", ["train", "compare"])
@pytest.mark.parametrize("out", ["tiny.yaml", "tiny.yaml/run"])
def test_an_out_folder_that_cannot_be_made(vcycle, here, videos, command, out):
    ran = vcycle(command, "tiny.yaml", f"data={videos}", "--out", out)
    refused(ran, f"folder {out} cannot be created: ")


@pytest.mark.parametrize("subject", ["recognition", "superresolution"])
def test_a_demonstration_where_nothing_can_be_written(vcycle, here, subject):
    refused(vcycle("demo", subject, "--out", "tiny.yaml/demo"), "folder tiny.yaml/demo", "cannot be created: Not a dir")


def test_a_folder_for_measurements_that_is_a_file(vcycle, here):
    refused(vcycle("bench", "data", "--quick", "--out", "tiny.yaml"), "folder tiny.yaml cannot be created: File exists")
    (here / "out").mkdir()
    (here / "out" / "videos").touch()
    ran = vcycle("bench", "data", "--quick", "--out", "out")
    refused(ran, "folder out/videos cannot be created: File exists")


@pytest.mark.parametrize("seeds", ["0", "-1", "two", "", "9" * 30, "1-99999999", f"{2**63}-{2**63}"])
def test_no_seeds(vcycle, here, videos, seeds):
    refused(vcycle("compare", "tiny.yaml", f"data={videos}", f"seeds={seeds}"), f"seeds={seeds}", "at least 1")


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "plan=constant,nope", "data.workers=64"],
        ["compare", "plan=nope"],
        ["train", "plan=nope"],
        ["plan", "plan=control:nope@2"],
        ["bench", "--plans", "constant,nope"],
        ["bench", "plan=nope"],
    ],
)
def test_an_unknown_plan_is_all_that_is_told_of(vcycle, here, videos, arguments):
    command, *rest = arguments
    ran = vcycle(command, "tiny.yaml", f"data={videos}", *rest)
    refused(ran, "nope", "is unknown: constant, long+short")
    assert len(ran.err.splitlines()) == 1
    assert [path.name for path in here.iterdir()] == ["tiny.yaml"]


def test_an_unknown_plan_is_told_of_before_missing_data(vcycle, here):
    refused(vcycle("compare", "tiny.yaml", "data=nowhere", "plan=nope"), "plan 'nope' is unknown")


def test_no_plans_to_compare(vcycle, here, videos):
    refused(vcycle("compare", "tiny.yaml", f"data={videos}", "plan="), "plan=")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["plan"], "Missing argument 'RECIPE'"),
        (["bench"], "Missing argument 'RECIPE'"),
        (["plam", "tiny.yaml"], "No such command 'plam'"),
        (["plan", "tiny.yaml", "--jsn"], "No such option"),
        (["demo", "--seeds", "0"], "Invalid value for '--seeds': "),
        (["eval"], "Missing argument"),
        (["recipes", "shw"], "No such command 'shw'. Did you mean 'show'? (see `vcycle recipes -h`"),
    ],
)
def test_a_command_that_is_not_understood(vcycle, here, arguments, part):
    ran = vcycle(*arguments)
    refused(ran, part, "(see `vcycle", "-h`)")
    assert ran.err.count("\n") == 1


def test_no_command_shows_those_there_are(vcycle):
    ran = vcycle()
    assert ran.code == 2
    assert "Usage:" in ran.out + ran.err
    assert "train" in ran.out + ran.err


def test_switches_have_no_type_in_the_help(vcycle):
    ran = vcycle("train", "--help")
    assert ran.code == 0
    assert "--resume " in ran.out
    assert "bool" not in ran.out


def test_a_disk_that_is_full_while_saving(vcycle, here, videos):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        ran = vcycle("train", "tiny.yaml", f"data={videos}", "--out", "run", "--json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    refused(ran, "checkpoint run/checkpoints/step-", "cannot be saved (", "File too large")


def spoil(video):
    """Damage a video so that it opens, and no frame of it can be decoded."""
    data = bytearray(video.read_bytes())
    start = data.index(b"mdat") + 4
    end = data.find(b"moov", start)
    end = len(data) if end < 0 else end - 4
    data[start:end] = bytes(end - start)
    video.write_bytes(data)


def test_unreadable_videos_are_named_replaced_and_counted(vcycle, folder):
    spoil(folder / "train/left/3.mp4")
    ran = vcycle("train", "tiny.yaml", "data=data", "run.bad_limit=0.5", "--out", "run", "--json")
    assert ran.code == 0
    assert ran.err.count("bad video") == 1
    assert f"bad video {folder}/train/left/3.mp4" in ran.err
    assert json.loads(ran.out)["replaced"] > 0


def test_a_single_unreadable_video_of_a_small_set_does_not_stop_the_training(vcycle, folder):
    spoil(folder / "train/left/3.mp4")
    ran = vcycle("train", "tiny.yaml", "data=data", "--out", "run", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["replaced"] > 0


def test_too_many_unreadable_videos_and_the_command_that_continues_without_them(vcycle, folder):
    for number in range(4):
        spoil(folder / f"train/left/{number}.mp4")
    ran = vcycle("train", "tiny.yaml", "data=data", "--out", "run", "--json")
    refused(ran, "could not be read", "run.bad_limit", "run/bad_samples.jsonl")
    again = vcycle("train", "tiny.yaml", "data=data", "run.bad_limit=0.9", "--out", "run")
    refused(again, "run already holds a run: `vcycle train run --resume` resumes it")
    command = shlex.split(re.search(r"`(vcycle train [^`]*)` continues without them", ran.err)[1])
    assert command[:4] == ["vcycle", "train", "run", "--resume"]
    ran = vcycle(*command[1:], "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["replaced"] > 0


@pytest.fixture
def seventeen(folder):
    """A copy of the videos with one more to train on, which is dead."""
    (folder / "train/left/dead.mp4").write_bytes(b"not a video")
    return folder


def left_out(run):
    return json.loads((run / "videos.json").read_text())["train"].get("left_out", {})


def test_a_video_that_cannot_be_opened_is_left_out_named_and_listed(vcycle, here, seventeen):
    ran = vcycle("train", "tiny.yaml", "data=data", "--out", "run", "--json")
    assert ran.code == 0, ran.err
    assert ran.err.count(f"left out, as it cannot be opened: {seventeen}/train/left/dead.mp4: not a video") == 1
    assert "16 training videos in 2 classes" in ran.err
    assert json.loads(ran.out)["replaced"] == 0
    assert list(left_out(here / "run")) == ["left/dead.mp4"]
    without = vcycle("train", "tiny.yaml", f"data={seventeen}", "--out", "other", "run.bad_limit=0")
    refused(without, "1 of 17 training videos cannot be opened, such as ", "run.bad_limit=0.06 leaves them out")
    assert not (here / "other").exists()


def test_a_resumed_run_leaves_out_what_it_left_out_at_its_start(vcycle, here, seventeen, videos):
    ran = vcycle("train", "tiny.yaml", "data=data", "--out", "whole", "--json")
    shutil.copytree(here / "whole", here / "cut")
    steps = sorted((here / "cut/checkpoints").glob("step-*.pt"))
    assert len(steps) == 2
    steps[-1].unlink()
    shutil.copy(videos / "train/left/0.mp4", seventeen / "train/left/dead.mp4")  # it is repaired
    (seventeen / "train/right/0.mp4").write_bytes(b"")  # and another is dead: it is replaced, as in any run
    resumed = vcycle("train", "cut", "--resume", "--json")
    assert resumed.code == 0, resumed.err
    assert json.loads(resumed.out)["fingerprint"] == json.loads(ran.out)["fingerprint"]
    assert list(left_out(here / "cut")) == ["left/dead.mp4"]


def test_more_dead_videos_than_the_limit_are_refused_before_a_run_is_begun(vcycle, here, folder):
    for number in range(4):
        (folder / f"train/left/{number}.mp4").write_bytes(b"")
    ran = vcycle("train", "tiny.yaml", "data=data", "--out", "run")
    refused(ran, "4 of 16 training videos cannot be opened, such as ", "an empty file", "run.bad_limit=0.25 leaves")
    assert not (here / "run").exists()
    assert vcycle("train", "tiny.yaml", "data=data", "run.bad_limit=0.25", "--out", "run").code == 0
    assert len(left_out(here / "run")) == 4


def test_a_study_leaves_out_dead_videos_and_the_same_when_it_resumes(vcycle, here, seventeen, videos):
    arguments = ["compare", "tiny.yaml", "data=data", "plan=constant", "seeds=1", "--out", "study"]
    ran = vcycle(*arguments)
    assert ran.code == 0, ran.err
    assert ran.err.count("left out, as it cannot be opened") == 1
    (run,) = (here / "study/runs").iterdir()
    assert list(left_out(run)) == ["left/dead.mp4"]
    shutil.copy(videos / "train/left/0.mp4", seventeen / "train/left/dead.mp4")
    again = vcycle(*arguments)
    assert "reusing 1 of 1 finished runs" in again.err


ODD = [
    ("model.options.widths=[8, 8]", ["widths (8, 8)", "differ in length"]),
    ("model.options={widths: [65536, 65536, 65536, 65536], blocks: [1000, 1, 1, 1]}", ["differ in length"]),
    ("model.options.blocks=[9999, 1, 1]", ["'blocks'", "from 1 to 1,000"]),
    ("run.validate_every=1e-320", ["'run.validate_every'", "greater than or equal to 0.000001"]),
    ("run.watchdog=1e300", ["'run.watchdog'", "less than or equal to 100000"]),
    ("data.timeout=1e300", ["'data.timeout'", "less than or equal to 1000000"]),
    ("training.lr=1e-300", ["'training.lr'", "numbers from 1e-12 to 1e+12 are accepted"]),
    ("training.lr=.nan", ["'training.lr'", "finite number"]),
    ("training.size=1000000", ["'training.size'", "less than or equal to 16384"]),
    (
        "training={batch: 1000000, frames: 65536, size: 16, steps: 24, lr: 1}",
        ["alone need"],
    ),
    ("training.batch=0x" + "f" * 500, ["the value is not valid YAML"]),
    ("sampling.short_side=[16, 1000000000]", ["'sampling.short_side.1'", "less than or equal to 16384"]),
    ("init=fifo", ["this is a FIFO, not a regular file"]),
    ("init=loop", ["Too many levels of symbolic links"]),
    ("init=empty", ["not the folder of a run"]),
    ("init=nowhere.pt", ["No such file"]),
    ("init=tiny.yaml", ["this is text, not weights"]),
    ('init.path="a\\0b"', ["'init.path'", "no NUL"]),
    ('model.name="\\ud800"', ["'model.name'", "text must be valid in a file name"]),
]


@pytest.mark.parametrize("command", ["plan", "train"])
@pytest.mark.parametrize(("override", "parts"), ODD, ids=[override[:40] for override, _ in ODD])
def test_plan_refuses_what_train_refuses_and_nothing_is_left(vcycle, here, videos, command, override, parts):
    os.mkfifo(here / "fifo")
    (here / "loop").symlink_to("loop")
    (here / "empty").mkdir()
    before = sorted(here.rglob("*"))
    ran = vcycle(command, "tiny.yaml", f"data={videos}", override)
    refused(ran, *parts)
    assert "--resume" not in ran.err
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("command", ["plan", "train", "check", "eval", "export", "predict", "report"])
@pytest.mark.parametrize("name", ["loop", "loop/x", "tiny.yaml/x", "fifo", "a\0b"])
def test_a_path_that_leads_to_no_file_is_refused(vcycle, here, command, name):
    (here / "loop").symlink_to("loop")
    os.mkfifo(here / "fifo")
    more = ["clip.mp4"] if command == "predict" else ["--out", "out.safetensors"] if command == "export" else []
    ran = vcycle(command, name, *more)
    assert ran.code == 2
    assert "error: " in ran.err
    assert "unexpected" not in ran.err


@pytest.mark.parametrize("key", ["data", "data.val", "data.test", "data.root", "init"])
@pytest.mark.parametrize("value", ["loop", "loop/x", "tiny.yaml/x", "fifo", '"a\\0b"', "/dev/zero"])
@pytest.mark.parametrize("command", ["plan", "train"])
def test_so_is_one_of_a_recipe(vcycle, here, videos, command, key, value):
    (here / "loop").symlink_to("loop")
    os.mkfifo(here / "fifo")
    if key in ("data.val", "data.test", "data.root"):
        (here / "all.csv").write_text(f"{videos}/train/left/0.mp4 0\n{videos}/train/right/0.mp4 1\n")
        data = ["data=all.csv", "data.val=all.csv"]
    else:
        data = [f"data={videos}"]
    ran = vcycle(command, "tiny.yaml", *data, f"{key}.path={value}" if key in ("data", "init") else f"{key}={value}")
    if key != "data.root":  # absolute paths in a list do not need it
        assert ran.code == 2
        assert "error: " in ran.err
    assert "unexpected" not in ran.err


def test_a_model_that_this_machine_does_not_hold_is_refused_before_a_run_is_begun(vcycle, here, videos):
    huge = "model.options={widths: [65536, 65536, 65536], blocks: [9, 9, 9]}"  # 27 TB
    ran = vcycle("train", "tiny.yaml", f"data={videos}", huge)
    refused(ran, "its weights and gradients need", "of memory, the machine has")
    assert sorted(path.name for path in here.iterdir()) == ["tiny.yaml"]


def test_memory_that_runs_out_before_the_first_step_leaves_no_folder(vcycle, here, videos, monkeypatch):
    def full(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr("vcycle.train.loop.Loop.run", full)
    ran = vcycle("train", "tiny.yaml", f"data={videos}", "--out", "deep/run", "--json")
    refused(ran, "out of memory: ", "you tried to allocate 9 bytes")
    assert "--resume" not in ran.err
    assert not (here / "deep/run").exists()


def test_a_folder_that_was_there_before_a_refused_start_stays_as_it_was(vcycle, here, videos, monkeypatch):
    (here / "run").mkdir()
    (here / "run/notes.txt").write_text("mine")
    monkeypatch.setattr("vcycle.train.loop.Loop.run", lambda *_: 1 / 0)
    assert vcycle("train", "tiny.yaml", f"data={videos}", "--out", "run").code == 1
    assert [str(path.relative_to(here)) for path in (here / "run").rglob("*")] == ["run/notes.txt"]


def test_deep_metadata_of_an_exported_file_is_an_error_in_one_line(vcycle, here, trained):
    assert vcycle("export", trained[0], "--out", "whole.safetensors").code == 0
    with safetensors.safe_open("whole.safetensors", framework="pt") as file:
        said, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for key in ("classes", "plan", "evaluation", "step", "recipe"):
        for text in ("[" * 100_000, "9" * 10_000, "NaN", "{}"):
            safetensors.torch.save_file(tensors, "odd.safetensors", said | {f"vcycle.{key}": text})
            ran = vcycle("export", "odd.safetensors", "--out", "again.safetensors")
            assert (key, text[:3], ran.code, "unexpected" in ran.err) in [
                (key, text[:3], code, False) for code in (0, 2)
            ]


def test_an_output_file_without_its_option_is_refused_with_the_option(vcycle):
    ran = vcycle("export", "run", "model.safetensors")
    assert ran.code == 2
    assert ran.err == (
        "error: Got unexpected extra argument(s) (model.safetensors): --out names the output (see `vcycle export -h`)\n"
    )
    assert "--out" not in vcycle("plan", "videos/small", "--json", "-").err  # it has no such option


@pytest.mark.parametrize("group", [(), ("plan",), ("bench",)])
def test_a_list_of_commands_has_a_whole_sentence_for_each(vcycle, group):
    lines = vcycle(*group, "-h").out.partition("Commands:")[2].split("\n")
    said = [line for line in lines if line.strip()]
    assert len(said) > 1
    assert [line for line in said if not line.endswith(".") or line.endswith("...")] == []
