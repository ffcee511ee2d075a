import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from vcycle.bench.statistics import Interval, mean, spread, welch_interval

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
