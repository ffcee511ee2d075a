"""The output folder of a preparation: ownership, locking, and removal of half-written files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from vcycle.data.locations import Location, Url, entries, write_text
from vcycle.data.prepare.settings import PrepareSettings
from vcycle.errors import DataError
from vcycle.utils.atomic import PARTIAL
from vcycle.utils.locks import file_lock
from vcycle.utils.reading import read_text, resolved

__all__ = [
    "PARTS",
    "TRIED",
    "check_folder",
    "content_of",
    "done",
    "flush_folders",
    "locked_folder",
    "read_json",
    "write_json",
]

TRIED = ".vcycle-"
"""Name prefix of the folder in which an estimate tries a few files."""

PARTS = "parts"
"""The folder of the parts' own folders."""

_KINDS = {"prepare": "prepared dataset", "predict": "predictions"}
_LOCK = ".lock"


def check_folder(out: Location, wanted: Mapping[str, Any], *, data: Location | None, command: str = "prepare") -> None:
    """Refuse a folder that a command cannot write to or resume. Writes nothing.

    Args:
        out: The folder.
        wanted: What identifies the command's output; recorded in the folder.
        data: Where the videos are, which the folder may not contain, nor be in.
        command: The command.

    Raises:
        DataError: If it has other content, or lies inside the videos' own folder or contains it.
    """
    if data is not None and _overlap(out, data):
        raise DataError(f"{out}: the output folder cannot be inside {data} or contain it: choose another folder")
    if out.exists() and not out.is_dir():
        raise DataError(f"{out}: not a folder")
    before = read_json(out / f"{command}.json")
    if before is None:
        if out.is_dir() and not all(map(_is_ours, entries(out))):
            raise DataError(f"{out}: is not empty and holds no {_KINDS[command]}: choose another folder")
        return
    for key, value in wanted.items():
        if before.get(key) != value:
            had, has = _shown(before.get(key)), _shown(value)
            made = f"was {done(command)} with {key} {had}, not {has}"
            raise DataError(f"{out}: {made}: choose another folder or delete it")


@contextmanager
def locked_folder(
    out: Location,
    wanted: Mapping[str, Any],
    *,
    data: Location | None,
    command: str = "prepare",
    parts: Sequence[Location] = (),
    merge: bool = False,
) -> Iterator[None]:
    """Lock the folder of a command, record what it writes, and remove half-written files.

    At a URL there are no locks, and files are written whole.

    Args:
        out: The folder.
        wanted: See ``check_folder``.
        data: See ``check_folder``.
        command: The command.
        parts: Folders of parts to lock instead; others may write to the other parts meanwhile.
        merge: Whether to lock the folder itself after all, and to refuse it while another process writes to one of the
            parts.

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

    whole = merge or not parts
    with ExitStack() as stack:
        try:
            for folder in [out] if whole else parts:
                if isinstance(folder, Path):
                    folder.mkdir(parents=True, exist_ok=True)
                    stack.enter_context(file_lock(folder / _LOCK, refusal=refusal, on_unsupported=refuse))
            # A part that starts from now on waits for the lock of the folder. One lock is open at a time: there may be
            # more parts than a process may open files.
            for folder in parts if merge else ():
                if isinstance(folder, Path):
                    with file_lock(folder / _LOCK, refusal=refusal):
                        pass
            # Parts may start at the same moment: one after the other looks at the folder and records the settings.
            with nullcontext() if whole or isinstance(out, Url) else file_lock(out / _LOCK):
                check_folder(out, wanted, data=data, command=command)  # check again under the lock
                if not (out / f"{command}.json").exists():
                    write_json(out / f"{command}.json", dict(wanted))
        except OSError as error:
            raise DataError(f"{out}: cannot be written: {error.strerror or error}") from error
        if isinstance(out, Path) and whole:
            for partial in out.rglob(f"*{PARTIAL}"):
                partial.unlink(missing_ok=True)
            for tried in out.glob(f"{TRIED}*"):
                shutil.rmtree(tried, ignore_errors=True)
        yield


def done(command: str) -> str:
    """Return what a command has done to a folder: ``prepared`` or ``predicted``."""
    return f"{command.removesuffix('e')}ed"


def _overlap(out: Location, data: Location) -> bool:
    """Return whether one place is, or is inside of, the other."""
    if isinstance(out, Url) or isinstance(data, Url):
        first, second = (f"{str(place).rstrip('/')}/" for place in (out, data))
        return first.startswith(second) or second.startswith(first)
    here, there = resolved(out), resolved(data)
    return here == there or here in there.parents or (there in here.parents and there.is_dir())


def _is_ours(name: str) -> bool:
    """Return whether an entry of a folder was left by a preparation that had not recorded its settings."""
    return name in (_LOCK, PARTS, *(f"{command}.json{PARTIAL}" for command in _KINDS)) or name.startswith(TRIED)


def write_json(file: Location, data: dict[str, Any]) -> None:
    """Write a small file atomically."""
    write_text(file, json.dumps(data, indent=1) + "\n")


def flush_folders(out: Path) -> None:
    """Sync the names of all files in a folder to disk."""
    for folder, _, _ in os.walk(out):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def content_of(settings: PrepareSettings, data: Location) -> dict[str, Any]:
    """Return what identifies a preparation."""
    return {**settings.to_json(), "data": str(data if isinstance(data, Url) else resolved(data))}


def read_json(file: Location) -> dict[str, Any] | None:
    """Return the content of ``write_json``; None if there is no file.

    Raises:
        DataError: If it cannot be read.
    """
    try:
        text = file.read_bytes().decode("ascii") if isinstance(file, Url) else read_text(file, encoding="ascii")
        content = json.loads(text)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: cannot be read: {error}") from error
    return content if isinstance(content, dict) else {}


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
