"""Plans: everything that varies during training, decided before it starts.

A plan is a pure function of the step. It is arithmetic: no torch, no files, no devices.

Read in this order: `shape` (grids and batches), `baseline` (the user's recipe), `recognition` and `superresolution`
(the schedules of the two papers), `schedule` (the plan that they build), `control` (the LR-matched control to compare
a plan with).
"""

from vcycle.plan.baseline import Baseline
from vcycle.plan.control import control
from vcycle.plan.ranks import rank_slice
from vcycle.plan.rates import (
    ConstantRate,
    CosineDecay,
    CosineRate,
    CurveDecay,
    CurveRate,
    FactorWarmup,
    NoDecay,
    RampWarmup,
    Role,
    StepDecay,
)
from vcycle.plan.recognition import LONG_SHAPES, SHORT_SIZES, cascade, constant, multigrid
from vcycle.plan.schedule import Plan, Saving, Stage, Step
from vcycle.plan.shape import BatchShape, Scale, Shape, ShapeConstraints
from vcycle.plan.superresolution import large_minibatch, superresolution

__all__ = [
    "LONG_SHAPES",
    "SHORT_SIZES",
    "Baseline",
    "BatchShape",
    "ConstantRate",
    "CosineDecay",
    "CosineRate",
    "CurveDecay",
    "CurveRate",
    "FactorWarmup",
    "NoDecay",
    "Plan",
    "RampWarmup",
    "Role",
    "Saving",
    "Scale",
    "Shape",
    "ShapeConstraints",
    "Stage",
    "Step",
    "StepDecay",
    "cascade",
    "constant",
    "control",
    "large_minibatch",
    "multigrid",
    "rank_slice",
    "superresolution",
]
