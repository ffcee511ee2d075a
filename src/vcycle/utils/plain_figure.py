"""A matplotlib figure with plain numbers at its ticks and with every letter that an installed font has.

Imports matplotlib: `vcycle.utils.extras.new_figure` makes such figures, and imports it on use.
"""

import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any

from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, fontManager, get_font
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogFormatter, LogLocator, NullFormatter, ScalarFormatter

__all__ = ["PlainFigure"]

_NO_LETTERS = "Last Resort"
"""Fonts of this name draw a box for every character."""

_LOG_TICKS = {5: (1.0, 2.0, 3.0, 4.0, 6.0, 8.0), 20: (1.0, 2.0, 3.0, 5.0, 7.0), 200: (1.0, 2.0, 5.0)}
"""Ticks of a decade by the ratio between the ends of a logarithmic axis; only the decades if that is larger."""


class PlainFigure(Figure):
    """Ticks without offsets and powers of ten; letters from other installed fonts where the first one lacks them.

    A letter that no installed font has is drawn as a box, without a warning.
    """

    def draw(self, renderer: Any) -> None:
        """Draw the figure."""
        for axes in self.axes:
            _make_plain(axes.xaxis)
            _make_plain(axes.yaxis)
        for text in self.findobj(Text):
            _use_fallbacks(text)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"(?s)Glyph .* missing from", category=UserWarning)
            super().draw(renderer)


class _PlainFormatter(ScalarFormatter):
    """Numbers in full: `250,000` and `0.00002`."""

    def __init__(self) -> None:
        super().__init__(useOffset=False)
        self.set_scientific(False)

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of a tick."""
        text = super().__call__(x, pos)
        whole, dot, digits = text.partition(".")
        return f"{whole[:-3]},{whole[-3:]}{dot}{digits}" if 10_000 <= abs(x) < 1e6 else text


def _make_plain(axis: Axis) -> None:
    """Replace matplotlib's own formatters; those that a figure has chosen stay."""
    if type(axis.get_major_formatter()) is ScalarFormatter:
        axis.set_major_formatter(_PlainFormatter())
    elif isinstance(axis.get_major_formatter(), LogFormatter):
        low, high = sorted(axis.get_view_interval())
        subs = next((subs for ratio, subs in _LOG_TICKS.items() if high < ratio * low), (1.0,))
        axis.set_major_locator(LogLocator(subs=subs, numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axis.set_minor_formatter(NullFormatter())


def _use_fallbacks(text: Text) -> None:
    """Add to a text's fonts those of its letters that the first one lacks."""
    letters = {ord(letter) for letter in text.get_text() if not letter.isspace()}
    if max(letters, default=0) < 0x250 or "$" in text.get_text():  # every font that is in use has Latin letters
        return
    has = _letters_of(findfont(text.get_fontproperties()))
    families = list(text.get_fontfamily())
    found = [name for name in _fonts_with(frozenset(letters - has)) if name not in families]
    if found:
        text.set_fontfamily([*families, *found])


@cache
def _fonts_with(letters: frozenset[int]) -> tuple[str, ...]:
    """The installed fonts, as few as are needed for what can be drawn of some letters."""
    found, left = [], set(letters)
    for name, file in _installed() if left else ():
        if left & (own := _letters_of(file)):
            found.append(name)
            left -= own
        if not left:
            break
    return tuple(found)


def _installed() -> Iterable[tuple[str, str]]:
    """Names and files of the upright fonts of normal weight."""
    for font in sorted(fontManager.ttflist, key=lambda font: font.name):
        if font.style == "normal" and font.weight in (400, "normal", "regular") and _NO_LETTERS not in font.name:
            yield font.name, font.fname


@cache
def _letters_of(file: str) -> frozenset[int]:
    try:
        return frozenset(get_font(file).get_charmap())
    except (OSError, RuntimeError):  # a font that was removed or is damaged
        return frozenset()
