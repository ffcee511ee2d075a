"""Preparations in real processes, killed and gone on with."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import vcycle
from vcycle.data import PrepareSettings, check_videos, load_index, prepare_videos, read_videos

pytestmark = pytest.mark.usefixtures("fresh_interpreters")

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(vcycle.__file__).parents[1])}

SCRIPT = """
import os, resource, signal, sys
from pathlib import Path
from vcycle.data import PrepareSettings, prepare_videos, read_videos
root, out, to, limit, stops = sys.argv[1:]
if limit != "0":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
def progress(what, done, total):
    global stops
    if stops == "True" and what.startswith("preparing"):
        stops = "no more"
        os.kill(os.getpid(), signal.SIGSTOP)
splits = {split: read_videos(Path(root), split) for split in ("train", "val")}
try:
    prepare_videos(splits, Path(out), PrepareSettings(to=to, levels=(16, 24)), workers=2, progress=progress)
except Exception as error:
    print(error)
"""


def start(root, out, to, limit=0, stops=False):
    command = [sys.executable, "-c", SCRIPT, str(root), str(out), to, str(limit), str(stops)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)


def start_and_stop(root, out):
    """A preparation that is stopped at its first file, as by Ctrl-Z: however late one comes, it is still there."""
    process = start(root, out, "video", stops=True)
    assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
    return process


def ends(process):
    out, _ = process.communicate()
    assert process.returncode == 0
    return out


def content(folder):
    wanted = [*folder.glob("*px/**/*.*"), folder / "index.npz"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in wanted if path.is_file()}


def lines(journal):
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def is_running(pid):
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("to", ["video", "array"])
def test_three_kills_and_a_rerun_give_the_bytes_of_one_run(digit_videos, tmp_path, to, children, wait_until):
    ends(start(digit_videos, tmp_path / "whole", to))
    out = tmp_path / "killed"
    total = lines(tmp_path / "whole/journal.jsonl")
    draw = random.Random(7)
    for share in (0.1, 0.4, 0.7):
        process = start(digit_videos, out, to)
        until = total * share + draw.randrange(4)
        wait_until(
            lambda until=until, process=process: lines(out / "journal.jsonl") >= until or process.poll() == 0,
            every=0.002,
        )
        time.sleep(draw.random() * 0.02)  # in the middle of a file
        workers = children(process.pid)
        process.kill()
        process.communicate()
        wait_until(lambda workers=workers: not any(map(is_running, workers)))
    assert ends(start(digit_videos, out, to)) == ""
    assert content(out) == content(tmp_path / "whole")
    assert not list(out.rglob("*.partial"))


def test_two_processes_do_not_write_to_one_folder(digit_videos, tmp_path):
    first = start_and_stop(digit_videos, tmp_path / "out")
    assert f"process {first.pid} on {socket.gethostname()} is writing to it" in ends(
        start(digit_videos, tmp_path / "out", "video")
    )
    first.send_signal(signal.SIGCONT)
    assert ends(first) == ""


@pytest.mark.parametrize("to", ["video", "array"])
def test_a_disk_that_is_full_ends_the_work_in_one_line_and_loses_nothing(digit_videos, tmp_path, to):
    # A limit on the size of files stands for a disk that is full.
    limit = 2500 if to == "video" else 100_000
    said = ends(start(digit_videos, tmp_path / "out", to, limit))
    assert said.count("\n") == 1
    assert "File too large" in said
    assert not (tmp_path / "out/index.npz").exists()
    assert ends(start(digit_videos, tmp_path / "out", to)) == ""
    assert len(load_index(tmp_path / "out")) == 32


WITH_A_DECODER_THAT = """
import os, signal, time
import vcycle.data.video as video

probe = video.probe

def strange(path, **options):
    if path.endswith("crash.mp4"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if path.endswith("hang.mp4"):
        time.sleep(1000)
    return probe(path)

video.probe = strange
"""


@pytest.fixture
def strange_videos(tmp_path, monkeypatch, write_video):
    """Videos of which one kills its decoder's process and one never comes back."""
    for name in ("a", "crash", "hang", "z"):
        write_video(tmp_path / f"set/run/{name}.mp4", 6)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(WITH_A_DECODER_THAT)
    monkeypatch.syspath_prepend(tmp_path / "site")
    return {"train": read_videos(tmp_path / "set", "train", val_fraction=0)}


CAUSES = {
    "crash.mp4": "its decoder killed the process (signal 11)",
    "hang.mp4": "its decoder made no progress for 2 s and was stopped",
}


def test_a_decoder_that_crashes_or_hangs_costs_its_file_alone(strange_videos, tmp_path):
    report = prepare_videos(strange_videos, tmp_path / "out", PrepareSettings(levels=(24,)), patience=2)
    assert {Path(path).name: cause for path, cause in report.failed.items()} == CAUSES
    assert len(load_index(tmp_path / "out").videos("train")) == 2
    assert not list(tmp_path.rglob("*.partial"))


def test_a_check_survives_such_a_decoder(strange_videos):
    report = check_videos(strange_videos, patience=2)
    assert {Path(path).name: cause for path, cause in report.bad.items()} == CAUSES


def test_an_interrupt_leaves_no_process_behind(digit_videos, tmp_path, children, wait_until):
    process = start_and_stop(digit_videos, tmp_path / "out")
    workers = children(process.pid)
    assert workers
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    process.communicate()
    wait_until(lambda: not any(map(is_running, workers)))
