import re
import subprocess
import sys
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcycle.data import PlanBatchSampler, SampleStream
from vcycle.errors import DataError, PlanError
from vcycle.plan import Baseline, BatchShape, ConstantRate, Plan, Stage, constant, multigrid, rank_slice

BASELINE = Baseline(batch=4, frames=8, size=64, clips=37, epochs=12, lr=0.1)
PLAN = multigrid(BASELINE)


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 20))
def test_ranks_cut_the_batch_in_order_without_gap_or_overlap(batch, bn_batch, world):
    slices = [rank_slice(batch, bn_batch, rank, world) for rank in range(world)]
    assert [place for part in slices for place in part] == list(range(batch))


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 20))
def test_ranks_take_whole_groups_where_there_are_enough(batch, bn_batch, world):
    slices = [rank_slice(batch, bn_batch, rank, world) for rank in range(world)]
    groups = -(-batch // bn_batch)
    if groups >= world:
        assert all(part.start % bn_batch == 0 for part in slices)
        taken = [-(-len(part) // bn_batch) for part in slices]
    else:
        taken = [len(part) for part in slices]
    assert max(taken) - min(taken) <= 1


@st.composite
def plans(draw):
    """Any plan at all: stages of any lengths and patterns, batches and blocks that divide nothing."""
    cells = st.builds(
        BatchShape,
        frames=st.sampled_from([2, 4]),
        size=st.sampled_from([8, 16]),
        batch=st.integers(8, 30),
        bn_batch=st.integers(1, 12),
    )
    patterns = st.lists(cells, min_size=1, max_size=3)
    stages = draw(st.lists(st.tuples(st.integers(1, 4), patterns), min_size=1, max_size=3))
    return Plan(
        name="any",
        baseline=BASELINE,
        stages=tuple(
            Stage(name=f"{place}", steps=steps, pattern=tuple(pattern), rate=ConstantRate(lr=0.1))
            for place, (steps, pattern) in enumerate(stages)
        ),
    )


@settings(max_examples=40)
@given(plans(), st.integers(1, 8), st.integers(1, 100), st.integers(1, 3))
def test_of_any_plan_ranks_take_the_global_batch_in_order_and_whole_blocks_where_there_are_enough(
    plan, world, clips, repeats
):
    alone = PlanBatchSampler(plan, clips, seed=3, repeats=repeats)
    ranks = [PlanBatchSampler(plan, clips, seed=3, repeats=repeats, rank=rank, world=world) for rank in range(world)]
    for step in plan:
        parts = [rank.requests(step) for rank in ranks]
        assert [*chain(*parts)] == alone.requests(step)
        if -(-step.batch // step.bn_batch) >= world:
            begins = [part[0].position - step.first_sample for part in parts]
            assert all(begin % step.bn_batch == 0 for begin in begins)


@settings(max_examples=20)
@given(plans(), st.integers(1, 40), st.integers(1, 4))
def test_repeated_augmentation_draws_each_item_that_often_in_succession_under_keys_of_their_own(plan, clips, repeats):
    order = SampleStream(clips, 3).indices(0, plan.samples_before(len(plan)))
    seen = []
    for step, batch in zip(plan, PlanBatchSampler(plan, clips, seed=3, repeats=repeats), strict=True):
        positions = [request.position for request in batch]
        assert positions == list(range(step.first_sample, step.first_sample + step.batch))
        expected = [int(order[position // repeats]) for position in positions]
        assert sorted(request.index for request in batch) == sorted(expected)
        assert {request.shape for request in batch} == {step.shape}
        seen += [request.key for request in batch]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("repeats", [2, 3])
def test_clips_of_one_item_share_neither_a_block_nor_a_border_where_the_batch_has_enough_items(repeats):
    # BatchNorm's groups and mixup's neighbours are consecutive clips of a block.
    plan = constant(Baseline(batch=24, frames=2, size=8, clips=1000, epochs=2, lr=0.1, bn_batch=4))
    for batch in PlanBatchSampler(plan, 1000, seed=1, repeats=repeats):
        indices = [request.index for request in batch]
        assert len(set(indices)) <= 24 // repeats + 1
        for block in range(0, len(indices), 4):
            assert len(set(indices[block : block + 4])) == 4


@pytest.mark.parametrize("repeats", [0, -1, 1.5, True, None])
def test_what_is_no_number_of_clips_of_an_item_is_refused(repeats):
    with pytest.raises(DataError, match=f"repeats={repeats}: must be a whole number of clips of each item, at least 1"):
        PlanBatchSampler(PLAN, 37, repeats=repeats)


def test_a_rank_outside_the_world_is_refused():
    with pytest.raises(ValueError, match="0 to 1"):
        rank_slice(8, 4, 2, 2)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_ranks_share_one_global_batch(world):
    alone = list(PlanBatchSampler(PLAN, 37, seed=5))
    shared = [list(PlanBatchSampler(PLAN, 37, seed=5, rank=rank, world=world)) for rank in range(world)]
    assert [[*chain(*parts)] for parts in zip(*shared, strict=True)] == alone


def test_every_step_has_its_shape_and_batch_and_the_stream_has_no_gap():
    batches = list(PlanBatchSampler(PLAN, 37, seed=1))
    assert len(batches) == len(PLAN) == len(PlanBatchSampler(PLAN, 37))
    for step, requests in zip(PLAN, batches, strict=True):
        assert len(requests) == step.batch
        assert {request.shape for request in requests} == {step.shape}
    assert [request.position for requests in batches for request in requests] == list(range(PLAN.samples))


def test_every_sample_comes_once_per_epoch_across_shapes():
    seen = [request for requests in PlanBatchSampler(PLAN, 37) for request in requests]
    for epoch in range(PLAN.samples // 37):
        indices = [request.index for request in seen if request.key[1] == epoch]
        assert sorted(indices) == list(range(37))


def test_it_goes_on_at_any_step_as_if_it_had_never_stopped():
    whole = list(PlanBatchSampler(PLAN, 37, seed=2))
    for start in range(len(PLAN) + 1):
        rest = PlanBatchSampler(PLAN, 37, seed=2, start=start)
        assert list(rest) == whole[start:]
        assert len(rest) == len(PLAN) - start
    assert list(PlanBatchSampler(PLAN, 37, seed=2, start=3, stop=6)) == whole[3:6]


def test_a_sampler_can_be_iterated_again():
    sampler = PlanBatchSampler(PLAN, 37, start=4)
    assert list(sampler) == list(sampler)


def test_a_batch_may_be_larger_than_the_dataset():
    plan = constant(Baseline(batch=10, frames=8, size=64, clips=4, steps=3, lr=0.1))
    requests = [request for batch in PlanBatchSampler(plan, 4) for request in batch]
    assert [request.key[1] for request in requests] == [position // 4 for position in range(30)]
    assert len({request.key for request in requests}) == 30


def test_replacements_of_a_journal_are_used_and_nothing_else_changes():
    plain = [request for batch in PlanBatchSampler(PLAN, 37) for request in batch]
    journal = {3: (plain[3].index + 1) % 37, 40: (plain[40].index + 2) % 37}
    mended = [request for batch in PlanBatchSampler(PLAN, 37, replaced=journal) for request in batch]
    assert [request.key for request in mended] == [request.key for request in plain]
    differ = [request.position for request, other in zip(plain, mended, strict=True) if request != other]
    assert differ == [3, 40]
    assert mended[40].index == journal[40]


def test_a_request_has_the_key_of_its_position():
    requests = [request for batch in PlanBatchSampler(PLAN, 37, seed=9) for request in batch]
    assert [request.key for request in requests] == [(9, position // 37, position) for position in range(PLAN.samples)]
    assert next(iter(PlanBatchSampler(PLAN, 37)))[0].key == (0, 0, 0)


@pytest.mark.parametrize(("start", "stop"), [(-1, None), (5, 4), (0, 10_000)])
def test_steps_outside_the_plan_are_refused(start, stop):
    with pytest.raises(PlanError, match="not in the plan"):
        PlanBatchSampler(PLAN, 37, start=start, stop=stop)


def test_a_sampler_that_goes_on_elsewhere_refuses_what_is_no_step_and_leaves_the_first_as_it_is():
    sampler = PlanBatchSampler(PLAN, 37, start=2, stop=9)
    assert list(sampler.on_rank(4)) == list(sampler)[2:]
    assert list(sampler.on_rank()) == list(sampler)
    for start in (-1, 10):
        with pytest.raises(PlanError, match="not in the plan"):
            sampler.on_rank(start)


@pytest.mark.parametrize("given", [{"rank": 0}, {"world": 2}])
def test_a_rank_without_the_number_of_ranks_is_refused_before_the_run_and_so_is_the_reverse(given):
    with pytest.raises(PlanError, match="both"):
        PlanBatchSampler(PLAN, 37, **given)


def test_a_rank_without_a_clip_is_refused_before_the_run():
    with pytest.raises(PlanError, match="has fewer clips than the 5 ranks"):
        PlanBatchSampler(PLAN, 37, rank=0, world=5)
    with pytest.raises(PlanError, match="rank 2 is not one of 2 ranks"):
        PlanBatchSampler(PLAN, 37, rank=2, world=2)


def test_arguments_in_the_wrong_order_are_refused():
    message = re.escape("plan is int, not a vcycle.Plan: the call is PlanBatchSampler(plan, size)")
    with pytest.raises(PlanError, match=f"^{message}$"):
        PlanBatchSampler(37, PLAN)


def test_sampling_needs_no_torch():
    code = "import sys, vcycle.data.sampler, vcycle.data.grids; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
