"""What a layout is: which splits a dataset's folder has, and what reads one. Users register layouts of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from vcycle.errors import DataError, RecipeError, did_you_mean
from vcycle.registry import Registry

__all__ = ["AUTO", "Layout", "LayoutRegistry"]

T = TypeVar("T")

AUTO = "auto"
"""Stands for the layout that is recognised."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a dataset lies in a folder."""

    read: Callable[..., Any]
    """Reads a split: called with the folder, the split's name, and those of the options that it takes by name."""
    splits: Callable[..., Iterable[str]] | Collection[str] = ("train", "val")
    """The splits of a folder, none of one that lies in another way: by this function a folder is recognised. Or the
    splits that every folder has: such a layout is never recognised, only named."""
    folds: int = 0
    """How many official folds there are; ``read`` takes the option ``fold`` where there are any."""
    general: bool = False
    """Whether folders of other layouts look like it: it is recognised where no other is, and words its errors."""
    incomplete: bool = False
    """Whether listed videos may have no file: ``check_files`` leaves them out, where other layouts raise an error."""

    def splits_in(self, path: Path, **options: Any) -> tuple[str, ...]:
        """The splits of a folder."""
        return tuple(_call(self.splits, path, **options) if callable(self.splits) else self.splits)

    def takes(self, option: str) -> bool:
        """Whether an option has a use for what reads it."""
        return _takes(self.read, option)


class LayoutRegistry(Registry[Layout]):
    """The layouts of one task."""

    def definition(self, value: Any) -> object:
        """What reads the layout."""
        return value.read if isinstance(value, Layout) else value

    def converted(self, value: Any, source: str) -> Layout:
        """Return the layout that an import found, or whose reader it found: its decorator has registered it."""
        if isinstance(value, Layout):
            return value
        found = next((known for known in self._values.values() if self.definition(known) is value), None)
        if not isinstance(found, Layout):
            raise RecipeError(f"{source} is {value!r}; accepted: what vcycle.register_layout decorates, or a Layout")
        return found

    def recognised(self, path: Path, split: str | None = None) -> str | None:
        """The first layout, general ones last, by which a folder has splits; with a split, that split."""
        ordered = sorted(self.names(), key=lambda name: self[name].general)  # stable: the rest as registered
        for name in ordered:
            layout = self[name]
            found = layout.splits_in(path) if callable(layout.splits) else ()
            if found and split in (None, *found):
                return name
        return None

    def read(self, kind: type[T], name: str, path: Path, split: str, **options: Any) -> T:
        """Read a split of a folder.

        Args:
            kind: What a layout of the task reads.
            name: The layout.
            path: The folder.
            split: The split.
            options: What its reader takes, where it takes it.

        Raises:
            RecipeError: If there is no such layout.
            DataError: If the folder has no such split, or the layout reads something else.
        """
        layout = self[name]
        splits = layout.splits_in(path, **options)
        if split not in splits and not layout.general:
            if not path.exists():
                raise DataError(f"{path}: no such folder")
            has = f"it has {', '.join(splits)}" if splits else "it has none of the dataset's lists"
            raise DataError(f"{path}: no labelled {split} split for layout {name}; {has}")
        found = _call(layout.read, path, split, **options)
        if not isinstance(found, kind):
            raise DataError(f"{path}: layout {name!r} reads {type(found).__name__}; accepted: {kind.__name__}")
        return found

    def _unknown(self, name: str) -> RecipeError:
        known = (AUTO, *self.names())
        return RecipeError(f"data.layout={name}: unknown{did_you_mean(name, known)}; accepted: {', '.join(known)}")


def _call(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Call with those of the options that a function takes."""
    return function(*arguments, **{name: value for name, value in options.items() if _takes(function, name)})


def _takes(function: Callable[..., Any], option: str) -> bool:
    parameters = inspect.signature(function).parameters
    named = option in parameters and parameters[option].kind is not inspect.Parameter.POSITIONAL_ONLY
    return named or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
