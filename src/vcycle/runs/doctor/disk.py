"""Disks: free space, and how fast a dataset's files are read."""

import os
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from vcycle.data.locations import Location, Url
from vcycle.runs.doctor.finding import Finding
from vcycle.utils.folders import free_bytes
from vcycle.utils.units import as_size, counted

__all__ = ["data_disk", "reading_speed", "shared_memory", "spaces"]

_SECONDS = 1.5
_MOST_BYTES = 1 << 29
_CHUNK = 1 << 20
_ENTRIES = 5_000
"""Maximum number of names to look at for files to read."""
_FILES = 200
_LEAST = 16_000
"""Bytes of a file below which reading it says more about the folder than about the disk."""
_TELLING = 4e6
"""Bytes below which a whole folder is read too fast to tell the speed of its disk."""
_SLOW = 100e6
"""Bytes per second below which decoding waits for the disk."""
_TIGHT = 5e9
_FULL = 100e6
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse", "lustre", "gpfs", "ceph", "9p", "beegfs", "glusterfs")
_SHARED = Path("/dev/shm")


class Speed(NamedTuple):
    """How fast files were read."""

    per_second: float
    """Bytes."""
    files: int
    bytes: int


def reading_speed(folder: Path, seconds: float = _SECONDS) -> Speed | None:
    """Read files of a folder for a while, past the system's cache where it lets go of them.

    Args:
        folder: Where the files are, in nested folders, too.
        seconds: When to stop.

    Returns:
        The speed; None if there is nothing to read.
    """
    spent, total, files = 0.0, 0, 0
    for path in islice(_files(folder), _FILES):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            began = time.monotonic()
            while (data := os.read(descriptor, _CHUNK)) and time.monotonic() - began + spent < seconds:
                total += len(data)
            spent += time.monotonic() - began
        except OSError:
            continue
        finally:
            os.close(descriptor)
        files += 1
        if spent >= seconds or total >= _MOST_BYTES:
            break
    return Speed(total / spent, files, total) if total and spent else None


def _files(folder: Path) -> Iterator[str]:
    """Yield files of some size, those of each folder in turn; looks at a limited number of names."""
    left, waiting = _ENTRIES, [str(folder)]
    while waiting and left > 0:
        try:
            with os.scandir(waiting.pop(0)) as entries:
                for entry in islice(entries, left):
                    left -= 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file() and entry.stat().st_size >= _LEAST:
                        yield entry.path
        except OSError:
            continue


def data_disk(data: Location, idle: float | None = None) -> Finding:
    """How fast the data is read.

    Args:
        data: Where it is.
        idle: Cores that other programs leave idle; None if unknown. Without one, reading waits for a core.
    """
    if isinstance(data, Url):
        return Finding(
            level="slow",
            about="data disk",
            found=f"{data} is a URL: every clip reads parts of its file over the network",
            change="`vcycle prepare` copies the videos to a local disk once",
        )
    folder = data if data.is_dir() else data.parent
    kind, speed = _filesystem(folder), reading_speed(folder)
    on = f"{folder} ({kind})" if kind else str(folder)
    if speed is None:
        return Finding(level="note", about="data disk", found=f"{on}: no files to measure its speed by")
    files = f"{counted(speed.files, 'file')} of {as_size(_LEAST)} or more, {as_size(speed.bytes)}"
    few = speed.bytes < _TELLING and speed.bytes / speed.per_second < _SECONDS
    if few:
        return Finding(level="ok", about="data disk", found=f"{on}: {files}: too little to measure its speed by")
    read = f"{on}: {as_size(speed.per_second)}/s over {files}"
    if speed.per_second < _SLOW and idle is not None and idle < 1:
        words = f"{read}; no core is idle, so that this is no speed of the disk: run `vcycle doctor` again when one is"
        return Finding(level="note", about="data disk", found=words)
    if speed.per_second < _SLOW:
        change = "copy the videos to a local SSD, or store them smaller with `vcycle prepare`"
        return Finding(level="slow", about="data disk", found=read, change=change)
    if kind.partition(".")[0] in _NETWORK:
        change = "a network disk serves others too: if `vcycle bench --data` says data, prepare to a local disk"
        return Finding(level="note", about="data disk", found=read, change=change)
    return Finding(level="ok", about="data disk", found=f"{read}; the system's cache may have helped")


def _filesystem(folder: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """Return the type of the filesystem that a folder is on; empty if unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    real, found = os.path.realpath(folder), ("", "")
    for line in lines:
        _, place, kind, *_ = line.split(" ")
        at = place.replace("\\040", " ")
        if (real == at or real.startswith(at.rstrip("/") + "/")) and len(at) >= len(found[0]):
            found = at, kind
    return found[1]


def spaces() -> list[Finding]:
    """Free space in the folder of runs and in the temporary one, and whether they can be written to."""
    findings = []
    for about, folder, change in (
        ("run folder", Path.cwd(), "run in another folder, or give --out FOLDER"),
        ("temp folder", Path(tempfile.gettempdir()), "set TMPDIR to a folder with space"),
    ):
        free = free_bytes(folder)
        found = f"{folder}: {as_size(free)} free"
        if not os.access(folder, os.W_OK):
            findings.append(Finding(level="stop", about=about, found=f"{folder} is not writable", change=change))
        elif free < _FULL:
            findings.append(Finding(level="stop", about=about, found=found, change=change))
        elif free < _TIGHT:
            findings.append(Finding(level="slow", about=about, found=found, change=change))
        else:
            findings.append(Finding(level="ok", about=about, found=found))
    return findings


def shared_memory() -> list[Finding]:
    """The size of /dev/shm, where there is one."""
    try:
        status = os.statvfs(_SHARED)
    except OSError:
        return []
    size, free = status.f_frsize * status.f_blocks, status.f_frsize * status.f_bavail
    found = f"/dev/shm: {as_size(free)} of {as_size(size)} free; vcycle's loader does not use it"
    if free < 1e9:
        change = "PyTorch's DataLoader does, in a loop of your own: docker run --shm-size 8g, or --ipc host"
        return [Finding(level="note", about="shared memory", found=found, change=change)]
    return [Finding(level="ok", about="shared memory", found=found)]
