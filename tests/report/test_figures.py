"""Figures have plain numbers at their ticks, and draw every letter that an installed font has."""

import warnings

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.font_manager import fontManager

from vcycle.utils import plain_figure
from vcycle.utils.extras import new_figure


def labels(axis):
    axis.figure.draw_without_rendering()
    low, high = sorted(axis.get_view_interval())
    ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    return [text.get_text() for at, text in ticks if low <= at <= high]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([100_000.0, 100_004.0], [f"100,{tick:05.1f}" for tick in np.arange(0, 4.1, 0.5)]),
        ([0.0, 2e-5], ["0.000000", "0.000005", "0.000010", "0.000015", "0.000020"]),
        ([0.72495, 0.72505], ["0.72496", "0.72498", "0.72500", "0.72502", "0.72504"]),
    ],
)
def test_ticks_have_neither_offsets_nor_powers_of_ten(values, expected):
    axis = new_figure(figsize=(2.0, 2.6), layout="constrained").subplots()
    axis.plot([0, 1], values)
    axis.margins(y=0)
    assert [text.replace("−", "-") for text in labels(axis.yaxis)] == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (30, 110, ["30", "40", "60", "80", "100"]),
        (11, 65, ["20", "30", "50"]),
        (18, 91, ["20", "30", "50", "70"]),
        (11, 200, ["20", "30", "50", "70", "100", "200"]),
        (1e-4, 0.8, ["0.0001", "0.001", "0.01", "0.1"]),
    ],
)
def test_a_logarithmic_axis_has_plain_numbers_and_several(low, high, expected):
    axis = new_figure(figsize=(6, 2), layout="constrained").subplots()
    axis.set_xscale("log")
    axis.set_xlim(low, high)
    assert labels(axis.xaxis) == expected


def font_with(letters, file):
    """A font that draws each of some letters as a black square."""
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 800), (800, 800), (800, 0)):
        pen.lineTo(corner)
    pen.closePath()
    names = [".notdef", *(f"u{ord(letter):04X}" for letter in letters)]
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder(names)
    font.setupCharacterMap({ord(letter): name for letter, name in zip(letters, names[1:], strict=True)})
    font.setupGlyf(dict.fromkeys(names, pen.glyph()))
    font.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "Vcycle Squares", "styleName": "Regular"})
    font.setupOS2(sTypoAscender=800, usWinAscent=800, usWinDescent=200)
    font.setupPost()
    font.save(file)


def drawn(text):
    figure = new_figure(figsize=(3, 1), dpi=100)
    figure.text(0.1, 0.3, text, fontsize=30)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return (np.asarray(canvas.buffer_rgba())[..., 0] < 128).sum()


@pytest.fixture
def squares(tmp_path, monkeypatch):
    """The installed fonts and one with two Chinese letters."""
    monkeypatch.setattr(fontManager, "ttflist", [*fontManager.ttflist])
    plain_figure._fonts_with.cache_clear()
    font_with("打球", tmp_path / "squares.ttf")
    fontManager.addfont(tmp_path / "squares.ttf")
    yield
    plain_figure._fonts_with.cache_clear()


def test_letters_come_from_any_installed_font_that_has_them(squares):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # A square of 0.8 × 30 points at 100 dots per inch.
        assert drawn("打球") == pytest.approx(2 * (0.8 * 30 * 100 / 72) ** 2, rel=0.1)
        assert drawn("a 打") > 0.45 * drawn("打球") > drawn("a") > 0


def test_letters_that_no_font_has_are_drawn_without_a_warning(monkeypatch):
    monkeypatch.setattr(fontManager, "ttflist", [font for font in fontManager.ttflist if font.name == "DejaVu Sans"])
    plain_figure._fonts_with.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert drawn("\u31c0 \U0001f980") > 0
    plain_figure._fonts_with.cache_clear()
