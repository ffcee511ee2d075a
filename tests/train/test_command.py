"""The command itself, as a process that is sent signals, and a second one in its folder."""

import os
import select
import signal
import socket
import subprocess
import sys
import time

import pytest

from vcycle.train.run import RunFolder

LONG = (
    *("training.steps=9600", "training.warmup=null", "training.decay=constant", "run.validate_every=1000"),
    *("data.workers=0", "data.cache=24"),
)
FINISHING = "SIGINT: finishing and saving the current step; Ctrl-C again stops at once"


@pytest.fixture
def start(training, children):
    """Starts `vcycle train` in a process group of its own, as a shell does; none is left when the test has ended."""
    started = []

    def start(folder, *options, launcher=()):
        started.append(_started(training, folder, *options, launcher=launcher))
        return started[-1]

    yield start
    for process in started:
        for pid in (*children(process.pid), process.pid) if process.poll() is None else ():
            os.kill(pid, signal.SIGKILL)
        process.wait()


def command(training, folder, *options):
    """The arguments of a training that takes minutes."""
    return "train", str(training.file), f"data={training.recipe.data.path}", *LONG, *options, "--out", str(folder)


def _started(training, folder, *options, launcher):
    return subprocess.Popen(
        [sys.executable, *launcher, "-m", "vcycle", *command(training, folder, *options)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_steps(process, folder, steps):
    """Wait until a run has logged so many steps."""
    log, until = RunFolder(folder).log, time.monotonic() + 100
    while not log.exists() or log.read_bytes().count(b'"event": "step"') < steps:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.02)


def wait_for_message(process, message, signalled=()):
    """Wait until a process tells of the signal that it got.

    One that arrives just before a call blocks is heard when the call returns. A further signal, which is ignored after
    the first, wakes the processes that it was sent to.
    """
    said, until = b"", time.monotonic() + 100
    while message.encode() not in said:
        assert time.monotonic() < until, said
        if select.select([process.stderr], [], [], 0.2)[0]:
            part = os.read(process.stderr.fileno(), 1 << 16)
            assert part, said
            said += part
        else:
            for pid in signalled or (process.pid,):
                os.kill(pid, signal.SIGUSR1)


def ended(process):
    """The exit code, and what was said."""
    try:
        _, said = process.communicate(timeout=100)
    finally:
        process.kill()
    return process.returncode, said


@pytest.mark.timeout(400)
def test_signals_to_the_command_and_a_second_one_in_its_folder(start, training, vcycle, newest, tmp_path):
    folder = tmp_path / "run"
    first = start(folder, "run.save_every=100000")
    wait_for_steps(first, folder, 10)
    first.send_signal(signal.SIGSTOP)  # so that it leaves the processor to the second
    second = vcycle(*command(training, folder, "--resume"))
    assert second.code == 2
    assert f"error: process {first.pid} on {socket.gethostname()} is training in {folder}: wait until" in second.err

    first.send_signal(signal.SIGTERM)
    first.send_signal(signal.SIGCONT)
    code, said = ended(first)
    step = newest(folder).step
    assert code == 143
    assert step >= 10
    assert f"stopped after step {step:,} of" in said
    assert "interrupted by SIGTERM; " in said

    # What it saves next is a pipe that nobody reads: there the first Ctrl-C waits, and the second does not.
    os.mkfifo(RunFolder(folder).checkpoints / f"step-{step + 1:09d}.pt.partial")
    second = start(folder, "run.save_every=1", "--resume")
    wait_for_steps(second, folder, step + 1)
    second.send_signal(signal.SIGINT)
    wait_for_message(second, FINISHING)
    second.send_signal(signal.SIGINT)
    code, said = ended(second)
    assert code == 130
    assert "interrupted; " in said
    assert newest(folder).step == step


def test_ctrl_c_twice_ends_all_processes_of_torchrun_at_once(start, newest, children, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "250")  # a torch that does not know it waits for 30 seconds
    folder = tmp_path / "run"
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    agent = start(folder, "run.save_every=100", launcher=torchrun)
    wait_for_steps(agent, folder, 1)
    # The first process is to wait for the reader of a pipe, the second one for the first.
    os.mkfifo(RunFolder(folder).checkpoints / "step-000000100.pt.partial")
    wait_for_steps(agent, folder, 100)
    ranks = children(agent.pid)
    os.killpg(agent.pid, signal.SIGINT)
    wait_for_message(agent, FINISHING, ranks)
    os.killpg(agent.pid, signal.SIGINT)
    _, said = ended(agent)
    assert len(ranks) >= 2
    assert not any(os.path.exists(f"/proc/{rank}") for rank in ranks)
    assert "forcefully" not in said
    assert newest(folder).step == 0
