"""Computes the chance level. A plan must beat it before its speed means anything."""

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Chance"]

_LEVEL = 0.05
"""Significance level of the test against chance."""


@dataclass(frozen=True, kw_only=True)
class Chance:
    """The accuracy of the best constant answer on a split."""

    share: float
    """Share of the largest class among its videos."""
    videos: int
    """Number of videos."""

    def beaten_by(self, accuracy: float) -> bool:
        """Whether an accuracy is significantly above chance, given the number of videos.

        A one-sided binomial test at 5 %. Seeds share the videos, so they do not add samples.

        Args:
            accuracy: The mean over seeds, in 0..1.

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
