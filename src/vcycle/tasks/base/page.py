"""The page of a run, which `vcycle report` writes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vcycle.tasks.base.part import F, Part, R
from vcycle.tasks.base.splits import Splits
from vcycle.tasks.details import Detail

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

__all__ = ["TaskPage"]


class TaskPage(Part[R, F]):
    """What the page of a run shows of an evaluation. Imports no torch."""

    def details(self, evaluation: Mapping[str, Any]) -> Sequence[Detail]:
        """What the page of a run shows of an evaluation beside its numbers. Imports no torch.

        Args:
            evaluation: What `vcycle eval` has written: the numbers, and `Evaluator.details`.
        """
        return ()

    def frames(
        self, recipe: R, splits: Splits[F], split: str, items: Sequence[str], *, count: int, side: int
    ) -> "Mapping[str, NDArray[uint8]]":
        """Frames of some items, to show on a page: uint8 `(frames, height, width, 3)`, without those that are missing.

        Args:
            recipe: The recipe.
            splits: Its data.
            split: The split that the items are in.
            items: The items, as an evaluation names them.
            count: The number of frames of each.
            side: The largest side in pixels.
        """
        return {}
