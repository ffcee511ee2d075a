"""Tries a model at every shape of its plans before anything is trained: one forward pass of two clips each."""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from vcycle.errors import UserCodeError, VcycleError
from vcycle.nn import require_token_dropping
from vcycle.nn.precision import at_precision
from vcycle.plan import BatchShape, Plan, Shape
from vcycle.train.accelerator import make_accelerator
from vcycle.train.calling import calling, name_of
from vcycle.train.config import TrainConfig
from vcycle.train.memory import is_out_of_memory, release
from vcycle.train.micro_batching import attempted
from vcycle.train.objective import Objective, noise_batch
from vcycle.train.ranks import Ranks
from vcycle.train.run import RunFolder
from vcycle.train.setup import set_up

__all__ = ["outputs_at", "probe"]

CLIPS = 2
"""Clips of a probe: the fewest that BatchNorm takes in training, and that tell a lost batch dimension from a scalar."""


def probe(
    config: TrainConfig,
    build: Callable[[], nn.Module],
    objective: Objective,
    plans: Iterable[Plan],
    *,
    ranks: Ranks | None = None,
) -> None:
    """Run a new model forward once at every shape of some plans, as training does, and once as evaluation does.

    The model is built anew and dropped, and random generators are restored: a seeded training stays as it is. A shape
    costs two clips without a backward pass, less than a tenth of a step of eight clips.

    Args:
        config: The training options: device and precision.
        build: Builds the model; its weights do not matter.
        objective: Makes the clips, and checks the model's output.
        plans: The plans; each of their shapes is tried once at each share of tokens, in the order of its first use.
        ranks: The ranks that train together, each on its own device.

    Raises:
        PlanError: if a plan drops tokens and the model cannot.
        UserCodeError: for the first shape at which the model raises an exception, or has an output of a wrong shape;
            names the model.
    """
    plans = list(plans)
    cells = [cell for plan in plans for cell in plan.shapes]
    with ExitStack() as stack:
        stack.enter_context(_untouched_generators(torch.device("cpu")))
        model = build()
        for plan in plans:
            require_token_dropping(model, plan)
        accelerator = make_accelerator(config.run, model, ranks)
        stack.enter_context(_untouched_generators(accelerator.device))
        # No compiler, no graphs, and no other ranks: only whether the network takes the shape is tried.
        run = config.run.model_copy(update={"compile": False, "graphs": False, "compress": None, "shard": False})
        alone = replace(config, run=run, ema=None, clip_grad_norm=None)
        try:
            _, step = set_up(alone, accelerator, plan=plans[0], model=model, objective=objective, run=RunFolder(Path()))
            first = plans[0][0]

            def forward(shape: Shape, tokens: float = 1.0) -> None:
                cell = BatchShape(frames=shape.frames, size=shape.size, batch=CLIPS, bn_batch=CLIPS, tokens=tokens)
                step.predict(attempted(first, cell), noise_batch(objective, CLIPS, shape))

            def remedy(shape: Shape) -> str:
                return "" if shape == full else "; model.needs states which shapes a network takes"

            full = plans[0].baseline_shape.shape
            for tokens in dict.fromkeys(cell.tokens for cell in cells):
                shapes = dict.fromkeys(cell.shape for cell in cells if cell.tokens == tokens)
                _each_shape(model.train(), shapes, partial(forward, tokens=tokens), "training", remedy)
            _each_shape(model.eval(), [full], forward, "evaluation")
        except (RuntimeError, MemoryError) as error:
            # Training finds out what fits, and says what to change.
            if not is_out_of_memory(error):
                raise
    release(accelerator.device)


def outputs_at(
    model: nn.Module,
    objective: Objective,
    shapes: Iterable[Shape],
    *,
    device: torch.device,
    precision: str = "fp32",
    doing: str = "evaluation",
) -> list[Any]:
    """The outputs of a model in evaluation mode for two clips of noise at some shapes, the same in every call.

    Modes, buffers and random generators are restored.

    Args:
        model: The model, on its device.
        objective: Makes the clips, and checks the model's output.
        shapes: The shapes.
        device: The device.
        precision: The precision of the forward pass: `fp32`, `bf16` or `fp16`.
        doing: What the outputs are for, in the error.

    Raises:
        UserCodeError: for the first shape that the model fails at, with the model's name.
    """

    def forward(shape: Shape) -> Any:
        torch.manual_seed(0)
        with at_precision(precision, device):
            return objective.predict(model, noise_batch(objective, CLIPS, shape).clips.to(device))

    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
    modes = [(module, module.training) for module in model.modules()]
    with _untouched_generators(device):
        try:
            return _each_shape(model.eval(), shapes, forward, doing)
        finally:
            with torch.no_grad():
                for buffer, value in kept:
                    buffer.copy_(value)
            for module, training in modes:
                module.training = training


def _each_shape(
    model: nn.Module,
    shapes: Iterable[Shape],
    forward: Callable[[Shape], Any],
    doing: str,
    remedy: Callable[[Shape], str] = lambda _: "",
) -> list[Any]:
    outputs = []
    for shape in shapes:
        where = f"on {CLIPS} clips of {shape}, tried before {doing}"
        try:
            with torch.no_grad(), calling(model, where):
                outputs.append(forward(shape))
        except UserCodeError as error:
            raise UserCodeError(f"{error}{remedy(shape)}") from error.__cause__
        except VcycleError as error:  # an output of a wrong shape
            raise UserCodeError(f"model {name_of(model)!r} failed {where}: {error}{remedy(shape)}") from error
    return outputs


@contextmanager
def _untouched_generators(device: torch.device) -> Iterator[None]:
    """Restore the random generators of Python, NumPy, torch and the device at exit."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
