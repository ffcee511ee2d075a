"""Main memory that this process may still take."""

from pathlib import Path

from vcycle.utils.cores import control_groups

__all__ = ["free_memory"]

_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
_UNLIMITED = 1 << 60


def free_memory(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int | None:
    """Return the bytes that are available: of the system, or less where a container limits them; None if unknown.

    Args:
        root: Where control groups are mounted.
        own: The file that names this process's.
    """
    groups = control_groups("memory", root, own)
    return min([*_of_system(), *(value for group in groups for value in _of_group(group))], default=None)


def _of_system(file: Path = Path("/proc/meminfo")) -> list[int]:
    try:
        lines = file.read_text(encoding="ascii").splitlines()
        return [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        return []


def _of_group(folder: Path) -> list[int]:
    """Return what a control group may still take; empty without a limit. What is cached can be taken, too."""
    for names in _FILES:
        try:
            limit, used = (int((folder / name).read_text(encoding="ascii")) for name in names)
            lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
            cached = sum(int(line.split()[1]) for line in lines if line.startswith(("inactive_file ", "active_file ")))
        except (OSError, ValueError, IndexError):  # `max`, and missing files
            continue
        if limit < _UNLIMITED:
            return [max(0, limit - used + cached)]
    return []
