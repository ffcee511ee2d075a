"""Preparations on a Ray cluster of two nodes, which are processes of this machine."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from vcycle.data import PrepareSettings
from vcycle.data.engines.ray import RayEngine
from vcycle.errors import DataError

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'vcycle[ray]'")
cluster_utils = pytest.importorskip("ray.cluster_utils")

pytestmark = [pytest.mark.usefixtures("fresh_interpreters"), pytest.mark.timeout(1200)]

SETTINGS = PrepareSettings(levels=(16, 24))


def content(folder):
    wanted = [*folder.glob("*px/**/*.*"), folder / "index.npz"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in wanted}


NODE = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_log_monitor": False}
AGENTS = ("metrics_agent_port", "metrics_export_port", "runtime_env_agent_port", "dashboard_agent_listen_port")


def free_ports():
    """Find a port for each agent of a node, which then starts without waiting for them to choose one."""
    sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in AGENTS}
    ports = {name: held.getsockname()[1] for name, held in sockets.items()}
    for held in sockets.values():
        held.close()
    return ports


@pytest.fixture
def site(tmp_path):
    """Find a folder that all worker processes import from."""
    (tmp_path / "site").mkdir()
    return tmp_path / "site"


@pytest.fixture
def cluster(site, monkeypatch):
    """Start a cluster of one node."""
    paths = [str(site), str(Path(__file__).parents[3] / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {
        "PYTHONPATH": os.pathsep.join(paths),  # of Ray's worker processes
        "RAY_USAGE_STATS_ENABLED": "0",
        # A busy machine takes minutes to start what Ray wants in seconds.
        "RAY_raylet_start_wait_time_s": "250",
        "RAY_agent_register_timeout_ms": "250000",
        "RAY_worker_register_timeout_seconds": "250",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    cluster = cluster_utils.Cluster()
    try:
        cluster.add_node(**NODE, **free_ports(), include_dashboard=False)
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


WITH_A_DECODER_THAT_WAITS = """
import os, time
import vcycle.data.video as video

probe = video.probe
here = os.path.dirname(__file__)

def waiting(path, **options):
    if path.endswith(("2-left/0002.mp4", "2-left/0003.mp4")):
        with open(f"{here}/{os.environ['RAY_RAYLET_PID']}", "w") as file:
            file.write(f"{os.getpid()} {path}")
        while not os.path.exists(f"{here}/go on"):
            time.sleep(0.05)
    return probe(path, **options)

video.probe = waiting
"""


def test_a_node_killed_in_the_middle_costs_its_files_alone_and_they_are_named(
    cluster, site, digit_videos, tmp_path, prepare
):
    engine = RayEngine(patience=800)  # a client of the first node
    second = cluster.add_node(**NODE, **free_ports())
    cluster.wait_for_nodes()
    assert engine.workers == 2
    with pytest.raises(DataError, match=r"a job needs 1 CPU and 1000 GPUs of one Ray node, but the largest has 1 CPUs"):
        RayEngine(gpus=1000)
    expected = prepare(digit_videos, tmp_path / "one", SETTINGS, workers=2)
    # Each of two files keeps the core of a node until the second node is dead.
    (site / "sitecustomize.py").write_text(WITH_A_DECODER_THAT_WAITS)
    working = site / str(second.all_processes["raylet"][0].process.pid)

    deadline, over = time.monotonic() + 900, threading.Event()

    def wait_until(condition):
        while not condition() and not over.wait(0.05) and time.monotonic() < deadline:
            pass
        return condition()

    def dead(pid):
        try:
            return not Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return True

    def kill():
        if not wait_until(lambda: working.exists() and working.read_text()):
            return
        cluster.remove_node(second, allow_graceful=False)
        wait_until(lambda: dead(working.read_text().split()[0]))  # else it may still answer
        (site / "go on").touch()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        report = prepare(digit_videos, tmp_path / "two", SETTINGS, engine=engine)
    finally:
        over.set()
        killer.join(60)
    assert content(tmp_path / "two") == content(tmp_path / "one")
    assert (report.videos, report.failed) == (expected.videos, {})
    assert working.read_text().partition(" ")[2] in report.redone
    assert len(report.redone) <= 2  # the other may have been on its way
    assert all(cause.startswith("its Ray worker or node died") for cause in report.redone.values())
