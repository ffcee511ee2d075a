"""Places of files: local paths, and URLs that fsspec opens (``s3://``, ``http://``, ``memory://``, ``tar://…::…``).

No filesystem object is kept across a fork: each process and thread opens its own, as fsspec's own cache does.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar, cast

from vcycle.errors import DataError, summary
from vcycle.utils.atomic import atomic_text
from vcycle.utils.extras import NotInstalledError, require

__all__ = [
    "Location",
    "Url",
    "entries",
    "given_location",
    "inside",
    "is_url",
    "joined",
    "local_path",
    "location",
    "request_each",
    "write_text",
]

_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*::)*([a-z][a-z0-9+.-]*)://", re.ASCII | re.IGNORECASE)
_LOCAL = ("file", "local")
_REQUESTS = 64
"""Requests to a store at a time."""
_MOST_ARCHIVES = 64
"""Number of archives that a process keeps open, those of all its threads together."""

T = TypeVar("T")


def is_url(path: str) -> bool:
    """Return whether a path is a URL.

    Example:
        >>> is_url("s3://bucket/a.mp4"), is_url("tar://a.mp4::s3://bucket/b.tar"), is_url("/data/a.mp4")
        (True, True, False)
    """
    return _URL.match(path) is not None


class Url:
    """A URL, with the methods of ``Path`` that finding, reading and writing files needs. It is no ``os.PathLike``.

    Faults of the filesystem or its network are ``OSError``s.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        """Take a URL as it is; see ``location``."""
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Url({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Url) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)

    def _split(self) -> tuple[str, str, str]:
        """Return what stands before the path, the path, and what stands after it.

        In an archive, ``tar://folder/a.mp4::s3://bucket/b.tar``, the path is the member's.
        """
        head, colons, rest = self._text.partition("::")
        protocol, slashes, path = head.partition("://")
        if slashes:
            return protocol + slashes, path, colons + rest
        last = self._text.rindex("://") + 3  # `filecache::s3://bucket/a.mp4`: a cache, and the path in what it caches
        return self._text[:last], self._text[last:], ""

    def __truediv__(self, name: str) -> Url:
        before, path, after = self._split()
        return Url(f"{before}{path.rstrip('/')}/{name}{after}" if path else f"{before}{name}{after}")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self._split()[1].rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> Url:
        """The folder that it is in."""
        before, path, after = self._split()
        return Url(before + path.rstrip("/").rpartition("/")[0] + after)

    def absolute(self) -> Url:
        """Return the URL; an archive on a local disk by its absolute path."""
        rest, colons, last = self._text.rpartition("::")
        return Url(f"{rest}{colons}{os.path.abspath(last)}") if colons and "://" not in last else self

    @property
    def archive(self) -> Location | None:
        """The archive that it is in; None for other files."""
        rest = self._split()[2].removeprefix("::")
        return location(rest) if rest else None

    def exists(self) -> bool:
        """Return whether there is a file or folder."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Return whether it is a file, and not a listing of files as a web server gives it."""
        try:
            details = self.details()
        except OSError:
            return False
        return details.get("type") == "file" and details.get("mimetype") != "text/html"

    def is_dir(self) -> bool:
        """Return whether it is a folder."""
        try:
            details = self.details()
            if details.get("mimetype") == "text/html":  # a web server's listing
                return bool(self.entries())
            return details.get("type") == "directory"
        except OSError:
            return False

    def details(self) -> dict[str, Any]:
        """Return what the filesystem tells about it.

        Raises:
            OSError: If there is nothing, or it cannot be reached.
        """
        filesystem, path = _opened_at(self._text)
        return dict(_call(filesystem.info, path))

    def entries(self) -> dict[str, bool]:
        """Return the names in the folder, sorted, and whether each is a folder.

        Raises:
            OSError: If it cannot be listed.
        """
        filesystem, path = _opened_at(self._text)
        own = path.rstrip("/")
        found = _call(filesystem.ls, path, detail=True)
        inside = [entry for entry in found if entry["name"].rstrip("/") != own]
        named = {entry["name"].rstrip("/").rpartition("/")[2]: entry["type"] == "directory" for entry in inside}
        return {name: named[name] for name in sorted(named) if name}

    def read_bytes(self) -> bytes:
        """Return the file's content.

        Raises:
            OSError: If it cannot be read.
        """
        filesystem, path = _opened_at(self._text)
        return bytes(_call(filesystem.cat_file, path))

    def write_bytes(self, data: bytes) -> None:
        """Write the file's content; a folder is made as needed. A reader sees the old content or the new one.

        Raises:
            OSError: If it cannot be written.
        """
        filesystem, path = self._to_write()
        _call(filesystem.pipe_file, path, data)

    def upload(self, file: Path) -> None:
        """Write the content of a file of this machine; see ``write_bytes``.

        Raises:
            OSError: If it cannot be written, or has another size afterwards.
        """
        filesystem, path = self._to_write()
        _call(filesystem.put_file, str(file), path)
        stored, size = self.details().get("size"), file.stat().st_size
        if stored != size:
            raise OSError(errno.EIO, f"has {stored} bytes after {size} were uploaded")

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the file.

        Raises:
            OSError: If it cannot be deleted; or is missing, unless that is accepted.
        """
        filesystem, path = _opened_at(self._text)
        try:
            _call(filesystem.rm_file, path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def _to_write(self) -> tuple[Any, str]:
        filesystem, path = _opened_at(self._text)
        # A store may have no folders, or not allow to make a bucket: writing says more.
        with suppress(OSError):
            _call(filesystem.makedirs, path.rpartition("/")[0], exist_ok=True)
        return filesystem, path

    def open(self) -> BinaryIO:
        """Open the file for reading; seekable. Its faults are ``OSError``s too.

        Raises:
            OSError: If it cannot be opened.
        """
        filesystem, path = _opened_at(self._text)
        return cast("BinaryIO", _File(_call(filesystem.open, path, "rb"), self._text))


Location = Path | Url


class _File:
    """An open file for FFmpeg."""

    def __init__(self, file: Any, name: str) -> None:
        self.name = name
        self._file = file

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, size: int = -1) -> bytes:
        return bytes(_call(self._file.read, size))

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(_call(self._file.seek, offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def close(self) -> None:
        self._file.close()


def location(given: str | Path | Url) -> Location:
    """Return the place that a user names: a URL as ``Url``, anything else as ``Path``.

    ``file:///data/a.mp4`` is the path ``/data/a.mp4``.
    """
    text = str(given)
    if isinstance(given, Url) or (isinstance(given, str) and (found := _URL.match(text)) is not None):
        if isinstance(given, str) and "::" not in text and found is not None and found[1].lower() in _LOCAL:
            return Path(text[found.end() :])
        return Url(text)
    return Path(given)


def entries(folder: Location) -> list[str]:
    """Return the names in a folder; none if there is no such folder.

    Raises:
        OSError: If it cannot be listed.
    """
    try:
        return list(folder.entries()) if isinstance(folder, Url) else os.listdir(folder)
    except FileNotFoundError:
        return []


def request_each(function: Callable[[T], object], items: Iterable[T]) -> None:
    """Call a function, which asks a store, for each item: many at a time, as most of them wait.

    Raises:
        Exception: What the function raises first; the calls that have not begun are left out.
    """
    waiting = iter(items)
    with ThreadPoolExecutor(_REQUESTS) as pool:
        while some := list(islice(waiting, _REQUESTS * 16)):  # a future takes a kilobyte: not all at once
            try:
                deque(pool.map(function, some), maxlen=0)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def write_text(place: Location, text: str) -> None:
    """Write a whole text file in UTF-8: on a disk it is complete or absent, whatever interrupts this.

    Raises:
        OSError: If it cannot be written at a URL.
        VcycleError: If it cannot be written on a disk.
    """
    if isinstance(place, Url):
        place.write_bytes(text.encode())
    else:
        atomic_text(place, text)


def given_location(text: str) -> Location:
    """Return the place that is given on a command line, where ``~`` is the home folder."""
    place = location(text)
    return place if isinstance(place, Url) else place.expanduser()


def joined(root: Location, name: str) -> Location:
    """Return a file in a folder; a name that is a URL or an absolute path stands for itself."""
    return location(name) if is_url(name) else root / name


def inside(root: Location, name: str) -> bool:
    """Return whether a listed file is in a folder, without following links."""
    if isinstance(root, Url) or is_url(name):
        whole, own = str(joined(root, name)), str(root).rstrip("/") + "/"
        if isinstance(root, Url) and not is_url(name):
            return not name.startswith("/") and not os.path.normpath(name).startswith("..")
        return whole.startswith(own) and ".." not in PurePosixPath(whole).parts
    base = os.path.abspath(root)
    return os.path.commonpath([base, os.path.normpath(os.path.join(base, name))]) == base


def local_path(given: str, key: str) -> Path:
    """Return a path that has to be on this machine.

    Raises:
        DataError: If it is a URL.
    """
    place = location(given)
    if isinstance(place, Url):
        raise DataError(f"{key} {given}: a URL, but a path on this machine is needed: copy the files here first")
    return place


def _call(function: Any, *arguments: Any, **options: Any) -> Any:
    """Call a filesystem, whose libraries raise errors of their own.

    Raises:
        OSError: For any of them.
    """
    try:
        return function(*arguments, **options)
    except FileNotFoundError as error:
        cause = f": {' '.join(str(error.__cause__).split())}" if error.__cause__ is not None else ""
        raise FileNotFoundError(errno.ENOENT, f"no such file{cause}") from error
    except (OSError, ImportError):
        raise
    except Exception as error:
        raise OSError(summary(error)) from error


def _opened_at(url: str) -> tuple[Any, str]:
    """Return this thread's filesystem of a URL, and the path in it.

    Raises:
        NotInstalledError: If the filesystem's package is missing.
        OSError: If it cannot be opened.
    """
    head, colons, rest = url.partition("::")
    try:
        if colons and "://" in head:
            # fsspec does not keep archives, whose index takes a pass over all of their headers.
            protocol, _, member = head.partition("://")
            return _archive(protocol, rest, os.getpid(), threading.get_ident()), member
        filesystem, path = require("fsspec.core").url_to_fs(url)
    except (ImportError, ValueError) as error:  # a package that is missing, or a protocol of none that is installed
        raise NotInstalledError(f"{url}: {error}") from error
    return filesystem, path


@lru_cache(maxsize=_MOST_ARCHIVES)
def _archive(protocol: str, url: str, process: int, thread: int) -> Any:
    """Open an archive."""
    return _call(require("fsspec.core").url_to_fs, f"{protocol}://::{url}")[0]
