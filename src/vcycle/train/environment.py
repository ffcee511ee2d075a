"""The environment of a run: command, machine, device and versions."""

import importlib.metadata
import json
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcycle import __version__
from vcycle.utils.atomic import atomic_text
from vcycle.utils.cores import cores
from vcycle.utils.jsonl import JsonLines
from vcycle.utils.ranks import launched_here

if TYPE_CHECKING:  # versions and machine answer without torch, for `vcycle doctor`
    import torch

    from vcycle.train.run import RunFolder

__all__ = ["command", "environment", "machine", "record_command", "record_environment", "versions"]

_PACKAGES = ("av", "numpy", "torch", "torchvision", "decord2", "torchcodec")


def machine() -> dict[str, Any]:
    """Processor, cores and operating system."""
    return {"processor": _processor(), "cores": cores(), "system": platform.platform()}


def versions() -> dict[str, str]:
    """Versions of the packages that a run depends on, if they are installed."""
    found = {"vcycle": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    try:
        from av import library_versions
    except ImportError:
        return found
    major, minor, _ = library_versions["libavcodec"]
    return found | {"libavcodec": f"{major}.{minor}"}


def environment(device: "torch.device") -> dict[str, Any]:
    """Device, threads, machine and versions."""
    import torch

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return {"device": name, "threads": torch.get_num_threads(), **machine(), **versions()}


def command(world: int = 1) -> str:
    """The command line of this process, quoted for a shell; with torchrun, the command line of torchrun."""
    program = Path(sys.argv[0])
    name = f"python -m {program.parent.name}" if program.name == "__main__.py" else program.name
    if world > 1 and "TORCHELASTIC_RUN_ID" in os.environ:
        here = launched_here(world)
        nodes = "--standalone" if here == world else f"--nnodes {world // here}"
        name = f"torchrun {nodes} --nproc-per-node {here} -m vcycle"
    return f"{name} {shlex.join(sys.argv[1:])}".strip()


def record_command(run: "RunFolder", *, world: int, fresh: bool) -> None:
    """Record the command of a start at step 0, before data and model are loaded; `record_environment` completes it.

    Args:
        run: The run folder.
        world: Number of ranks.
        fresh: Whether to forget the starts before, none of which took a step; a resume keeps them.

    Raises:
        VcycleError: if it cannot be written.
    """
    if fresh:
        run.environment.unlink(missing_ok=True)
    _record(run, 0, world, **machine(), **versions())


def record_environment(run: "RunFolder", step: int, device: "torch.device", *, world: int) -> None:
    """Append the current environment to the run's record.

    Args:
        run: The run folder.
        step: The step at which the run starts or resumes.
        device: The device of this process.
        world: Number of ranks.

    Raises:
        VcycleError: if it cannot be written.
    """
    _record(run, step, world, **environment(device))


def _record(run: "RunFolder", step: int, world: int, **known: Any) -> None:
    """Append a start; replaces the last line if the same command wrote it and did not get as far as a device."""
    start = {"step": step, "command": command(world), "folder": os.getcwd(), "ranks": world}
    lines = list(JsonLines(run.environment, lenient=True).read())
    if lines and "device" not in lines[-1] and {key: lines[-1].get(key) for key in start} == start:
        atomic_text(run.environment, "".join(json.dumps(line) + "\n" for line in (*lines[:-1], start | known)))
    else:
        with JsonLines(run.environment) as file:
            file.write(**start, **known)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
