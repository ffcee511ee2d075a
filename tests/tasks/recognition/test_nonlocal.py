"""Non-local blocks: what each place sees of the others."""

import pytest
import torch
from torch import nn

from vcycle.errors import RecipeError
from vcycle.plan import Shape
from vcycle.tasks.recognition.models import build_model, needs
from vcycle.tasks.recognition.models.nonlocal_block import NonLocalBlock


def drawn(channels, form):
    torch.manual_seed(0)
    block = NonLocalBlock(channels, form).eval()
    nn.init.uniform_(block.norm.weight, 0.5, 1.5)
    return block


def written_out(block, x):
    """The block as its papers write it, place by place."""
    pooled = nn.functional.max_pool3d(x, (1, 2, 2))
    theta, phi, g = (layer(y).flatten(2) for layer, y in ((block.theta, x), (block.phi, pooled), (block.g, pooled)))
    products = torch.einsum("nct,ncp->ntp", theta, phi)
    if block.form == "softmax":
        weights = (products * theta.shape[1] ** -0.5).softmax(2)
    else:
        weights = products / products.shape[2]
    seen = torch.einsum("ntp,ncp->nct", weights, g)
    return x + block.norm(block.out(seen.reshape(theta.shape[:2] + x.shape[2:])))


@pytest.mark.parametrize("form", ["dot", "softmax"])
@pytest.mark.parametrize(("channels", "extents"), [(64, (2, 2, 3)), (4, (4, 9, 8))])  # products in either order
def test_it_is_what_the_papers_write(form, channels, extents):
    block = drawn(channels, form)
    x = torch.randn(2, channels, *extents)
    with torch.no_grad():
        torch.testing.assert_close(block(x), written_out(block, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", ["dot", "softmax"])
def test_it_keeps_the_memory_format(form):
    block = drawn(8, form).to(memory_format=torch.channels_last_3d)
    x = torch.randn(2, 8, 2, 4, 4).contiguous(memory_format=torch.channels_last_3d)
    assert block(x).is_contiguous(memory_format=torch.channels_last_3d)


def test_it_starts_as_the_identity():
    torch.manual_seed(0)
    model = build_model("i3d_nl_r50", 4, stem_width=8, widths=(8, 8, 16, 16), blocks=(1, 2, 2, 1))
    block = model.eval().stages[1].nonlocal1
    x = torch.randn(1, 32, 2, 4, 4)
    assert torch.equal(block(x), x)


def test_the_smallest_side_is_the_one_at_which_the_last_block_still_pools():
    options = {"stem_width": 4, "widths": (4, 4, 4, 4), "blocks": (1, 2, 2, 1)}
    model = build_model("i3d_nl_r50", 4, **options).eval()
    need = needs("i3d_nl_r50", **options)
    assert need.violation(Shape(2, need.min_size, need.min_size)) is None
    assert model(torch.zeros(1, 3, 2, need.min_size, need.min_size)).shape == (1, 4)
    with pytest.raises(RuntimeError):
        model(torch.zeros(1, 3, 2, need.min_size - 1, need.min_size - 1))


def test_an_unknown_form_is_refused():
    with pytest.raises(RecipeError, match="'nonlocal_form' of model 'i3d_nl_r50' is 'concat'; accepted: dot, softmax"):
        build_model("i3d_nl_r50", 4, nonlocal_form="concat")
