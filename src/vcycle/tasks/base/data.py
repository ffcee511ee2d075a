"""The data of a task: where it is, what it is, and its dataset for the loader."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from vcycle.data.layouts.layout import LayoutRegistry
from vcycle.errors import RecipeError
from vcycle.section import Section
from vcycle.tasks.base.part import F, Part, Progress, R
from vcycle.tasks.base.splits import Splits

if TYPE_CHECKING:
    from pathlib import Path

    from vcycle.data import Balance, GridSampler, VideoList

__all__ = ["TaskData"]


class TaskData(Part[R, F]):
    """The data of a task. All methods but `dataset` import no torch."""

    layouts: ClassVar[LayoutRegistry | None] = None
    """The layouts of its datasets; None for a task without such a choice."""

    @abstractmethod
    def find(self, recipe: R, work: "Path", progress: Progress = lambda *_: None) -> Splits[F]:
        """Find the recipe's data; generate an embedded dataset under `work`.

        Raises:
            RecipeError: if the recipe sets no data.
            DataError: if the data is missing or malformed.
        """

    def length(self, recipe: R) -> int | None:
        """Length of the training set if the recipe states it, else None."""
        return None

    def outputs(self, recipe: R) -> int:
        """Number of classes of the model if no data is available; 0 for a task without classes."""
        return 0

    def check(self, recipe: R, splits: Splits[F], *, fresh: bool) -> list[str]:
        """Check that the recipe can be trained on its data, before the run folder is created.

        Args:
            recipe: The recipe.
            splits: Its data.
            fresh: Whether the training starts from step 0, instead of resuming.

        Returns:
            Notes about the data for the user, such as clips that will be replaced.

        Raises:
            RecipeError: if the recipe is wrong.
            DataError: if the data is wrong.
        """
        return []

    def describe(self, recipe: R, splits: Splits[F]) -> str:
        """Describe the data in one line."""
        return f"{len(splits.train):,} training items and {len(splits.val):,} validation items"

    def unopenable(self, recipe: R, splits: Splits[F], progress: Progress) -> Mapping[str, str]:
        """Training items that cannot be opened, with the reason; the training leaves them out.

        Raises:
            DataError: if there are more of them than `run.bad_limit` allows.
        """
        return {}

    def video_files(self, recipe: R) -> "Mapping[str, VideoList]":
        """The video files in the recipe's data, by split."""
        raise RecipeError(f"task {self.name} has no list of videos")

    def grids(self, recipe: R) -> "GridSampler":
        """The sampler of clips from videos."""
        raise RecipeError(f"task {self.name} does not sample grids from videos")

    def embedded_data(self, recipe: R, work: "Path") -> Section | None:
        """The data section of a run on an embedded dataset, with the path of that dataset; None for other data."""
        return None

    @abstractmethod
    def dataset(
        self, recipe: R, splits: Splits[F], split: str, work: "Path", progress: Progress = lambda *_: None
    ) -> Any:
        """The dataset of a split for `vcycle.loader`; its caches are stored under `work`."""

    def repeats(self, recipe: R) -> int:
        """Samples of each item in succession (repeated augmentation)."""
        return 1

    def balance(self, recipe: R, splits: Splits[F]) -> "Balance | None":
        """Groups of training items to draw more equally often; None to draw each item once per epoch."""
        return None
