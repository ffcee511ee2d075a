"""The color of a plan is the same in every figure, and readable on a light and on a dark page."""

from itertools import combinations, product

import pytest

from vcycle.plan.colors import _OWN, color_of, plan_styles
from vcycle.report.parts import PART_COLORS, RATE, WAITING
from vcycle.tasks.base import tasks

SHIPPED = sorted({name for task in ("recognition", "superresolution", "images") for name in tasks[task].plans.names()})
PLANS = [name for name in SHIPPED if not name.endswith("+scaled")]


def luminance(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(color, page):
    low, high = sorted((luminance(color), luminance(page)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    "name",
    ["cascade", "cascade@1.5", "control:cascade", "control:cascade@0.5", "control of cascade", "plan=cascade",
     "plan=cascade training.lr=0.1", "training.lr=0.1 plan=cascade@2", "cascade, weights [3, 1, 1, 1]"],
)  # fmt: skip
def test_every_arm_of_a_plan_has_its_color(name):
    assert color_of(name) == color_of("cascade") != color_of("constant")


def test_a_control_is_dashed_and_hollow():
    plan, control, other = plan_styles(["long+short", "control:long+short", "control of long+short@2"])
    assert (plan.is_control, control.is_control, other.is_control) == (False, True, True)
    assert plan.line["linestyle"] == "-" != control.line["linestyle"]
    assert plan.line["markerfacecolor"] == plan.color
    assert control.line["markerfacecolor"] == control.bar["facecolor"] == "none"


def test_arms_of_one_plan_differ_in_shade_and_marker_whatever_stands_beside_them():
    one, _, two, three = plan_styles(["cascade", "short", "cascade@1.5", "plan=cascade training.lr=0.1"])
    assert len({each.color for each in (one, two, three)}) == len({each.marker for each in (one, two, three)}) == 3
    assert one.color == color_of("cascade")
    # A third of white, then of black, is mixed into #cc6fa5 and #737373.
    assert [each.color for each in plan_styles(["short"] * 4)] == ["#cc6fa5", "#dea1c4", "#8f4e74", "#cc6fa5"]
    assert [each.color for each in plan_styles(["constant"] * 3)] == ["#737373", "#a4a4a4", "#505050"]
    assert "".join(each.marker for each in plan_styles(["short"] * 9)) == "osD^vPX*o"
    assert plan_styles(["hierarchical", "hierarchical+scaled"])[0].color == color_of("hierarchical+scaled")


def test_each_shipped_plan_has_a_color_of_its_own():
    assert {"constant", "cascade", "long", "short", "long+short", "hierarchical", "spatial"} < set(PLANS)
    assert len({color_of(name) for name in PLANS}) == len(PLANS)


def test_plans_of_a_user_have_stable_colors_that_no_shipped_plan_has():
    names = ["mine", "hers", "theirs", "ours"]
    own = [style.color for style in plan_styles([*PLANS, *names])[len(PLANS) :]]
    assert own == ["#00a0a0", "#e0457b", "#8a9a00", "#5f7d95"]  # as first computed
    assert len(set(own)) == len(names)
    sixth = [style.color for style in plan_styles([*names, "yours", "its"])]
    assert (len(sixth), len(set(sixth))) == (6, 5)
    assert not set(own) & {color_of(name) for name in PLANS}
    assert color_of("mine") == plan_styles(["constant", "mine", "control:mine"])[2].color
    assert all(color_of(name) for name in ("", "名前", "\udcff", *map(str, range(40))))


def test_colors_stand_out_on_a_light_and_on_a_dark_page():
    for color in [color_of(name) for name in (*PLANS, "mine", "hers", "theirs", "ours")]:
        assert contrast(color, "#ffffff") > 2.8
        assert contrast(color, "#0d1117") > 2.8


def test_parts_of_a_step_have_no_color_of_a_plan():
    parts = [*PART_COLORS.values(), RATE, WAITING]
    plans = [color_of(name) for name in PLANS] + list(_OWN)
    for one, two in [*product(parts, plans), *combinations(parts, 2)]:
        distance = sum((a - b) ** 2 for a, b in zip(rgb(one), rgb(two), strict=True)) ** 0.5
        assert distance > 45, (one, two)


def rgb(color):
    return [int(color[at : at + 2], 16) for at in (1, 3, 5)]


def seen_by(color, matrix):
    """A color as linear RGB through a simulation of a color-blind eye."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return [sum(weight * part for weight, part in zip(row, linear, strict=True)) for row in matrix]


# Machado, Oliveira and Fernandes 2009, severity 1.
PROTAN = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
DEUTAN = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))


@pytest.mark.parametrize("eye", [PROTAN, DEUTAN], ids=["protan", "deutan"])
@pytest.mark.parametrize("task", ["recognition", "superresolution"])
def test_plans_of_a_task_are_told_apart_by_color_blind_readers(task, eye):
    known = [name for name in tasks[task].plans.names() if not name.endswith("+scaled")]
    for one, two in combinations(known, 2):
        pair = zip(seen_by(color_of(one), eye), seen_by(color_of(two), eye), strict=True)
        assert sum((a - b) ** 2 for a, b in pair) ** 0.5 > 0.06, (one, two)
