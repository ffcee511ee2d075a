"""Freezes parts of a model for fine-tuning.

A frozen BatchNorm is a fixed scale and shift per channel: it normalises by its running statistics in every mode of the
model, and neither the statistics nor its weights change.
"""

from typing import Literal, TypeVar, get_args

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from vcycle.errors import RecipeError
from vcycle.nn.batchnorm import SubBatchNorm, convert_batchnorm, sub_batch_class, sub_batch_layers
from vcycle.nn.classifier import classifier_of
from vcycle.plan.arguments import check_kind

__all__ = ["Frozen", "FrozenBatchNorm", "freeze"]

Frozen = Literal["none", "batchnorm", "backbone"]

_Model = TypeVar("_Model", bound=nn.Module)


class FrozenBatchNorm(SubBatchNorm):
    """BatchNorm that stays in evaluation mode: ``train()`` has no effect on it."""

    def train(self, mode: bool = True) -> "FrozenBatchNorm":
        """Stay in evaluation mode."""
        super().train(False)
        return self


def freeze(model: _Model, what: Frozen) -> _Model:
    """Freeze parts of a model, in place; call this before making its optimizer.

    ``batchnorm`` freezes every BatchNorm. ``backbone`` freezes every BatchNorm and all parameters but those of the
    classifier. Modules keep their identity, parameters, buffers and names; dropout works as before. In a BatchNorm
    without running statistics, only the weights are frozen.

    Args:
        model: Any module.
        what: ``none``, ``batchnorm`` or ``backbone``.

    Returns:
        The same model.

    Raises:
        RecipeError: ``what`` is none of these, there is no BatchNorm to freeze or it has its own forward, or no
            classifier is found.

    Example:
        >>> model = freeze(nn.Sequential(nn.Conv3d(3, 8, 1), nn.BatchNorm3d(8), nn.Conv3d(8, 4, 1)), "backbone")
        >>> [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        ['2.weight', '2.bias']
        >>> model.train()[1].training
        False
    """
    check_kind("model", model, nn.Module, "vcycle.nn.freeze(model, what)")
    if what not in get_args(Frozen):
        raise RecipeError(f"freeze is {what!r}; accepted: {', '.join(get_args(Frozen))}")
    if what == "none":
        return model
    if what == "batchnorm" and not any(isinstance(module, _BatchNorm) for module in model.modules()):
        raise RecipeError(f"freeze is 'batchnorm': {type(model).__name__} has none; accepted: none, backbone")
    if what == "backbone":
        classifier = model.get_submodule(classifier_of(model))
        model.requires_grad_(False)
        classifier.requires_grad_(True)
    # Layers already converted keep their blocks: without running statistics, a layer still uses them.
    plain = [m for m in model.modules() if isinstance(m, _BatchNorm) and not isinstance(m, SubBatchNorm)]
    for layer in plain:
        convert_batchnorm(layer)
    for module in sub_batch_layers(model):
        module.requires_grad_(False)
        if module.running_mean is not None:
            module.__class__ = sub_batch_class(FrozenBatchNorm, module.plain_class)
            module.eval()
    return model
