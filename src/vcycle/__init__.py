"""Train video models on a schedule of sampling grids: coarse clips in large batches first, the full clip last.

In your own loop::

    plan = vcycle.multigrid(vcycle.Baseline(batch=64, frames=32, size=224, ...))
    model = vcycle.convert_batchnorm(model)
    for step, (clips, labels) in vcycle.steps(dataset, plan):
        vcycle.apply(step, model, optimizer, clips)
        ...

Names that need torch are loaded when first used.
"""

from typing import TYPE_CHECKING

from vcycle.errors import CheckpointError, DataError, PlanError, RecipeError, VcycleError
from vcycle.plan import (
    Baseline,
    CosineDecay,
    CurveDecay,
    FactorWarmup,
    NoDecay,
    Plan,
    RampWarmup,
    Role,
    Scale,
    Shape,
    Step,
    StepDecay,
    cascade,
    constant,
    control,
    large_minibatch,
    multigrid,
    superresolution,
)
from vcycle.utils.lazy import lazy_names

if TYPE_CHECKING:
    from vcycle import data as data
    from vcycle import nn as nn
    from vcycle.data import GridSampler, SampleRequest, VideoDataset, follow, loader, steps
    from vcycle.nn import (
        BatchPartition,
        PlanLR,
        any_shape,
        apply,
        convert_batchnorm,
        one_step,
        revert_batchnorm,
        shape_constraints,
    )
    from vcycle.tasks.base import register_layout, register_plan, register_task
    from vcycle.tasks.loaded_model import load
    from vcycle.tasks.models import register_model

__version__ = "0.1.0"

_LAZY = {
    "GridSampler": "vcycle.data",
    "SampleRequest": "vcycle.data",
    "BatchPartition": "vcycle.nn",
    "PlanLR": "vcycle.nn",
    "VideoDataset": "vcycle.data",
    "any_shape": "vcycle.nn",
    "apply": "vcycle.nn",
    "convert_batchnorm": "vcycle.nn",
    "data": "vcycle.data",
    "follow": "vcycle.data",
    "load": "vcycle.tasks.loaded_model",
    "loader": "vcycle.data",
    "nn": "vcycle.nn",
    "one_step": "vcycle.nn",
    "register_layout": "vcycle.tasks.base",
    "register_model": "vcycle.tasks.models",
    "register_plan": "vcycle.tasks.base",
    "register_task": "vcycle.tasks.base",
    "revert_batchnorm": "vcycle.nn",
    "shape_constraints": "vcycle.nn",
    "steps": "vcycle.data",
}

__all__ = [
    "Baseline",
    "BatchPartition",
    "CheckpointError",
    "CosineDecay",
    "CurveDecay",
    "DataError",
    "FactorWarmup",
    "GridSampler",
    "NoDecay",
    "Plan",
    "PlanError",
    "PlanLR",
    "RampWarmup",
    "RecipeError",
    "Role",
    "SampleRequest",
    "Scale",
    "Shape",
    "Step",
    "StepDecay",
    "VcycleError",
    "VideoDataset",
    "any_shape",
    "apply",
    "cascade",
    "constant",
    "control",
    "convert_batchnorm",
    "follow",
    "large_minibatch",
    "load",
    "loader",
    "multigrid",
    "one_step",
    "register_layout",
    "register_model",
    "register_plan",
    "register_task",
    "revert_batchnorm",
    "shape_constraints",
    "steps",
    "superresolution",
]

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
