from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from vcycle.errors import RecipeError
from vcycle.nn import apply, convert_batchnorm
from vcycle.plan import Baseline, constant
from vcycle.tasks.recognition.models import build_model
from vcycle.tasks.superres.recipe import SuperresRecipe
from vcycle.train.config import OptimizerSection
from vcycle.train.optimizer import build_optimizer, parameter_depths, parameter_groups


def named(model, groups):
    """The groups with the names of their parameters."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [({**group, "params": [names[id(p)] for p in group["params"]]}) for group in groups]


@pytest.mark.parametrize("name", ["r3d_tiny", "slowfast_tiny"])
def test_norms_and_biases_do_not_decay_and_every_parameter_is_there_once(name):
    model = build_model(name, 4)
    groups = named(model, parameter_groups(model, weight_decay=0.01))
    assert [(group["weight_decay"], group["role"]) for group in groups] == [(0.0, None), (0.01, None)]
    free, decayed = (group["params"] for group in groups)
    assert sorted(free + decayed) == sorted(name for name, _ in model.named_parameters())
    sizes = {name: parameter.ndim for name, parameter in model.named_parameters()}
    assert {sizes[name] for name in free} == {1}
    assert {sizes[name] for name in decayed} == {2, 5}


def test_the_groups_are_the_same_whether_batchnorm_was_converted_or_not():
    plain, converted = build_model("r3d_tiny", 4), convert_batchnorm(build_model("r3d_tiny", 4), 8)
    groups = [named(model, parameter_groups(model, weight_decay=0.01)) for model in (plain, converted)]
    assert groups[0] == groups[1]


def test_other_norms_do_not_decay_either():
    model = nn.Sequential(
        nn.Linear(4, 4), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4), nn.InstanceNorm1d(4, affine=True)
    )
    free, decayed = (group["params"] for group in named(model, parameter_groups(model, weight_decay=0.01)))
    assert decayed == ["0.weight"]
    assert free == ["0.bias", "1.weight", "1.bias", "2.weight", "2.bias", "3.weight", "4.weight", "4.bias"]


def test_a_shared_parameter_is_trained_once_and_a_frozen_one_not_at_all():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    model[2].weight.requires_grad_(False)
    (group,) = parameter_groups(model, weight_decay=0.01)
    assert [id(p) for p in group["params"]] == [id(model[0].weight)]


def test_roles_have_groups_of_their_own():
    model = nn.ModuleDict({"flow": nn.Linear(4, 4), "trunk": nn.Linear(4, 4)})
    groups = parameter_groups(
        model, weight_decay=0.01, role_of=lambda name: "flow" if name.startswith("flow") else None
    )
    found = {(g["role"], g["weight_decay"]): g["params"] for g in named(model, groups)}
    assert found == {
        (None, 0.0): ["trunk.bias"],
        (None, 0.01): ["trunk.weight"],
        ("flow", 0.0): ["flow.bias"],
        ("flow", 0.01): ["flow.weight"],
    }


def test_the_constants_reach_the_optimizer():
    model = nn.Linear(4, 4)
    sgd = build_optimizer(OptimizerSection(momentum=0.8, nesterov=True, weight_decay=0.3), model)
    assert isinstance(sgd, torch.optim.SGD)
    assert [(g["momentum"], g["nesterov"], g["weight_decay"]) for g in sgd.param_groups] == [
        (0.8, True, 0.0),
        (0.8, True, 0.3),
    ]
    with pytest.raises(ValidationError, match=r"Nesterov momentum needs optimizer\.momentum above 0"):
        OptimizerSection(momentum=0, nesterov=True)
    adamw = build_optimizer(OptimizerSection(name="adamw", betas=(0.8, 0.9)), model)
    assert isinstance(adamw, torch.optim.AdamW)
    assert adamw.param_groups[0]["betas"] == (0.8, 0.9)
    adam = build_optimizer(OptimizerSection(name="adam", betas=(0.9, 0.99), weight_decay=0), model)
    assert type(adam) is torch.optim.Adam
    assert adam.param_groups[0]["betas"] == (0.9, 0.99)


# Any optimizer of torch.optim -------------------------------------------------------------------------


def stepped(section, model, steps=2):
    """Take a few steps at an LR of 0.01."""
    optimizer = build_optimizer(section, model)
    for _ in range(steps):
        apply(STEP, model, optimizer)
        model(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


STEP = constant(Baseline(batch=2, frames=2, size=4, clips=8, steps=4, lr=0.01))[0]


@pytest.mark.parametrize("name", ["RMSprop", "nadam", "Adagrad", "ADAMAX", "radam", "adafactor", "asgd", "adadelta"])
def test_any_optimizer_of_torch_is_found_by_its_name_in_any_case(name):
    model = nn.Linear(4, 4)
    before = model.weight.detach().clone()
    optimizer = stepped(OptimizerSection(name=name, weight_decay=0.1), model)
    assert type(optimizer).__name__.lower() == name.lower()
    assert sorted(group["weight_decay"] for group in optimizer.param_groups) == [0.0, 0.1]
    assert not torch.equal(model.weight, before)


def test_options_are_passed_on():
    optimizer = build_optimizer(OptimizerSection(name="rmsprop", options={"alpha": 0.9, "eps": 1e-3}), nn.Linear(4, 4))
    assert {(group["alpha"], group["eps"]) for group in optimizer.param_groups} == {(0.9, 1e-3)}


OWN = """
import torch

