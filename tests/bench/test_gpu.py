"""The script that measures steps on a GPU: what it measures is what the recipes say, and it runs with torch alone."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "gpu"
SOURCE = FOLDER.parents[1] / "src"
PIECES = json.loads((FOLDER / "plans.json").read_text(encoding="utf-8"))

ALONE = """
import runpy, sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"av", "lightning_fabric", "matplotlib", "pydantic", "rich", "safetensors",
                                  "scipy", "sklearn", "torchmetrics", "typer", "yaml"}:
            raise ModuleNotFoundError(f"no {name} here", name=name)
sys.meta_path.insert(0, Nothing())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script where none of vcycle's dependencies but torch can be imported."""


@pytest.fixture(scope="module")
def plans():
    spec = importlib.util.spec_from_file_location("gpu_plans", FOLDER / "plans.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-c", ALONE, str(FOLDER / "run.py"), *arguments],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_what_is_measured_is_what_the_recipes_say(plans):
    written = [json.loads(json.dumps(plans.described(name))) for name in plans.PIECES]
    without_work = [
        piece
        | {"shapes": [{key: value for key, value in shape.items() if key != "gflop"} for shape in piece["shapes"]]}
        for piece in PIECES
    ]
    assert written == without_work


def test_every_shape_has_its_work():
    assert all(shape["gflop"] > 1 for piece in PIECES for shape in piece["shapes"])
    # 50.31 billion multiply-adds a clip (PySlowFast), of which a step does three times two for each of its 8 clips.
    assert PIECES[0]["shapes"][0]["gflop"] == pytest.approx(8 * 6 * 50.31, rel=0.01)


def test_it_runs_with_torch_alone_and_goes_on_where_it_stopped(tmp_path):
    smoke = ("--smoke", "--only", "8 frames", "--out", str(tmp_path))
    assert "20 of 20 are left, and the same command goes on" in run(*smoke, "--seconds", "0")
    done = run(*smoke)
    assert "are left" not in done
    assert "graphs" in done
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    cells = [line for line in lines if "cell" in line]
    assert len(cells) == 20
    assert not [line for line in cells if "failed" in line]
    report = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "these figures mean nothing but that everything ran" in report
    (row,) = [line for line in report.splitlines() if line.startswith("| I3D R50, 8 frames | Wu et al., one GPU")]
    reported, work, eager, graphs = (float(cell) for cell in row.strip("| ").split(" | ")[2:])
    assert reported == 3.35
    assert 3 < work < 4
    assert min(eager, graphs) > 0
