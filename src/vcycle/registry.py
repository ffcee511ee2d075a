"""Registries of things that users can add: models, dataset layouts, plans, tasks.

A name is registered by a decorator, by an entry point of an installed package, or, for built-ins, as
``module:attribute``, which is imported on first lookup.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from vcycle.errors import RecipeError, VcycleError, did_you_mean, reason

__all__ = ["Registry", "import_attribute"]

T = TypeVar("T")


class Registry(Generic[T]):
    """A mapping from names to values.

    Example:
        >>> colors = Registry[int]("color", "vcycle.colors")
        >>> colors.register("red", 0xFF0000)
        16711680
        >>> colors["red"], colors.names()
        (16711680, ('red',))
    """

    def __init__(self, kind: str, group: str) -> None:
        """Create an empty registry.

        Args:
            kind: What a value is called in messages: ``model``.
            group: Entry point group that adds to it: ``vcycle.loggers``, or ``vcycle.models.TASK`` for one task.
        """
        self.kind = kind
        self.group = group
        self._values: dict[str, T | str] = {}
        self._offered: dict[str, str] | None = None
        """Entry points, once they are read. A registered value takes precedence."""
        self._importing: set[str] = set()

    @overload
    def register(self, name: str, value: T) -> T: ...
    @overload
    def register(self, name: str) -> Callable[[T], T]: ...
    def register(self, name: str, value: T | None = None) -> T | Callable[[T], T]:
        """Register a value, or use as a decorator.

        Raises:
            RecipeError: if the name is empty, or is already registered for another value.
        """
        if value is None:
            return lambda decorated: self.register(name, decorated)
        if not name:
            raise RecipeError(f"the name of a {self.kind} must not be empty")
        known = self._values.get(name)
        replaces = known is None or name in self._importing
        if not replaces and known is not value and not _same(self.definition(known), self.definition(value)):
            raise RecipeError(f"{self.kind} {name!r} is already registered: choose another name")
        self._values[name] = value
        return value

    def register_lazily(self, name: str, attribute: str) -> None:
        """Register ``module:attribute``, which is imported on first lookup."""
        self._values[name] = attribute

    def definition(self, value: Any) -> object:
        """Return the class or function that defines a value; it identifies a module that is imported again."""
        return value

    def converted(self, value: Any, source: str) -> T:
        """Convert an imported attribute to a value of the registry.

        Args:
            value: The imported attribute.
            source: Where the name comes from, for messages.
        """
        found: T = value
        return found

    def __getitem__(self, name: str) -> T:
        """Look up a name.

        Raises:
            RecipeError: if it is unknown (lists the known names), or cannot be imported.
        """
        value = self._values.get(name)
        path = self._entry_points().get(name) if value is None else value
        if not isinstance(path, str):
            if value is None:
                raise self._unknown(name)
            return value  # type: ignore[return-value]  # only paths are strings
        source = f"{self.kind} {name!r}"
        self._importing.add(name)
        try:
            found = self.converted(import_attribute(path, source), source)
        finally:
            self._importing.discard(name)
        self._values[name] = found
        return found

    def __contains__(self, name: object) -> bool:
        """Return whether a name is known."""
        return name in self._values or name in self._entry_points()

    def __iter__(self) -> Iterator[str]:
        """Iterate over all names, in registration order."""
        return iter(self.names())

    def names(self) -> tuple[str, ...]:
        """Return all names in registration order; entry points come last."""
        return tuple({**self._values, **self._entry_points()})

    def values(self) -> Iterator[T]:
        """Iterate over all values; an entry point that cannot be imported is skipped with a warning."""
        for name in self.names():
            try:
                yield self[name]
            except RecipeError as error:
                if name in self._values:
                    raise
                warnings.warn(f"skipped: {error}", stacklevel=2)

    def _unknown(self, name: str) -> RecipeError:
        known = self.names()
        return RecipeError(f"{self.kind} {name!r} is unknown{did_you_mean(name, known)}; accepted: {', '.join(known)}")

    def _entry_points(self) -> dict[str, str]:
        """Return the entry points of installed packages as ``module:attribute``, without importing them."""
        if self._offered is None:
            offered = entry_points(group=self.group)
            self._offered = {found.name: found.value.partition("[")[0].strip() for found in offered}  # without extras
        return self._offered


def import_attribute(path: str, source: str, *, here: bool = False) -> Any:
    """Import ``module:attribute``, or a module alone.

    Args:
        path: Such as ``my_package.nets:MyNet``.
        source: Where the path comes from, for messages.
        here: Whether the module may also be a file or package in the current folder, which is then prepended to
            ``sys.path``, as ``python -m`` does.

    Raises:
        RecipeError: if the module cannot be imported, or has no such attribute.
    """
    module, _, attribute = path.partition(":")
    if here and (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        value: Any = import_module(module)
    except VcycleError:
        raise
    except (Exception, SystemExit) as error:  # importing runs the module, which can raise anything
        where = " among installed packages or in the current folder" if here else ""
        missing = isinstance(error, ModuleNotFoundError) and module.split(".")[0] == error.name
        cause = f"not found{where}" if missing else reason(error, {module.partition(".")[0]})
        raise RecipeError(f"{source}: module {module!r} cannot be imported: {cause}") from error
    for part in attribute.split(".") if attribute else ():
        try:
            value = getattr(value, part)
        except AttributeError:
            near = did_you_mean(attribute, vars(value)) if hasattr(value, "__dict__") else ""
            raise RecipeError(f"{source}: module {module!r} has no {attribute!r}{near}") from None
    return value


def _same(known: object, value: object) -> bool:
    """Return whether two values have the same definition: a module that is imported again registers its names again."""
    return _place(known) == _place(value) is not None


def _place(value: object) -> tuple[str, str] | None:
    """Return the module and name of a class or function, or of ``module:attribute``."""
    if isinstance(value, str):
        module, _, attribute = value.partition(":")
        return module, attribute
    name = getattr(value, "__qualname__", None)
    return None if name is None else (getattr(value, "__module__", ""), name)
