"""Token dropping: which tokens are kept, where, and by which models."""

import copy
import pickle

import pytest
import torch
from torch import nn

import vcycle
from vcycle.nn import TokenDropping, any_shape, apply, drop_tokens, require_token_dropping
from vcycle.plan import rank_slice

BASELINE = vcycle.Baseline(batch=3, frames=4, size=8, clips=24, steps=12, lr=0.1, bn_batch=2)
PLAN = vcycle.cascade(BASELINE, shapes=[(1, 1, 0.25), (1, 1)])


def numbered(clips, tokens):
    """Tokens ``(clips, tokens, 1)`` that are their own places."""
    return torch.arange(tokens).float().expand(clips, -1).unsqueeze(-1).clone()


def kept(share, clips=2, tokens=16, prefix=0, first=0, **how):
    dropping = TokenDropping(prefix)
    drop_tokens(dropping, share, first=first, **how)
    return dropping(numbered(clips, tokens + prefix))[..., 0].int().tolist()


GAMMA = 0x9E3779B97F4A7C15


def split_mix(state):
    """SplitMix64 (Steele et al. 2014): the output of a state."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)


def test_tokens_are_kept_by_the_hash_of_seed_position_and_token():
    assert split_mix(GAMMA) == 0xE220A8397B1DCDAF  # the published first number of seed 0
    for seed, first in ((0, 0), (7, 2**40), (2**31, 123_456_789)):
        for row, position in zip(kept(0.25, clips=3, first=first, seed=seed), range(first, first + 3), strict=True):
            key = split_mix((seed * GAMMA + position) % 2**64)
            scores = [split_mix((key + token * GAMMA) % 2**64) for token in range(1, 17)]
            signed = [score - 2**64 if score >> 63 else score for score in scores]
            assert row == sorted(sorted(range(16), key=signed.__getitem__)[:4])


@pytest.mark.gpu
def test_a_gpu_keeps_the_tokens_of_a_cpu():
    dropping = TokenDropping(prefix=1)
    for share, first, seed in ((0.25, 0, 0), (0.7, 2**40, 123)):
        drop_tokens(dropping, share, first=first, seed=seed)
        found = [dropping(numbered(64, 1 + 1568).to(device)).cpu() for device in ("cpu", "cuda")]
        assert torch.equal(*found)


@pytest.mark.parametrize(
    ("share", "tokens", "number"),
    [(0.25, 196, 49), (1 / 3, 6, 2), (0.1, 30, 3), (0.5, 5, 3), (0.01, 8, 1), (0.99, 8, 8), (1, 8, 8)],
)
def test_the_share_is_rounded_to_whole_tokens_at_least_one(share, tokens, number):
    found = kept(share, tokens=tokens)
    assert [len(row) for row in found] == [number, number]
    assert all(row == sorted(set(row)) for row in found)


def test_every_token_is_kept_equally_often_and_each_clip_has_its_own():
    clips = 4000
    found = torch.tensor(kept(0.25, clips=clips, tokens=16))
    counts = torch.bincount(found.flatten(), minlength=16)
    assert (counts.double() / clips - 0.25).abs().max() < 0.03  # 4 standard deviations
    assert len({tuple(row) for row in found.tolist()}) > 1600  # of 1820 subsets; a fair draw has 1618 on average
    # Pairs of tokens are kept together as often as in a fair draw: 4·3 in 16·15.
    together = nn.functional.one_hot(found, 16).sum(1).double()
    pairs = (together.T @ together / clips).fill_diagonal_(0.05)
    assert (pairs - 0.05).abs().max() < 0.02
    assert kept(0.25, seed=0) != kept(0.25, seed=1)


def test_tokens_of_the_prefix_are_always_kept():
    for row in kept(0.25, clips=50, prefix=2):
        assert row[:2] == [0, 1]
        assert len(row) == 2 + 4


def test_evaluation_and_a_share_of_one_keep_the_very_tensor():
    dropping, tokens = TokenDropping(), numbered(2, 8)
    assert dropping(tokens) is tokens
    drop_tokens(dropping, 0.5, first=0)
    assert dropping(tokens).shape == (2, 4, 1)
    assert dropping.eval()(tokens) is tokens
    assert dropping.kept is None
    drop_tokens(dropping.train(), 1)
    assert dropping(tokens) is tokens


def test_gradients_reach_the_kept_tokens_and_no_generator_is_touched():
    dropping, tokens = TokenDropping(), numbered(3, 8).requires_grad_()
    before = torch.get_rng_state()
    drop_tokens(dropping, 0.5, first=0)
    dropping(tokens).sum().backward()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(tokens.grad[..., 0].nonzero()[:, 1].view(3, 4), dropping.kept)
    assert set(tokens.grad.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("step", [PLAN[0], PLAN[1]])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_and_micro_batches_keep_the_tokens_of_the_whole_batch(step, world):
    dropping, optimizer = TokenDropping(), torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    apply(step, dropping, optimizer, rank=0, world=1, seed=3)
    whole = dropping(numbered(step.batch, 16))[..., 0]
    assert whole.int().tolist() == kept(0.25, clips=step.batch, first=step.first_sample, seed=3)
    found = []
    for rank in range(world):
        place = rank_slice(step.batch, step.bn_batch, rank, world)
        apply(step, dropping, optimizer, rank=rank, world=world, seed=3)
        for first in range(0, len(place), 2):  # micro-batches of two
            drop_tokens(dropping, step, first=first, seed=3, rank=rank, world=world)
            found.append(dropping(numbered(min(2, len(place) - first), 16))[..., 0])
    assert torch.equal(torch.cat(found), whole)


def test_a_step_that_keeps_all_tokens_ends_the_dropping():
    dropping, optimizer = TokenDropping(), torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    for step in (PLAN[0], PLAN[len(PLAN) - 1]):
        apply(step, dropping, optimizer)
        assert dropping(numbered(step.batch, 16)).shape[1] == round(16 * step.tokens)


class Attending(nn.Module):
    """A transformer of one's own, as the documentation describes it."""

    def __init__(self):
        super().__init__()
        self.drop = TokenDropping()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, tokens):
        x = self.drop(tokens)
        return self.attention(x, x, x, need_weights=False)[0].mean(1)


