"""`vcycle plan`."""

import csv
import json
import os
import re
from importlib import metadata
from pathlib import Path

import matplotlib
import pytest

KINETICS = "kinetics/slowfast_8x8_r50"

# Wu et al. 2020, section 3.2: base shapes, batches and LRs of the long cycle, sides of the short cycle.
CYCLE = [(8, 158, 512, 8.0), (16, 158, 256, 4.0), (16, 224, 128, 2.0), (32, 224, 64, 1.0)]
SHORT = {158: [112, 158, 158], 224: [112, 158, 224]}


@pytest.fixture
def golden():
    golden = Path(__file__).parents[1] / "golden" / "kinetics_slowfast_8x8_r50.json"
    return json.loads(golden.read_text())


def test_the_golden_schedule_is_printed(vcycle, golden):
    printed = json.loads(vcycle("plan", KINETICS, "--json").out)
    assert [s["steps"] for s in printed["stages"]] == [s["steps"] for s in golden["stages"]]
    shown = [[(c["frames"], c["size"], c["batch"]) for c in s["pattern"]] for s in printed["stages"]]
    assert shown == [[(c["frames"], c["size"], c["batch"]) for c in s["pattern"]] for s in golden["stages"]]


def test_three_long_cycles_and_a_fine_tuning_phase_save_3_43_times_the_steps(vcycle):
    printed = json.loads(vcycle("plan", KINETICS, "--json").out)
    assert printed["steps"] == 261_485
    assert printed["saving"]["steps"] == pytest.approx(3.427, abs=0.005)
    expected = [(t, s, b, 0.1 * x * decay) for decay in (1, 0.1, 0.01) for t, s, b, x in CYCLE]
    expected += [(32, 224, 64, 0.001), (32, 224, 64, 0.0001)]
    bases = [(s["frames"], s["size"], s["batch"], s["lr"]) for s in printed["stages"]]
    assert [b[:3] for b in bases] == [e[:3] for e in expected]
    assert [b[3] for b in bases] == pytest.approx([e[3] for e in expected])
    assert all([c["size"] for c in s["pattern"]] == SHORT[s["size"]] for s in printed["stages"])


def test_json_has_the_promised_fields(vcycle):
    ran = vcycle("plan", KINETICS, "--json")
    assert ran.out.count("\n") == 1
    printed = json.loads(ran.out)
    assert {"steps", "samples", "saving", "stages"} <= printed.keys()
    assert printed["saving"].keys() == {"steps", "work"}
    for stage in printed["stages"]:
        assert {"steps", "frames", "size", "batch", "lr", "pattern"} <= stage.keys()
        assert all(cell.keys() == {"frames", "size", "batch"} for cell in stage["pattern"])
    assert sum(s["steps"] for s in printed["stages"]) == printed["steps"]


def test_work_is_counted_in_flops_of_the_model_on_request(vcycle):
    ran = vcycle("plan", "videos/small", "data.clips=200", "training.size=32", "--flops", "--json")
    printed = json.loads(ran.out)
    assert "work: counted in FLOPs of model 'r3d_small', forward and backward" in ran.err
    cells = [cell for stage in printed["stages"] for cell in stage["pattern"]]
    by_shape = {(cell["frames"], cell["size"]): cell["gflop"] / cell["batch"] for cell in cells}
    full = max(by_shape.values())
    assert all(0 < flops < full for shape, flops in by_shape.items() if flops != full)
    work = sum(stage["steps"] * stage["pattern"][0]["gflop"] for stage in printed["stages"])
    baseline = printed["stages"][-1]["pattern"][0]["gflop"]
    steps = printed["saving"]["steps"] * printed["steps"]
    assert printed["saving"]["work"] == pytest.approx(steps * baseline / work)
    voxels = json.loads(vcycle("plan", "videos/small", "data.clips=200", "training.size=32", "--json").out)
    assert voxels["saving"]["work"] != printed["saving"]["work"]
    assert voxels["fingerprint"] == printed["fingerprint"]


@pytest.mark.parametrize(
    ("recipe", "model", "plan"),
    [
        ("videos/small", "mvit_v2_s", "plans.cascade.shapes=[[1, 1, 0.25], [1, 1]]"),
        ("videos/small", "swin3d_t", "plans.constant.shape=[1, 1, 0.25]"),
        ("images/small", "resnet18", "plans.long+short.long_shapes=[[1, 1, 0.25], [1, 1]]"),
    ],
)
def test_dropping_tokens_of_a_model_that_needs_them_all_is_refused_in_a_line(vcycle, recipe, model, plan):
    name = plan.split(".")[1]
    ran = vcycle(
        "plan", recipe, f"model={model}", "data.clips=2000", plan, f"plan={name}", "plans.cascade.weights=null"
    )
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert f"model {model!r} needs all tokens of a clip, but step 0 keeps 25 % of them; accepted: VideoMAE" in ran.err


