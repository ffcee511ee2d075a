"""What guessing scores: the level that a plan has to beat before its speed says anything."""

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Chance"]

_LEVEL = 0.05
"""How often guessing would look better than chance."""


@dataclass(frozen=True, kw_only=True)
class Chance:
    """The accuracy of the best constant answer on a split."""

    share: float
    """Share of its videos that are of its largest class."""
    videos: int
    """How many videos it has."""

    def beaten_by(self, accuracy: float) -> bool:
        """Whether an accuracy is above chance by more than these few videos give by luck.

        A one-sided binomial test at 5 %. Seeds share the videos, so they do not count as more of them.

        Args:
            accuracy: A share, the mean over seeds.

        Example:
            >>> Chance(share=1 / 6, videos=30).beaten_by(0.2), Chance(share=1 / 6, videos=30).beaten_by(0.5)
            (False, True)
        """
        from scipy.special import bdtrc

        right = round(accuracy * self.videos)
        return accuracy > self.share and bool(bdtrc(right - 1, self.videos, self.share) < _LEVEL)

    def as_data(self) -> dict[str, Any]:
        """The level as plain data."""
        return asdict(self)
