"""Sub-batch BatchNorm: blocks in training, the whole batch in the running statistics, plain everywhere else."""

import copy
import io
import pickle
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from vcycle.errors import PlanError, RecipeError
from vcycle.nn import SubBatchNorm, convert_batchnorm, one_step, revert_batchnorm, set_bn_batch
from vcycle.nn.blocks import blocks_of
from vcycle.nn.moments import Moments, merge_moments
from vcycle.nn.traced import normalise_blocks_traced

FORMATS = [torch.contiguous_format, torch.channels_last_3d]
PLAIN = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def clips(*shape, seed=0, dtype=torch.float32, memory_format=torch.contiguous_format):
    """Random values off zero, so that a mean that is left out shows."""
    values = 3 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 2
    return values.to(dtype).contiguous(memory_format=memory_format)


def plain(channels, dimensions=5, **options):
    """A BatchNorm whose scale and shift are not the neutral ones."""
    layer = PLAIN[dimensions](channels, **options)
    if layer.affine:
        with torch.no_grad():
            layer.weight.uniform_(0.5, 2)
            layer.bias.uniform_(-1, 1)
    return layer


def split(x, bn_batch):
    """The blocks of a batch: none of them has a single value per channel."""
    if x.dim() == 2:
        bn_batch = max(bn_batch, 2)
    blocks = list(x.split(bn_batch))
    if len(blocks) > 1 and blocks[-1].shape[0] * blocks[-1].shape[2:].numel() == 1:
        blocks[-2:] = [torch.cat(blocks[-2:])]
    return blocks


def by_block(layer, x, bn_batch):
    """What plain BatchNorm makes of each block alone."""
    return torch.cat([copy.deepcopy(layer)(block) for block in split(x, bn_batch)])


def assert_same_statistics(layer, reference, **tolerance):
    for name, buffer in reference.named_buffers():
        torch.testing.assert_close(getattr(layer, name), buffer, **tolerance)


@given(
    batch=st.integers(1, 11),
    bn_batch=st.integers(1, 12),
    extent=st.sampled_from([(), (3,), (2, 3), (2, 3, 2)]),
    last=st.booleans(),
    seed=st.integers(0, 99),
)
def test_each_block_is_normalised_alone_and_running_statistics_are_the_batchs(batch, bn_batch, extent, last, seed):
    x = clips(batch, 3, *extent, seed=seed)
    if last and len(extent) >= 2:
        x = x.contiguous(memory_format=torch.channels_last if len(extent) == 2 else torch.channels_last_3d)
    layer = plain(3, x.dim())
    ours = convert_batchnorm(copy.deepcopy(layer), bn_batch)
    if batch == 1 and not extent:
        with pytest.raises(PlanError, match="more than 1 value"):
            ours(x)
        return
    y = ours(x)
    torch.testing.assert_close(y, by_block(layer, x, bn_batch))
    assert y.stride() == torch.empty_like(x).stride()
    layer(x)
    assert_same_statistics(ours, layer)
    ours.eval()
    layer.eval()
    torch.testing.assert_close(ours(x), layer(x))


@pytest.mark.parametrize(
    ("batch", "bn_batch", "sizes"), [(5, 4, [5]), (9, 4, [4, 5]), (5, 1, [2, 3]), (10, 4, [4, 4, 2])]
)
def test_a_last_clip_of_one_value_per_channel_joins_the_block_before(batch, bn_batch, sizes):
    x = clips(batch, 8).requires_grad_()
    layer = plain(8, 2)
    ours = convert_batchnorm(nn.Sequential(copy.deepcopy(layer)), bn_batch)
    toward = torch.randn_like(x)
    y = ours(x)
    expected = torch.cat([copy.deepcopy(layer)(block) for block in x.split(sizes)])
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(torch.autograd.grad(y, x, toward), torch.autograd.grad(expected, x, toward))
    layer(x)
    assert_same_statistics(ours[0], layer)


def test_a_last_clip_of_several_values_is_a_block_of_its_own():
    x = clips(5, 3, 2, dtype=torch.float64)
    y = convert_batchnorm(nn.BatchNorm1d(3).double(), 4)(x)
    torch.testing.assert_close(y[4:].mean(2), torch.zeros(1, 3, dtype=torch.float64))


