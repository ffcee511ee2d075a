"""How a training is carried out, as a recipe says it. The string under a field is its documentation."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from vcycle.section import Section

__all__ = ["Average", "OptimizerSection", "RunSection"]

Average = Annotated[float, Field(ge=0, lt=1)]
"""What is left of a running average after a step."""


class OptimizerSection(Section):
    """The optimizer; norms and biases are not decayed."""

    name: Literal["sgd", "adamw"] = "sgd"
    """SGD with momentum, or AdamW."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD."""
    nesterov: bool = False
    """Nesterov momentum, as PySlowFast's default."""
    betas: tuple[Average, Average] = (0.9, 0.999)
    """Averages of AdamW."""
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    """Decay of weights that are neither biases nor norms."""


class RunSection(Section):
    """How a run is carried out; nothing here changes its result, but `seed`, `precision` and `compress`."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Keys every random choice."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Arithmetic of the forward and backward pass."""
    compile: bool = False
    """Compile the network, once for each batch shape, before the first step: minutes, for faster steps. Equal to
    rounding."""
    graphs: bool = False
    """Record forward and backward once for each batch shape, and play them back (CUDA graphs): for small steps on a
    GPU, which its launches bound. Not with several GPUs, mixup or CutMix."""
    compress: Literal["fp16", "bf16"] | None = None
    """Round gradients to this on their way between processes: half as much to send, where the network is slow."""
    shard: bool = False
    """Have each process hold a part of the weights, gradients and optimizer, rather than all of them (FSDP): for models
    that need it. Equal to rounding; not with `compile`, nor with `graphs`. Without an effect on one process."""
    validate_every: PositiveFloat = 1.0
    """Epochs of samples between validations."""
    save_every: PositiveInt = 500
    """Steps between checkpoints."""
    bad_limit: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Stop when more than this share of the samples could not be read. An epoch's share is that of the bad files."""
    tensorboard: bool = False
    """Write TensorBoard event files beside the JSON lines."""
    bad_steps: Annotated[int, Field(ge=0)] = 10
    """Stop when more than so many updates in a row had to be skipped because the loss or a gradient was not finite."""
    watchdog: PositiveFloat | None = 10.0
    """Minutes without a step after which it is said where every thread is and what it waits for; `null` for never."""
    fit: Literal["auto", "always", "never"] = "auto"
    """Try each batch shape before the first step, and compute those that do not fit into memory in parts, with the same
    result. `auto`: on a GPU. If memory runs out later, that is done in any case."""
