from dataclasses import asdict

import pytest

from vcycle.report.lengths import has_lengths, lengths_figure
from vcycle.tasks.base import measures


def comparison(*names, measure="top-1"):
    arms = {
        name: {"train_seconds": 10.0 * (place + 1), "cpu_seconds": 7.0, "value": 0.5 + place / 10, "value_std": 0.01}
        for place, name in enumerate(names)
    }
    return {"measure": asdict(measures()[measure]), "split": "test", "arms": arms}


def lines(axis):
    return {box.get_label(): box.lines[0].get_xydata().tolist() for box in axis.containers}


def test_a_plan_of_several_lengths_is_a_line_from_the_shortest_on():
    (axis,) = lengths_figure({"tiny": comparison("cascade@2", "constant", "cascade@0.5", "cascade")}).axes
    found = lines(axis)
    assert list(found) == ["cascade", "constant"]
    assert [x for x, _ in found["cascade"]] == [10.0, 30.0, 40.0]
    assert [y for _, y in found["cascade"]] == pytest.approx([50.0, 70.0, 80.0])
    assert axis.get_xlabel() == "training time (s, by steps timed in turns, log scale)"
    assert axis.get_ylabel() == "top-1 accuracy on test (%)"


def test_several_comparisons_stand_side_by_side_with_one_color_for_a_plan(tmp_path):
    both = {"digits": comparison("constant", "short"), "clips": comparison("short", "short@2", measure="PSNR")}
    figure = lengths_figure(both, "cpu_seconds")
    figure.savefig(tmp_path / "lengths.png")
    left, right = figure.axes
    assert [axis.get_title() for axis in figure.axes] == ["digits", "clips"]
    assert right.get_ylabel() == "PSNR on test (dB)"
    assert left.get_xlabel() == "processor time (s, log scale)"
    colors = [{box.get_label(): box.lines[0].get_color() for box in axis.containers} for axis in figure.axes]
    assert colors[0]["short"] == colors[1]["short"] != colors[0]["constant"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["constant", "short"]
    assert legend.get_window_extent().y1 < min(axis.xaxis.label.get_window_extent().y0 for axis in figure.axes)
    assert figure.get_figwidth() < 8  # its words stay readable if the picture is scaled down


def test_only_a_study_of_several_lengths_has_such_a_picture():
    assert has_lengths(comparison("constant@0.5", "constant"))
    assert not has_lengths(comparison("constant", "cascade", "control:cascade@2"))


def test_chance_is_a_dash_dotted_line():
    data = {**comparison("constant", "constant@2"), "references": {"test": {"name": "chance", "value": 0.25}}}
    (axis,) = lengths_figure({"tiny": data}).axes
    assert [line.get_ydata()[0] for line in axis.get_lines() if line.get_ls() == "-."] == [25.0]
