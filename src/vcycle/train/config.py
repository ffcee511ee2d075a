"""The options of training that every task's recipe shares. The string under a field is its documentation.

The sections are the settings themselves: a recipe holds them, and the trainer reads them. Importing this needs no
torch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from vcycle.data.config import LoadingSection
from vcycle.errors import RecipeError
from vcycle.section import PositiveFloat, Section

__all__ = ["Average", "EmaSpec", "GradNorm", "OptimizerSection", "RunSection", "TrainConfig", "TryShapes"]

Average = Annotated[float, Field(ge=0, lt=1)]
"""What is left of a running average after a step."""
GradNorm = PositiveFloat
"""The largest norm that gradients keep."""
TryShapes = Literal["auto", "always", "never"]
"""When batch shapes are tried before the first step: `auto` on a GPU."""

_USUAL = ("sgd", "adam", "adamw")
"""Optimizers that are known without torch."""


class RunSection(Section):
    """How a run is carried out; nothing here changes its result, but `seed`, `precision` and `compress`."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Keys every random choice."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Arithmetic of the forward and backward pass: full precision, or mixed precision (autocast)."""
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
    threads: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = "auto"
    """Threads that compute in each process. `auto`: what `OMP_NUM_THREADS` says or, on resume, what the run had; else
    the idle cores, less those of `data.workers` and shared by the processes of a machine, or 1 where that is faster."""
    validate_every: Annotated[float, Field(ge=1e-6)] = 1.0
    """Epochs of samples between validations."""
    save_every: PositiveInt = 500
    """Steps between checkpoints."""
    bad_limit: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Stop when more than this share of the samples could not be read. An epoch's share is that of the bad files. A
    single bad file does not stop a run, unless this is 0."""
    validate_stage_shape: bool = False
    """In each validation, evaluate at the shape of the stage just trained as well (`val_stage_*` in the log): early in
    a plan a model may have learned its coarse clips, and still be at chance at full resolution."""
    loggers: tuple[str, ...] = ()
    """Loggers beside the JSON lines: `tensorboard`, `wandb` (Weights & Biases), `mlflow`, or `module:callable`, which
    is called with a `vcycle.train.loggers.LoggedRun` and returns a `Logger`."""
    bad_steps: Annotated[int, Field(ge=0)] = 10
    """Stop when more than so many updates in a row had to be skipped because the loss or a gradient was not finite."""
    watchdog: Annotated[float, Field(ge=0.001, le=1e5)] | None = 10.0
    """Minutes without a step after which it is said where every thread is and what it waits for; `null` for never."""
    fit: TryShapes = "auto"
    """Try each batch shape before the first step, and compute those that do not fit into memory in micro-batches
    (gradient accumulation), with the same result. `auto`: on a GPU. If memory runs out later, that is done in any
    case."""

    @field_validator("loggers")
    @classmethod
    def _known_loggers(cls, loggers: tuple[str, ...]) -> tuple[str, ...]:
        from vcycle.train.loggers import check_logger

        with _as_fault():
            for name in loggers:
                check_logger(name)
        return loggers


class OptimizerSection(Section):
    """The optimizer; norms and biases are not decayed. The LR comes from the plan, step by step."""

    name: str = "sgd"
    """`sgd` (with momentum), `adam`, `adamw`, or any other class of `torch.optim`, in upper or lower case."""
    momentum: Average = 0.9
    """Momentum of SGD."""
    nesterov: bool = False
    """Nesterov momentum for SGD, as PySlowFast's default."""
    betas: tuple[Average, Average] = (0.9, 0.999)
    """Averages of Adam, AdamW and others that have two."""
    weight_decay: NonNegativeFloat = 1e-4
    """Decay of weights that are neither biases nor norms."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] | None = None
    """Layer-wise LR decay, for fine-tuning: the last layer has the plan's LR, and each block before it this times the
    LR of the block after it. Blocks are counted in the order in which the model has them."""
    options: dict[str, Any] = Field(default={})
    """More arguments of the class of `torch.optim`, such as `{eps: 1.0e-6}`."""

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name.lower() not in _USUAL:
            from vcycle.train.optimizer import optimizer_class

            with _as_fault():
                optimizer_class(name)
        return name.lower()

    @field_validator("nesterov")
    @classmethod
    def _has_momentum(cls, nesterov: bool, info: ValidationInfo) -> bool:
        if nesterov and info.data.get("name") == "sgd" and info.data.get("momentum") == 0:
            raise PydanticCustomError("momentum", "Nesterov momentum needs optimizer.momentum above 0")
        return nesterov

    @field_validator("options")
    @classmethod
    def _accepted(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if options and "name" in info.data:
            from vcycle.train.optimizer import check_options

            with _as_fault():
                check_options(info.data["name"], options)
        return options


@dataclass(frozen=True, kw_only=True)
class EmaSpec:
    """How far the average of the weights looks back, kept in samples: a batch m times as large decays it as m steps."""

    decay: float
    """What is left of the average after a step of `clips` clips."""
    clips: int
    """The batch that the decay is stated for."""

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1 or self.clips < 1:
            raise RecipeError(
                f"an average of decay {self.decay:g} at {self.clips} clips: 0 or more and below 1 is accepted"
            )

    def share(self, batch: int) -> float:
        """What a step of `batch` clips adds of the new weights.

        >>> f"{EmaSpec(decay=0.999, clips=16).share(64):.6f}"
        '0.003994'
        """
        kept: float = self.decay ** (batch / self.clips)
        return 1 - kept


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """All options of a training. What is trained, on what and under which plan, is not among them."""

    run: RunSection = field(default_factory=RunSection)
    """How the run is carried out."""
    loading: LoadingSection = field(default_factory=LoadingSection)
    """How clips are loaded: a recipe's `data` section, which extends this one."""
    optimizer: OptimizerSection = field(default_factory=OptimizerSection)
    """The optimizer."""
    ema: EmaSpec | None = None
    """Averages the weights over the steps; the average is what is evaluated and returned."""
    precise_bn: int | None = None
    """Clips over which BatchNorm's running statistics are recomputed before each validation and at the end; by default
    training's own are used."""
    clip_grad_norm: float | None = None
    """The norm that the gradients of a step are scaled down to, where it is larger; by default they are not."""


@contextmanager
def _as_fault() -> Iterator[None]:
    """Report a refusal as a fault of the field that is checked."""
    try:
        yield
    except RecipeError as error:
        raise PydanticCustomError("refused", "{reason}", {"reason": str(error)}) from None
