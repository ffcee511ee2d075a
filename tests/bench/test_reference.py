from pathlib import Path

import pytest

from vcycle.data.layouts import VideoList
from vcycle.tasks.classification.task import chance_of
from vcycle.tasks.reference import Reference


def videos(labels, **given):
    return VideoList(
        root=Path("videos"),
        paths=[f"{number}.mp4" for number in range(given.pop("count", len(labels)))],
        labels=labels,
        classes=("a", "b", "c"),
        source=Path("videos"),
        **given,
    )


def test_chance_is_the_share_of_the_largest_class():
    found = chance_of(videos([0, 1, 1, 1, 2]))
    assert (found.name, found.value, found.trials) == ("chance", 0.6, 5)


def test_videos_of_several_labels_have_no_chance_level():
    assert chance_of(videos([0, 1, 2], count=2, label_starts=[0, 2, 3])) is None


@pytest.mark.parametrize(
    ("share", "count", "accuracy", "beaten"),
    [
        (1 / 6, 30, 0.0667, False),
        (1 / 6, 30, 1 / 6, False),
        (1 / 6, 30, 9 / 30, False),  # scipy.stats.binom.sf(8, 30, 1/6) is 5.06 %
        (1 / 6, 30, 10 / 30, True),
        (0.5, 4, 1.0, False),  # one in sixteen
        (0.5, 5, 1.0, True),
        (1.0, 50, 1.0, False),
        (0.01, 10_000, 0.012, True),
    ],
)
def test_chance_is_beaten_by_more_than_luck_gives(share, count, accuracy, beaten):
    chance = Reference(name="chance", value=share, words="", advice="", trials=count)
    assert chance.beaten_by(accuracy) is beaten


def test_a_value_that_is_no_share_is_beaten_by_any_higher_one():
    bicubic = Reference(name="bicubic", value=26.1, words="", advice="")
    assert [bicubic.beaten_by(value) for value in (26.0, 26.1, 26.2)] == [False, False, True]
