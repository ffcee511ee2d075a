"""The script that measures steps on a GPU: what it measures is what the recipes say, and it runs with few libraries."""

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

SINGLE_PROCESS = """
import runpy, sys
from importlib.machinery import PathFinder

MISSING = {"av", "lightning_fabric", "filelock", "matplotlib", "rich", "safetensors", "scipy", "sklearn",
           "torchmetrics", "typer"}

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in MISSING else super().find_spec(name, path, target)

sys.meta_path[:] = [Bare if finder is PathFinder else finder for finder in sys.meta_path]
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script where none of vcycle's dependencies but torch, pydantic and PyYAML can be imported."""


def load(name):
    """A script of the folder as a module."""
    spec = importlib.util.spec_from_file_location(f"gpu_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def plans():
    return load("plans")


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The script, its arguments given; in this process."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["run.py", "--smoke", "--only", "EDVR", "--out", str(tmp_path)])
    return load("run")


def failing(error):
    class Failing:
        def __init__(self, piece, mode, effort):
            raise error

    return Failing


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-c", SINGLE_PROCESS, str(FOLDER / "run.py"), *arguments],
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
    # 50.31 billion multiply-adds a clip (PySlowFast): twice as many operations, and three times that forward and
    # backward, less what the first layer need not hand back.
    assert PIECES[0]["shapes"][0]["gflop"] == pytest.approx(8 * 6 * 50.31, rel=0.03)


def test_it_runs_with_few_libraries_and_goes_on_with_what_is_left(tmp_path):
    piece = next(piece for piece in PIECES if piece["name"] == "I3D R50, 8 frames")
    cells = [[piece["name"], place, mode] for mode in ("eager", "graphs") for place in range(len(piece["shapes"]))]
    left = [[piece["name"], 1, mode] for mode in ("eager", "graphs")]
    took = {"step_ms": {"median": 1.0, "low": 1.0, "high": 1.0}}
    done = [json.dumps({"cell": cell} | took) for cell in cells if cell not in left]
    (tmp_path / "results.jsonl").write_text("\n".join([*done, '{"cell": ["cut sho']) + "\n", encoding="utf-8")
    told = run("--smoke", "--only", "8 frames", "--out", str(tmp_path))
    assert "are left" not in told
    lines = (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()[len(done) + 1 :]
    environment, *found = [json.loads(line) for line in lines]
    assert environment["environment"]["smoke"]
    assert [line["cell"] for line in found] == left
    assert set(found[0]["parts_ms"]) == {"forward", "backward", "optimizer"}
    assert set(found[1]["parts_ms"]) == {"forward and backward", "optimizer"}
    report = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "these figures mean nothing but that everything ran" in report
    (row,) = [line for line in report.splitlines() if line.startswith("| I3D R50, 8 frames | Wu et al., one GPU")]
    reported, work, eager, graphs = (float(cell) for cell in row.strip("| ").split(" | ")[2:])
    assert reported == 3.35
    assert 3 < work < 4
    assert min(eager, graphs) > 0


def test_what_there_is_no_time_for_is_told(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--seconds", "0"])
    script.main()
    assert "4 of 4 are left, and the same command goes on" in capsys.readouterr().out


def cells_of(folder):
    lines = map(json.loads, (folder / "results.jsonl").read_text(encoding="utf-8").splitlines())
    return [line for line in lines if "cell" in line]


def test_one_that_fails_does_not_keep_the_next_from_being_tried(script, monkeypatch, tmp_path):
    monkeypatch.setattr(script, "Stepper", failing(ValueError("no such kernel")))
    script.main()
    assert [line["failed"] for line in cells_of(tmp_path)] == ["ValueError: no such kernel"] * 4


def test_a_device_that_answers_no_more_ends_it_and_the_rest_is_tried_the_next_time(
    script, monkeypatch, tmp_path, capsys
):
    with monkeypatch.context() as broken:
        broken.setattr(script, "Stepper", failing(RuntimeError("CUDA error: an illegal memory access was encountered")))
        broken.setattr(script, "_answers", lambda device: False)
        script.main()
    assert len(cells_of(tmp_path)) == 1
    assert "3 of 4 are left, and the same command goes on" in capsys.readouterr().out
    monkeypatch.setattr(script, "Stepper", failing(ValueError("no such kernel")))
    script.main()
    assert len({tuple(line["cell"]) for line in cells_of(tmp_path)}) == len(cells_of(tmp_path)) == 4


def test_times_of_two_machines_are_not_put_into_one_table(script, tmp_path):
    other = {"environment": {"device": "Some GPU", "torch": "2.11.0", "precision": "bf16", "smoke": False}}
    (tmp_path / "results.jsonl").write_text(json.dumps(other) + "\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"was measured on Some GPU with torch 2\.11\.0, and this is .*--smoke: name"):
        script.main()
