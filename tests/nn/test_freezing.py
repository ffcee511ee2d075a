"""Freezing for fine-tuning: what stays as it is stays so, whatever is done with the model."""

import copy
import pickle

import pytest
import torch
from torch import nn

from vcycle.errors import RecipeError
from vcycle.nn import apply, convert_batchnorm, freeze, revert_batchnorm
from vcycle.nn.batchnorm import SubBatchNorm, one_step
from vcycle.nn.classifier import classifier_of
from vcycle.nn.freezing import FrozenBatchNorm
from vcycle.plan import Baseline, multigrid
from vcycle.tasks.recognition.models import build_model, names

CLIPS = torch.randn(6, 3, 4, 16, 16, generator=torch.Generator().manual_seed(0))
SMALL = {"widths": (4, 8), "blocks": (1, 1), "temporal_kernels": (3, 3)}


def small(**options):
    torch.manual_seed(1)
    model = build_model("r3d_tiny", 5, **SMALL, **options)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm3d):
            nn.init.uniform_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight)
    return model


def train(model, steps=3):
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(steps):
        model(CLIPS).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("name", names())
def test_every_models_classifier_is_the_one_layer_with_as_many_outputs_as_classes(name):
    if name.startswith("videomae"):
        pytest.importorskip("transformers")
    with torch.device("meta"):
        model = build_model(name, 7)  # no model has another layer of 7 outputs
    sevens = {key.rpartition(".")[0] for key, value in model.state_dict().items() if value.shape[:1] == (7,)}
    assert sevens == {classifier_of(model)}


def test_a_model_without_layers_has_no_classifier():
    with pytest.raises(RecipeError, match="ReLU has no linear or convolution layer that could be its classifier"):
        classifier_of(nn.ReLU())


@pytest.mark.parametrize("what", ["batchnorm", "backbone"])
def test_what_is_frozen_does_not_change_and_the_rest_learns(what):
    model = freeze(small(), what).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    train(model)
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    norms = {f"{name}." for name, module in model.named_modules() if isinstance(module, SubBatchNorm)}
    rest = {key for key in before if not key.startswith(tuple(norms))}
    assert changed == (rest if what == "batchnorm" else {"head.projection.weight", "head.projection.bias"})
    assert {name for name, p in model.named_parameters() if p.requires_grad} == changed


def test_none_changes_nothing():
    model = small()
    assert freeze(model, "none") is model
    assert all(p.requires_grad for p in model.parameters())
    assert not any(isinstance(module, SubBatchNorm) for module in model.modules())


def test_a_frozen_batchnorm_normalises_as_in_evaluation_whatever_the_mode_and_the_step():
    plain, frozen = small().eval(), freeze(small(), "batchnorm")
    expected = plain(CLIPS)
    plan = multigrid(Baseline(batch=4, frames=8, size=16, clips=24, steps=200, lr=0.1))
    optimizer = torch.optim.SGD([p for p in frozen.parameters() if p.requires_grad], lr=0.1)
    for prepare in (
        lambda: frozen.train(),
        lambda: frozen.eval(),
        lambda: frozen.train(True),
        lambda: convert_batchnorm(frozen, 2),
        lambda: apply(plan[7], frozen, optimizer),
    ):
        prepare()
        with one_step(frozen):
            assert torch.equal(frozen(CLIPS), expected)


def test_freezing_and_conversion_may_come_in_either_order_and_keep_the_state_plain():
    before, after = freeze(convert_batchnorm(small(), 2), "batchnorm"), convert_batchnorm(freeze(small(), "batchnorm"))
    for model in (before, after):
        assert list(model.state_dict()) == list(small().state_dict())
        norms = [module for module in model.modules() if isinstance(module, SubBatchNorm)]
        assert norms
        assert all(isinstance(module, FrozenBatchNorm) and isinstance(module, nn.BatchNorm3d) for module in norms)
    assert torch.equal(before.train()(CLIPS), after.train()(CLIPS))


def test_reverting_the_conversion_leaves_what_is_frozen_frozen():
    model = revert_batchnorm(convert_batchnorm(freeze(small(), "batchnorm"), 2))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    train(model.train())
    norms = tuple(name for name, module in model.named_modules() if isinstance(module, nn.BatchNorm3d | SubBatchNorm))
    assert norms
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items() if key.startswith(norms))


def test_what_is_frozen_is_found_by_its_own_class_and_stays_frozen_in_a_copy():
    for layer in (freeze(nn.BatchNorm2d(3), "batchnorm"), freeze(convert_batchnorm(nn.BatchNorm2d(3)), "batchnorm")):
        assert isinstance(layer, nn.BatchNorm2d)
        assert repr(layer).startswith("FrozenBatchNorm2d(3, ")
        for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert type(twin) is type(layer)
            assert not twin.train().training


def test_dropout_still_drops_before_a_classifier_that_learns():
    model = freeze(small(dropout=0.5), "backbone").train()
    assert model.head.dropout.training
    torch.manual_seed(0)
    assert not torch.equal(model(CLIPS), model(CLIPS))


def test_a_batchnorm_without_running_statistics_keeps_its_weights_alone():
    model = nn.Sequential(nn.BatchNorm3d(3, track_running_stats=False), nn.Flatten(), nn.Linear(3072, 2))
    expected = convert_batchnorm(model, 2)(CLIPS)
    freeze(model, "batchnorm")
    assert torch.equal(model.train()(CLIPS), expected)
    assert not model[0].weight.requires_grad


def _rank(rank, world, what):
    model = freeze(small(), what).train()
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        parallel(CLIPS[rank::world]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [value.tolist() for value in model.state_dict().values()]


@pytest.mark.forked
@pytest.mark.parametrize("what", ["batchnorm", "backbone"])
def test_ranks_that_train_what_is_not_frozen_agree_with_one_process(what, on_ranks):
    first, second = on_ranks(2, _rank, what)
    assert first == second
    alone = freeze(small(), what).train()
    optimizer = torch.optim.SGD([p for p in alone.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        alone(CLIPS).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    for value, expected in zip(first, alone.state_dict().values(), strict=True):
        assert torch.allclose(torch.tensor(value), expected, rtol=1e-5, atol=1e-6)


def test_anything_else_is_refused():
    with pytest.raises(RecipeError, match="freeze is 'head'; accepted: none, batchnorm, backbone"):
        freeze(small(), "head")
    with pytest.raises(RecipeError, match="freeze is 'batchnorm': Sequential has none; accepted: none, backbone"):
        freeze(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), "batchnorm")
