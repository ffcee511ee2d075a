"""Precise BatchNorm against its definition, over batches, ranks and resumed runs."""

import pytest
import torch
from torch import nn

from vcycle.nn import convert_batchnorm, set_bn_batch
from vcycle.nn.freezing import freeze
from vcycle.plan import Baseline, CosineDecay, RampWarmup, cascade
from vcycle.train.precise_bn import precise_plan, recompute_statistics

BATCHES = list(torch.randn(13, 3, 2, 5, 5, generator=torch.Generator().manual_seed(0)).mul(3).add(1).split(4))


class TwoInputs(nn.Module):
    """A model that is called in a way of its own, with a BatchNorm before and one after a convolution."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.BatchNorm3d(3)
        self.convolution = nn.Conv3d(3, 4, 3)
        self.second = nn.BatchNorm3d(4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, clips, boxes):
        return self.dropout(self.second(self.convolution(nn.functional.pad(self.first(clips), (1,) * 6)))) + boxes


@pytest.fixture(params=["plain", "sub-batch"])
def model(request):
    model = TwoInputs()
    return model if request.param == "plain" else convert_batchnorm(model, 2)


def forward_of(model):
    return lambda clips: model(clips, boxes=1.0)


def statistics(model):
    return {key: value.clone() for key, value in model.named_buffers()}


def defined(inputs):
    """Mean and unbiased variance of all values of some inputs, in double precision."""
    values = torch.cat([x.double().transpose(0, 1).flatten(1) for x in inputs], 1)
    return values.mean(1), values.var(1)


def second_inputs(model):
    """What the second BatchNorm is given, when the first normalises by its batch or its blocks."""
    size = getattr(model.first, "bn_batch", 100)
    found = []
    for batch in BATCHES:
        blocks = []
        for block in batch.split(size):
            mean, variance = block.mean((0, 2, 3, 4), keepdim=True), block.var((0, 2, 3, 4), keepdim=True, correction=0)
            blocks.append((block - mean) / (variance + model.first.eps).sqrt())
        found.append(model.convolution(nn.functional.pad(torch.cat(blocks), (1,) * 6)))
    return found


def test_the_statistics_are_those_of_all_values_that_a_layer_is_given(model):
    recompute_statistics(model, BATCHES, forward_of(model))
    for layer, inputs in ((model.first, BATCHES), (model.second, second_inputs(model))):
        mean, variance = defined(inputs)
        assert torch.allclose(layer.running_mean.double(), mean, atol=1e-6)
        assert torch.allclose(layer.running_var.double(), variance, rtol=1e-5)


def test_they_depend_on_nothing_that_was_before_and_doing_it_again_changes_nothing(model):
    recompute_statistics(model, BATCHES, forward_of(model))
    once = statistics(model)
    for buffer in (model.first.running_mean, model.second.running_var):
        buffer.fill_(7)
    recompute_statistics(model, BATCHES, forward_of(model))
    assert all(torch.equal(value, once[key]) for key, value in statistics(model).items())


@pytest.mark.parametrize("training", [True, False])
def test_weights_modes_counts_and_generators_stay_as_they_were(model, training):
    model.train(training)
    model.first.eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    recompute_statistics(model, BATCHES, forward_of(model))
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed == {f"{layer}.running_{of}" for layer in ("first", "second") for of in ("mean", "var")}
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.first._forward_pre_hooks


def test_half_precision_is_summed_in_single(model):
    wide = [batch + 100 for batch in BATCHES]
    expected = [torch.cat(wide).bfloat16().double().transpose(0, 1).flatten(1)]
    recompute_statistics(model, [b.bfloat16() for b in wide], lambda x: model.first(x))
    assert torch.allclose(model.first.running_mean.double(), expected[0].mean(1), rtol=1e-6)
    assert torch.allclose(model.first.running_var.double(), expected[0].var(1), rtol=1e-4)


def test_after_an_error_and_without_batches_the_statistics_are_those_before(model):
    recompute_statistics(model, BATCHES, forward_of(model))
    before = statistics(model)

    def broken():
        yield BATCHES[0]
        raise InterruptedError

    with pytest.raises(InterruptedError):
        recompute_statistics(model, broken(), forward_of(model))
    recompute_statistics(model, [], forward_of(model))
    assert all(torch.equal(value, before[key]) for key, value in statistics(model).items())
    assert model.training


def test_a_frozen_batchnorm_stays_as_it_is():
    model = freeze(TwoInputs(), "batchnorm")
    before = statistics(model)
    recompute_statistics(model, BATCHES, forward_of(model))
    assert all(torch.equal(value, before[key]) for key, value in statistics(model).items())


def test_a_layer_that_is_used_twice_counts_both_and_an_unused_one_stays():
    layer, unused = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    model = nn.ModuleList([layer, unused])
    a, b = torch.randn(6, 2), torch.randn(3, 2) + 4
    recompute_statistics(model, [(a, b)], lambda batch: (layer(batch[0]), layer(batch[1])))
    mean, variance = defined([a, b])
    assert torch.allclose(layer.running_mean.double(), mean, atol=1e-6)
    assert torch.allclose(layer.running_var.double(), variance, rtol=1e-5)
    assert torch.equal(unused.running_var, torch.ones(2))


def _rank(rank, world):
    model = convert_batchnorm(TwoInputs(), 2)
    recompute_statistics(model, BATCHES[rank::world], forward_of(model))
    return [value.tolist() for value in model.buffers()]


@pytest.mark.forked
@pytest.mark.parametrize("world", [2, 5])  # of 5 ranks, one has no batch at all
def test_ranks_merge_to_the_statistics_of_one_process(world, on_ranks):
    found = on_ranks(world, _rank)
    alone = convert_batchnorm(TwoInputs(), 2)
    recompute_statistics(alone, BATCHES, forward_of(alone))
    for rank in range(world):
        for value, expected in zip(found[rank], alone.buffers(), strict=True):
            assert torch.allclose(torch.tensor(value), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("clips", "batches"), [(1, 1), (8, 1), (15, 1), (16, 2), (100, 12)])
def test_the_clips_come_in_whole_batches_of_the_full_shape(clips, batches):
    baseline = Baseline(
        batch=8, frames=8, size=32, clips=100, epochs=30, lr=0.1, decay=CosineDecay(), bn_batch=4,
        warmup=RampWarmup(length=2, start_lr=0.01),
    )  # fmt: skip
    plan = precise_plan(cascade(baseline), clips)
    assert [(step.batch, step.shape.frames, step.shape.size, step.bn_batch) for step in plan] == [
        (8, 8, 32, 4)
    ] * batches


def test_blocks_may_be_of_another_size_than_in_training():
    model = convert_batchnorm(TwoInputs(), 3)
    set_bn_batch(model, 2)
    recompute_statistics(model, BATCHES, forward_of(model))
    twin = convert_batchnorm(TwoInputs(), 2)
    recompute_statistics(twin, BATCHES, forward_of(twin))
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), twin.buffers(), strict=True))
