"""Steps measured in several precisions, plain and compiled, side by side."""

import json
import re

import pytest
import torch
from rich.console import Console

from vcycle.cli.app import app
from vcycle.errors import VcycleError
from vcycle.report.variants import variants_table

SMALL = ["training.size=16", "training.frames=4", "training.batch=4", "run.device=cpu"]
BENCH = ["bench", "demo/digits", *SMALL, "--plans", "constant"]
QUICK = ["--repeats", "1", "--seconds", "0"]


def test_precisions_are_measured_side_by_side_and_what_cannot_be_is_told(capsys, monkeypatch):
    monkeypatch.setattr("vcycle.train.accelerator.conv3d_is_sound", lambda device, dtype: dtype == torch.float16)
    app([*BENCH, *QUICK, "--precision", "fp32, bf16, fp16", "--json"], standalone_mode=False)
    told = capsys.readouterr()
    assert "skipped: run.precision is bf16" in told.err
    assert told.err.count("run.precision is fp16, which a CPU computes many times slower") == 1
    ways = json.loads(told.out)["ways"]
    assert [(way["precision"], way["compiled"]) for way in ways] == [("fp32", False), ("fp16", False)]
    ways.append(ways[0] | {"compiled": True})
    console = Console(width=200, record=True)
    console.print(variants_table(ways))
    shown = re.sub(" {2,}", "  ", console.export_text())
    for words in ("fp32, ms", "fp16, ms", "fp32, compiled, ms", "4×4×16²  4"):
        assert words in shown


def test_a_machine_that_can_do_none_of_it_says_why(monkeypatch):
    monkeypatch.setattr("vcycle.train.accelerator.conv3d_is_sound", lambda device, dtype: False)
    with pytest.raises(VcycleError, match=r"run\.precision is fp16"):
        app([*BENCH, *QUICK, "--precision", "bf16,fp16"], standalone_mode=False)


def test_a_picture_is_of_one_way(tmp_path):
    with pytest.raises(VcycleError, match="--figure cannot be combined with --precision or --compile"):
        app([*BENCH, "--compile", "--figure", str(tmp_path / "steps.png")], standalone_mode=False)
