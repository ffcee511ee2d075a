"""The machine and the software that figures hold for."""

from __future__ import annotations

import os
from pathlib import Path

from vcycle.train.environment import machine, versions

__all__ = ["machine", "resident_bytes", "versions"]


def resident_bytes() -> int:
    """Memory that this process holds."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
