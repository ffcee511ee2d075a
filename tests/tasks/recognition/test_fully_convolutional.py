"""The fully convolutional test: larger pictures are classified at every place where one of the trained size fits."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vcycle.errors import RecipeError
from vcycle.nn import convert_batchnorm
from vcycle.tasks.classification.head import Head, fully_convolutional
from vcycle.tasks.recognition.models import build_model

SIDE = 64
OPTIONS = {"stem_width": 8, "widths": (8, 8, 16, 16), "blocks": (1, 2, 1, 1)}


@pytest.fixture(scope="module", params=["slowfast_8x8_r50", "i3d_nl_r50"])
def model(request):
    torch.manual_seed(0)
    model = build_model(request.param, 5, **OPTIONS)
    nn.init.normal_(model.head.projection.weight)
    nn.init.normal_(model.head.projection.bias)
    return convert_batchnorm(model).eval()


def clips(height, width):
    return torch.randn((2, 3, 8, height, width), generator=torch.Generator().manual_seed(1))


def places(model, x, cells):
    """Logits of each window of features, pooled by a fixed kernel as the public code does it."""
    seen = []
    hook = model.head.register_forward_pre_hook(lambda _, args: seen.append(list(args[0])))
    model(x)
    hook.remove()
    pooled = [F.avg_pool3d(features, (features.shape[2], cells, cells), stride=1) for features in seen[0]]
    return model.head.projection(torch.cat(pooled, dim=1).movedim(1, -1))


@pytest.mark.parametrize(
    ("activation", "probabilities"), [("softmax", lambda x: x.softmax(-1)), ("sigmoid", torch.sigmoid)]
)
def test_the_probabilities_are_the_mean_over_places(model, activation, probabilities):
    x = clips(96, 128)
    with torch.no_grad(), fully_convolutional(model, SIDE, activation):
        logits = model(x)
    with torch.no_grad():
        each = places(model, x, SIDE // 32)
        assert each.shape[1:4] == (1, 2, 3)
        torch.testing.assert_close(probabilities(logits), probabilities(each).mean((1, 2, 3)))
        assert (probabilities(logits) - probabilities(model(x))).abs().max() > 1e-3


@pytest.mark.parametrize(("height", "width"), [(SIDE, SIDE), (40, 64), (33, 33)])
def test_pictures_that_are_not_larger_are_classified_as_ever(model, height, width):
    x = clips(height, width)
    with torch.no_grad(), fully_convolutional(model, SIDE):
        inside = model(x)
    with torch.no_grad():
        assert torch.equal(inside, model(x))


def test_a_longer_picture_has_places_along_its_length_alone(model):
    x = clips(40, 128)
    with torch.no_grad(), fully_convolutional(model, SIDE):
        logits = model(x)
        inside = model.head.positions([torch.ones(2, model.head.projection.in_features, 1, 2, 4)], SIDE)
    assert logits.shape == (2, 5)
    assert inside.shape == (2, 3, 5)


def test_training_gives_logits_of_the_whole_picture():
    model = build_model("c2d_r50", 5, **OPTIONS, dropout=0.0)
    x = clips(96, 96)
    expected = model(x)
    with fully_convolutional(model, SIDE):
        assert torch.equal(model(x), expected)


def test_one_within_another_ends_where_it_began(model):
    head = model.head
    with fully_convolutional(model, SIDE):
        with pytest.raises(KeyError), fully_convolutional(model, 32, "sigmoid"):
            raise KeyError
        assert head._averaged == (SIDE, "softmax")
    assert head._averaged is None


def test_a_sure_answer_stays_finite():
    head = Head(4, 3, 0.0, 32)
    nn.init.constant_(head.projection.weight, 1e4)
    features = [torch.randn((1, 4, 1, 2, 2), generator=torch.Generator().manual_seed(0))]
    for activation in ("softmax", "sigmoid"):
        with fully_convolutional(head.eval(), 32, activation):
            assert head(features).isfinite().all()


def test_what_has_no_such_test_is_refused():
    other = nn.Linear(1, 1)
    with pytest.raises(RecipeError, match="Linear pools whole pictures only"), fully_convolutional(other, SIDE):
        pass
    accepted = "activation 'relu' is unknown; accepted: softmax, sigmoid"
    with pytest.raises(RecipeError, match=accepted), fully_convolutional(other, SIDE, "relu"):
        pass
