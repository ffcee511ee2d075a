"""Number of available and of idle CPU cores."""

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["control_groups", "cores", "idle_cores"]

_LOOK = 0.2
"""Seconds over which CPU usage is sampled."""


def cores() -> int:
    """Return the CPU cores available to this process, by its affinity and its container's quota."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return here if quota is None else max(1, min(here, math.ceil(quota)))


def idle_cores(seconds: float = _LOOK) -> float | None:
    """Return how many cores of this process's affinity are idle, as Linux counts them over an interval.

    This process sleeps meanwhile, so only other processes are counted.

    Args:
        seconds: Length of the interval.

    Returns:
        Between 0 and the number of cores; None if unknown.
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
    """Return the total and the idle ticks of each core; None if the system does not report them."""
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
    """Return the container's CPU quota in cores; None without a quota."""
    quotas = [value for folder in control_groups("cpu", root, own) for value in _quotas(folder)]
    return min(quotas, default=None)


def control_groups(
    controller: str, root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> list[Path]:
    """Return this process's control groups, from its own to the root, as mounted here.

    Args:
        controller: Name of the controller in version 1, such as ``cpu``; version 2 has one tree for all.
        root: Where control groups are mounted.
        own: The file that names this process's.
    """
    try:
        paths = [line.split(":", 2)[2] for line in own.read_text(encoding="utf-8").splitlines() if line.count(":") >= 2]
    except (OSError, UnicodeDecodeError):
        paths = []
    groups = [root, root / controller]  # of version 2 and of version 1
    for path in paths:
        inner = Path(path.lstrip("/"))
        groups += [top / part for top in (root, root / controller) for part in (inner, *inner.parents)]
    return list(dict.fromkeys(groups))


def _quotas(folder: Path) -> list[float]:
    """Return the quota of a control group in cores; empty if it has none."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            values = " ".join((folder / name).read_text(encoding="ascii") for name in names).split()
            quota, period = float(values[0]), float(values[1])
        except (OSError, ValueError, IndexError):  # `max`, and missing files
            continue
        if quota > 0 and period > 0:
            return [quota / period]
    return []
