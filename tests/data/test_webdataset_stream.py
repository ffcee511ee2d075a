"""The example of a WebDataset stream follows its plan."""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import vcycle

pytest.importorskip("webdataset", reason="pip install webdataset")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's module."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    return importlib.import_module("webdataset_stream")


def test_the_example_trains_at_the_steps_of_its_plan(
    example: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["webdataset_stream.py", "--steps", "24"])
    example.main()
    baseline = vcycle.Baseline(batch=4, frames=8, size=16, clips=48, steps=24, lr=0.1)
    shown = [re.sub(", loss .*", "", line) for line in capsys.readouterr().out.splitlines()]
    steps = vcycle.cascade(baseline)
    assert shown == [f"step {s.index}: {s.batch} clips of {s.shape}, LR {s.lr:.3f}" for s in steps]


def test_names_and_labels_of_the_stream_stay_with_their_clips(example: Any, tmp_path: Path) -> None:
    dataset = example.Clips()
    example.write_shards(tmp_path, dataset)
    plan = vcycle.cascade(vcycle.Baseline(batch=4, frames=10, size=20, clips=len(dataset), steps=24, lr=0.1))
    seen: list[int] = []
    for step, (clips, labels, names) in vcycle.follow(example.stream_of(tmp_path, 5), plan):
        numbers = [int(name) for name in names]
        assert [int(label) for label in labels] == [number % 4 for number in numbers]
        if step.shape == plan.baseline_shape:
            assert torch.equal(clips, torch.stack([dataset[number][0] for number in numbers]))
        seen += numbers
    assert len(seen) == plan.samples
    assert sorted(seen[:48]) == list(range(48))
