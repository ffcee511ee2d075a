"""Dataset layouts: how to find the splits of a folder, and how to read one. Users register their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from vcycle.data.locations import Location, Url
from vcycle.errors import DataError, RecipeError, did_you_mean, user_code
from vcycle.registry import Registry

__all__ = ["AUTO", "Layout", "LayoutRegistry"]

T = TypeVar("T")

AUTO = "auto"
"""The name that asks for detection."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a dataset is stored in a folder."""

    read: Callable[..., Any]
    """Reads a split: called with the folder, the split's name, and those of the options that it takes by name."""
    splits: Callable[..., Iterable[str]] | Collection[str] = ("train", "val")
    """A function that returns the splits of a folder, none if the folder has another layout; it is used for detection.
    Or the splits that every folder has: such a layout is never detected and must be named."""
    folds: int = 0
    """Number of official folds; with any, ``read`` takes the option ``fold``."""
    general: bool = False
    """Whether folders of other layouts look like it: it is tried last, and reports missing splits itself."""
    incomplete: bool = False
    """Whether listed videos may be missing: ``check_files`` leaves them out instead of raising an error."""

    def splits_in(self, path: Location, **options: Any) -> tuple[str, ...]:
        """The splits of a folder."""
        if not callable(self.splits):
            return tuple(self.splits)
        found: Iterable[str] = _call(self.splits, path, **options)
        return tuple(found)

    def takes(self, option: str) -> bool:
        """Whether the reader takes an option."""
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

    def recognised(self, path: Location, split: str | None = None) -> str | None:
        """The first layout, general ones last, by which a folder has splits; with a split, that split."""
        ordered = sorted(self.names(), key=lambda name: self[name].general)  # stable: the rest as registered
        if isinstance(path, Url):  # the others look into local folders
            ordered = [name for name in ordered if self[name].general]
        for name in ordered:
            layout = self[name]
            found = layout.splits_in(path) if callable(layout.splits) else ()
            if found and split in (None, *found):
                return name
        return None

    def read(self, kind: type[T], name: str, path: Location, split: str, **options: Any) -> T:
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
        if isinstance(path, Url) and not layout.general:
            known = " or ".join(name for name in self.names() if self[name].general)
            raise DataError(f"{path}: layout {name} is read from a local folder; a URL may be {known}")
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
    """Call a layout's function with those of the options that it takes.

    Raises:
        DataError: if it raises anything but an error of vcycle's: users register their own.
    """
    taken = {name: value for name, value in options.items() if _takes(function, name)}
    with user_code(f"{arguments[0]}: {function.__name__}, which reads the layout, failed", kind=DataError):
        return function(*arguments, **taken)


def _takes(function: Callable[..., Any], option: str) -> bool:
    parameters = inspect.signature(function).parameters
    named = option in parameters and parameters[option].kind is not inspect.Parameter.POSITIONAL_ONLY
    return named or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
