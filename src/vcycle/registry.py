"""Named things that users can add to: models, dataset layouts, plans, tasks.

A name is registered by a decorator, by an entry point of an installed package, or (built-ins) as ``module:attribute``,
which is imported when the name is first looked up.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, overload

from vcycle.errors import RecipeError, did_you_mean

__all__ = ["Registry", "import_attribute"]

T = TypeVar("T")


class Registry(Generic[T]):
    """Values by name.

    Example:
        >>> colours = Registry[int]("colour", "vcycle.colours")
        >>> colours.register("red", 0xFF0000)
        16711680
        >>> colours["red"], colours.names()
        (16711680, ('red',))
    """

    def __init__(self, kind: str, group: str) -> None:
        """Start empty.

        Args:
            kind: What a value is, for messages: ``model``.
            group: The group of entry points that add to it: ``vcycle.models``.
        """
        self.kind = kind
        self.group = group
        self._values: dict[str, T | str] = {}
        self._entry_points_read = False

    @overload
    def register(self, name: str, value: T) -> T: ...
    @overload
    def register(self, name: str) -> Callable[[T], T]: ...
    def register(self, name: str, value: T | None = None) -> T | Callable[[T], T]:
        """Register a value, or decorate what defines it.

        Raises:
            RecipeError: if the name is empty, or is registered for another value.
        """
        if value is None:
            return lambda decorated: self.register(name, decorated)
        known = self._values.get(name)
        if not name or (known is not None and known is not value and not _same(known, value)):
            raise RecipeError(f"{self.kind} {name!r} is registered already: choose another name")
        self._values[name] = value
        return value

    def register_lazily(self, name: str, attribute: str) -> None:
        """Register ``module:attribute``, which is imported when the name is first looked up."""
        self._values[name] = attribute

    def __getitem__(self, name: str) -> T:
        """Look up a name.

        Raises:
            RecipeError: if it is unknown, with the names that are known.
        """
        if name not in self._values:
            self._read_entry_points()
        if name not in self._values:
            known = self.names()
            raise RecipeError(
                f"{self.kind} {name!r} is unknown{did_you_mean(name, known)}; accepted: {', '.join(known)}"
            )
        value = self._values[name]
        if isinstance(value, str):
            value = self._values[name] = import_attribute(value, f"{self.kind} {name!r}")
        return value

    def __contains__(self, name: object) -> bool:
        """Whether a name is known."""
        if name not in self._values:
            self._read_entry_points()
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        """All names, in the order of their registration."""
        return iter(self.names())

    def names(self) -> tuple[str, ...]:
        """All names, in the order of their registration."""
        self._read_entry_points()
        return tuple(self._values)

    def _read_entry_points(self) -> None:
        """Add what installed packages offer; none of it is imported yet, and no built-in is replaced."""
        if self._entry_points_read:
            return
        self._entry_points_read = True
        for found in entry_points(group=self.group):
            self._values.setdefault(found.name, found.value)


def import_attribute(path: str, source: str) -> Any:
    """Import ``module:attribute``, or a module alone.

    Args:
        path: Such as ``my_package.nets:MyNet``.
        source: What names it, for messages.

    Raises:
        RecipeError: if the module cannot be imported, or has no such attribute.
    """
    module, _, attribute = path.partition(":")
    try:
        value: Any = import_module(module)
    except ImportError as error:
        raise RecipeError(f"{source}: module {module!r} cannot be imported: {error}") from error
    for part in attribute.split(".") if attribute else ():
        try:
            value = getattr(value, part)
        except AttributeError:
            raise RecipeError(f"{source}: module {module!r} has no {attribute!r}") from None
    return value


def _same(known: object, value: object) -> bool:
    """Whether two values are one definition: a module that is imported again registers its names again."""
    names = [(getattr(v, "__module__", None), getattr(v, "__qualname__", None)) for v in (known, value)]
    return names[0] == names[1] and names[0][1] is not None
