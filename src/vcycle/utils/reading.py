"""Safe reading of untrusted files: regular files only, limited sizes, YAML as plain values."""

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import yaml

__all__ = [
    "LONGEST",
    "check_regular",
    "open_regular",
    "read_text",
    "read_yaml",
    "resolved",
    "safetensors_metadata",
]

LONGEST = 1 << 20
"""Maximum size of a YAML text, such as a recipe, in bytes."""

_DIGITS = 200
"""Maximum length of an integer in characters; any such integer fits a float."""
_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)

_PLAIN = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map"))


class _Plain(yaml.SafeLoader):
    """Loads plain values only. Aliases are refused: a few lines of them can expand to more than memory holds."""

    yaml_constructors = {  # noqa: RUF012 -- the library's
        tag: make for tag, make in yaml.SafeLoader.yaml_constructors.items() if tag in _PLAIN or tag is None
    }
    yaml_implicit_resolvers = {  # noqa: RUF012 -- the library's; without it, a date is text
        first: [(tag, pattern) for tag, pattern in known if tag in _PLAIN or tag.endswith(":merge")]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_yaml_int(self, node: Any) -> int:
        """Refuse integers that are too long to compute with or to print."""
        if len(str(node.value)) > _DIGITS:
            raise yaml.MarkedYAMLError(
                problem=f"a whole number of more than {_DIGITS} characters", problem_mark=node.start_mark
            )
        return super().construct_yaml_int(node)

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not accepted", problem_mark=mark)
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Refuse duplicate keys: YAML would silently drop the first value."""
        node = super().compose_mapping_node(anchor)
        first: dict[Any, Any] = {}
        for key, _ in node.value:
            if (before := first.setdefault((key.tag, str(key.value)), key)) is not key:
                line = before.start_mark.line + 1
                raise yaml.MarkedYAMLError(
                    problem=f"key {key.value!r} is given twice (first in line {line})", problem_mark=key.start_mark
                )
        return node


_Plain.add_constructor("tag:yaml.org,2002:int", _Plain.construct_yaml_int)


def check_regular(path: Path) -> int:
    """Check that a path is a regular file: reading a FIFO or a device may never end.

    Returns:
        Its size in bytes.

    Raises:
        OSError: if it is not, does not exist, or has an invalid name.
    """
    try:
        found = os.stat(path)
    except ValueError as error:  # NUL, or a name that the system's encoding cannot represent
        raise OSError(errno.EINVAL, f"not a name that a file can have ({error})", str(path)) from None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(found.st_mode)), "something else")
        raise OSError(errno.EINVAL, f"this is {kind}, not a regular file", str(path))
    return found.st_size


def resolved(path: Path) -> Path:
    """Return the absolute path without links; circular links stay, and opening them fails."""
    return Path(os.path.realpath(path))


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        OSError: for the reasons of `check_regular`.
    """
    check_regular(path)
    return path.open("rb")


def read_text(path: Path, most: int | None = None, *, encoding: str = "utf-8") -> str:
    """Read a regular text file.

    Args:
        path: The file.
        most: Maximum size in bytes; unlimited by default.
        encoding: Its encoding.

    Raises:
        OSError: for the reasons of `check_regular`, or if the file is larger.
        UnicodeDecodeError: if it is not text.
    """
    if (size := check_regular(path)) > (size if most is None else most):
        raise OSError(errno.EFBIG, f"{size:,} bytes are too many; at most {most:,} are accepted", str(path))
    return path.read_text(encoding=encoding)


def read_yaml(text: str, most: int = LONGEST) -> Any:
    """Parse YAML into dictionaries, lists, text, numbers, booleans and None.

    Args:
        text: YAML, without aliases.
        most: Maximum length in characters.

    Raises:
        ValueError: if it is not valid, with a one-line message.
        RecursionError: if it is nested too deeply.
    """
    if len(text) > most:
        raise ValueError(f"{len(text):,} characters are too many; at most {most:,} are accepted")
    try:
        return yaml.load(text, _Plain)
    except RecursionError:
        raise
    except Exception as error:  # an invalid value, such as `!!int no`, can raise anything
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None


def safetensors_metadata(path: Path) -> Mapping[str, str]:
    """The metadata of a safetensors file; empty if it has none, or the file is not one. Its tensors are not read."""
    import safetensors

    try:
        check_regular(path)
        with safetensors.safe_open(path, framework="numpy") as file:
            return file.metadata() or {}
    except (safetensors.SafetensorError, OSError, ValueError):
        return {}
