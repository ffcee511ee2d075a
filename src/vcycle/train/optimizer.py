"""Optimizers by name or `module:Class`, and their parameter groups: by role, by weight decay, by depth."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from vcycle.errors import RecipeError, did_you_mean
from vcycle.registry import import_attribute

if TYPE_CHECKING:
    from vcycle.train.config import OptimizerSection

__all__ = [
    "build_optimizer",
    "check_key",
    "check_optimizer",
    "check_options",
    "optimizer_class",
    "parameter_depths",
    "parameter_groups",
]

_NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)  # _NormBase: of every BatchNorm and InstanceNorm
_GIVEN = ("params", "lr", "weight_decay", "fused", "foreach", "capturable", "differentiable")
"""Arguments of optimizers that `options` cannot set: other keys, the plan or the trainer set them."""
_FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
_UNUSABLE = {
    "lbfgs": "computes the loss several times in a step, which is not supported",
    "sparseadam": "only supports sparse gradients",
}
_CONTAINERS = (nn.Sequential, nn.ModuleList)


def optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """Look up a class of `torch.optim` by name, where case does not matter, or import another by `module:Class`.

    Raises:
        RecipeError: if there is none, or it is not supported.
    """
    if ":" in name:
        return _imported(name)
    known = {
        key.lower(): value
        for key, value in vars(torch.optim).items()
        if inspect.isclass(value) and issubclass(value, torch.optim.Optimizer) and value is not torch.optim.Optimizer
    }
    usable = sorted(known.keys() - _UNUSABLE.keys())
    if name.lower() not in usable:
        why = _UNUSABLE.get(name.lower(), "is not in torch.optim")
        near = did_you_mean(name.lower(), usable)
        raise RecipeError(
            f"optimizer {name!r} {why}{near}: accepted are {', '.join(usable)}, or module:Class of another package"
        )
    return known[name.lower()]


def _imported(path: str) -> type[torch.optim.Optimizer]:
    found = import_attribute(path, "optimizer.name", here=True)
    if not (inspect.isclass(found) and issubclass(found, torch.optim.Optimizer)):
        raise RecipeError(f"optimizer.name: {path} is {found!r}; accepted: a subclass of torch.optim.Optimizer")
    closure = inspect.signature(found.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise RecipeError(f"optimizer {path!r} {_UNUSABLE['lbfgs']}")
    return found


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Check that an optimizer accepts some options.

    Raises:
        RecipeError: naming the first option that it does not accept, and those that it does.
    """
    own, taken = _arguments(name)
    for key in options:
        if key in own:
            raise RecipeError(f"{key!r} has a key of its own, optimizer.{key}")
        if key not in taken:
            near, kind = did_you_mean(key, taken), optimizer_class(name).__name__
            raise RecipeError(
                f"optimizer {kind} takes no option {key!r}{near}: accepted are {', '.join(sorted(taken))}"
            )


def check_key(name: str, key: str) -> None:
    """Check that an optimizer takes an argument that has a key of its own in a recipe.

    Raises:
        RecipeError: with the keys and options that it takes.
    """
    own, taken = _arguments(name)
    if key not in own:
        accepted = [f"optimizer.{other}" for other in sorted(own)] + [
            f"optimizer.options of {', '.join(sorted(taken))}"
        ]
        kind = optimizer_class(name).__name__
        raise RecipeError(f"optimizer {kind} does not take optimizer.{key}: accepted are {', '.join(accepted)}")


def check_optimizer(section: "OptimizerSection") -> None:
    """Check, before a training, that an optimizer of another package is there and takes what the recipe gives it.

    Raises:
        RecipeError: if it cannot be imported, or does not take a key or an option.
    """
    if ":" not in section.name:
        return  # checked with the recipe
    check_options(section.name, section.options)
    for key in ("momentum", "betas"):
        if getattr(section, key) != type(section).model_fields[key].default:
            check_key(section.name, key)


def _arguments(name: str) -> tuple[set[str], set[str]]:
    """The arguments of an optimizer that have keys of their own in a recipe, and those that are options."""
    arguments = set(inspect.signature(optimizer_class(name)).parameters)
    own = arguments & ({"momentum", "nesterov"} if name.lower() == "sgd" else {"betas"})
    return own, arguments - own - {*_GIVEN}


