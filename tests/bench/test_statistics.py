import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import stdtrit
from scipy.stats import ttest_1samp, ttest_ind

from vcycle.bench.statistics import (
    Interval,
    clip_interval,
    mean,
    no_worse,
    paired_bootstrap,
    spread,
    welch_interval,
)

# Welch (1947) as in R: t.test(x, y) with x = extra[group == 1] and y = extra[group == 2] of R's own `sleep` data
# prints "t = -1.8608, df = 17.776", "95 percent confidence interval: -3.3654832 0.2054832".
SLEEP = (
    [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0],
    [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4],
)


def test_welchs_interval_is_that_of_r():
    difference, low, high, confidence = welch_interval(*SLEEP)
    assert difference == pytest.approx(-1.58)
    assert (low, high) == (pytest.approx(-3.3654832, abs=1e-7), pytest.approx(0.2054832, abs=1e-7))
    assert confidence == 0.95


values = st.lists(st.floats(0, 1), min_size=2, max_size=12)


@given(values, values, st.sampled_from([0.8, 0.95, 0.99]))
def test_welchs_interval_is_that_of_scipy(a, b, confidence):
    assume(min(spread(a), spread(b)) > 1e-3)
    expected = ttest_ind(a, b, equal_var=False).confidence_interval(confidence)
    found = welch_interval(a, b, confidence)
    assert found.difference == pytest.approx(mean(a) - mean(b))
    assert (found.low, found.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    mirrored = welch_interval(b, a, confidence)
    assert (mirrored.low, mirrored.high) == (pytest.approx(-found.high), pytest.approx(-found.low))


@given(values, values, st.sampled_from([0.8, 0.95, 0.99]))
def test_welchs_interval_is_that_of_the_formula(a, b, confidence):
    """Welch (1947): Student's t with the Welch-Satterthwaite degrees of freedom."""
    assume(min(spread(a), spread(b)) > 1e-3)
    of_a, of_b = (spread(x) ** 2 / len(x) for x in (a, b))
    freedom = (of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    half = stdtrit(freedom, (1 + confidence) / 2) * math.sqrt(of_a + of_b)
    found = welch_interval(a, b, confidence)
    assert found.low == pytest.approx(mean(a) - mean(b) - half, rel=1e-12, abs=1e-12 * max(1, half))
    assert found.high == pytest.approx(mean(a) - mean(b) + half, rel=1e-12, abs=1e-12 * max(1, half))


@pytest.mark.filterwarnings("error")
def test_equal_values_have_no_spread_and_a_point_for_an_interval():
    # 0.1 + 0.1 + 0.1 is not three times 0.1 in binary.
    assert spread([0.1] * 3) == 0.0
    assert welch_interval([0.1] * 3, [0.1] * 3) == Interval(0.0, 0.0, 0.0, 0.95)
    assert welch_interval([0.75] * 2, [0.5] * 2) == Interval(0.25, 0.25, 0.25, 0.95)
    assert welch_interval([0.75] * 2, [0.5, 0.6]).low < 0.2 < welch_interval([0.75] * 2, [0.5, 0.6]).high


def test_a_single_value_has_no_spread_and_no_interval():
    assert spread([0.5]) == 0.0
    assert welch_interval([0.5], [0.4, 0.5]) is None
    assert welch_interval([0.5, 0.4], []) is None
    assert spread([1.0, 2.0, 3.0, 4.0]) == pytest.approx(math.sqrt(5 / 3))


def rows_of(generator, seeds, clips, share):
    return (generator.random((seeds, clips)) < share).astype(float)


def test_the_paired_interval_is_the_normal_one_where_seeds_agree():
    a = np.tile(rows_of(np.random.default_rng(1), 1, 400, 0.8), (5, 1))
    b = np.tile(rows_of(np.random.default_rng(2), 1, 400, 0.7), (5, 1))
    found = paired_bootstrap(a, b)
    error = float(np.std(a[0] - b[0])) / math.sqrt(400)
    assert found.difference == pytest.approx(float(a.mean() - b.mean()))
    assert found.low == pytest.approx(found.difference - 1.96 * error, abs=0.1 * error)
    assert found.high == pytest.approx(found.difference + 1.96 * error, abs=0.1 * error)


def test_the_paired_interval_grows_with_the_scatter_of_seeds():
    a, b = np.ones((5, 50)), np.zeros((5, 50))
    assert paired_bootstrap(a, b) == Interval(1.0, 1.0, 1.0, 0.95)
    a[:2] = 0.0
    found = paired_bootstrap(a, b)
    assert found.difference == pytest.approx(0.6)
    assert found.low < 0.3 < 0.9 < found.high


def test_the_paired_interval_of_a_plan_and_itself_is_zero_and_mirrors():
    a, b = (rows_of(np.random.default_rng(k), 4, 30, 0.6) for k in (1, 2))
    assert paired_bootstrap(a, a) == Interval(0.0, 0.0, 0.0, 0.95)
    there, back = paired_bootstrap(a, b), paired_bootstrap(b, a)
    assert (back.low, back.high) == (pytest.approx(-there.high), pytest.approx(-there.low))
    assert there == paired_bootstrap(a, b)


def test_the_paired_interval_takes_what_was_measured_where_some_was_not():
    a, b = (rows_of(np.random.default_rng(k), 4, 60, share) for k, share in ((1, 0.9), (2, 0.7)))
    whole = paired_bootstrap(a, b)
    a[0, :20] = b[3, 40:] = np.nan
    found = paired_bootstrap(a, b)
    assert found.difference == pytest.approx(float(np.nanmean(a - b)))
    assert found.low < found.difference < found.high
    assert found.high - found.low > whole.high - whole.low


def test_clips_of_one_person_are_resampled_together():
    # All scatter is between people: the interval over them is that of as many clips, whatever each has.
    people = np.random.default_rng(3).normal(size=40)
    a = np.broadcast_to(np.repeat(people, 5), (2, 200))
    b = np.zeros((2, 200))
    of = np.repeat(np.arange(40), 5)
    by_person, by_clip = paired_bootstrap(a, b, clusters=of), paired_bootstrap(a, b)
    assert by_person == pytest.approx(paired_bootstrap(a[:, ::5], b[:, ::5]))
    assert by_person.high - by_person.low > 2 * (by_clip.high - by_clip.low)
    assert paired_bootstrap(a, b, clusters=[0] * 200) is None
    with pytest.raises(ValueError, match="for 200 clips"):
        paired_bootstrap(a, b, clusters=[0, 1])


def test_the_paired_interval_asks_for_two_seeds_two_clips_and_the_same_of_both():
    assert paired_bootstrap([[1, 0, 1]], [[1, 1, 1]]) is None
    assert paired_bootstrap([[1], [0]], [[1], [1]]) is None
    with pytest.raises(ValueError, match=r"\(2, 2\) and \(2, 3\)"):
        paired_bootstrap([[1, 0], [0, 1]], [[1, 0, 1], [0, 1, 1]])


def test_the_interval_over_clips_is_students_of_each_clips_mean_over_seeds():
    a, b = (np.random.default_rng(k).normal(size=(3, 7)) for k in (1, 2))
    expected = ttest_1samp((a - b).mean(axis=0), 0.0).confidence_interval(0.9)
    found = clip_interval(a.tolist(), b.tolist(), 0.9, shares=False)
    assert found == pytest.approx((float((a - b).mean()), expected.low, expected.high, 0.9))


def test_of_shares_a_clip_won_and_one_lost_are_counted_on_top():
    # Bonett and Price (2012): (f12 + 1)/(n + 2) and (f21 + 1)/(n + 2), here 6/102 and 2/102, and the normal's 1.96 for
    # Student's 1.984 and n for n - 1.
    a, b = [[1.0] * 100], [[1.0] * 95 + [0.0] * 5]
    a[0][0] = 0.0
    found = clip_interval(a, b, shares=True)
    won, lost = 6 / 102, 2 / 102
    half = 1.96 * math.sqrt((won + lost - (won - lost) ** 2) / 102)
    assert found.difference == pytest.approx(0.04)
    assert (found.low, found.high) == (
        pytest.approx(won - lost - half, abs=0.001),
        pytest.approx(won - lost + half, abs=0.001),
    )


@pytest.mark.parametrize(("clips", "shown"), [(40, False), (250, False), (400, True)])
def test_how_many_clips_without_a_loss_rule_out_one_in_a_hundred(clips, shown):
    same = [[1.0] * clips] * 3
    assert (clip_interval(same, same, shares=True).low > -0.01) is shown


def test_the_interval_over_clips_asks_for_two_clips():
    assert clip_interval([[1.0]], [[0.0]], shares=True) is None
    assert clip_interval([], [], shares=True) is None


@pytest.mark.parametrize(
    ("intervals", "verdict"),
    [
        ([(-0.009, 0.5), (-0.005, 0.5)], "shown"),
        ([(-0.009, 0.5), (-0.010, 0.5)], "not shown"),
        ([(-0.5, -0.011), (-0.5, -0.02)], "shown worse"),
        ([(-0.5, -0.011), (-0.5, -0.01)], "not shown"),
        ([(0.0, 0.0), (-0.009, 0.5)], "shown"),
        ([(0.0, 0.0)], "not shown"),
        ([(-0.5, -0.5)], "not shown"),
        ([], "not shown"),
    ],
)
def test_every_interval_has_to_lie_on_one_side_of_the_margin_and_points_alone_say_nothing(intervals, verdict):
    assert no_worse([Interval(0.0, low, high, 0.95) for low, high in intervals], 0.01) == verdict
