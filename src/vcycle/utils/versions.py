"""Versions of installed packages, found without importing them."""

import re
from importlib import metadata

__all__ = ["older"]


def older(package: str, than: str) -> str | None:
    """Return the installed version of a package if it is older than another; None if it is not, or not installed.

    Args:
        package: The package's name.
        than: Major and minor version, such as `2.8`.
    """
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
    return found if _release(found) < _release(than) else None


def _release(version: str) -> tuple[int, ...]:
    """Return major and minor version: `2.10.0+cu126` is (2, 10)."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))
