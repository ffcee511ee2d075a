"""Balanced sampling: classes are drawn equally often, as a function of the position alone."""

import numpy as np
import pytest

import vcycle
from vcycle.data import Balance, PlanBatchSampler, SampleStream
from vcycle.data.stream import permute
from vcycle.errors import CheckpointError, DataError
from vcycle.plan import Baseline, multigrid

LABELS = np.repeat([0, 1, 3], [70, 25, 5])  # nothing is of class 2
PLAN = multigrid(Baseline(batch=8, frames=4, size=16, clips=100, epochs=8, lr=0.1))


def of_epoch(stream, epoch):
    return stream.indices(epoch * stream.size, stream.size)


@pytest.mark.parametrize(("strength", "quotas"), [(1, [33, 34, 0, 33]), (0.5, [54, 32, 0, 14]), (0, [70, 25, 0, 5])])
def test_each_epoch_has_each_class_as_often_as_its_quota(strength, quotas):
    balance = Balance(LABELS, strength)
    assert balance.quotas.tolist() == quotas
    stream = SampleStream(100, 7, balance)
    for epoch in range(4):
        assert np.bincount(LABELS[of_epoch(stream, epoch)], minlength=4).tolist() == quotas
    assert of_epoch(stream, 0).tolist() != of_epoch(stream, 1).tolist()


def test_the_balanced_stream_is_the_same_on_every_machine():
    # As first computed: another order would make every resumed run see other data.
    stream = SampleStream(10, 0, Balance(np.repeat([0, 1, 2], [6, 3, 1])))
    assert of_epoch(stream, 0).tolist() == [9, 9, 4, 5, 7, 9, 8, 2, 6, 7]
    assert stream.indices(95, 10).tolist() == [8, 2, 6, 9, 8, 7, 9, 8, 0, 9]


def test_an_item_comes_again_only_when_all_of_its_class_have_come():
    stream = SampleStream(100, 7, Balance(LABELS))
    found = stream.indices(0, 700)
    for label in (0, 1, 3):
        times = np.bincount(found, minlength=100)[label == LABELS]
        assert times.max() - times.min() <= 1
    assert Balance(LABELS).max_repeats == 7  # 33 samples of 5 items
    first = of_epoch(stream, 0)
    assert (np.diff(LABELS[first]) != 0).sum() > 40  # classes are mixed


def test_any_part_of_the_stream_is_that_part_of_the_whole():
    stream = SampleStream(100, 3, Balance(LABELS, 0.7))
    whole = stream.indices(0, 450)
    for first, count in ((0, 1), (37, 120), (99, 2), (250, 200), (449, 1)):
        assert stream.indices(first, count).tolist() == whole[first : first + count].tolist()
    assert SampleStream(100, 4, Balance(LABELS, 0.7)).indices(0, 450).tolist() != whole.tolist()


def test_each_draw_is_by_the_permutation_of_its_pass_over_its_class(monkeypatch):
    """By the definition, a sample at a time: orders of seeds never change."""
    labels = np.random.default_rng(0).permutation(np.repeat(range(5), [1, 3, 64, 65, 500]))
    size, seed = len(labels), 5
    balance = Balance(labels)
    ends, members = np.cumsum(balance.quotas), [np.flatnonzero(labels == label) for label in range(5)]
    expected = []
    for epoch in (0, 1):
        for slot in permute(np.arange(size), size, seed, epoch).tolist():
            label = int(np.searchsorted(ends, slot, side="right"))
            quota, own = int(balance.quotas[label]), members[label]
            turn, place = divmod(epoch * quota + slot - (int(ends[label]) - quota), len(own))
            expected.append(int(own[permute(np.array([place]), len(own), seed, turn, label, 2)[0]]))
    for block in (1 << 14, 100):
        monkeypatch.setattr("vcycle.data.stream._BLOCK", block)
        assert SampleStream(size, seed, balance).indices(0, 2 * size).tolist() == expected


def test_ranks_and_a_resumed_run_take_their_parts_of_the_same_batches():
    def batches(**how):
        sampler = PlanBatchSampler(PLAN, 100, seed=1, balance=Balance(LABELS), repeats=2, **how)
        return [[(r.index, r.key) for r in requests] for requests in sampler]

    whole = batches(rank=0, world=1)
    for world in (2, 3):
        parts = zip(*(batches(rank=rank, world=world) for rank in range(world)), strict=True)
        assert [[one for own in part for one in own] for part in parts] == whole
    assert batches(rank=0, world=1, start=5) == whole[5:]


def test_a_loader_of_ones_own_draws_the_same_and_refuses_the_state_of_another_order():
    class Numbers:
        samples_grids = True

        def __len__(self):
            return 100

        def __getitem__(self, request):
            return request.index

    balance = Balance(LABELS)
    batches = [batch.tolist() for _, batch in vcycle.steps(Numbers(), PLAN, balance=balance, seed=1)]
    expected = PlanBatchSampler(PLAN, 100, seed=1, balance=balance, rank=0, world=1)
    assert batches == [[request.index for request in requests] for requests in expected]
    plain = vcycle.loader(Numbers(), PLAN, seed=1)
    state = vcycle.loader(Numbers(), PLAN, seed=1, balance=balance).state_dict()
    vcycle.loader(Numbers(), PLAN, seed=1, balance=Balance(list(LABELS))).load_state_dict(state)
    for same in (1, np.float64(1)):
        vcycle.loader(Numbers(), PLAN, seed=1, balance=Balance(LABELS, same)).load_state_dict(state)
    for other in (Balance(LABELS, 0.5), Balance(LABELS[::-1])):
        with pytest.raises(CheckpointError, match=r"with balance .* its batches would differ"):
            vcycle.loader(Numbers(), PLAN, seed=1, balance=other).load_state_dict(state)
    with pytest.raises(CheckpointError, match=f"with balance none, but this loader has {balance.digest}"):
        vcycle.loader(Numbers(), PLAN, seed=1, balance=balance).load_state_dict(plain.state_dict())
    with pytest.raises(CheckpointError, match="balance"):
        plain.load_state_dict(state)


def test_millions_of_items_in_thousands_of_classes_are_drawn_by_arrays():
    labels = (np.random.default_rng(0).pareto(1.0, 2_000_000) * 50).astype(np.int64) % 3_000
    balance = Balance(labels)
    stream = SampleStream(len(labels), 0, balance)
    far = stream.indices(5 * len(labels) - 2_000, 4_000)
    counts = np.bincount(labels[far], minlength=3_000)
    assert counts[np.unique(labels)].max() < 15  # 1.3 on average, whatever their sizes
    assert balance.quotas.sum() == len(labels)
    assert np.ptp(balance.quotas[np.unique(labels)]) <= 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Balance([]), "one whole number per item"),
        (lambda: Balance([0.5, 1.0]), "one whole number per item"),
        (lambda: Balance([0, -1]), "one whole number per item"),
        (lambda: Balance([0, 1], 1.5), "strength=1.5: must be from 0 to 1"),
        (
            lambda: PlanBatchSampler(PLAN, 99, balance=Balance(LABELS)),
            "balance is of 100 items, .* has 99",
        ),
    ],
)
def test_groups_that_do_not_fit_are_refused(make, message):
    with pytest.raises(DataError, match=message):
        make()
