"""The page of published results and the recipes against a copy of what the two papers print.

`tests/facts/published.json` has every cell of the papers' tables as it is printed, and the settings of their
experiments as numbers (Wu et al. 2020, sections 4 to 7; Lin et al. 2022, "Implementation Details" and tables 1 to 4).
`null` is what a paper does not state. Nothing in it comes from a recipe or a plan.
"""

import json
import re
import shlex
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from torch import nn

from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.init_weights import build_model
from vcycle.tasks.recognition.recipe import RecognitionRecipe
from vcycle.tasks.recognition.task import RECOGNITION
from vcycle.tasks.superres.task import SUPERRESOLUTION

ROOT = Path(__file__).parents[2]
FACTS = json.loads((ROOT / "tests" / "facts" / "published.json").read_text(encoding="utf-8"))
TABLES, WU, LIN = FACTS["tables"], FACTS["wu_settings"], FACTS["lin_settings"]

RECIPES = {
    "SlowFast, Kinetics": "kinetics/slowfast_8x8_r50",
    "I3D, Kinetics": "kinetics/i3d_r50",
    "I3D, one GPU": "kinetics/i3d_r50_one_gpu",
    "SlowFast, SSv2": "ssv2/slowfast_16x8_r50",
    "SlowFast, Charades": "charades/slowfast_16x8_r50",
}
SAME = {
    "kinetics/slowfast_8x8_r50_pretrained": "SlowFast, Kinetics",
    "kinetics/slowfast_8x8_r50_t16": "SlowFast, Kinetics",
    "kinetics/slowfast_8x8_r50_t64": "SlowFast, Kinetics",
    "kinetics/slowfast_8x8_r50_320": "SlowFast, Kinetics",
    "kinetics/i3d_nl_r50": "I3D, Kinetics",
}
"""Recipes of other rows, and the experiment whose schedule they have."""
SCHEDULES = {recipe: name for name, recipe in RECIPES.items() if WU[name]["batch"]} | SAME

RESTORED = {
    "BasicVSR-M, REDS": "reds/basicvsr_m",
    "BasicVSR, REDS": "reds/basicvsr",
    "EDVR-M, REDS": "reds/edvr_m",
    "BasicVSR, Vimeo-90K": "vimeo90k/basicvsr",
    "EDVR-M, Vimeo-90K": "vimeo90k/edvr_m",
}


def planned(recipe, *overrides, plan=None):
    """A recipe's plan, as `vcycle plan` makes it."""
    loaded = load_recipe(recipe, list(overrides))
    make = RECOGNITION.plan if isinstance(loaded, RecognitionRecipe) else SUPERRESOLUTION.plan
    return make(loaded, None, plan)


# The page ---------------------------------------------------------------------------------------------------------

UNSTATED, NOTHING = "not stated", "–"