class Sign(torch.optim.SGD):
    def __init__(self, params, lr=0.1, weight_decay=0.0, betas=(0.9, 0.999), power=1.0):
        super().__init__(params, lr, weight_decay=weight_decay)
        for group in self.param_groups:
            group.update(betas=betas, power=power)

class Twice(torch.optim.SGD):
    def step(self, closure):
        closure()

def sign(params): ...
"""


@pytest.fixture
def own_optimizers(own_models, tmp_path, monkeypatch):
    (tmp_path / "own_optimizers.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)


def test_an_optimizer_of_another_package_is_built_from_its_module_and_class(own_optimizers):
    section = OptimizerSection(name="own_optimizers:Sign", weight_decay=0.1, betas=(0.5, 0.6), options={"power": 0.5})
    model = nn.Linear(4, 4)
    before = model.weight.detach().clone()
    optimizer = stepped(section, model)
    assert type(optimizer).__name__ == "Sign"
    assert {(g["weight_decay"], g["betas"], g["power"]) for g in optimizer.param_groups} == {
        (0.0, (0.5, 0.6), 0.5),
        (0.1, (0.5, 0.6), 0.5),
    }
    assert not torch.equal(model.weight, before)
    for given, said in (
        ({"options": {"powr": 1}}, r"Sign takes no option 'powr' \(did you mean 'power'\?\)"),
        (
            {"momentum": 0.8},
            r"Sign does not take optimizer\.momentum: accepted are optimizer\.betas, optimizer\.options of",
        ),
    ):
        with pytest.raises(RecipeError, match=said):
            build_optimizer(OptimizerSection(name="own_optimizers:Sign", **given), model)


def test_muon_of_timm_trains_convolutions():
    pytest.importorskip("timm.optim.muon")
    model = build_model("r3d_tiny", 4, zero_gamma=False)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = build_optimizer(OptimizerSection(name="timm.optim:Muon", options={"momentum": 0.9}), model)
    apply(STEP, model, optimizer)
    model(torch.rand(2, 3, 4, 16, 16)).square().sum().backward()
    optimizer.step()
    assert not any(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "own_optimizers:sign",
            r"optimizer\.name: own_optimizers:sign is <function sign.*accepted: a subclass of torch",
        ),
        ("own_optimizers:Twice", r"optimizer 'own_optimizers:Twice' computes the loss several times in a step"),
        ("own_optimizers:Sing", r"module 'own_optimizers' has no 'Sing' \(did you mean 'Sign'\?\)"),
        ("no_such_module:Muon", r"optimizer\.name: module 'no_such_module' cannot be imported: not found among inst"),
    ],
)
def test_what_is_no_optimizer_of_another_package_is_refused(own_optimizers, name, message):
    section = OptimizerSection(name=name)  # a recipe is read without it: to evaluate a model, none is needed
    with pytest.raises(RecipeError, match=message):
        build_optimizer(section, nn.Linear(4, 4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"name": "adamm"},
            r"optimizer 'adamm' is not in torch.optim \(did you mean 'adam'\?\): accepted are adadelta",
        ),
        ({"name": "LBFGS"}, r"optimizer 'LBFGS' computes the loss several times in a step"),
        ({"name": "sparseadam"}, r"optimizer 'sparseadam' only supports sparse gradients"),
        (
            {"options": {"dampenning": 1}},
            r"SGD takes no option 'dampenning' \(did you mean 'dampening'\?\): accepted ar",
        ),
        ({"options": {"lr": 1}}, r"SGD takes no option 'lr': accepted are dampening, maximize"),
        ({"name": "adam", "options": {"betas": [0, 0]}}, r"'betas' has a key of its own, optimizer\.betas"),
        (
            {"name": "adamw", "momentum": 0.8},
            r"AdamW does not take optimizer\.momentum: accepted are optimizer\.betas, optimizer\.options of amsgrad",
        ),
        (
            {"betas": [0.9, 0.99]},
            r"SGD does not take optimizer\.betas: accepted are optimizer\.momentum, optimizer\.nesterov, opt",
        ),
        (
            {"name": "rmsprop", "momentum": 0},
            r"RMSprop does not take optimizer\.momentum: accepted are .* of alpha, .*, momentum \[",
        ),
        ({"name": "adam", "layer_decay": 0.0}, r"greater than 0"),
    ],
)
def test_what_no_optimizer_takes_is_refused_with_what_it_takes(options, message):
    with pytest.raises(ValidationError, match=message):
        OptimizerSection(**options)


def test_what_the_optimizer_itself_refuses_is_said():
    said = r"optimizer\.weight_decay is 0\.0001, but Rprop has no weight decay: set it to 0"
    with pytest.raises(RecipeError, match=said):
        build_optimizer(OptimizerSection(name="rprop"), nn.Linear(4, 4))
    with pytest.raises(
        RecipeError, match=r"optimizer 'adam' refuses the model or its options: Invalid epsilon value: -1"
    ):
        build_optimizer(OptimizerSection(name="adam", options={"eps": -1}), nn.Linear(4, 4))


def test_a_recipe_of_either_task_names_it_and_its_faults(make_training):
    assert make_training("optimizer=NAdam", "optimizer.options={eps: 1e-6}").recipe.optimizer.name == "nadam"
    with pytest.raises(RecipeError, match=r"key 'optimizer\.name' is 'adan': optimizer 'adan' is not in torch\.optim"):
        make_training("optimizer=adan")
    assert (SuperresRecipe.model_fields["optimizer"].default.name, OptimizerSection().name) == ("adam", "sgd")


def test_an_optimizer_that_is_not_installed_stops_a_training_before_it_begins(make_training):
    with pytest.raises(RecipeError, match=r"optimizer\.name: module 'no_such_module' cannot be imported: not found"):
        make_training("optimizer=no_such_module:Muon")


def test_a_recipe_that_was_saved_with_every_key_names_another_optimizer():
    """Its momentum is SGD's default, and Nesterov momentum is documented as SGD's."""
    saved = OptimizerSection(nesterov=True).model_dump()
    assert OptimizerSection(**{**saved, "name": "adamw"}).momentum == 0.9


def test_a_run_with_another_optimizer_is_resumed_to_the_bit(make_training, record_of, tmp_path):
    options = ["data.cache=24", "optimizer=nadam", "optimizer.layer_decay=0.7", "training.lr=0.002"]
    training = make_training(
        *options, "plan=short", "training.steps=16", "training.decay=constant", "training.warmup=null"
    )
    training.run(tmp_path / "whole")
    training.run_until(5, tmp_path / "cut")
    training.run(tmp_path / "cut", resume=True)
    assert record_of(tmp_path / "cut") == record_of(tmp_path / "whole")


# Layer-wise decay of the LR ---------------------------------------------------------------------------


class Vit(nn.Module):
    """A transformer as MAE and BEiT lay it out."""

    def __init__(self, blocks=3):
        super().__init__()
        self.cls_token, self.pos_embed = nn.Parameter(torch.zeros(1, 1, 4)), nn.Parameter(torch.zeros(1, 5, 4))
        self.patch_embed = nn.Sequential(nn.Conv3d(3, 4, 1), nn.LayerNorm(4))
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(4, 1, 8) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 4)


def mae_layer(name, blocks):
    """The layer of a parameter as MAE's `util/lr_decay.py` counts it."""
    if name in ("cls_token", "pos_embed") or name.startswith("patch_embed"):
        return 0
    return int(name.split(".")[1]) + 1 if name.startswith("blocks") else blocks + 1


