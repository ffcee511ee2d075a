import io
import re
from dataclasses import asdict

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from vcycle.report.comparison import comparison_figure, comparison_table, draw_comparison, failed, statements
from vcycle.tasks.base import measures
from vcycle.utils.extras import new_figure


def interval(difference, half=0.01):
    return {"difference": difference, "low": difference - half, "high": difference + half, "confidence": 0.95}


def gain(speedup, difference=None, paired=None, no_worse="not shown", doubt=None, wall=None):
    return {
        "speedup": speedup,
        "speedup_low": 0.9 * speedup,
        "speedup_high": 1.2 * speedup,
        "wall_speedup": wall or speedup,
        "clocks_disagree": wall is not None,
        "cpu_speedup": speedup,
        "difference": None if difference is None else interval(difference),
        "paired": paired,
        "no_worse": no_worse,
        "doubt": doubt,
    }


def reach(reached, median, low, high, runs=2):
    return {"reached": reached, "runs": runs, "median": median, "low": low, "high": high}


def arm(seconds, value, **gains):
    return {
        "train_seconds": seconds,
        "wall_seconds": 1.9 * seconds,
        "data_seconds": 0.19 * seconds,
        "steps": 1234,
        "samples": 56789,
        "value": value,
        "value_std": 0.012,
        "seeds": 2,
        "to_target": reach(2, 0.4 * seconds, 0.3 * seconds, 0.5 * seconds),
        **gains,
    }


def run(name, seed, seconds, value):
    times = [seconds * part for part in (0.25, 0.5, 1.0)]
    curve = [[7 * t, 1, value * t / seconds + 0.01 * seed] for t in times]
    return {"arm": name, "seed": seed, "curve": curve, "curve_seconds": times}


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
    "measure": asdict(measures()["top-1"]),
    "margin": 0.01,
    "target": 0.9,
    "target_of": "constant",
    "failures": [],
    "arms": ARMS,
    "runs": [run(name, seed, a["train_seconds"], a["value"]) for name, a in ARMS.items() for seed in (0, 1)],
}


def shown(table):
    output = io.StringIO()
    Console(file=output, width=160).print(table)
    return output.getvalue()


def test_the_table_has_a_row_per_plan_with_its_gains():
    text = shown(comparison_table(DATA, "tiny"))
    rows = {line.split()[0]: line for line in text.splitlines() if line.split() and line.split()[0] in ARMS}
    assert list(rows) == list(ARMS)
    for part in ("25.0 s", "47.5 s", "1,234", "56,789", "89.5 % ± 1.2", "4.00×", "2.50×"):
        assert part in rows["cascade"]
    assert "×" not in rows["constant"]
    assert re.search(r"accuracy +vs +vs its", text)
    assert re.search(r"\(test\) +constant +control", text)
    assert "mean over 2 seeds, ± standard deviation" in text
    assert "tiny" in text


def test_a_row_of_the_table_is_one_line_of_100_columns():
    control = {**ARMS["control:cascade"], "to_target": reach(2, 9.5, 1.0, None, runs=5)}
    output = io.StringIO()
    Console(file=output, width=100).print(comparison_table({**DATA, "arms": {**ARMS, "control:cascade": control}}, "x"))
    lines = output.getvalue().splitlines()
    (row,) = (line for line in lines if line.split()[:1] == ["control:cascade"])
    assert " ".join(row.split()[1:]) == "62.5 s 118.8 s 1,234 56,789 88.5 % ± 1.2 1.60× 9.5 s (2 of 5)"
    assert max(map(len, lines)) <= 100


def test_a_title_is_shown_as_it_is():
    assert "videos[bold]/x.yaml" in shown(comparison_table(DATA, "videos[bold]/x.yaml"))


def test_what_takes_longer_is_said_to():
    slow = {**DATA, "arms": {**ARMS, "cascade": arm(125.0, 0.9, over_constant=gain(0.8, 0.0))}}
    assert "0.80×" in shown(comparison_table(slow, "tiny"))
    assert statements(slow)[0].startswith(
        "cascade trains 1.25× slower (1.04 to 1.39; wall clock 1.25×) than the constant shape"
    )


