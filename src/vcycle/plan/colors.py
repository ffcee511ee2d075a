"""Colors of plans: a plan has the same color in every figure, whatever stands beside it.

The colors are readable on a light and on a dark page, and apart for most color-blind readers: those of Okabe and Ito,
some of them darker. A control has the color of its plan, dashed, with hollow markers. Plans that a user registers get
colors that no shipped plan has.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

__all__ = ["PlanStyle", "color_of", "plan_styles"]

_SHIPPED = {
    "constant": "#737373",
    "baseline": "#9a8fb0",
    "cascade": "#d55e00",
    "long": "#009e73",
    "short": "#cc6fa5",
    "long+short": "#0072b2",
    "tokens": "#c98a00",
    "hierarchical": "#aa4499",
    "synchronous": "#9a6324",
    "spatial": "#2f9fd0",
    "temporal": "#45a56b",
}
_OWN = ("#7b61ff", "#00a0a0", "#e0457b", "#8a9a00", "#5f7d95")
_SHADES = (0.0, 0.35, -0.3)
"""Of arms of the same plan: the share of white that its color is mixed with or, if negative, of black."""
_MARKERS = "osD^vPX*"
_PLAN = re.compile(r"(?:^|(?<=\s))plan=(\S+)")
_PARTS = re.compile(r"(?P<control>control(?::| of ))?(?P<base>[^\s,@]*)")


@dataclass(frozen=True, kw_only=True)
class PlanStyle:
    """How a plan is drawn."""

    color: str
    is_control: bool
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """Options of matplotlib's lines and error bars."""
        return {"color": self.color, "linestyle": (0, (4, 2)) if self.is_control else "-"} | self.dots

    @property
    def dots(self) -> dict[str, Any]:
        """Options of matplotlib's markers; those of a control are hollow."""
        return {"marker": self.marker, "markerfacecolor": "none" if self.is_control else self.color}

    @property
    def bar(self) -> dict[str, Any]:
        """Options of matplotlib's bars; those of a control are hollow."""
        return {"edgecolor": self.color, "facecolor": "none" if self.is_control else self.color}


def plan_styles(names: Iterable[str]) -> list[PlanStyle]:
    """The style of each plan or arm of a figure, in order.

    Args:
        names: Names as `vcycle compare` gives them: ``cascade``, ``control:cascade``, ``cascade@1.5``,
            ``plan=cascade training.lr=0.1``. Those of the same plan have its color, in other shades and with other
            markers.

    Example:
        >>> plan, longer, control = plan_styles(["cascade", "cascade@1.5", "control:cascade"])
        >>> plan.color == control.color, plan.color == longer.color, control.is_control
        (True, False, True)
    """
    parsed = [_parse(name) for name in names]
    own = _own_colors([base for base, _ in parsed])
    earlier: Counter[tuple[str, bool]] = Counter()
    found = []
    for base, is_control in parsed:
        place = earlier[base, is_control]
        earlier[base, is_control] += 1
        color = _shade(_SHIPPED.get(base) or own[base], _SHADES[place % len(_SHADES)])
        found.append(PlanStyle(color=color, is_control=is_control, marker=_MARKERS[place % len(_MARKERS)]))
    return found


def color_of(name: str) -> str:
    """The color of a plan, by itself in a figure.

    Example:
        >>> color_of("control of cascade") == color_of("cascade@2") == "#d55e00"
        True
    """
    (style,) = plan_styles([name])
    return style.color


def _parse(name: str) -> tuple[str, bool]:
    """The plan that an arm is of, and whether the arm is its control. `PLAN+scaled` is `PLAN` with another batch."""
    if (given := _PLAN.search(name)) is not None:
        name = given[1]
    match = _PARTS.match(name)
    assert match is not None  # every part may be empty
    return match["base"].removesuffix("+scaled") or name, match["control"] is not None


def _own_colors(bases: Sequence[str]) -> dict[str, str]:
    """Colors for plans that are not shipped: by the name, and the next free one if two names want the same."""
    found: dict[str, str] = {}
    for base in dict.fromkeys(bases):
        if base not in _SHIPPED:
            wanted = crc32(base.encode(errors="surrogateescape"))
            turns = (_OWN[(wanted + step) % len(_OWN)] for step in range(len(_OWN)))
            found[base] = next((color for color in turns if color not in found.values()), _OWN[wanted % len(_OWN)])
    return found


def _shade(color: str, towards: float) -> str:
    """A color mixed with this share of white or, if it is negative, of black."""
    end = 255 if towards > 0 else 0
    parts = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (end - part) * abs(towards)):02x}" for part in parts)
