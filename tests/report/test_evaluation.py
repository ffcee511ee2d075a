"""The weakest classes, and who is taken for whom."""

import io
import warnings

import pytest
from rich.console import Console

from vcycle.tasks.classification.figures import confusion_figure, weakest_table


def drawn(classes):
    """The axes of a confusion matrix in which each class is taken for the next once; the last has no videos."""
    matrix = [[3 * (i == j) + (j == i + 1) for j in range(classes)] for i in range(classes)]
    matrix[-1] = [0] * classes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = confusion_figure(matrix, [f"class {i}" for i in range(classes)], "top-1 75.0% on 9 videos " * 5)
        figure.savefig(io.BytesIO(), format="png")
    return figure.axes[0]


@pytest.mark.parametrize(
    ("classes", "named", "numbered"), [(2, True, True), (10, True, True), (40, True, False), (174, False, False)]
)
def test_a_confusion_matrix_shows_as_much_as_there_is_room_for(classes, named, numbered):
    axis = drawn(classes)
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert (labels == [f"class {i}" for i in range(classes)]) is named
    assert len(axis.texts) == (2 * (classes - 1) if numbered else 0)
    assert ("index" in axis.get_xlabel()) is not named


def test_rows_are_shares_of_the_classs_videos_and_empty_where_it_has_none():
    shares = drawn(3).images[0].get_array()
    assert shares[0].tolist() == [0.75, 0.25, 0.0]
    assert shares.mask[2].all()


def test_four_hundred_classes_are_drawn():
    assert drawn(400).images[0].get_array().shape == (400, 400)


def text_of(table):
    printed = io.StringIO()
    Console(file=printed, width=100).print(table)
    return printed.getvalue()


def test_the_weakest_classes_come_first_and_those_without_videos_not_at_all():
    rows = [
        {"class": "run", "videos": 10, "accuracy": 0.5, "taken_for": {"class": "walk", "videos": 4}},
        {"class": "walk", "videos": 10, "accuracy": 1.0},
        {"class": "jump", "videos": 4, "accuracy": 0.25, "taken_for": {"class": "run", "videos": 3}},
        {"class": "sit", "videos": 0, "accuracy": None},
    ]
    lines = [line.strip() for line in text_of(weakest_table(rows)).splitlines() if "%" in line]
    assert [line.split() for line in lines] == [
        ["jump", "4", "25.0%", "run", "(3)"],
        ["run", "10", "50.0%", "walk", "(4)"],
    ]
    assert len([line for line in text_of(weakest_table(rows, count=1)).splitlines() if "%" in line]) == 1


def test_there_is_no_table_where_every_class_is_recognised():
    assert weakest_table([{"class": "run", "videos": 3, "accuracy": 1.0}]) is None


def test_with_several_classes_a_video_the_table_is_of_average_precision():
    text = text_of(weakest_table([{"class": "[run]", "videos": 3, "average_precision": 0.4}]))
    assert "AP" in text
    assert "[run]" in text
