"""The number that a task is about: how it is called and written, and which loss of it is small."""

from dataclasses import dataclass

__all__ = ["MEASURES", "Measure"]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A number that is better when it is higher."""

    name: str
    """As an evaluation calls it."""
    words: str
    """As a table calls it."""
    unit: str
    """What is written behind it."""
    points: str
    """What is written behind a difference."""
    scale: float
    """What it is multiplied by to be written."""
    digits: int
    """Decimals that are written."""
    margin: float
    """A loss that is commonly accepted, in the number's own scale."""
    samples: str
    """What it is the mean over."""

    def text(self, value: float) -> str:
        """A value for people.

        Example:
            >>> MEASURES["top-1"].text(0.9876), MEASURES["PSNR"].text(27.183)
            ('98.8 %', '27.18 dB')
        """
        return f"{self.scale * value:.{self.digits}f} {self.unit}"


def _share(name: str, words: str) -> Measure:
    return Measure(
        name=name, words=words, unit="%", points="points", scale=100.0, digits=1, margin=0.01, samples="videos"
    )


MEASURES = {
    "top-1": _share("top-1", "accuracy"),
    "mAP": _share("mAP", "mAP"),
    "PSNR": Measure(
        name="PSNR", words="PSNR", unit="dB", points="dB", scale=1.0, digits=2, margin=0.05, samples="clips"
    ),
}
"""All of them, by name."""
