from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from vcycle.data import SampleStream
from vcycle.data.stream import permute
from vcycle.errors import DataError


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 31, 63, 64, 65, 100, 127, 128, 1000, 4097, 60_000])
def test_every_epoch_is_a_permutation(size):
    stream = SampleStream(size, seed=7)
    for epoch in (0, 1, 1000):
        assert sorted(stream.indices(epoch * size, size).tolist()) == list(range(size))


@given(size=st.integers(1, 40), batches=st.lists(st.integers(0, 90), min_size=1, max_size=12))
def test_batches_of_any_size_cut_one_stream(size, batches):
    stream = SampleStream(size, seed=3)
    edges = np.cumsum([0, *batches]).tolist()
    cut = [stream.indices(first, last - first) for first, last in pairwise(edges)]
    whole = stream.indices(0, edges[-1])
    assert np.array_equal(np.concatenate(cut), whole)
    for epoch in range(edges[-1] // size):
        assert sorted(whole[epoch * size : (epoch + 1) * size].tolist()) == list(range(size))


def test_epochs_and_seeds_are_ordered_differently():
    orders = {tuple(SampleStream(50, seed).indices(50 * epoch, 50)) for seed in (0, 1, -1) for epoch in range(20)}
    assert len(orders) == 60


def test_the_order_is_not_that_of_the_dataset():
    order = SampleStream(1000, seed=0).indices(0, 1000)
    assert (order == np.arange(1000)).sum() < 8
    assert (np.diff(order) == 1).sum() < 8


@pytest.mark.parametrize("size", [2, 3, 5, 8, 33, 64])
def test_every_sample_comes_at_every_place_equally_often(size):
    epochs = 1500
    orders = np.stack([permute(np.arange(size), size, 11, epoch) for epoch in range(epochs)])
    counts = np.stack([np.bincount(orders[:, place], minlength=size) for place in range(size)])
    expected = epochs / size
    assert ((counts - expected) ** 2 / expected).sum() < chi2.ppf(0.999, (size - 1) ** 2)


@pytest.mark.parametrize("size", [3, 5, 8, 20])
def test_every_pair_comes_first_equally_often(size):
    epochs = 3000
    orders = np.stack([permute(np.arange(2), size, 5, epoch) for epoch in range(epochs)])
    counts = np.bincount(orders[:, 0] * size + orders[:, 1], minlength=size * size).reshape(size, size)
    assert not counts.diagonal().any()
    pairs, expected = counts[~np.eye(size, dtype=bool)], epochs / (size * (size - 1))
    assert ((pairs - expected) ** 2 / expected).sum() < chi2.ppf(0.999, size * (size - 1) - 1)


def test_ten_thousand_million_samples_need_no_list():
    size = 10**10
    stream = SampleStream(size, seed=0)
    indices = stream.indices(3 * size - 500, 1000)
    assert len(set(indices[:500].tolist())) == len(set(indices[500:].tolist())) == 500
    assert 0 <= indices.min() < size // 10
    assert size * 9 // 10 < indices.max() < size
    assert stream.epoch(3 * size - 1) == 2
    assert stream.epoch(3 * size) == 3


def test_the_stream_is_the_same_on_every_machine():
    # As first computed: another order would make every resumed run see other data.
    first, second = [9, 8, 1, 0, 6, 7, 4, 2, 5, 3], [0, 4, 2, 7, 3, 9, 5, 1, 8, 6]
    found = SampleStream(10, seed=0).indices(0, 20)
    assert (found.tolist(), found.dtype) == (first + second, np.int64)
    edge = [763, 711, 896, 951, 427, 204, 984, 971, 988, 259]
    assert SampleStream(1000, seed=0).indices(995, 10).tolist() == edge


@pytest.mark.parametrize(
    ("size", "order"),
    [
        (64, [63, 39, 44, 9, 59, 62, 8, 58, 23, 43]),
        (65, [37, 56, 36, 48, 45, 19, 0, 59, 21, 43]),
        (128, [37, 96, 36, 73, 45, 19, 110, 72, 21, 43]),
        (129, [83, 18, 68, 108, 115, 0, 11, 71, 119, 28]),
    ],
)
def test_so_it_is_where_the_shuffled_range_doubles(size, order):
    # As first computed, too. At 64 the walk along cycles takes over; each power of two has a network of its own.
    assert SampleStream(size).indices(0, 10).tolist() == order


@pytest.mark.parametrize("size", [60, 1000])
def test_points_of_any_shape_are_mapped_one_by_one(size):
    points = np.arange(60).reshape(4, 3, 5)
    found = permute(points, size, 11, 2)
    assert (found.shape, found.dtype) == (points.shape, np.int64)
    assert found.ravel().tolist() == [int(permute(np.array([point]), size, 11, 2)[0]) for point in range(60)]


def test_a_dataset_may_have_as_many_samples_as_are_exact_and_no_more():
    assert 0 <= SampleStream(2**48).indices(2**48 - 1, 1)[0] < 2**48
    with pytest.raises(DataError, match=r"281,474,976,710,657 samples: .* at most 281,474,976,710,656"):
        SampleStream(2**48 + 1)


def test_an_empty_dataset_is_refused():
    with pytest.raises(DataError, match="at least 1"):
        SampleStream(0)


def test_there_is_nothing_before_the_first_sample():
    for first, count in ((-1, 1), (0, -1)):
        with pytest.raises(ValueError, match=f"first={first}, count={count}: positions"):
            SampleStream(3).indices(first, count)
