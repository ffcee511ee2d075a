"""How many processor cores there are to work with, and how many of them are idle."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["cores", "idle_cores"]

_LOOK = 0.2
"""Seconds over which the use of cores is looked at."""


def cores() -> int:
    """Processor cores that this process may use: by its affinity, and by the quota of its container."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return here if quota is None else max(1, min(here, math.ceil(quota)))


def idle_cores(seconds: float = _LOOK) -> float | None:
    """How many of the cores of this process's affinity are idle, by Linux's own count over a moment.

    This process waits meanwhile, so what is counted is the work of others.

    Args:
        seconds: The moment.

    Returns:
        A number from 0 to that of the cores; None where it is not known.
    """
    before = _times()
    time.sleep(seconds)
    after = _times()
    if before is None or after is None:
        return None
    idle = 0.0
    for core in os.sched_getaffinity(0):
        if core not in before or core not in after:
            return None
        spent, rest = (now - then for now, then in zip(after[core], before[core], strict=True))
        idle += rest / spent if spent > 0 else 1.0
    return idle


def _times(file: Path = Path("/proc/stat")) -> Mapping[int, tuple[int, int]] | None:
    """Ticks in all and idle ticks of each core; None where the system does not tell."""
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    found = {}
    for line in lines:
        name, *values = line.split()
        if name[:3] == "cpu" and name[3:].isdecimal() and len(values) >= 5:
            ticks = [int(value) for value in values[:8]]
            found[int(name[3:])] = (sum(ticks), ticks[3] + ticks[4])
    return found


def _quota(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float | None:
    """Cores that a container's quota is worth; None without a quota."""
    quotas = [value for folder in _groups(root, own) for value in _quotas(folder)]
    return min(quotas, default=None)


def _groups(root: Path, own: Path) -> list[Path]:
    """The control groups that this process lies in, from its own to the root, as they are seen here."""
    try:
        paths = [line.split(":", 2)[2] for line in own.read_text(encoding="utf-8").splitlines() if line.count(":") >= 2]
    except (OSError, UnicodeDecodeError):
        paths = []
    groups = [root, root / "cpu"]  # cgroup v2, and the controller of v1
    for path in paths:
        inner = Path(path.lstrip("/"))
        groups += [top / part for top in (root, root / "cpu") for part in (inner, *inner.parents)]
    return list(dict.fromkeys(groups))


def _quotas(folder: Path) -> list[float]:
    """The quota of a control group, in cores; nothing where it has none."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            values = " ".join((folder / name).read_text(encoding="ascii") for name in names).split()
            quota, period = float(values[0]), float(values[1])
        except (OSError, ValueError, IndexError):  # `max`, and files that are not there
            continue
        if quota > 0 and period > 0:
            return [quota / period]
    return []