def test_blocks_written_out_for_a_compiler_are_the_same():
    for shape, bn_batch in [((9, 8), 4), ((5, 8), 4), ((5, 8), 1), ((9, 8, 2), 4), ((8, 8), 4), ((3, 8), 4)]:
        x, layer = clips(*shape), plain(8, len(shape))
        blocks = blocks_of(shape[0], bn_batch, x.shape[2:].numel())
        y, moments = normalise_blocks_traced(x, layer.weight, layer.bias, blocks, layer.eps)
        torch.testing.assert_close(y, by_block(layer, x, bn_batch))
        torch.testing.assert_close(moments.mean, x.transpose(0, 1).flatten(1).mean(1))
        torch.testing.assert_close(moments.m2, x.transpose(0, 1).flatten(1).var(1) * (moments.values - 1))


@given(clips_=st.integers(1, 40), bn_batch=st.integers(1, 12), values=st.sampled_from([1, 2, 49]))
def test_blocks_cover_the_batch_and_have_more_than_one_value(clips_, bn_batch, values):
    blocks = blocks_of(clips_, bn_batch, values)
    assert sum(blocks.sizes) == clips_
    assert blocks.is_one == (len(blocks.sizes) == 1)
    if clips_ * values > 1:
        assert min(blocks.sizes) * values > 1
    if values > 1:
        assert blocks.sizes == [len(range(clips_)[first : first + bn_batch]) for first in range(0, clips_, bn_batch)]
    number = [block for block, size in enumerate(blocks.sizes) for _ in range(size)]
    assert [blocks.holding(clip) for clip in range(clips_)] == number
    assert [blocks.begins_at(clip) for clip in range(1, clips_)] == [a != b for a, b in pairwise(number)]


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("batch", [6, 7, 3, 2])
def test_gradients_are_those_of_the_blocks(batch, memory_format):
    x = clips(batch, 4, 2, 3, 3, dtype=torch.float64, memory_format=memory_format).requires_grad_()
    layer = plain(4, dtype=torch.float64)
    ours = convert_batchnorm(copy.deepcopy(layer), 3)
    toward = torch.randn_like(x)
    got = torch.autograd.grad(ours(x), (x, ours.weight, ours.bias), toward)
    blocks = torch.cat([layer(block) for block in x.split(3)])
    expected = torch.autograd.grad(blocks, (x, layer.weight, layer.bias), toward)
    torch.testing.assert_close(got, expected)
    assert torch.autograd.gradcheck(ours, (x,))


def test_gradients_reach_scale_and_shift_numerically():
    x = clips(5, 3, 2, 2, 2, dtype=torch.float64).requires_grad_()
    ours = convert_batchnorm(plain(3, dtype=torch.float64), 2)

    def normalise(x, weight, bias):
        return torch.func.functional_call(ours, {"weight": weight, "bias": bias}, (x,))

    assert torch.autograd.gradcheck(normalise, (x, ours.weight, ours.bias))


@pytest.mark.parametrize("frozen", ["input", "weight", "bias"])
def test_what_needs_no_gradient_gets_none(frozen):
    ours = convert_batchnorm(plain(3), 2)
    x = clips(5, 3, 2, 2, 2).requires_grad_(frozen != "input")
    ours.weight.requires_grad_(frozen != "weight")
    ours.bias.requires_grad_(frozen != "bias")
    ours(x).square().sum().backward()
    for name, tensor in (("input", x), ("weight", ours.weight), ("bias", ours.bias)):
        assert (tensor.grad is None) == (name == frozen)


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("bn_batch", [2, 3, 8])
def test_bf16_keeps_its_dtype_and_takes_statistics_in_fp32(bn_batch, memory_format):
    layer = plain(4)
    ours = convert_batchnorm(copy.deepcopy(layer), bn_batch)
    x = clips(6, 4, 2, 3, 3, memory_format=memory_format)
    half = x.bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = ours(half)
    assert y.dtype == torch.bfloat16
    assert y.is_contiguous(memory_format=memory_format)
    y.square().sum().backward()
    assert half.grad.dtype == torch.bfloat16
    assert ours.weight.grad.dtype == torch.float32
    reference = half.detach().float()
    torch.testing.assert_close(y.float(), by_block(layer, reference, bn_batch), rtol=0.01, atol=0.01)
    layer(reference)
    assert_same_statistics(ours, layer)