class Section:
    """What the page has under one heading: its table, and the commands of its first block."""

    def __init__(self, text):
        rows = [
            [cell.strip() for cell in line.strip().strip("|").split("|")]
            for line in text.splitlines()
            if line.startswith("|")
        ]
        self.head = rows[0][1:] if rows else []
        self.rows = {row[0]: row[1:] for row in rows[2:]}
        self.repeated = len(self.rows) != len(rows[2:])
        block = re.search(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        self.commands = [shlex.split(line)[2:] for line in block[1].splitlines()] if block else []


PAGE = {
    title.partition(":")[0]: Section(text)
    for title, _, text in (
        part.partition("\n")
        for part in re.split(
            r"^#{2,3} ", (ROOT / "docs" / "published.md").read_text(encoding="utf-8"), flags=re.MULTILINE
        )
    )
}


def shown(column, printed):
    """A cell of a paper as the page has it."""
    if printed is None:
        return UNSTATED
    return f"{printed}×" if column == "speedup" and printed != NOTHING else printed


def test_the_page_has_the_tables_of_the_papers_and_no_others():
    settings = {"Wu et al., settings", "Lin et al., settings"}
    assert {name for name, section in PAGE.items() if section.rows} == {*TABLES, *settings}
    assert not any(section.repeated for section in PAGE.values())


@pytest.mark.parametrize("name", TABLES)
def test_each_cell_of_the_page_is_the_papers(name):
    facts, section = TABLES[name], PAGE[name]
    columns = len(facts["columns"])
    assert section.head[:columns] == facts["columns"]
    assert section.head[columns:] == (["nearest recipe"] if name == "Public code" else [])
    assert {row: cells[:columns] for row, cells in section.rows.items()} == {
        row: [shown(*cell) for cell in zip(facts["columns"], cells, strict=True)]
        for row, cells in facts["rows"].items()
    }


WU_ROWS = {
    "section": "section",
    "GPUs": "gpus",
    "clips per GPU": "clips_per_gpu",
    "batch": "batch",
    "frames": "frames",
    "stride": "stride",
    "crop": "crop",
    "short side in training": "short_side",
    "dropout": "dropout",
    "steps": "steps",
    "LR": "lr",
    "LR ÷ 10 at step": "drops",
    "warm-up steps": "warmup_steps",
    "warm-up from LR": "warmup_start",
    "weight decay": "weight_decay",
    "momentum": "momentum",
    "test clips": "test_clips",
    "test crop": "test_crop",
}
LIN_ROWS = {
    "baseline batch": "baseline_batch",
    "large batch": "batch",
    "baseline LR": "baseline_lr",
    "LR": "lr",
    "LR of the first stage": "first_lr",
    "baseline steps": "baseline_steps",
    "steps": "steps",
    "warm-up steps": "warmup_steps",
    "sizes": "sizes",
    "frames": "frames",
    "stages": "stages",
}


def said(cell):
    """The number or numbers that a cell of settings says; None for what is not stated, and else its words."""
    words = {UNSTATED: None, "off": 0}
    if cell in words:
        return words[cell]
    numbers = re.fullmatch(r"[\d,.e-]+(?:(?:, | to )[\d,.e-]+)*", cell)
    if numbers is None:
        return cell
    values = [float(number.replace(",", "")) for number in re.split(r", | to ", cell)]
    return values if len(values) > 1 else values[0]


@pytest.mark.parametrize(("name", "facts", "rows"), [("Wu et al.", WU, WU_ROWS), ("Lin et al.", LIN, LIN_ROWS)])
def test_each_setting_on_the_page_is_the_papers(name, facts, rows):
    section = PAGE[f"{name}, settings"]
    assert section.head == list(facts)
    assert list(section.rows) == list(rows)
    for label, key in rows.items():
        for cell, settings in zip(section.rows[label], facts.values(), strict=True):
            stated = settings[key]
            if key == "warmup_steps" and stated == 0:
                assert cell == "none"
            elif key == "section":
                assert cell == stated
            else:
                assert said(cell) == stated, label
    assert {key for settings in facts.values() for key in settings} == set(rows.values())


# The commands of each row -----------------------------------------------------------------------------------------

OF_ROWS = [name for name in TABLES if name not in ("Wu et al., figures and text", "Public code")]


def commands_of(name):
    """Rows of a table that are trained here, each with its command."""
    rows = [row for row in TABLES[name]["rows"] if "original paper" not in row]
    return dict(zip(rows, PAGE[name].commands, strict=True))


@pytest.mark.parametrize("name", OF_ROWS)
def test_each_row_has_a_command_that_plans_it(name):
    plans = {row: planned(*command) for row, command in commands_of(name).items()}
    for row, plan in plans.items():
        if "baseline" in row.lower() and name.startswith("Wu et al."):
            assert plan.shapes == (plan.baseline_shape,)
        facts = dict(zip(TABLES[name]["columns"], TABLES[name]["rows"][row], strict=True))
        if "batch" in facts:
            assert {stage.base.batch for stage in plan.stages} == {int(facts["batch"])}
        if "LR" in facts:
            assert plan.baseline.peak_lr == pytest.approx(float(facts["LR"]))
        if "iterations" in facts:
            assert len(plan) == int(facts["iterations"].replace("k", "000"))


@pytest.mark.parametrize("table", ["1a", "1b"])
def test_every_row_of_table_1_runs_the_default_plans_iterations(table):
    plans = [planned(*command) for command in commands_of(f"Wu et al., table {table}").values()]
    assert {len(plan) for plan in plans[1:]} == {len(plans[-1])} == {261_485}
    assert {plan.stages[-1].name for plan in plans[1:]} == {"fine-tuning 2"}
    at_512 = planned("kinetics/slowfast_8x8_r50", "training.batch=512")
    assert len(at_512) == 32_686
    # The long cycle's shapes and the short cycle's, coarse ones first to go.
    shapes = [(len({s.base.shape for s in p.stages}), len({c.size for c in p.stages[0].pattern})) for p in plans[1:]]
    last = [len({c.size for c in plan.stages[-1].pattern}) for plan in plans[1:]]
    assert ([long for long, _ in shapes], last) == {
        "1a": ([1, 2, 3, 4], [3, 3, 3, 3]),
        "1b": ([4, 4, 4], [1, 2, 3]),
    }[table]


@pytest.mark.parametrize("table", ["3", "5", "6"])
def test_a_shortened_baseline_saves_the_iterations_that_its_row_is_named_by(table):
    commands = commands_of(f"Wu et al., table {table}")
    saved = {row: planned(*command).saving().steps for row, command in commands.items()}
    multigrid = [factor for row, factor in saved.items() if "ultigrid" in row]
    shortened = {row: factor for row, factor in saved.items() if "1/" in row}
    assert multigrid
    for (row, factor), own in zip(shortened.items(), multigrid, strict=True):
        assert f"{factor:.1f}" == row.partition("1/")[2]
        assert factor == pytest.approx(own, rel=1e-3)


def test_a_row_of_multigrid_is_as_long_in_epochs_as_it_is_named():
    for table in ("5", "6"):
        for row, command in commands_of(f"Wu et al., table {table}").items():
            if row.startswith("Multigrid"):
                plan = planned(*command)
                factor = float(row.split()[1].rstrip("×"))
                assert plan.samples / (plan.baseline.total_steps * plan.baseline.batch) == pytest.approx(
                    factor, rel=1e-3
                )


@pytest.mark.parametrize("table", ["5a", "5b", "6a", "6b"])
def test_a_row_of_super_resolution_has_the_stages_that_it_is_named_by(table):
    for row, command in commands_of(f"Lin et al., table {table}").items():
        named = [[int(number) for number in re.findall(r"\d+", stage)] for stage in row.split("/")]
        plan = planned(*command)
        full = {"5a": lambda size: [size, 15], "5b": lambda frames: [64, frames]}.get(table)
        assert [[s.base.size, s.base.frames] for s in plan.stages] == [full(*n) if full else n for n in named]
        assert len(plan) == 75_000
        assert max(s.steps for s in plan.stages) - min(s.steps for s in plan.stages) <= 1


def test_the_default_synchronous_plan_is_a_row_of_the_paper_for_every_recipe_with_frames():
    first = next(iter(TABLES["Lin et al., table 6a"]["rows"]))
    for recipe in ("reds/basicvsr_m", "reds/basicvsr"):
        plan = planned(recipe, plan="synchronous")
        assert " / ".join(f"{s.base.size}&{s.base.frames}" for s in plan.stages) == first


# The recipes ------------------------------------------------------------------------------------------------------


def lr_stages(plan):
    """Where each LR stage ends, in steps, and its LR."""
    return list(zip(accumulate(s.steps for s in plan.stages), (s.rate.at(0) for s in plan.stages), strict=True))


@pytest.mark.parametrize("recipe", SCHEDULES)
def test_a_baseline_is_the_papers_at_its_batch(recipe):
    facts = WU[SCHEDULES[recipe]]
    plan = planned(recipe, f"training.batch={facts['batch']}", plan="constant")
    assert (plan.baseline.batch, len(plan)) == (facts["batch"], facts["steps"])
    assert facts["gpus"] * facts["clips_per_gpu"] == facts["batch"]
    found = lr_stages(plan)
    assert [end for end, _ in found] == [*facts["drops"], facts["steps"]]
    assert [lr for _, lr in found] == pytest.approx([facts["lr"] * 0.1**k for k in range(len(facts["drops"]) + 1)])
    if facts["warmup_steps"] is None:  # "as Kinetics", its length not stated
        assert plan.baseline.warmup is not None
    elif facts["warmup_steps"] == 0:
        assert plan.baseline.warmup is None
    else:
        steps = facts["warmup_steps"]
        assert plan.warmup_samples == pytest.approx(steps * facts["batch"])
        assert [plan[k].lr for k in (0, steps // 2, steps)] == pytest.approx(
            [facts["warmup_start"], (facts["warmup_start"] + facts["lr"]) / 2, facts["lr"]]
        )


@pytest.mark.parametrize("recipe", SCHEDULES)
def test_a_recipes_own_batch_has_the_same_samples_and_the_lr_of_linear_scaling(recipe):
    facts, plan = WU[SCHEDULES[recipe]], planned(recipe, plan="constant")
    times = facts["batch"] // plan.baseline.batch
    assert plan.samples == facts["steps"] * facts["batch"]
    assert [end for end, _ in lr_stages(plan)] == [times * n for n in (*facts["drops"], facts["steps"])]
    assert plan.baseline.peak_lr == pytest.approx(facts["lr"] / times)
    if facts["warmup_steps"]:
        assert plan.warmup_samples == pytest.approx(facts["warmup_steps"] * facts["batch"])
        assert plan[0].lr == pytest.approx(facts["warmup_start"] / times)


# What the iterations of Wu et al. come to at 1.5 times the epochs: the factors that the paper prints.
@pytest.mark.parametrize(
    ("recipe", "overrides", "steps", "saving"),
    [
        ("kinetics/slowfast_8x8_r50", ["training.batch=512"], 32_686, 3.4),
        ("kinetics/i3d_r50", ["training.batch=256"], 30_638, 3.3),
        ("kinetics/i3d_nl_r50", ["training.batch=256"], 30_638, 3.3),
        ("kinetics/i3d_r50_one_gpu", [], 347_453, None),
        ("ssv2/slowfast_16x8_r50", [], 66_915, 3.4),
    ],
)
def test_multigrid_takes_as_many_iterations_less_as_the_paper_prints(recipe, overrides, steps, saving):
    plan = planned(recipe, *overrides)
    assert len(plan) == steps
    assert saving is None or round(plan.saving().steps, 1) == saving


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_states_the_papers_settings(name):
    facts, recipe = WU[name], load_recipe(RECIPES[name])
    sampling, optimizer = recipe.sampling, recipe.optimizer
    assert recipe.training.frames == facts["frames"]
    assert sampling.stride == facts["stride"] or facts["stride"] is None
    for key, found in (
        ("crop", recipe.training.size),
        ("weight_decay", optimizer.weight_decay),
        ("momentum", optimizer.momentum),
        ("test_clips", recipe.evaluation.clips),
        ("test_crop", recipe.evaluation.size or recipe.training.size),
    ):
        assert found == facts[key] or facts[key] is None, key
    if facts["short_side"] == "no random scaling":
        assert sampling.short_side[0] == sampling.short_side[1]
    elif facts["short_side"] is not None:
        assert list(sampling.short_side) == facts["short_side"]
    if facts["dropout"] is not None:
        with torch.device("meta"):
            model = build_model(recipe, 400)
        assert {layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)} == {facts["dropout"]}


def test_the_rows_of_table_2_differ_in_what_they_are_named_by():
    usual = load_recipe("kinetics/slowfast_8x8_r50").model_dump(exclude={"description"})

    def differing(name):
        own = load_recipe(f"kinetics/slowfast_8x8_r50_{name}").model_dump(exclude={"description"})
        return {
            f"{section}.{key}": value
            for section, values in own.items()
            if isinstance(values, dict)
            for key, value in values.items()
            if value != usual[section][key]
        }

    assert differing("pretrained") == {"init.head": "new", "init.needed": True}
    # Strides of 2b and the short side in training of 2c are not stated.
    assert differing("t16") == {"training.frames": 16, "model.options": {"alpha": 2}, "sampling.stride": 4}
    assert differing("t64") == {"training.frames": 64, "model.name": "slowfast_16x8_r50"}
    large = differing("320")
    assert large.pop("sampling.short_side") == (366, 486)
    assert large == {"training.size": 320, "evaluation.short_side": 352}


@pytest.mark.parametrize("name", RESTORED)
def test_a_recipe_of_super_resolution_is_the_papers(name):
    facts, recipe = LIN[name], RESTORED[name]
    plan, large, baseline = (planned(recipe, plan=plan) for plan in (None, "constant", "baseline"))
    assert len(plan.stages) == facts["stages"]
    assert list(dict.fromkeys(s.base.size for s in plan.stages)) == facts["sizes"]
    assert facts["frames"] is None or list(dict.fromkeys(s.base.frames for s in plan.stages)) == facts["frames"]
    for key, found in (
        ("batch", plan.baseline.batch),
        ("baseline_batch", baseline.baseline.batch),
        ("steps", len(plan)),
        ("baseline_steps", len(baseline)),
        ("warmup_steps", large.baseline.warmup.steps),
    ):
        assert found == facts[key] or facts[key] is None, key
    for key, found in (
        ("lr", large.baseline.peak_lr),
        ("baseline_lr", baseline.baseline.peak_lr),
        ("first_lr", plan.stages[0].rate.at(0)),
    ):
        assert facts[key] is None or found == pytest.approx(facts[key]), key
    assert max(s.steps for s in plan.stages) - min(s.steps for s in plan.stages) <= 1
