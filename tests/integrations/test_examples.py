"""Every script in examples/ runs as it is, in this process, and those of the same training end with the same loss."""

import runpy
import shutil
import socket
import sys
from pathlib import Path

import pytest

from vcycle.cli.app import app
from vcycle.console import process

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "clips")
OPTIONAL = {"accelerate", "lightning", "torchcodec", "transformers", "webdataset"}
"""What the extra `examples` installs."""
SAME = {"accelerate_loop", "fabric_loop", "fsdp2_loop", "lightning_trainer"}
"""Examples of the training in plain.py."""
SHOWN = "step 18: 4 clips of 8×16×16, LR 0.100, loss "


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run an example with arguments: what it printed."""

    def run(name, *arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(EXAMPLES)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        try:
            runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        except ModuleNotFoundError as error:
            if error.name in OPTIONAL:
                pytest.skip(f"{error.name} is not installed: pip install 'vcycle[examples]'")
            raise
        return capsys.readouterr().out

    yield run
    sys.modules.pop("clips", None)


@pytest.fixture
def one_rank(monkeypatch):
    """The environment that torchrun gives a single process."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_runs(name, run, request):
    if name == "fsdp2_loop":
        request.getfixturevalue("one_rank")
    *_, last = run(name).splitlines()
    assert last
    if name in SAME:
        *_, plain = run("plain").splitlines()
        assert plain.startswith(SHOWN)
        assert last == (plain if name != "lightning_trainer" else f"19 steps, loss {plain.removeprefix(SHOWN)}")


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_is_short(script):
    assert len((EXAMPLES / f"{script}.py").read_text().splitlines()) < 60


def test_a_recipe_names_a_network_of_ones_own(digit_videos, own_models, monkeypatch, tmp_path, capsys):
    shutil.copytree(EXAMPLES / "own_model_recipe", tmp_path / "own")
    monkeypatch.chdir(tmp_path / "own")
    assert process.run(app, ["train", "recipe.yaml", f"data={digit_videos}", "--out", "run"]) == 0
    assert process.run(app, ["eval", "run"]) == 0
    assert process.run(app, ["plan", "recipe.yaml", f"data={digit_videos}", "model.needs.min_frames=9"]) == 2
    assert "model 'nets:Drift' cannot take the shape" in capsys.readouterr().err