def test_a_network_under_autocast_gives_bf16_after_a_converted_layer():
    network = convert_batchnorm(nn.Sequential(nn.Conv3d(3, 4, 1), nn.BatchNorm3d(4)), 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert network(clips(5, 3, 2, 4, 4)).dtype == torch.bfloat16


def test_a_network_wholly_in_bf16_works():
    layer = convert_batchnorm(plain(4), 2).bfloat16()
    x = clips(5, 4, 2, 3, 3).bfloat16().requires_grad_()
    y = layer(x)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == layer.weight.grad.dtype == layer.running_var.dtype == torch.bfloat16


def test_a_batch_of_one_block_is_plain_batchnorm_bit_for_bit():
    layer = plain(4)
    ours = convert_batchnorm(copy.deepcopy(layer), 8)
    for seed in range(3):
        x = clips(8, 4, 2, 3, 3, seed=seed)
        assert torch.equal(ours(x), layer(x))
    assert_same_statistics(ours, layer, rtol=0, atol=0)


@pytest.mark.parametrize("momentum", [0.1, 0.01, 1.0, None])
def test_running_statistics_follow_plain_batchnorm_over_steps(momentum):
    layer = plain(4, momentum=momentum)
    ours = convert_batchnorm(copy.deepcopy(layer), 4)
    for seed in range(4):
        x = clips(10, 4, 2, 3, 3, seed=seed)
        ours(x)
        layer(x)
    assert_same_statistics(ours, layer)


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("bn_batch", [2, 4, 16])
def test_micro_batches_of_one_step_commit_once_what_the_whole_batch_would(bn_batch, momentum):
    layer = plain(4, momentum=momentum)
    network = nn.Sequential(copy.deepcopy(layer))
    convert_batchnorm(network, bn_batch)
    for seed in range(2):
        x = clips(9, 4, 2, 3, 3, seed=seed)
        before = network[0].running_mean.clone()
        with one_step(network):
            for part in x.split(4):
                network(part)
            assert torch.equal(network[0].running_mean, before)
        layer(x)
    assert_same_statistics(network[0], layer)


def test_micro_batches_cut_at_blocks_normalise_as_the_whole_batch():
    layer = convert_batchnorm(plain(4), 2)
    x = clips(8, 4, 2, 3, 3)
    with one_step(layer):
        parts = torch.cat([layer(part) for part in x.split(4)])
    torch.testing.assert_close(parts, layer(x))


def test_one_step_inside_one_step_commits_with_the_outer():
    layer = convert_batchnorm(plain(4), 2)
    with one_step(layer):
        with one_step(layer):
            layer(clips(4, 4, 2, 3, 3))
        assert layer.num_batches_tracked == 0
    assert layer.num_batches_tracked == 1


def test_a_step_that_fails_commits_nothing_and_leaves_the_layer_usable():
    layer = convert_batchnorm(plain(4), 2)
    with pytest.raises(PlanError), one_step(layer):  # noqa: PT012
        layer(clips(4, 4, 2, 3, 3))
        layer(clips(1, 4))
    assert layer.num_batches_tracked == 0
    layer(clips(4, 4, 2, 3, 3))
    assert layer.num_batches_tracked == 1


def test_a_step_without_training_forwards_commits_nothing():
    layer = convert_batchnorm(plain(4), 2).eval()
    with one_step(layer):
        layer(clips(4, 4, 2, 3, 3))
    assert layer.num_batches_tracked == 0


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("micro", [True, False])
@pytest.mark.parametrize("batch", [4, 7])
def test_recomputed_activations_do_not_commit_again(batch, micro, reentrant):
    layer = plain(3)
    ours = convert_batchnorm(nn.Sequential(nn.Conv3d(3, 3, 1), copy.deepcopy(layer)), 4)
    reference = copy.deepcopy(ours)
    x = clips(batch, 3, 2, 3, 3).requires_grad_()

    def step(network, forward):
        if micro:
            with one_step(network):
                forward(network).square().sum().backward()
        else:
            forward(network).square().sum().backward()
        return x.grad

    expected, x.grad = step(reference, lambda network: network(x)), None
    got = step(ours, lambda network: checkpoint(network, x, use_reentrant=reentrant))
    torch.testing.assert_close(got, expected)
    assert ours[1].num_batches_tracked == 1
    assert_same_statistics(ours[1], reference[1])


def test_conversion_keeps_parameters_buffers_and_optimizer_state():
    network = nn.Sequential(nn.Conv3d(3, 4, 1), plain(4), nn.ReLU())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    network(clips(4, 3, 2, 3, 3)).sum().backward()
    optimizer.step()
    tensors = [*network.parameters(), *network.buffers()]
    assert convert_batchnorm(network, 2) is network
    assert all(a is b for a, b in zip(tensors, [*network.parameters(), *network.buffers()], strict=True))
    before = network[1].weight.detach().clone()
    network(clips(4, 3, 2, 3, 3)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(network[1].weight, before)
    assert all("momentum_buffer" in optimizer.state[parameter] for parameter in network.parameters())


def test_conversion_reaches_every_layer_and_keeps_zero_gammas():
    network = nn.ModuleDict({"a": nn.BatchNorm1d(2), "b": nn.Sequential(nn.BatchNorm2d(2), nn.BatchNorm3d(2))})
    shared = nn.BatchNorm3d(2)
    network["c"] = nn.Sequential(shared, shared)
    nn.init.zeros_(network["b"][1].weight)
    convert_batchnorm(network, 4)
    layers = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    assert len(layers) == 4
    assert all(isinstance(layer, SubBatchNorm) and layer.bn_batch == 4 for layer in layers)
    assert network["c"][0] is network["c"][1]
    assert not network["b"][1].weight.any()


def test_a_model_that_is_itself_a_batchnorm_is_converted():
    layer = nn.BatchNorm3d(4)
    assert isinstance(convert_batchnorm(layer, 2), SubBatchNorm)


def test_a_model_without_batchnorm_is_returned_as_it_is():
    layer = nn.Linear(2, 2)
    assert convert_batchnorm(layer) is layer


def test_converting_again_only_changes_the_group():
    layer = convert_batchnorm(convert_batchnorm(nn.BatchNorm2d(4), 2), 16)
    assert layer.bn_batch == 16
    assert type(revert_batchnorm(layer)) is nn.BatchNorm2d


def test_a_batchnorm_with_a_forward_of_its_own_is_refused_by_name_and_nothing_is_changed():
    class Activated(nn.BatchNorm3d):
        def forward(self, x):
            return super().forward(x).relu()

    network = nn.Sequential(nn.BatchNorm3d(4), Activated(4))
    with pytest.raises(RecipeError, match="'1' is a Activated"):
        convert_batchnorm(network)
    assert type(network[0]) is nn.BatchNorm3d


def test_a_lazy_batchnorm_is_refused_until_it_has_seen_an_input():
    network = nn.Sequential(nn.BatchNorm3d(3), nn.LazyBatchNorm3d())
    with pytest.raises(RecipeError, match=r"layer '1' is a LazyBatchNorm3d, .*: run one forward of the model first"):
        convert_batchnorm(network)
    assert type(network[0]) is nn.BatchNorm3d
    x = clips(4, 3, 2, 3, 3)
    network(x)
    assert convert_batchnorm(network, 2)(x).shape == x.shape
    assert isinstance(network[1], SubBatchNorm)


def test_a_cumulative_average_begins_with_the_first_step_that_is_kept():
    layer, x = convert_batchnorm(nn.BatchNorm3d(3, momentum=None), 2), clips(4, 3, 2, 3, 3)
    before = copy.deepcopy(layer.state_dict())
    for kept in (False, True, False):
        with one_step(layer) as commitment:
            layer(x)
            commitment.keep = torch.tensor(kept)
        if not kept and not layer.num_batches_tracked:
            assert all(torch.equal(value, before[key]) for key, value in layer.state_dict().items())
    reference = nn.BatchNorm3d(3, momentum=None)
    reference(x)
    assert_same_statistics(layer, reference)


KINDS = [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm]


class Named(nn.BatchNorm3d):
    """A BatchNorm of somebody's own, with plain BatchNorm's forward."""

    gain = 2


@pytest.mark.parametrize("kind", [*KINDS, Named])
def test_a_converted_layer_is_still_found_by_its_own_class(kind):
    network = convert_batchnorm(nn.Sequential(nn.Linear(2, 2), kind(4)))
    assert [isinstance(module, kind) for module in network] == [False, True]
    assert isinstance(network[1], SubBatchNorm)
    assert not any(isinstance(network[1], other) for other in KINDS if not issubclass(kind, other))
    assert repr(network[1]).startswith(f"Sub{kind.__name__}(4, eps=1e-05, ")
    assert repr(network[1]).endswith("bn_batch=8)")
    assert type(network[1]) is type(convert_batchnorm(kind(3)))


def test_what_a_class_of_batchnorm_has_beside_its_forward_stays():
    assert convert_batchnorm(Named(4)).gain == 2
    sync = nn.SyncBatchNorm(4, process_group="mine")
    assert convert_batchnorm(sync).process_group == "mine"


def test_a_layer_made_directly_is_of_the_plain_class_too():
    assert isinstance(SubBatchNorm(2), nn.BatchNorm3d)
    layer = SubBatchNorm(2, plain_class=nn.BatchNorm1d)
    assert isinstance(layer, nn.BatchNorm1d)
    assert type(revert_batchnorm(layer)) is nn.BatchNorm1d


def saved_and_loaded(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, copy.copy, lambda x: pickle.loads(pickle.dumps(x)), saved_and_loaded]
)
@pytest.mark.parametrize("kind", [*KINDS, Named])
def test_copies_of_a_model_keep_class_group_and_state(kind, copied):
    layer = convert_batchnorm(kind(4), 2)
    layer.register_buffer("more", torch.ones(1))
    layer.running_mean.uniform_()
    twin = copied(layer)
    assert type(twin) is type(layer)
    assert twin.bn_batch == 2
    assert all(torch.equal(value, layer.state_dict()[key]) for key, value in twin.state_dict().items())
    x = clips(5, 4, *[3] * {nn.BatchNorm1d: 1, nn.BatchNorm2d: 2}.get(kind, 3))
    assert torch.equal(twin(x), layer(x))
    assert type(revert_batchnorm(twin)) is kind
    assert isinstance(layer, SubBatchNorm)


def test_a_sync_batchnorm_normalises_by_block_on_each_rank(on_ranks):
    first, second = on_ranks(2, _of_sync)
    assert not torch.equal(first, second)
    for rank, found in enumerate((first, second)):
        torch.testing.assert_close(found, plain_statistics(clips(4, 3, 2, 2, 2, seed=rank)))


def plain_statistics(x):
    layer = nn.BatchNorm3d(3)
    layer(x)
    return layer.running_mean


def _of_sync(rank, world):
    layer = convert_batchnorm(nn.SyncBatchNorm(3), 8)
    layer(clips(4, 3, 2, 2, 2, seed=rank))
    return layer.running_mean


@pytest.mark.parametrize("kind", [nn.BatchNorm3d, nn.SyncBatchNorm])
def test_a_compiler_traces_a_converted_layer(kind):
    network = convert_batchnorm(nn.Sequential(nn.Conv3d(3, 4, 1), kind(4)), 2)
    reference = copy.deepcopy(network)
    x = clips(5, 3, 2, 3, 3)
    fast = torch.compile(network, backend="eager", fullgraph=True)
    with one_step(network):
        y = fast(x)
    torch.testing.assert_close(y, reference(x), rtol=1e-4, atol=1e-5)
    assert_same_statistics(network[1], reference[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_reverting_restores_the_very_layer(kind):
    network = nn.Sequential(kind(4))
    layer, attributes = network[0], dict(network[0].__dict__)
    revert_batchnorm(convert_batchnorm(network, 2))
    assert network[0] is layer
    assert type(layer) is kind
    assert layer.__dict__ == attributes


def test_a_reverted_network_evaluates_as_before():
    network = convert_batchnorm(nn.Sequential(nn.Conv3d(3, 4, 1), nn.BatchNorm3d(4)), 2)
    x = clips(5, 3, 2, 3, 3)
    network(x)
    ours = network.eval()(x)
    assert torch.equal(revert_batchnorm(network)(x), ours)


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"track_running_stats": False}, {"momentum": None}])
def test_state_dict_is_plain_batchnorms_in_every_mode(options):
    layer = nn.BatchNorm3d(4, **options)
    ours = convert_batchnorm(copy.deepcopy(layer), 2)
    x = clips(5, 4, 2, 3, 3)
    ours(x)
    states = [ours.state_dict(), ours.eval().state_dict()]
    with one_step(ours.train()):
        ours(x)
        states.append(ours.state_dict())
    for state in states:
        assert [(key, value.shape, value.dtype) for key, value in state.items()] == [
            (key, value.shape, value.dtype) for key, value in layer.state_dict().items()
        ]
    layer.load_state_dict(ours.state_dict())
    ours.load_state_dict(layer.state_dict())
    torch.testing.assert_close(ours.eval()(x), layer.eval()(x) if layer.track_running_stats else ours(x))


