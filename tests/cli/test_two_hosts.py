"""Two machines train together under torchrun; one of them dies, comes back, and the result is that of one process.

The machines are network namespaces. Where none can be made, both agents are on the loopback of this one.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from vcycle.train.checkpoint import latest_checkpoint
from vcycle.train.run import RunFolder
from vcycle.utils.jsonl import JsonLines

PATIENCE = 240.0
"""Seconds: a busy machine may take long to start torch in two agents and two ranks, twice."""


@dataclass
class Host:
    """A machine: how a program is started there, its address and network interface."""

    start: tuple[str, ...]
    address: str
    interface: str
    agents: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, command: list[str], output: Path) -> subprocess.Popen[bytes]:
        """Start an agent of torchrun in a session of its own."""
        # A new agent finds the ranks' meeting place through this store, which torch shares between restarts otherwise.
        environment = {"GLOO_SOCKET_IFNAME": self.interface, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        with output.open("ab") as file:
            agent = subprocess.Popen(
                [*self.start, *command], env=os.environ | environment, start_new_session=True, stderr=file, stdout=file
            )
        self.agents.append(agent)
        return agent

    def die(self, children: Callable[[int], list[int]]) -> None:
        """End all that runs there, agent and rank, without a word."""
        for agent in self.agents:
            for process in (*children(agent.pid), agent.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            agent.wait()


def _namespaces() -> list[Host] | None:
    """Two network namespaces that see each other; None where they cannot be made."""
    if os.geteuid() or shutil.which("ip") is None:
        return None
    names = [f"vc{os.getpid()}{side}" for side in "ab"]
    commands = [["netns", "add", name] for name in names]
    commands += [["link", "add", names[0], "type", "veth", "peer", "name", names[1]]]
    for number, name in enumerate(names, 1):
        commands += [
            ["link", "set", name, "netns", name],
            ["-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", name],
        ]
        commands += [["-n", name, "link", "set", device, "up"] for device in (name, "lo")]
    for command in commands:
        if subprocess.run(["ip", *command], capture_output=True, check=False).returncode:
            _forget(names)
            return None
    return [
        Host(start=("ip", "netns", "exec", name), address=f"10.77.0.{number}", interface=name)
        for number, name in enumerate(names, 1)
    ]


def _forget(names: list[str]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.fixture
def hosts(children: Callable[[int], list[int]]) -> Iterator[list[Host]]:
    """Two machines."""
    found = _namespaces()
    made = found or [Host(start=(), address="127.0.0.1", interface="lo") for _ in range(2)]
    yield made
    for host in made:
        host.die(children)
    if found:
        _forget([host.interface for host in found])


def _free_port() -> int:
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return int(any_socket.getsockname()[1])


@pytest.mark.timeout(600)
def test_a_host_that_dies_and_comes_back_changes_nothing(hosts, children, vcycle, here, videos, tmp_path):
    recipe = ["tiny.yaml", f"data={videos}", "training.steps=60", "training.lr=0.002", "model.options.dropout=0"]
    assert vcycle("train", *recipe, "--out", "alone").code == 0
    port = _free_port()

    def agent(number: int) -> subprocess.Popen[bytes]:
        host = hosts[number]
        meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={hosts[0].address}:{port}", f"--local-addr={host.address}"]
        torchrun = [
            "--nnodes=2",
            "--nproc-per-node=1",
            "--max-restarts=2",
            *meeting,
            f"--rdzv-conf=is_host={1 - number}",
        ]
        train = ["-m", "vcycle", "train", *recipe, "--out", "together", "--resume"]
        return host.run([sys.executable, "-m", "torch.distributed.run", *torchrun, *train], tmp_path / f"host{number}")

    def said() -> str:
        return "".join((tmp_path / f"host{number}").read_text() for number in range(2))

    first, second = agent(0), agent(1)
    run, ends = RunFolder(Path("together")), time.monotonic() + PATIENCE
    while len(list(JsonLines(run.log).read())) < 6:
        assert time.monotonic() < ends, said()
        assert first.poll() is None, said()
        time.sleep(0.1)
    hosts[1].die(children)
    assert second.returncode == -signal.SIGKILL
    second = agent(1)
    assert (first.wait(PATIENCE), second.wait(PATIENCE)) == (0, 0), said()
    assert "resuming at step" in said()

    def record(folder: RunFolder) -> list[tuple[object, ...]]:
        steps = (line for line in JsonLines(folder.log).read() if line["event"] == "step")
        return [(line["step"], line["ids_crc32"], line["lr"], line["batch"]) for line in steps]

    alone = RunFolder(Path("alone"))
    assert record(run) == record(alone)
    together, expected = (latest_checkpoint(folder.checkpoints)[0].model for folder in (run, alone))
    assert all(torch.allclose(together[name], value, atol=1e-5) for name, value in expected.items())