def test_the_statements_name_both_comparisons_with_their_intervals():
    assert statements(DATA) == [
        "cascade trains 4.00× faster (3.60 to 4.80; wall clock 4.00×) than the constant shape; "
        "accuracy -0.5 points (95% interval -1.5 to +0.5, Welch); non-inferior (margin 1 point): inconclusive",
        "cascade trains 2.50× faster (2.25 to 3.00; wall clock 2.50×) than its LR-matched control; "
        "accuracy +1.0 points (95% interval +0.0 to +2.0, Welch); non-inferior (margin 1 point): inconclusive",
        "to 90.0 % on validation, what constant ends at: cascade 10.0 s (median; 7.5 to 12.5); "
        "constant 40.0 s (median; 30.0 to 50.0); control:cascade 25.0 s (median; 18.8 to 31.2)",
    ]
    one_seed = {**DATA, "arms": {**ARMS, "cascade": arm(25.0, 0.9, over_constant=gain(4.0))}}
    assert statements(one_seed)[0] == (
        "cascade trains 4.00× faster (3.60 to 4.80; wall clock 4.00×) than the constant shape; "
        "non-inferior (margin 1 point): inconclusive"
    )
    assert statements({**DATA, "plan": None}) == []


def test_both_intervals_are_said_where_both_are_known():
    best = arm(25.0, 0.9, over_constant=gain(4.0, -0.005, interval(-0.005, 0.04), "shown worse"))
    assert statements({**DATA, "margin": 0.03, "arms": {**ARMS, "cascade": best}})[0] == (
        "cascade trains 4.00× faster (3.60 to 4.80; wall clock 4.00×) than the constant shape; "
        "accuracy -0.5 points (95% intervals -4.5 to +3.5, paired bootstrap over seeds and videos; "
        "-1.5 to +0.5, Welch); inferior (margin 3 points): shown"
    )


@pytest.mark.parametrize(
    ("split", "paired", "verdict", "doubt", "words"),
    [
        ("test", interval(0.0), "shown", None, "non-inferior (margin 1 point): shown"),
        ("test", None, "shown", None, "non-inferior (margin 1 point) on these videos only: shown"),
        (
            "val",
            None,
            "shown",
            None,
            "non-inferior (margin 1 point) on these videos only (which also chose it): shown",
        ),
        (
            "val",
            None,
            "shown worse",
            None,
            "inferior (margin 1 point) on these videos only (which also chose it): shown",
        ),
        ("val", None, "not shown", None, "non-inferior (margin 1 point): inconclusive"),
        ("test", interval(0.0), "not shown", "few", "non-inferior (margin 1 point): inconclusive (too few videos)"),
        (
            "test",
            interval(0.0),
            "not shown",
            "failed",
            "non-inferior (margin 1 point): inconclusive (a run failed)",
        ),
    ],
)
def test_a_verdict_says_what_it_is_about_and_what_it_lacks(split, paired, verdict, doubt, words):
    best = arm(25.0, 0.9, over_constant=gain(4.0, 0.0, paired, verdict, doubt))
    assert statements({**DATA, "split": split, "arms": {**ARMS, "cascade": best}})[0].endswith(f"; {words}")


def test_of_one_seed_no_spread_is_shown():
    data = {**DATA, "arms": {name: a | {"seeds": 1, "value_std": 0.0} for name, a in ARMS.items()}}
    table = shown(comparison_table(data, "tiny"))
    assert "±" not in table
    assert "one seed; 2× means half the training time, by steps timed in turns" in " ".join(table.split())


def test_a_restoration_is_told_of_in_decibels():
    restored = {name: arm(a["train_seconds"], 27.125 + a["value"]) for name, a in ARMS.items()}
    restored["cascade"] |= {"over_control": gain(2.0, 0.012, None, "shown")}
    data = {**DATA, "arms": restored, "measure": asdict(measures()["PSNR"]), "margin": 0.05, "target": 27.9}
    assert "28.02 dB ± 0.01" in shown(comparison_table(data, "tiny"))
    assert re.search(r" PSNR .*\n.* \(test\) ", shown(comparison_table(data, "tiny")))
    assert statements(data)[0] == (
        "cascade trains 2.00× faster (1.80 to 2.40; wall clock 2.00×) than its LR-matched control; "
        "PSNR +0.01 dB (95% interval +0.00 to +0.02, Welch); non-inferior (margin 0.05 dB) on these clips only: shown"
    )
    assert statements(data)[1].startswith("to 27.90 dB on validation")
    assert [axis.get_ylabel() for axis in comparison_figure(data).axes] == [
        "PSNR on validation (dB)",
        "PSNR on test (dB)",
    ]