def no_bias():
    layer = nn.BatchNorm3d(4)
    layer.bias = None
    return layer


@pytest.mark.parametrize("make", [lambda: nn.BatchNorm3d(4, affine=False), no_bias])
def test_a_layer_without_scale_or_shift_normalises_its_blocks(make):
    layer = make()
    ours = convert_batchnorm(copy.deepcopy(layer), 2)
    x = clips(5, 4, 2, 3, 3)
    torch.testing.assert_close(ours(x), by_block(layer, x, 2))
    half = x.bfloat16().requires_grad_()
    y = ours(half)
    y.sum().backward()
    assert y.dtype == half.grad.dtype == torch.bfloat16


def test_a_layer_without_running_statistics_normalises_by_block_in_eval_too():
    layer = nn.BatchNorm3d(4, track_running_stats=False)
    ours = convert_batchnorm(copy.deepcopy(layer), 2).eval()
    x = clips(5, 4, 2, 3, 3)
    torch.testing.assert_close(ours(x), by_block(layer, x, 2))


def test_large_means_do_not_swamp_the_variance():
    x = torch.randn(12, 2, 3, 4, 4, generator=torch.Generator().manual_seed(0)) + 1000
    layer = nn.BatchNorm3d(2, momentum=1.0)
    ours = convert_batchnorm(copy.deepcopy(layer), 4)
    y = ours(x)
    exact = by_block(copy.deepcopy(layer).double(), x.double(), 4)
    torch.testing.assert_close(y.double(), exact, rtol=0, atol=2e-3)
    layer.double()(x.double())
    torch.testing.assert_close(ours.running_var.double(), layer.running_var, rtol=1e-3, atol=0)