def test_what_is_attended_to_is_the_kept_tokens_alone():
    torch.manual_seed(0)
    model, tokens = Attending(), torch.randn(2, 12, 8)
    drop_tokens(model, 0.25, first=0)
    found = model(tokens)
    rows = tokens[torch.arange(2).unsqueeze(1), model.drop.kept]
    torch.testing.assert_close(found, model.eval()(rows))


@pytest.fixture
def vit():
    """torchvision's vision transformer, with a head that matters."""
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(0)
    model = models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=5
    )
    nn.init.normal_(model.heads.head.weight)
    return model.eval()


def tokens_seen(model, block, images):
    seen = []
    hook = block.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
    model(images)
    hook.remove()
    return seen


def test_torchvisions_vit_is_bit_equal_at_its_own_size_and_takes_others(vit):
    images, keys = torch.randn(2, 3, 32, 32), list(vit.state_dict())
    before = vit(images)
    with pytest.raises(AssertionError, match="Wrong image height"):
        vit(torch.randn(2, 3, 16, 16))
    assert any_shape(any_shape(vit)) is vit
    assert torch.equal(vit(images), before)
    assert vit(torch.randn(2, 3, 16, 24)).shape == (2, 5)
    assert torch.equal(vit(images), before)
    assert list(vit.state_dict()) == keys
    assert vcycle.shape_constraints(vit).size_multiple == 8
    with pytest.raises(vcycle.PlanError, match="not a multiple of VisionTransformer's patch 1×8×8"):
        vit(torch.randn(2, 3, 20, 16))