@pytest.mark.parametrize(
    ("found", "cell", "words"),
    [
        (reach(0, None, None, None), "never", "cascade never"),
        (reach(1, None, 3.0, None), "1 of 2", "cascade not by most (1 of 2 seeds, the first after 3.0 s)"),
        (
            reach(3, 9.0, 3.0, None, runs=4),
            "9.0 s (3 of 4)",
            "cascade 9.0 s (median; 3 of 4 seeds, the first after 3.0 s)",
        ),
        (reach(1, 3.0, 3.0, 3.0, runs=1), "3.0 s", "cascade 3.0 s;"),
    ],
)
def test_arms_that_do_not_reach_the_target_are_said_not_to(found, cell, words):
    data = {**DATA, "arms": {**ARMS, "cascade": {**ARMS["cascade"], "to_target": found}}}
    row = next(
        line for line in shown(comparison_table(data, "tiny")).splitlines() if line.lstrip().startswith("cascade")
    )
    assert row.rstrip().endswith(cell)
    assert words in statements(data)[-1]


def test_without_a_target_there_is_no_column_for_it():
    data = {**DATA, "target": None, "constant": None}
    assert "(val)" not in shown(comparison_table(data, "tiny"))
    assert len(statements(data)) == 2


def test_runs_that_failed_are_named_and_marked():
    failures = [{"arm": "constant", "seed": 2, "key": "k", "failed": "the loss is not finite at step 7"}]
    assert failed({**DATA, "failures": failures}) == [
        "constant, seed 2 failed and is excluded: the loss is not finite at step 7; the same command retries it"
    ]
    labels = [line.get_label() for line in comparison_figure({**DATA, "failures": failures}).axes[0].get_lines()]
    assert "constant (1 run failed)" in labels
    uneven = {**DATA, "arms": {**ARMS, "constant": {**ARMS["constant"], "seeds": 1}}}
    assert "mean over up to 2 seeds" in shown(comparison_table(uneven, "tiny"))


def test_a_length_that_was_chosen_among_several_is_named():
    arms = {**ARMS, "constant@0.5": ARMS["constant"], "control:cascade@2": ARMS["control:cascade"]}
    said = statements({**DATA, "arms": arms, "constant": "constant@0.5", "control": "control:cascade@2"})
    assert "the constant shape (constant@0.5);" in said[0]
    assert "its LR-matched control (control:cascade@2);" in said[1]


MEASURED = {"clock": "wall-clock", "device": "NVIDIA H200", "machine": {"processor": "Xeon", "cores": 16}}


@pytest.mark.parametrize(
    ("clock", "words", "line"),
    [
        (MEASURED | {"elsewhere": False}, "by steps timed in turns", None),
        (
            MEASURED | {"elsewhere": True},
            "by steps timed in turns on NVIDIA H200 (Xeon, 16 cores)",
            "these times are by steps timed in turns on NVIDIA H200 (Xeon, 16 cores); a training of the study ran "
            "elsewhere",
        ),
        (
            {"clock": "wall clock of the trainings", "reason": "out of memory"},
            "by the wall clock of the trainings",
            "these times are by the wall clock of the trainings, which other programs change: steps were not timed, "
            "out of memory",
        ),
    ],
)
def test_what_the_times_are_by_stands_in_the_verdict_the_table_and_the_picture(clock, words, line):
    data = {**DATA, "clock": clock}
    assert f"half the training time, {words}; wall clock" in " ".join(shown(comparison_table(data, "tiny")).split())
    assert [axis.get_xlabel() for axis in comparison_figure(data).axes] == [f"training time (s),\n{words}"] * 2
    assert [said for said in statements(data) if said not in statements(DATA)] == ([] if line is None else [line])


def test_a_wall_clock_that_disagrees_is_said_to_in_the_verdict_the_table_and_the_picture():
    best = arm(25.0, 0.895, over_constant=gain(2.9, -0.005, wall=4.36), over_control=gain(2.5, 0.01))
    data = {**DATA, "arms": {**ARMS, "cascade": best}}
    said = statements(data)
    assert said[0].startswith(
        "cascade trains 2.90× faster (2.61 to 3.48; wall clock 4.36×, which disagrees) than the constant shape;"
    )
    assert said[1] == (
        "the wall clock of the trainings of cascade and constant disagrees by more than 10% and is not used: other "
        "programs ran beside them, or data came late (waiting for data: cascade 10%, constant 10% of the wall-clock "
        "time)"
    )
    assert "disagree" not in said[2]
    table = shown(comparison_table(data, "tiny"))
    assert re.search(r"cascade .* 2\.90×\* +2\.50× ", table)
    assert "wall clock: of the trainings themselves; *: which disagrees by more than 10%" in " ".join(table.split())
    assert "*" not in shown(comparison_table(DATA, "tiny"))
    title = comparison_figure(data).get_suptitle().replace("\n", " ")
    assert "cascade vs constant: 2.90× faster (2.61 to 3.48; wall clock 4.36×, which disagrees)" in title
    assert title.count("disagrees") == 1


