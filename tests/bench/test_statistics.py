import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from vcycle.bench.statistics import Interval, mean, paired_bootstrap, spread, welch_interval

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


def test_the_paired_interval_asks_for_two_seeds_two_clips_and_the_same_of_both():
    assert paired_bootstrap([[1, 0, 1]], [[1, 1, 1]]) is None
    assert paired_bootstrap([[1], [0]], [[1], [1]]) is None
    with pytest.raises(ValueError, match=r"\(2, 2\) and \(2, 3\)"):
        paired_bootstrap([[1, 0], [0, 1]], [[1, 0, 1], [0, 1, 1]])
