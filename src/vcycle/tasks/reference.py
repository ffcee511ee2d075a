"""What needs no training: a plan must beat it before its speed means anything."""

from dataclasses import dataclass

__all__ = ["Reference"]

_LEVEL = 0.05
"""Significance level of the test against a share."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The value of a measure on one split without training: that of the best constant answer, of an interpolation."""

    name: str
    """Its name in a table: `chance`."""
    value: float
    """The value, in the measure's scale."""
    words: str
    """What it is: `the largest class's share`."""
    advice: str
    """What to do if no plan beats it."""
    trials: int | None = None
    """Number of items, if the measure is the share of them that are right; None for another measure."""

    def beaten_by(self, value: float) -> bool:
        """Whether a value is above the reference, a share significantly so, given the number of items.

        The test of a share is binomial, one-sided, at 5 %. Seeds share the items, so they do not add samples.

        Args:
            value: The mean over seeds.

        Example:
            >>> chance = Reference(name="chance", value=1 / 6, words="a guess", advice="train longer", trials=30)
            >>> chance.beaten_by(0.2), chance.beaten_by(0.5)
            (False, True)
        """
        if self.trials is None or not value > self.value:
            return value > self.value
        from scipy.special import bdtrc

        return bool(bdtrc(round(value * self.trials) - 1, self.trials, self.value) < _LEVEL)
