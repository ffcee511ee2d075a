"""The commands as processes: they start at once, and end as a shell expects."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import vcycle

HEAVY = ("torch", "torchvision", "lightning_fabric", "av", "scipy", "sklearn", "matplotlib", "filelock", "safetensors")

LISTS_MODULES = """
import contextlib, io, json, sys
from vcycle.cli import app
from vcycle.console import process
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = process.run(app.app, arguments)
    print(json.dumps([code, [name for name in sys.modules if "." not in name]]))
"""


# Where the package lies, so that it is found from any folder.
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(vcycle.__file__).parents[1])}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)


def test_help_recipes_and_plans_need_neither_torch_nor_a_decoder(videos):
    commands = [
        ["--help"],
        ["--version"],
        ["recipes"],
        ["recipes", "show", "demo/digits"],
        ["plan", "kinetics/slowfast_8x8_r50"],
        ["plan", "demo/digits", "--json"],
        ["plan", "reds/edvr_m"],
        ["plan", "videos/small", f"data={videos}"],
        ["train", "--help"],
    ]
    ended = python("-c", LISTS_MODULES, json.dumps(commands))
    assert ended.stdout.count("\n") == len(commands), ended.stderr
    for command, line in zip(commands, ended.stdout.splitlines(), strict=True):
        code, modules = json.loads(line)
        assert (command, code, set(HEAVY) & set(modules)) == (command, 0, set())


def test_the_module_runs_as_the_command_does():
    ended = python("-m", "vcycle", "plan", "kinetics/slowfast_8x8_r50", "--json")
    assert ended.returncode == 0
    assert json.loads(ended.stdout)["steps"] == 261_485
    assert ended.stderr == ""


def test_an_error_is_one_line_on_standard_error_and_exit_code_2():
    ended = python("-m", "vcycle", "plan", "nothing/here")
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("error: no recipe 'nothing/here'")


def test_a_reader_that_leaves_early_causes_no_complaint():
    script = f"({sys.executable} -m vcycle plan demo/digits; echo code $? >&2) | true"
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert ended.stderr.splitlines() in (["code 0"], ["code 1"])


def test_a_full_disk_under_standard_output_is_an_error_in_one_line():
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "vcycle", "plan", "kinetics/slowfast_8x8_r50"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=ENVIRONMENT,
        )
    assert ended.returncode == 2
    assert ended.stderr == "error: No space left on device\n"


def test_ctrl_c_in_training_saves_says_how_to_go_on_and_ends_with_130(videos, here, wait_until):
    options = [f"data={videos}", "training.steps=4000", "training.decay=constant", "data.workers=1", "--out", "runs/x"]
    command = [sys.executable, "-m", "vcycle", "train", "tiny.yaml", *options]
    # In a group of its own, so that the workers are interrupted too, as a terminal does it.
    training = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        env=ENVIRONMENT,
    )
    log = here / "runs/x/log.jsonl"
    try:
        wait_until(lambda: training.poll() is not None or (log.exists() and '"step"' in log.read_text()))
        os.killpg(training.pid, signal.SIGINT)
        _, err = training.communicate()
    finally:
        if training.poll() is None:
            os.killpg(training.pid, signal.SIGKILL)
    assert training.returncode == 130, err
    assert "SIGINT: finishing and saving the current step; Ctrl-C again stops at once" in err or "stopped after" in err
    assert err.splitlines()[-1] == "interrupted; resume with `vcycle train runs/x --resume`"
    assert "Traceback" not in err
    (newest, *_) = sorted((here / "runs/x/checkpoints").glob("*.pt"), reverse=True)
    assert sum('"event": "step"' in line for line in log.read_text().splitlines()) == int(newest.stem[5:]) > 0