def build_optimizer(
    section: "OptimizerSection",
    model: nn.Module,
    role_of: Callable[[str], str | None] = lambda _: None,
    *,
    fused: bool = False,
) -> torch.optim.Optimizer:
    """Build the optimizer of a model; a role whose LR is 0 is not updated at all.

    The LR is 0 until a step of the plan sets it (`vcycle.apply`).

    Args:
        section: The optimizer section of the recipe.
        model: The model.
        role_of: The plan's role of a parameter, from its name.
        fused: Use the fused implementation (SGD, Adam and AdamW only). It rounds differently.

    Raises:
        RecipeError: for an unknown name, or options that the optimizer or the model does not accept.
    """
    kind = optimizer_class(section.name)
    check_optimizer(section)
    taken = inspect.signature(kind).parameters
    decays = "weight_decay" in taken
    if section.weight_decay and not decays:
        raise RecipeError(
            f"optimizer.weight_decay is {section.weight_decay:g}, but {kind.__name__} has no weight decay: set it to 0"
        )
    groups = parameter_groups(
        model, weight_decay=section.weight_decay, role_of=role_of, layer_decay=section.layer_decay
    )
    options: dict[str, Any] = {"lr": 0.0, **section.options}
    if fused and kind in _FUSED:
        options["fused"] = True
    if kind is torch.optim.SGD:
        options |= {"momentum": section.momentum, "nesterov": section.nesterov}
    elif "betas" in taken:
        options["betas"] = section.betas
    try:
        optimizer = kind(groups, **options)
    except (ValueError, TypeError, RuntimeError) as error:
        raise RecipeError(f"optimizer {section.name!r} refuses the model or its options: {error}") from None
    if any(group["role"] is not None for group in groups):
        optimizer.register_step_pre_hook(_leave_frozen)
    return optimizer


def _leave_frozen(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Drop the gradients of frozen roles.

    An LR of 0 freezes the weights, but Adam's averages would still change, and old gradients would affect the first
    steps after the freeze. The parameters still receive gradients, as DistributedDataParallel expects.
    """
    for group in optimizer.param_groups:
        if group.get("role") is not None and group["lr"] == 0:
            for parameter in group["params"]:
                parameter.grad = None


def parameter_groups(
    model: nn.Module,
    *,
    weight_decay: float,
    role_of: Callable[[str], str | None] = lambda _: None,
    layer_decay: float | None = None,
) -> list[dict[str, Any]]:
    """Group parameters by role, by weight decay (none for norms and biases), and by depth if there is a layer decay.

    Groups depend only on names and roles, never on the class of a norm, so that checkpoints do not depend on how
    BatchNorm is computed.

    Args:
        model: The model.
        weight_decay: Weight decay of the groups that have one.
        role_of: The plan's role of a parameter, from its name.
        layer_decay: Multiplies the LR once for each layer between a parameter and the output (BEiT, MAE). The factor
            is the group's `lr_scale`, by which `vcycle.apply` multiplies the plan's LR.

    Raises:
        RecipeError: if there is a layer decay, but the model has no blocks.
    """
    depths = {} if layer_decay is None else parameter_depths(model)
    last = max(depths.values(), default=0)
    groups: dict[tuple[str, bool, int], list[nn.Parameter]] = {}
    for name, parameter, in_norm in _parameters(model):
        decays = not in_norm and not name.endswith("bias")
        groups.setdefault((role_of(name) or "", decays, depths.get(name, last)), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": weight_decay if decays else 0.0, "role": role or None}
        | ({} if layer_decay is None else {"lr_scale": layer_decay ** (last - depth)})
        for (role, decays, depth), parameters in sorted(groups.items(), key=lambda item: item[0])
    ]


def parameter_depths(model: nn.Module) -> dict[str, int]:
    """The depth of each parameter, by its name: 0 before the first block, then one more for each block.

    Blocks are the children of a `Sequential` or a `ModuleList` that have submodules themselves: residual blocks,
    transformer layers. They count in the order in which the model registers them, so parallel pathways count one after
    the other. Parameters between two blocks count with the second; those after the last block (a norm, the head) are
    one deeper than that. The rule is that of BEiT and MAE.

    Raises:
        RecipeError: if the model has no blocks.
    """
    blocks: list[str] = []

    def visit(module: nn.Module, prefix: str) -> None:
        for name, child in module.named_children():
            path = f"{prefix}{name}"
            composite = next(child.children(), None) is not None and not isinstance(child, _CONTAINERS)
            if isinstance(module, _CONTAINERS) and composite:
                blocks.append(f"{path}.")
            else:
                visit(child, f"{path}.")

    visit(model, "")
    if not blocks:
        raise RecipeError(
            "optimizer.layer_decay needs a model of blocks (modules of modules in a Sequential or a ModuleList), but "
            f"{type(model).__name__} has none: set it to null"
        )
    depths: dict[str, int] = {}
    begun = 0
    for prefix, module in model.named_modules():
        place = next((number for number, block in enumerate(blocks, 1) if f"{prefix}.".startswith(block)), 0)
        begun = max(begun, place)
        outside = 0 if begun == 0 else begun + 1
        for name, _ in module.named_parameters(recurse=False):
            # Parameters of the model itself, such as position embeddings, come before its blocks.
            depths[f"{prefix}.{name}".removeprefix(".")] = place or outside
    return depths


def _parameters(model: nn.Module) -> Iterable[tuple[str, nn.Parameter, bool]]:
    """Every trainable parameter once: its name, the parameter, and whether it belongs to a norm."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                yield f"{prefix}.{name}".removeprefix("."), parameter, isinstance(module, _NORMS)
