"""Measures memory: current use, and peak use since the last reset."""

import os
from contextlib import suppress
from pathlib import Path

import torch

__all__ = ["forget_peak", "peak_bytes", "resident_bytes"]

_PROCESS = Path("/proc/self")


def forget_peak(device: torch.device) -> None:
    """Reset the peak."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):  # not Linux, or not allowed: the peak of the process's life then
            (_PROCESS / "clear_refs").write_text("5")


def peak_bytes(device: torch.device) -> int | None:
    """Peak memory of the device in bytes; on a CPU, of this process. None if unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        lines = (_PROCESS / "status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")]
    return found[0] if found else None


def resident_bytes() -> int:
    """Resident memory of this process in bytes."""
    pages = (_PROCESS / "statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
