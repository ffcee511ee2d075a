"""The loss has a finite gradient in every precision, and one scale at every shape."""

import pytest
import torch

from vcycle.errors import DataError
from vcycle.tasks.superres import charbonnier


def test_the_value_is_the_published_one():
    # Facts on super-resolution, section 5.2.
    loss = charbonnier(torch.tensor([0.0, 1e-3, 0.5]), torch.zeros(3))
    assert loss.item() == pytest.approx(0.1670003384, abs=1e-8)


def test_equal_pixels_cost_the_root_of_epsilon():
    assert charbonnier(torch.ones(4), torch.ones(4)).item() == pytest.approx(1e-6)
    assert charbonnier(torch.ones(4), torch.ones(4), eps_squared=1e-6).item() == pytest.approx(1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_gradient_of_equal_pixels_is_zero_in_every_precision(dtype):
    output = torch.zeros(2, 3, dtype=dtype, requires_grad=True)
    loss = charbonnier(output, torch.zeros(2, 3, dtype=dtype))
    assert loss.dtype == torch.float32
    loss.backward()
    assert torch.equal(output.grad, torch.zeros_like(output))


def test_autocast_changes_nothing():
    output, target = torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = charbonnier(output, target)
    assert torch.equal(loss, charbonnier(output, target))


def test_the_gradient_keeps_its_scale_at_every_shape_and_batch():
    clip, target = torch.rand(1, 2, 3, 8, 8), torch.rand(1, 2, 3, 8, 8)

    def gradient(*repeats):
        factor = torch.ones((), requires_grad=True)
        charbonnier(factor * clip.repeat(repeats), target.repeat(repeats)).backward()
        return factor.grad.item()

    alone = gradient(1, 1, 1, 1, 1)
    assert gradient(1, 1, 1, 2, 2) == pytest.approx(alone, rel=1e-5)
    assert gradient(3, 2, 1, 1, 1) == pytest.approx(alone, rel=1e-5)


def test_shapes_that_differ_are_refused_rather_than_broadcast():
    with pytest.raises(DataError, match=r"\(1, 5, 3, 8, 8\) and target \(1, 1, 3, 8, 8\)"):
        charbonnier(torch.zeros(1, 5, 3, 8, 8), torch.zeros(1, 1, 3, 8, 8))
