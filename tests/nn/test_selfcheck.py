"""The check of convolutions in half precision tells sound machines from faulty ones."""

import pytest
import torch

from vcycle.nn import selfcheck


@pytest.fixture(autouse=True)
def _forget():
    selfcheck._check.cache_clear()
    yield
    selfcheck._check.cache_clear()


def gradient_with_fault(fault):
    exact = selfcheck._weight_gradient

    def gradient(clip, weight, dtype):
        result = exact(clip, weight, None)
        return result if dtype is None else fault(result, clip, weight)

    return gradient


def test_gradients_to_rounding_pass(monkeypatch):
    rounded = gradient_with_fault(lambda gradient, clip, weight: gradient.bfloat16().float())
    monkeypatch.setattr(selfcheck, "_weight_gradient", rounded)
    assert selfcheck.conv3d_is_sound("cpu")


@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), 0.0])
@pytest.mark.parametrize("extent", [3, 5])
def test_garbage_at_one_depth_fails(monkeypatch, extent, garbage):
    def fault(gradient, clip, weight):
        hit = clip.shape[2] == 2 and weight.shape[2] == extent
        return torch.full_like(gradient, garbage) if hit else gradient

    monkeypatch.setattr(selfcheck, "_weight_gradient", gradient_with_fault(fault))
    assert not selfcheck.conv3d_is_sound(torch.device("cpu"))


def test_this_machine_gets_an_answer_once(monkeypatch):
    answer = selfcheck.conv3d_is_sound("cpu")
    assert isinstance(answer, bool)
    monkeypatch.setattr(selfcheck, "_weight_gradient", None)
    assert selfcheck.conv3d_is_sound("cpu") is answer
