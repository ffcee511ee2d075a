"""The command itself, as a process that is sent signals, and a second one in its folder."""

import contextlib
import os
import signal
import socket
import time
from pathlib import Path

import pytest
from torch.distributed.run import main as torchrun

from vcycle.train.run import RunFolder

LONG = (
    *("training.steps=9600", "training.warmup=null", "training.decay=constant", "run.validate_every=1000"),
    *("data.workers=0", "data.cache=24"),
)
FINISHING = "SIGINT: finishing and saving the current step; Ctrl-C again stops at once"


def command(training, folder, *options):
    """The arguments of a training that takes minutes."""
    return "train", str(training.file), f"data={training.recipe.data.path}", *LONG, *options, "--out", str(folder)


def wake(pids):
    """Let processes hear of a signal that arrived just before a call blocked, which they do when the call returns.

    A further signal interrupts it, and is ignored after the first.
    """
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)


def lives(pid):
    """Whether a process is there, and not just its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def wait_for_message(wait_until):
    """Waits until a process tells of the signal that it got."""

    def wait(started, message, signalled):
        def told():
            assert started.process.is_alive(), started.errors.read_text()
            return message in started.errors.read_text()

        wait_until(told, started.errors.read_text, meanwhile=lambda: wake(signalled), every=0.2)

    return wait


@pytest.fixture
def ended(wait_until):
    """Waits until a process has ended: its exit code, and what it said."""

    def wait(started, signalled=()):
        wait_until(
            lambda: not started.process.is_alive(),
            started.errors.read_text,
            meanwhile=lambda: wake(signalled),
            every=1.0,
        )
        return started.process.exitcode, started.errors.read_text()

    return wait


@pytest.mark.forked
def test_signals_to_the_command_and_a_second_one_in_its_folder(
    vcycle_beside, training, vcycle, newest, wait_for_steps, wait_for_message, ended, tmp_path
):
    folder = tmp_path / "run"
    first = vcycle_beside(*command(training, folder, "run.save_every=100000"))
    wait_for_steps(first.process, folder, 10, first.errors.read_text)
    os.kill(first.process.pid, signal.SIGSTOP)  # so that it leaves the processor to the second
    second = vcycle(*command(training, folder, "--resume"))
    assert second.code == 2
    assert (
        f"error: process {first.process.pid} on {socket.gethostname()} is training in {folder}: wait until"
        in second.err
    )

    os.kill(first.process.pid, signal.SIGTERM)
    os.kill(first.process.pid, signal.SIGCONT)
    code, said = ended(first)
    step = newest(folder).step
    assert code == 143
    assert step >= 10
    assert f"stopped after step {step:,} of" in said
    assert "interrupted by SIGTERM; " in said

    # What it saves next is a pipe that nobody reads: there the first Ctrl-C waits, and the second does not.
    os.mkfifo(RunFolder(folder).checkpoints / f"step-{step + 1:09d}.pt.partial")
    second = vcycle_beside(*command(training, folder, "run.save_every=1", "--resume"))
    wait_for_steps(second.process, folder, step + 1, second.errors.read_text)
    os.kill(second.process.pid, signal.SIGINT)
    wait_for_message(second, FINISHING, [second.process.pid])
    os.kill(second.process.pid, signal.SIGINT)
    code, said = ended(second, [second.process.pid])
    assert code == 130
    assert "interrupted; " in said
    assert newest(folder).step == step


@pytest.mark.forked
def test_ctrl_c_twice_ends_all_processes_of_torchrun_at_once(
    beside, training, newest, children, wait_until, wait_for_steps, wait_for_message, tmp_path, monkeypatch
):
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "250")  # a torch that does not know it waits for 30 seconds
    folder = tmp_path / "run"
    arguments = ["-m", "vcycle", *command(training, folder, "run.save_every=100")]
    agent = beside(lambda: torchrun(["--standalone", "--nproc-per-node=2", *arguments]))
    wait_for_steps(agent.process, folder, 1, agent.errors.read_text)
    # The first process is to wait for the reader of a pipe, the second one for the first.
    os.mkfifo(RunFolder(folder).checkpoints / "step-000000100.pt.partial")
    wait_for_steps(agent.process, folder, 100, agent.errors.read_text)
    ranks = children(agent.process.pid)
    os.killpg(agent.process.pid, signal.SIGINT)
    # Before torchrun has sent it on to all, a further signal would be the first that they get.
    wait_until(lambda: agent.errors.read_text().count("closing signal SIGINT") == 2, agent.errors.read_text)
    for _ in range(50):  # it says so, and then sends it
        if FINISHING not in agent.errors.read_text():
            time.sleep(0.1)
    wait_for_message(agent, FINISHING, ranks)
    os.killpg(agent.process.pid, signal.SIGINT)
    # torchrun itself may wait for them longer: the signal may strike where it holds a lock that its waiting needs.
    wait_until(lambda: not any(map(lives, ranks)), agent.errors.read_text, meanwhile=lambda: wake(ranks), every=1.0)
    assert len(ranks) >= 2
    assert "forcefully" not in agent.errors.read_text()
    assert newest(folder).step == 0
