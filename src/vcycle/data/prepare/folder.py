"""The output folder of a preparation: ownership, locking, and removal of half-written files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from vcycle.data.locations import Location, Url
from vcycle.data.prepare.settings import PrepareSettings
from vcycle.errors import DataError
from vcycle.utils.atomic import PARTIAL, atomic_text
from vcycle.utils.locks import file_lock
from vcycle.utils.reading import read_text, resolved

__all__ = ["TRIED", "check_folder", "flush_folders", "locked_folder", "write_json"]

TRIED = ".vcycle-"
"""Name prefix of the folder in which an estimate tries a few files."""

_SETTINGS = "prepare.json"
_LOCK = ".lock"


def check_folder(out: Path, settings: PrepareSettings, data: Location) -> None:
    """Refuse a folder that this preparation cannot write to or resume. Writes nothing.

    Raises:
        DataError: If it has other content, or lies inside the videos' own folder or contains it.
    """
    here = resolved(out)
    there = None if isinstance(data, Url) else resolved(data)
    if there is not None and (here == there or here in there.parents or (there in here.parents and there.is_dir())):
        raise DataError(f"{out}: the output folder cannot be inside {data} or contain it: choose another folder")
    if out.exists() and not out.is_dir():
        raise DataError(f"{out}: not a folder")
    before = _read(out / _SETTINGS)
    if before is None:
        if out.is_dir() and any(not _is_ours(entry.name) for entry in out.iterdir()):
            raise DataError(f"{out}: is not empty and holds no prepared dataset: choose another folder")
        return
    wanted = _content(settings, data)
    for key, value in wanted.items():
        if before.get(key) != value:
            had, has = _shown(before.get(key)), _shown(value)
            raise DataError(f"{out}: was prepared with {key} {had}, not {has}: choose another folder or delete it")


@contextmanager
def locked_folder(out: Path, settings: PrepareSettings, data: Location) -> Iterator[None]:
    """Lock the folder of a preparation, record its settings, and remove half-written files.

    Raises:
        DataError: If another process is writing to the folder, or it cannot be written.
    """

    def refusal(holder: str) -> DataError:
        return DataError(f"{out}: {holder} is writing to it")

    def refuse(error: OSError) -> None:
        raise DataError(
            f"{out}: cannot be locked against other processes ({error.strerror}); choose a folder on a file system "
            "with locks"
        ) from error

    with ExitStack() as stack:
        try:
            out.mkdir(parents=True, exist_ok=True)
            stack.enter_context(file_lock(out / _LOCK, refusal=refusal, on_unsupported=refuse))
        except OSError as error:
            raise DataError(f"{out}: cannot be written: {error.strerror}") from error
        check_folder(out, settings, data)  # check again under the lock
        for partial in out.rglob(f"*{PARTIAL}"):
            partial.unlink(missing_ok=True)
        for tried in out.glob(f"{TRIED}*"):
            shutil.rmtree(tried, ignore_errors=True)
        if not (out / _SETTINGS).exists():
            write_json(out / _SETTINGS, _content(settings, data))
        yield


def _is_ours(name: str) -> bool:
    """Return whether an entry of a folder was left by a preparation that had not started."""
    return name == _LOCK or name.startswith(TRIED)


def write_json(file: Path, data: dict[str, Any]) -> None:
    """Write a small file atomically."""
    atomic_text(file, json.dumps(data, indent=1) + "\n")


def flush_folders(out: Path) -> None:
    """Sync the names of all files in a folder to disk."""
    for folder, _, _ in os.walk(out):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _content(settings: PrepareSettings, data: Location) -> dict[str, Any]:
    return {**settings.to_json(), "data": str(data if isinstance(data, Url) else resolved(data))}


def _read(file: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(read_text(file, encoding="ascii"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: cannot be read: {error}") from error
    return content if isinstance(content, dict) else {}


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
