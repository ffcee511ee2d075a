"""Which parts a batch may be cut into, which of them fits, and which shapes are tried."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vcycle.plan import Baseline, cascade, multigrid
from vcycle.train.memory import is_out_of_memory
from vcycle.train.micro_batching import largest_that_fits, micro_batch_sizes, shapes_from

BASELINE = Baseline(batch=4, frames=4, size=8, clips=24, steps=24, lr=0.05, bn_batch=4)
PLAN = cascade(BASELINE)
COARSE = PLAN[0]  # the most clips, in several blocks


@given(st.integers(1, 300), st.integers(1, 40))
def test_micro_batches_are_whole_blocks_and_none_is_larger_than_its_number_needs(clips, block):
    sizes = micro_batch_sizes(clips, block)
    assert sizes[0] == clips
    assert sizes[-1] == min(block, clips)
    assert sizes == sorted(set(sizes), reverse=True)
    assert all(size % block == 0 for size in sizes[1:])
    parts = [math.ceil(clips / size) for size in sizes]
    assert len(set(parts)) == len(parts)
    for size, count in zip(sizes, parts, strict=True):
        assert size <= block or math.ceil(clips / (size - block)) > count


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 320))
def test_bisection_finds_the_largest_that_fits_in_few_trials(clips, block, room):
    sizes, tried = micro_batch_sizes(clips, block), []

    def fits(size):
        tried.append(size)
        return size <= room

    assert largest_that_fits(sizes, fits) == next((size for size in sizes if size <= room), None)
    assert len(tried) == len(set(tried)) <= 1 + math.ceil(math.log2(len(sizes) + 1))


@pytest.mark.parametrize("plan", [PLAN, multigrid(replace(BASELINE, steps=60))], ids=["cascade", "long+short"])
def test_only_shapes_that_are_still_to_come_are_tried_the_largest_first(plan):
    for start in range(len(plan) + 1):
        found = shapes_from(plan, start)
        ahead = {(step.batch, step.shape, step.bn_batch) for step in plan.iterate(start)}
        assert {(cell.batch, cell.shape, cell.bn_batch) for cell in found} == ahead
        assert [cell.voxels for cell in found] == sorted((cell.voxels for cell in found), reverse=True)


def test_running_out_of_memory_is_told_from_other_errors():
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory."))
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert not is_out_of_memory(ValueError("can't allocate memory"))
    with pytest.raises(RuntimeError) as real:
        torch.empty(1 << 50, dtype=torch.uint8)
    assert is_out_of_memory(real.value)