def test_a_vision_transformer_of_images_may_drop_tokens(vcycle):
    shapes = "plans.cascade.shapes=[[1, 1, 0.25], [1, 1]]"
    ran = vcycle("plan", "images/small", "model=vit_b_16", "data.clips=2000", "plan=cascade", shapes, "--json")
    assert ran.code == 0, ran.err
    cells = [stage["pattern"][0] for stage in json.loads(ran.out)["stages"]]
    assert [cell.get("tokens", 1) for cell in cells] == [0.25, 1]
    assert cells[0]["batch"] == 4 * cells[1]["batch"]


def test_the_papers_batch_brings_its_learning_rate(vcycle):
    printed = json.loads(vcycle("plan", KINETICS, "training.batch=512", "plan=constant", "--json").out)
    assert printed["stages"][0]["lr"] == pytest.approx(0.8)
    assert printed["stages"][0]["batch"] == 512


def test_the_table_is_whole_when_it_is_piped(vcycle):
    ran = vcycle("plan", KINETICS)
    assert "…" not in ran.out
    assert "cycle 1, T/4·S/√2" in ran.out
    assert "1024 512 512" in ran.out
    assert "3.43× fewer steps" in ran.out


@pytest.mark.parametrize("columns", ["1", "20", "60"])
def test_no_column_is_lost_and_no_number_is_broken_on_a_narrow_terminal(vcycle, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    rows = vcycle("plan", KINETICS).out.splitlines()
    assert ["stage", "steps", "epoch", "frames", "size", "batch", "BN", "LR", "work"] in [row.split() for row in rows]
    assert any({"25,681", "73.05", "512", "16", "0.4", "1.00"} <= set(row.split()) for row in rows)


def test_the_clips_of_a_folder_are_counted_and_not_taken_from_the_recipe(vcycle, videos):
    ran = vcycle("plan", KINETICS, f"data={videos}", "training.batch=4", "plan=constant", "--json")
    assert json.loads(ran.out)["samples"] == 16 * 239
    assert "16 training videos in 2 classes" in ran.err


def test_many_epochs_of_few_clips_are_told_in_a_line_without_the_clips_too(vcycle):
    ran = vcycle("plan", "videos/finetune", "data.clips=17")
    assert ran.code == 0
    assert ran.err.startswith("training.min_steps=1000: the baseline is 470.6 epochs long, each of 17 clips as often, ")
    assert ran.err.count("\n") == 1
    assert vcycle("plan", "videos/finetune", "data.clips=4000").err == ""


def test_a_recipe_without_videos_or_their_number_has_no_plan(vcycle):
    ran = vcycle("plan", "videos/small")
    assert ran.code == 2
    assert "data=FOLDER" in ran.err
    assert "data.clips=" in ran.err


def test_the_picture_is_saved_where_it_is_asked_for(vcycle, here):
    ran = vcycle("plan", "demo/digits", "--figure", "new/plan.png")
    assert ran.code == 0
    assert (here / "new/plan.png").read_bytes().startswith(b"\x89PNG")
    assert "figure: new/plan.png" in ran.err


def test_the_picture_has_the_savings_of_the_table(vcycle, here, monkeypatch):
    """In FLOPs where these are asked for; the SVG keeps its text."""
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    recipe = ("plan", "videos/small", "data.clips=200", "training.size=32", "--figure")
    said = set()
    for name, options in (("voxels.svg", ()), ("flops.svg", ("--flops",))):
        ran = vcycle(*recipe, name, *options)
        (saving,) = re.findall(r"[\d.]+× (?:less|more) work", " ".join(ran.out.split()))
        assert saving in (here / name).read_text()
        said.add(saving)
    assert len(said) == 2


@pytest.mark.parametrize("name", ["plan.nope", "plan", "folder.png", "/proc/nowhere/plan.png"])
def test_a_picture_that_cannot_be_saved_is_named(vcycle, here, name):
    (here / "folder.png").mkdir()
    ran = vcycle("plan", "demo/digits", "--figure", name)
    assert ran.code == 2
    assert ran.err.startswith(f"error: figure {name} cannot be written")
    assert ran.err.count("\n") == 1


def test_every_step_is_a_row_of_a_file(vcycle, here):
    ran = vcycle("plan", "demo/digits", "--steps", "new/steps.csv", "--json")
    assert ran.code == 0
    assert "steps: new/steps.csv" in ran.err
    lines = (here / "new/steps.csv").read_text().splitlines()
    assert lines[0] == "step,epoch,stage,frames,height,width,batch,bn_batch,lr,first_sample,samples"
    assert lines[1] == "0,0.0,T·S/2,12,24,24,20,8,0.002,0,20"
    rows = list(csv.DictReader(lines))
    printed = json.loads(ran.out)
    assert [int(row["step"]) for row in rows] == list(range(printed["steps"]))
    assert int(rows[-1]["samples"]) == sum(int(row["batch"]) for row in rows) == printed["samples"]
    assert [path.name for path in (here / "new").iterdir()] == ["steps.csv"]


def test_rows_may_be_printed_and_have_the_lr_of_each_role(vcycle):
    ran = vcycle("plan", "reds/basicvsr_m", "training.steps=60", "training.warmup=null", "--steps", "-")
    assert ran.code == 0
    rows = list(csv.DictReader(ran.out.splitlines()))
    assert [row["step"] for row in rows] == [str(step) for step in range(len(rows))]
    assert any(float(row["lr"]) != float(row["lr_flow"]) for row in rows)


@pytest.mark.parametrize("name", ["folder.csv", "pipe.csv", "/proc/nowhere/steps.csv"])
def test_rows_that_cannot_be_written_are_one_line(vcycle, here, name):
    (here / "folder.csv").mkdir()
    os.mkfifo(here / "pipe.csv")
    ran = vcycle("plan", "demo/digits", "--steps", name)
    assert ran.code == 2
    assert ran.err.startswith(f"error: steps {name} cannot be written: ")
    assert ran.err.count("\n") == 1


def test_two_outputs_on_stdout_are_refused(vcycle):
    ran = vcycle("plan", "demo/digits", "--steps", "-", "--json")
    assert ran.code == 2
    assert ran.err == "error: --json and --steps - both print to stdout: give one of them, or a file to --steps\n"


@pytest.mark.parametrize("command", ["plan", "train"])
def test_sharding_on_an_old_pytorch_is_refused_with_its_version(vcycle, videos, here, monkeypatch, command):
    monkeypatch.setattr(metadata, "version", lambda name: "2.9.1+cu126")
    ran = vcycle(command, "tiny.yaml", f"data={videos}", "run.shard=true")
    assert ran.code == 2
    assert ran.err == (
        "error: run.shard is true, but torch 2.9.1+cu126 is installed: torch 2.10 or newer is accepted, or "
        "run.shard=false\n"
    )
    assert not (here / "runs").exists()


def test_a_plan_of_a_run_is_that_of_its_recipe(vcycle, trained):
    run, printed = trained
    assert json.loads(vcycle("plan", run, "--json").out)["fingerprint"] == printed["fingerprint"]


def splits_of_plan(ran):
    """The number of videos that a plan is made for."""
    assert ran.code == 0, ran.err
    return json.loads(ran.out)["samples"]


@pytest.mark.parametrize("names", [("train", "valid"), ("Train", "Val"), ("training", "validation")])
def test_folders_of_splits_of_any_usual_name_are_taken_as_these(vcycle, here, videos, names):
    for split, name in zip(("train", "val"), names, strict=True):
        (here / "set").mkdir(exist_ok=True)
        (here / "set" / name).symlink_to(videos / split)
    usual = vcycle("plan", "tiny.yaml", f"data={videos}", "--json")
    assert splits_of_plan(vcycle("plan", "tiny.yaml", "data=set", "--json")) == splits_of_plan(usual)
    (here / "set" / "validate").symlink_to(videos / "val")
    ran = vcycle("plan", "tiny.yaml", "data=set")
    assert (ran.code, ran.out) == (2, "")
    first, second = sorted([names[1], "validate"])
    assert f"both {first} and {second} are the val split: keep one" in ran.err


def test_a_list_with_a_column_of_splits_needs_no_other(vcycle, here, videos):
    rows = [
        f"{path.relative_to(videos)},{path.parent.name},{path.parts[-3]}" for path in sorted(videos.glob("*/*/*.mp4"))
    ]
    (here / "all.csv").write_text("\n".join(["video_path,label,split", *rows]) + "\n")
    usual = vcycle("plan", "tiny.yaml", f"data={videos}", "--json")
    given = ["plan", "tiny.yaml", "data=all.csv", f"data.root={videos}", "--json"]
    assert splits_of_plan(vcycle(*given)) == splits_of_plan(usual)
    ran = vcycle(*given, "data.val=all.csv")
    assert ran.code == 2
    assert "all.csv names the split of each video in a column, and data.val is given: keep one" in ran.err
    (here / "all.csv").write_text("\n".join(["path,label,split", *[row for row in rows if ",val" not in row]]))
    ran = vcycle(*given)
    assert ran.code == 2
    assert "has a column of splits, and none is val: it has train, test" in ran.err


def test_one_list_of_several_is_told_how_all_are_taken(vcycle, here):
    for split in ("train", "valid"):
        (here / f"{split}.csv").write_text("a.mp4,0\nb.mp4,1\n")
    ran = vcycle("plan", "tiny.yaml", f"data={here / 'train.csv'}")
    assert ran.code == 2
    assert f"data.val=FILE, or name the split of each video in a column split; data={here} takes valid.csv" in ran.err
