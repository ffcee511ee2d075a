"""Packages whose names are imported on first use."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    Args:
        package: The package's `__name__`.
        homes: The module of each name, absolute or relative to the package (`.metrics`); of a subpackage, itself.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(homes[name], package)
        return home if home.__name__ == f"{package}.{name}" else getattr(home, name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, names