@pytest.mark.parametrize("plan", ["cascade", None])
def test_the_figure_shows_every_plan_and_keeps_its_words_inside(tmp_path, plan):
    figure = comparison_figure({**DATA, "plan": plan})
    figure.savefig(tmp_path / "figure.png", dpi=80)
    pixels = imread(tmp_path / "figure.png")[..., :3]
    assert pixels.shape == (360, 640, 3)
    assert 0.005 < np.mean(np.any(pixels < 0.95, axis=2)) < 0.5
    axis, ends = figure.axes
    assert [line.get_label() for line in axis.get_lines() if not line.get_label().startswith("_")] == [
        *ARMS,
        "final value of constant",
    ]
    assert axis.get_xlabel() == ends.get_xlabel() == "training time (s),\nby steps timed in turns"
    assert [axis.get_ylabel(), ends.get_ylabel()] == ["top-1 accuracy on validation (%)", "top-1 accuracy on test (%)"]
    figure.draw_without_rendering()  # words are measured at the resolution that they are laid out for
    bounds = figure.bbox
    texts = [axis.xaxis.label, axis.yaxis.label, figure._suptitle, *axis.get_legend().get_texts()]
    texts += [ends.xaxis.label, ends.yaxis.label]
    for text in texts:
        if text.get_text():
            box = text.get_window_extent()
            assert bounds.x0 <= box.x0 <= box.x1 <= bounds.x1, text.get_text()
            assert bounds.y0 <= box.y0 <= box.y1 <= bounds.y1, text.get_text()


def test_the_legend_on_a_page_stands_above_the_curves():
    figure = new_figure(figsize=(6, 7), layout="constrained")
    axes = figure.subplots(2, 1)
    draw_comparison(DATA, axes, where="below")
    figure.draw_without_rendering()
    assert axes[0].get_legend().get_window_extent().y0 >= axes[0].get_window_extent().y1


def test_the_line_of_the_target_says_what_it_is():
    for changes, words in (({}, "final value of constant"), ({"target_of": None}, "target")):
        legend = comparison_figure({**DATA, **changes}).axes[0].get_legend()
        assert words in [text.get_text() for text in legend.get_texts()]


def test_the_figures_lines_are_means_over_seeds(tmp_path):
    axis, _ = comparison_figure(DATA).axes
    line = next(line for line in axis.get_lines() if line.get_label() == "cascade")
    assert line.get_xdata() == pytest.approx([6.25, 12.5, 25.0])
    assert line.get_ydata() == pytest.approx([100 * (0.895 * part + 0.005) for part in (0.25, 0.5, 1.0)])


def test_the_picture_says_the_paired_interval_where_there_is_one_and_marks_the_best_plan():
    paired = arm(25.0, 0.895, over_constant=gain(4.0, -0.005, interval(-0.02, 0.03)))
    for best, words in (
        (ARMS["cascade"], "-0.5 points (95% CI -1.5 to +0.5)"),
        (paired, "-2.0 points (95% CI -5.0 to +1.0)"),
    ):
        figure = comparison_figure({**DATA, "arms": {**ARMS, "cascade": best}})
        title, axis = figure.get_suptitle().replace("\n", " "), figure.axes[0]
        assert f"cascade vs constant: 4.00× faster (3.60 to 4.80; wall clock 4.00×), {words}" in title
    widths = {line.get_label(): line.get_linewidth() for line in axis.get_lines()}
    assert widths["cascade"] > widths["constant"] == widths["long+short"]


def test_plans_end_on_test_in_a_panel_of_its_own_and_on_validation_at_their_curves():
    def ends(axis):
        return [tuple(box.lines[0].get_xydata()[0]) for box in axis.containers]

    expected = [(a["train_seconds"], 100 * a["value"]) for a in ARMS.values()]
    curves, right = comparison_figure(DATA).axes
    assert (ends(curves), ends(right)) == ([], expected)
    (axis,) = comparison_figure({**DATA, "split": "val"}).axes
    assert ends(axis) == expected