def test_layers_are_those_of_mae_and_beit():
    model = Vit()
    assert parameter_depths(model) == {name: mae_layer(name, 3) for name, _ in model.named_parameters()}
    groups = named(model, parameter_groups(model, weight_decay=0.01, layer_decay=0.5))
    scales = {name: group["lr_scale"] for group in groups for name in group["params"]}
    assert scales == {name: 0.5 ** (4 - mae_layer(name, 3)) for name, _ in model.named_parameters()}


def test_the_plans_lr_is_scaled_by_depth_at_every_step():
    model = Vit()
    optimizer = build_optimizer(OptimizerSection(layer_decay=0.5), model)
    for factor in (1.0, 0.1):
        apply(replace(STEP, lr=0.01 * factor), model, optimizer)
        rates = sorted({group["lr"] for group in optimizer.param_groups})
        assert rates == pytest.approx([0.01 * factor * 0.5**depth for depth in (4, 3, 2, 1, 0)])


@pytest.mark.parametrize("convert", [lambda model: model, lambda model: convert_batchnorm(model, 8)])
def test_residual_blocks_are_layers_and_what_lies_between_belongs_to_the_next(convert):
    depths = parameter_depths(convert(build_model("r3d_tiny", 4)))
    names = list(depths)
    assert depths[names[0]] == 0
    assert depths["head.projection.weight"] == max(depths.values())
    assert list(depths.values()) == sorted(depths.values())
    assert len(set(depths.values())) > 3


def test_a_model_without_blocks_is_refused():
    with pytest.raises(
        RecipeError, match=r"optimizer\.layer_decay needs a model of blocks .*, but Linear has none: set it to null"
    ):
        parameter_groups(nn.Linear(4, 4), weight_decay=0.0, layer_decay=0.75)
