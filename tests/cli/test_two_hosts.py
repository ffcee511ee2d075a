"""Two machines train together under torchrun; one of them dies, comes back, and the result is that of one process.

The machines are network namespaces. Where none can be made, both agents are on the loopback of this one.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from vcycle.cli.app import app
from vcycle.console import process
from vcycle.data import Sample, SampleRequest
from vcycle.data.dataset import VideoDataset
from vcycle.train.checkpoint import latest_checkpoint
from vcycle.train.run import RunFolder
from vcycle.utils.jsonl import JsonLines

CLONE_NEWNET = 0x40000000
"""That `setns` is to enter a network namespace; `os.setns` is new in Python 3.12."""


@dataclass
class Host:
    """A machine: its address and network interface, the network namespace that it is, if any, and what starts there."""

    address: str
    interface: str
    namespace: Path | None
    beside: Callable[[Callable[[], None]], Any]
    agents: list[Any] = field(default_factory=list)

    def run(self, launch: Callable[[], None]) -> Any:
        """Start an agent there."""

        def work() -> None:
            if self.namespace is not None:
                with self.namespace.open() as file:
                    assert ctypes.CDLL(None).setns(file.fileno(), CLONE_NEWNET) == 0
            # A new agent finds the ranks' meeting place through this store, which torch shares between restarts
            # otherwise.
            os.environ.update(GLOO_SOCKET_IFNAME=self.interface, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
            launch()

        self.agents.append(self.beside(work))
        return self.agents[-1].process

    def die(self, children: Callable[[int], list[int]]) -> None:
        """End all that runs there, agent and rank, without a word."""
        for agent, _ in self.agents:
            for rank in children(agent.pid) if agent.is_alive() else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank, signal.SIGKILL)
            agent.kill()
            agent.join()


def _namespaces(beside: Any) -> list[Host] | None:
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
        Host(address=f"10.77.0.{number}", interface=name, namespace=Path("/var/run/netns", name), beside=beside)
        for number, name in enumerate(names, 1)
    ]


def _forget(names: list[str]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.fixture
def hosts(children: Callable[[int], list[int]], beside: Any) -> Iterator[list[Host]]:
    """Two machines."""
    found = _namespaces(beside)
    made = found or [Host(address="127.0.0.1", interface="lo", namespace=None, beside=beside) for _ in range(2)]
    yield made
    for host in made:
        host.die(children)
    if found:
        _forget([host.interface for host in found])


def _free_port() -> int:
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return int(any_socket.getsockname()[1])


def _train(arguments: list[str], hang_at: int | None) -> None:
    """A rank: the command, which waits forever for the clip of a position where one is given."""
    if hang_at is not None:
        original = VideoDataset.__getitem__

        def load(self: VideoDataset, request: SampleRequest) -> Sample:
            while request.position >= hang_at:
                signal.pause()
            return original(self, request)

        VideoDataset.__getitem__ = load
    if code := process.run(app, arguments):
        sys.exit(code)


@pytest.mark.forked
def test_a_host_that_dies_and_comes_back_changes_nothing(hosts, children, vcycle, here, videos, wait_until):
    recipe = ["tiny.yaml", f"data={videos}", "training.steps=60", "training.lr=0.002", "model.options.dropout=0"]
    assert vcycle("train", *recipe, "--out", "alone").code == 0
    port = _free_port()

    def agent(number: int, hang_at: int | None = None) -> Any:
        host = hosts[number]
        launch = LaunchConfig(  # torchrun's, but for ranks that are forked
            min_nodes=2,
            max_nodes=2,
            nproc_per_node=1,
            max_restarts=2,
            monitor_interval=0.1,
            rdzv_backend="c10d",
            rdzv_endpoint=f"{hosts[0].address}:{port}",
            rdzv_configs={"is_host": str(1 - number)},
            run_id="two hosts",
            local_addr=host.address,
            start_method="fork",
        )
        arguments = ["train", *recipe, "--out", "together", "--resume"]
        return host.run(lambda: elastic_launch(launch, _train)(arguments, hang_at))

    def said() -> str:
        return "".join(each.errors.read_text() for host in hosts for each in host.agents)

    first, second = agent(0), agent(1, hang_at=100)  # the second is there until it dies
    run = RunFolder(Path("together"))

    def is_at_work() -> bool:
        assert first.is_alive(), said()
        return len(list(JsonLines(run.log).read())) >= 6

    wait_until(is_at_work, said)
    hosts[1].die(children)
    assert second.exitcode == -signal.SIGKILL
    second = agent(1)
    wait_until(lambda: not (first.is_alive() or second.is_alive()), said)
    assert (first.exitcode, second.exitcode) == (0, 0), said()
    assert "resuming at step" in said()

    def record(folder: RunFolder) -> list[tuple[object, ...]]:
        steps = (line for line in JsonLines(folder.log).read() if line["event"] == "step")
        return [(line["step"], line["ids_crc32"], line["lr"], line["batch"]) for line in steps]

    alone = RunFolder(Path("alone"))
    assert record(run) == record(alone)
    together, expected = (latest_checkpoint(folder.checkpoints)[0].model for folder in (run, alone))
    assert all(torch.allclose(together[name], value, atol=1e-5) for name, value in expected.items())
