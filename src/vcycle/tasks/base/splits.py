"""The data of a recipe by split."""

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from vcycle.errors import RecipeError

if TYPE_CHECKING:
    from vcycle.data.locations import Location

__all__ = ["SPLITS", "Found", "Split", "Splits"]

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")

F = TypeVar("F", bound="Found")


class Found(Protocol):
    """The videos, clips or images of one split, found but not decoded."""

    @property
    def source(self) -> "Location | str":
        """The folder or list that they were found in."""
        ...

    def __len__(self) -> int:
        """Number of items."""
        ...

    def digest(self) -> dict[str, Any]:
        """Identifies the items, wherever they are stored: numbers such as `videos`, and hashes such as `names`."""
        ...


class Splits(Generic[F]):
    """The data of a recipe, by split. Each split is read on first access."""

    def __init__(
        self, read: Callable[[Split], F], has: Collection[str], *, source: str, layout: str = "folder"
    ) -> None:
        """Create the splits; nothing is read yet.

        Args:
            read: Reads one split.
            has: The splits that exist.
            source: Where the data was found, for messages.
            layout: The dataset layout.
        """
        self._read = read
        self._has = has
        self._source = source
        self.layout = layout
        self._found: dict[str, F] = {}

    def __contains__(self, split: str) -> bool:
        """Whether the split exists."""
        return split in self._has

    def __getitem__(self, split: str) -> F:
        """One split.

        Raises:
            RecipeError: if the split does not exist.
            DataError: if it cannot be read.
        """
        if split not in SPLITS:
            raise RecipeError(f"split {split!r} is unknown: val, test or train")
        if split not in self._found:
            if split == "test" and split not in self._has:
                raise RecipeError(f"the data in {self._source} has no test split: --split val")
            self._found[split] = self._read(split)
        return self._found[split]

    def without(self, dead: Mapping[str, str]) -> None:
        """Remove unreadable items from the training split, by its method `without`."""
        if dead:
            train: Any = self["train"]
            self._found["train"] = train.without(dead)

    @property
    def train(self) -> F:
        """The training split."""
        return self["train"]

    @property
    def val(self) -> F:
        """The validation split."""
        return self["val"]

    @property
    def test(self) -> F | None:
        """The test split, if there is one."""
        return self["test"] if "test" in self._has else None

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Class names; empty if the data has no classes."""
        return tuple(getattr(self.train, "classes", ()))
