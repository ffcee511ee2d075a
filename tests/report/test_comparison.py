import io

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from vcycle.report.comparison import comparison_figure, comparison_table, statements


def interval(difference, half=0.01):
    return {"difference": difference, "low": difference - half, "high": difference + half, "confidence": 0.95}


def gain(speedup, difference=None, paired=None):
    return {
        "speedup": speedup,
        "cpu_speedup": speedup,
        "accuracy_difference": None if difference is None else interval(difference),
        "paired_difference": paired,
    }


def arm(seconds, accuracy, **gains):
    return {
        "train_seconds": seconds,
        "cpu_seconds": 1.9 * seconds,
        "steps": 1234,
        "samples": 56789,
        "accuracy": accuracy,
        "accuracy_std": 0.012,
        "seeds": 2,
        **gains,
    }


def run(name, seed, seconds, accuracy):
    times = [seconds * part for part in (0.25, 0.5, 1.0)]
    return {"arm": name, "seed": seed, "curve": [[t, 1, accuracy * t / seconds + 0.01 * seed] for t in times]}


ARMS = {
    "constant": arm(100.0, 0.9),
    "long+short": arm(50.0, 0.85, over_constant=gain(2.0, -0.05)),
    "cascade": arm(25.0, 0.895, over_constant=gain(4.0, -0.005), over_control=gain(2.5, 0.01)),
    "control:cascade": arm(62.5, 0.885, over_constant=gain(1.6, -0.015)),
}
DATA = {
    "plan": "cascade",
    "constant": "constant",
    "control": "control:cascade",
    "split": "test",
    "arms": ARMS,
    "runs": [run(name, seed, a["train_seconds"], a["accuracy"]) for name, a in ARMS.items() for seed in (0, 1)],
}


def shown(table):
    output = io.StringIO()
    Console(file=output, width=140).print(table)
    return output.getvalue()


def test_the_table_has_a_row_per_plan_with_its_gains():
    text = shown(comparison_table(DATA, "tiny"))
    rows = {line.split()[0]: line for line in text.splitlines() if line.split() and line.split()[0] in ARMS}
    assert list(rows) == list(ARMS)
    for part in ("25.0 s", "47.5 s", "1,234", "56,789", "89.5 % ± 1.2", "1/4.00", "1/2.50"):
        assert part in rows["cascade"]
    assert "1/" not in rows["constant"]
    assert "accuracy (test)" in text
    assert "mean over 2 seeds, ± standard deviation" in text
    assert "tiny" in text


def test_a_title_is_shown_as_it_is():
    assert "videos[bold]/x.yaml" in shown(comparison_table(DATA, "videos[bold]/x.yaml"))


def test_what_takes_longer_is_said_to():
    slow = {**DATA, "arms": {**ARMS, "cascade": arm(125.0, 0.9, over_constant=gain(0.8, 0.0))}}
    assert "1.25×" in shown(comparison_table(slow, "tiny"))
    assert statements(slow)[0].startswith("cascade takes 1.25× of the training time of the constant shape")


def test_the_statements_name_both_comparisons_with_their_intervals():
    assert statements(DATA) == [
        "cascade takes 1/4.00 of the training time of the constant shape; "
        "accuracy -0.5 points (95% interval -1.5 to +0.5, Welch)",
        "cascade takes 1/2.50 of the training time of its LR-matched control; "
        "accuracy +1.0 points (95% interval +0.0 to +2.0, Welch)",
    ]
    one_seed = {**DATA, "arms": {**ARMS, "cascade": arm(25.0, 0.9, over_constant=gain(4.0))}}
    assert statements(one_seed) == ["cascade takes 1/4.00 of the training time of the constant shape"]
    assert statements({**DATA, "plan": None}) == []


def test_an_interval_over_seeds_and_videos_is_said_in_place_of_welchs():
    best = arm(25.0, 0.9, over_constant=gain(4.0, -0.005, interval(-0.005, 0.04)))
    assert statements({**DATA, "arms": {**ARMS, "cascade": best}}) == [
        "cascade takes 1/4.00 of the training time of the constant shape; "
        "accuracy -0.5 points (95% interval -4.5 to +3.5, paired bootstrap over seeds and videos)"
    ]


def test_a_length_that_was_chosen_among_several_is_named():
    said = statements({**DATA, "constant": "constant@0.5", "control": "control:cascade@2"})
    assert "the constant shape (constant@0.5);" in said[0]
    assert "its LR-matched control (control:cascade@2);" in said[1]


@pytest.mark.parametrize("plan", ["cascade", None])
def test_the_figure_shows_every_plan_and_keeps_its_words_inside(tmp_path, plan):
    figure = comparison_figure({**DATA, "plan": plan})
    figure.savefig(tmp_path / "figure.png", dpi=80)
    pixels = imread(tmp_path / "figure.png")[..., :3]
    assert pixels.shape == (360, 640, 3)
    assert 0.005 < np.mean(np.any(pixels < 0.95, axis=2)) < 0.5
    (axis,) = figure.axes
    assert [line.get_label() for line in axis.get_lines() if not line.get_label().startswith("_")] == list(ARMS)
    assert axis.get_xlabel() == "training time (s)"
    assert axis.get_ylabel() == "accuracy (%)"
    bounds = figure.bbox
    texts = [axis.xaxis.label, axis.yaxis.label, axis.title, axis._left_title, *axis.get_legend().get_texts()]
    for text in texts:
        if text.get_text():
            box = text.get_window_extent()
            assert bounds.x0 <= box.x0 <= box.x1 <= bounds.x1, text.get_text()
            assert bounds.y0 <= box.y0 <= box.y1 <= bounds.y1, text.get_text()


def test_the_figures_lines_are_means_over_seeds(tmp_path):
    (axis,) = comparison_figure(DATA).axes
    line = next(line for line in axis.get_lines() if line.get_label() == "cascade")
    assert line.get_xdata() == pytest.approx([6.25, 12.5, 25.0])
    assert line.get_ydata() == pytest.approx([100 * (0.895 * part + 0.005) for part in (0.25, 0.5, 1.0)])


def test_many_plans_and_a_single_validation_can_be_drawn(tmp_path):
    names = [f"plan{number}" for number in range(19)]
    data = {
        **DATA,
        "plan": "plan3",
        "arms": {name: arm(10.0, 0.5) for name in names},
        "runs": [{"arm": name, "seed": 0, "curve": [[10.0, 1, 0.5]]} for name in names],
    }
    comparison_figure(data).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
