"""The machine and the software that figures hold for."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import av

from vcycle import __version__
from vcycle.data.cores import cores

__all__ = ["machine", "resident_bytes", "versions"]

_PACKAGES = ("av", "numpy", "torch", "decord2", "torchcodec")


def machine() -> dict[str, Any]:
    """Processor, cores and operating system."""
    return {"processor": _processor(), "cores": cores(), "system": platform.platform()}


def versions() -> dict[str, str]:
    """Versions of what takes part, where it is installed."""
    found = {"vcycle": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    major, minor, _ = av.library_versions["libavcodec"]
    return found | {"libavcodec": f"{major}.{minor}"}


def resident_bytes() -> int:
    """Memory that this process holds."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
