"""Versions of installed packages, found without importing them, and what goes with them."""

import re
from importlib import metadata

__all__ = ["older", "pip_torchvision"]


def older(package: str, than: str) -> str | None:
    """Return the installed version of a package if it is older than another; None if it is not, or not installed.

    Args:
        package: The package's name.
        than: Major and minor version, such as `2.8`.
    """
    found = _installed(package)
    return found if found is not None and _release(found) < _release(than) else None


def pip_torchvision() -> str:
    """Return the command that installs torchvision for the installed PyTorch, which pip would otherwise replace."""
    torch = _installed("torch")
    return "pip install torchvision" + ("" if torch is None else f" torch=={torch.partition('+')[0]}")


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, ...]:
    """Return major and minor version: `2.10.0+cu126` is (2, 10)."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))