def test_setting_the_group_changes_every_layer():
    network = convert_batchnorm(nn.Sequential(nn.BatchNorm3d(2), nn.BatchNorm3d(2)))
    set_bn_batch(network, 32)
    assert [layer.bn_batch for layer in network] == [32, 32]


@pytest.mark.parametrize("clips_per_group", [0, -1, 2.0, True, None])
def test_a_group_that_is_no_number_of_clips_is_refused(clips_per_group):
    with pytest.raises(PlanError, match="bn_batch"):
        set_bn_batch(nn.BatchNorm3d(2), clips_per_group)


@pytest.mark.parametrize("shape", [(4,), (4, 5, 2, 2), (2, 2, 1, 1, 1, 1)])
def test_an_input_of_another_layout_is_refused(shape):
    with pytest.raises(PlanError, match="shape"):
        SubBatchNorm(2)(torch.ones(shape))


def test_permuted_and_sliced_inputs_are_normalised_all_the_same():
    x = clips(6, 3, 2, 4, 8)
    layer = plain(3)
    ours = convert_batchnorm(copy.deepcopy(layer), 4)
    for view in (x.transpose(3, 4), x[..., ::2], x[:, :, :1].expand(-1, -1, 5, -1, -1)):
        view = view.detach().requires_grad_()
        toward = torch.randn(view.shape)
        got, expected = ours(view), torch.cat([layer(block) for block in view.split(4)])
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(torch.autograd.grad(got, view, toward), torch.autograd.grad(expected, view, toward))


def test_layers_survive_deepcopy_and_run_on_the_meta_device():
    layer = copy.deepcopy(convert_batchnorm(nn.BatchNorm3d(3), 2))
    y = layer.to("meta")(torch.empty(5, 3, 2, 4, 4, device="meta", requires_grad=True))
    y.sum().backward()
    assert y.shape == (5, 3, 2, 4, 4)


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_merged_moments_are_those_of_all_values(sizes, seed):
    parts = [clips(size, 2, seed=seed + number, dtype=torch.float64) for number, size in enumerate(sizes)]
    whole = torch.cat(parts)
    moments = merge_moments([Moments(len(part), part.mean(0), (part - part.mean(0)).square().sum(0)) for part in parts])
    assert moments.values == len(whole)
    torch.testing.assert_close(moments.mean, whole.mean(0))
    torch.testing.assert_close(moments.m2, whole.var(0, correction=0) * len(whole))