def test_many_plans_and_a_single_validation_can_be_drawn(tmp_path):
    names = [f"plan{number}" for number in range(19)]
    data = {
        **DATA,
        "plan": "plan3",
        "constant": None,
        "control": None,
        "arms": {name: arm(10.0, 0.5) for name in names},
        "runs": [{"arm": name, "seed": 0, "curve": [[10.0, 1, 0.5]], "curve_seconds": [10.0]} for name in names],
    }
    comparison_figure(data).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


def at_chance(*names, share=1 / 6, **given):
    """A comparison in which these plans do no better than guessing."""
    arms = {name: {**a, "beats_reference": name not in names} for name, a in ARMS.items()}
    chance = {"name": "chance", "value": share, "words": "the largest class's share", "trials": 30}
    levels = {split: {**chance, "advice": "train longer (training.epochs)"} for split in ("val", "test")}
    return {**DATA, "arms": arms, "references": levels, **given}


def test_where_no_plan_beats_chance_that_is_said_and_no_gain():
    arms = {name: {**a, "value": 0.133, "beats_reference": False} for name, a in ARMS.items()}
    data = {**at_chance(), "arms": arms}
    (said,) = statements(data)
    assert said.startswith("no plan beat chance (16.7 %: the largest class's share of 30 test videos)")
    assert "training.epochs" in said
    assert "more test videos" not in said
    table = shown(comparison_table(data, "tiny"))
    assert table.count("†") == len(ARMS) + 1
    assert "; †: not above chance" in " ".join(table.split())
    assert re.search(r"chance +16\.7 %", table)
    title = comparison_figure(data).get_suptitle().replace("\n", " ")
    assert title.startswith("no plan beat chance")
    assert "faster" not in title


def test_gains_that_the_videos_are_too_few_to_show_ask_for_more_of_them():
    (said,) = statements(at_chance(*ARMS, split="val"))
    assert said.endswith("more validation videos show smaller gains")


def test_a_plan_at_chance_is_marked_beside_others_that_are_not():
    table = shown(comparison_table(at_chance("long+short"), "tiny"))
    (row,) = [line for line in table.splitlines() if "†" in line and "not above" not in line]
    assert row.split()[0] == "long+short"
    assert statements(at_chance("long+short")) == statements(DATA)
    best = statements(at_chance("cascade"))
    assert best[0] == "cascade did not beat chance (16.7 %: the largest class's share of 30 test videos)"
    assert best[1:] == statements(DATA)


def test_chance_is_a_line_beside_the_curves_and_not_beside_final_values_which_it_would_press_together():
    def lines_of(data):
        lines = [line for axis in comparison_figure(data).axes for line in axis.get_lines() if line.get_ls() == "-."]
        return [(line.get_label(), line.get_ydata()[0]) for line in lines]

    assert lines_of(at_chance()) == [("chance", pytest.approx(100 / 6))]
    assert lines_of(DATA) == []
    _, ends = comparison_figure(at_chance()).axes
    low, high = ends.get_ylim()
    values = [100 * arm["value"] for arm in ARMS.values()]
    assert max(values) - min(values) > (high - low) / 4


POINT = interval(0.0667, 0.0)


def test_an_interval_without_width_is_not_printed():
    def said(**given):
        best = arm(25.0, 0.9, over_constant={**gain(4.0), **given})
        data = {**DATA, "arms": {**ARMS, "cascade": best}}
        return statements(data)[0], comparison_figure(data).get_suptitle().replace("\n", " ")

    for text in said(difference=POINT):
        assert "+6.7 points" in text
        assert "interval +" not in text
        assert "CI +" not in text
        assert "+6.7 to +6.7" not in text
    assert "(all seeds equal: no interval)" in said(difference=POINT)[0]
    wide = interval(0.0667, 0.2)
    assert "(95% interval -13.3 to +26.7, paired bootstrap" in said(difference=POINT, paired=wide)[0]
    assert "(95% interval -13.3 to +26.7, Student over videos)" in said(difference=POINT, paired=POINT, clips=wide)[0]
    # One that is narrow says something.
    assert "+6.67 to +6.68" in said(difference=interval(0.06675, 0.00003))[0]