def test_torchvisions_vit_has_the_resampled_table_of_a_small_one(vit):
    from torchvision.models import VisionTransformer

    small = VisionTransformer(
        image_size=16, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=5
    )
    state = dict(vit.state_dict())
    table = state["encoder.pos_embedding"]
    lattice = table[0, 1:].T.reshape(1, 16, 4, 4)
    moved = nn.functional.interpolate(lattice, size=(2, 2), mode="bilinear").flatten(2).transpose(1, 2)
    state["encoder.pos_embedding"] = torch.cat([table[:, :1], moved], dim=1)
    small.load_state_dict(state)
    images = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(any_shape(vit)(images), small.eval()(images))


def test_torchvisions_vit_drops_tokens_in_training_and_keeps_its_class_token(vit):
    images = torch.randn(2, 3, 32, 32)
    whole = any_shape(vit)(images)
    drop_tokens(vit.train(), 0.25, first=0)
    first = vit.encoder.layers[0]
    assert tokens_seen(vit, first, images) == [1 + 4]
    vit(images).square().sum().backward()
    assert not [name for name, weight in vit.named_parameters() if weight.grad is None]
    for twin in (copy.deepcopy(vit), pickle.loads(pickle.dumps(vit))):
        assert tokens_seen(twin, twin.encoder.layers[0], images) == [1 + 4]
        assert torch.equal(twin.eval()(images), whole)
    assert tokens_seen(vit, first, torch.randn(2, 3, 16, 16)) == [1 + 1]
    drop_tokens(vit, 1)
    assert torch.equal(vit(images), whole)


def test_timms_vit_drops_tokens_in_training_and_keeps_its_prefix():
    timm = pytest.importorskip("timm")
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2, num_classes=5, reg_tokens=2).eval()
    images, keys = torch.randn(2, 3, 64, 64), list(model.state_dict())
    whole = model(images)
    any_shape(model)
    assert torch.equal(model(images), whole)
    assert list(model.state_dict()) == keys
    drop_tokens(model.train(), 0.25, first=0)
    assert tokens_seen(model, model.blocks[0], images) == [3 + 4]
    assert torch.equal(model.eval()(images), whole)


def test_networks_that_need_all_tokens_are_refused_in_one_line():
    conv, optimizer = nn.Conv3d(3, 4, 3), torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    for refused in (
        lambda: drop_tokens(conv, 0.25, first=0),
        lambda: apply(PLAN[0], conv, optimizer),
        lambda: require_token_dropping(conv, PLAN),
    ):
        with pytest.raises(vcycle.PlanError) as caught:
            refused()
        assert str(caught.value) == (
            "model 'Conv3d' cannot drop tokens, and a step keeps 25 % of them; accepted: VideoMAE, ViViT, V-JEPA 2, "
            "the VisionTransformer of torchvision and of timm, and networks that contain a vcycle.nn.TokenDropping; "
            "call vcycle.any_shape(model) first"
        )
    require_token_dropping(conv, vcycle.constant(BASELINE))
    apply(PLAN[len(PLAN) - 1], conv, optimizer)


def test_a_share_needs_the_clips_before_or_every_step_would_keep_the_same_tokens():
    with pytest.raises(vcycle.PlanError, match=r"the share 0.5 is given without first=, the number of clips that were"):
        drop_tokens(TokenDropping(), 0.5)
    assert kept(0.5, first=0) != kept(0.5, first=2)


@pytest.mark.parametrize("prefix", [-1, "x", None])
def test_a_prefix_is_a_number_of_tokens(prefix):
    with pytest.raises(vcycle.PlanError, match=r"prefix is .*; accepted: a whole number, at least 0"):
        TokenDropping(prefix)


@pytest.mark.parametrize("share", [0, -1, 1.5, float("nan"), True, "a", None])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(vcycle.PlanError, match=r"token dropping: the share .* is out of range"):
        drop_tokens(TokenDropping(), share)
