"""Training options that the recipes of all tasks share. The string under a field is its documentation.

A recipe holds these sections, and the trainer reads them. Importing this module does not import torch.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from vcycle.data.config import LoadingSection
from vcycle.errors import RecipeError
from vcycle.section import PositiveFloat, Section
from vcycle.utils.versions import older

__all__ = [
    "SHARDS_FROM",
    "Average",
    "EmaSpec",
    "GradNorm",
    "OptimizerSection",
    "RunSection",
    "TrainConfig",
    "TryShapes",
]

Average = Annotated[float, Field(ge=0, lt=1)]
"""Decay of a running average."""
GradNorm = PositiveFloat
"""Maximum norm of the gradients."""
TryShapes = Literal["auto", "always", "never"]
"""When to try batch shapes before the first step: `auto` does so on a GPU."""

SHARDS_FROM = "2.10"
"""The oldest PyTorch that shards models: 2.7 cannot set resharding for the forward pass alone, with 2.8 ranks do not
learn what a single process does, and with 2.9 a resumed run differs by rounding."""

_USUAL = ("sgd", "adam", "adamw")
"""Optimizers that are accepted without importing torch."""


class RunSection(Section):
    """How a run is executed. Only `seed`, `precision` and `compress` change its result."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of every random choice."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Training device."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision of the forward and backward pass: full precision, or mixed precision (autocast)."""
    compile: bool = False
    """Compile the network with `torch.compile`, once for each batch shape, before the first step. Takes minutes, makes
    steps faster. Results are equal to rounding."""
    graphs: bool = False
    """Record the forward and backward pass once for each batch shape as a CUDA graph, and replay it: faster if kernel
    launches bound the steps on a GPU. Not with several GPUs, mixup or CutMix, nor plans that drop tokens."""
    compress: Literal["fp16", "bf16"] | None = None
    """Dtype that gradients are rounded to when processes exchange them: halves the traffic on a slow network."""
    shard: bool = False
    """Shard weights, gradients and optimizer state over the processes (FSDP), for models that do not fit otherwise.
    Results are equal to rounding. Needs torch 2.10 or newer. Not with `compile` or `graphs`. No effect on one
    process."""
    threads: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = "auto"
    """Compute threads of each process. `auto`: the value of `OMP_NUM_THREADS` or, on resume, the number that the run
    had; else the idle cores less those of `data.workers`, shared by the processes of a machine, or 1 if that is
    faster."""
    validate_every: Annotated[float, Field(ge=1e-6)] = 1.0
    """Epochs of samples between validations."""
    save_every: PositiveInt = 500
    """Steps between checkpoints."""
    bad_limit: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Stop if more than this share of the samples could not be read. Over an epoch it is the share of bad files. A
    single bad file does not stop a run, unless this is 0."""
    validate_stage_shape: bool = False
    """In each validation, also evaluate at the shape of the stage just trained (`val_stage_*` in the log). Early in a
    plan, a model may have learned its coarse clips and still be at chance at full resolution."""
    loggers: tuple[str, ...] = ()
    """Loggers in addition to the JSON lines: `tensorboard`, `wandb` (Weights & Biases), `mlflow`, or `module:callable`,
    which is called with a `vcycle.train.loggers.LoggedRun` and returns a `Logger`."""
    bad_steps: Annotated[int, Field(ge=0)] = 10
    """Stop if more than this many updates in a row were skipped because the loss or a gradient was not finite."""
    watchdog: Annotated[float, Field(ge=0.001, le=1e5)] | None = 10.0
    """Minutes without progress before the stack of every thread is reported; `null` to disable."""
    fit: TryShapes = "auto"
    """Try each batch shape before the first step. A shape that does not fit into memory is computed in micro-batches
    (gradient accumulation), with the same result. `auto`: on a GPU. If memory runs out later, micro-batches are used in
    any case."""

    def check_torch(self) -> None:
        """Check that the installed PyTorch has what the options need, without importing it.

        Raises:
            RecipeError: naming the key, the installed version and the accepted ones.
        """
        if self.shard and (found := older("torch", SHARDS_FROM)) is not None:
            raise RecipeError(
                f"run.shard is true, but torch {found} is installed: torch {SHARDS_FROM} or newer is accepted, or "
                "run.shard=false"
            )

    @field_validator("loggers")
    @classmethod
    def _known_loggers(cls, loggers: tuple[str, ...]) -> tuple[str, ...]:
        from vcycle.train.loggers import check_logger

        with _as_fault():
            for name in loggers:
                check_logger(name)
        return loggers


class OptimizerSection(Section):
    """The optimizer. Norms and biases have no weight decay. The plan sets the LR of each step."""

    name: str = "sgd"
    """`sgd` (with momentum), `adam`, `adamw`, any other class of `torch.optim` (case does not matter), or the
    `module:Class` of another package, such as `timm.optim:Muon`."""
    momentum: Average = 0.9
    """Momentum of SGD; other optimizers that have one take it as an option."""
    nesterov: bool = False
    """Use Nesterov momentum in SGD, as PySlowFast does by default."""
    betas: tuple[Average, Average] = (0.9, 0.999)
    """Betas of Adam, AdamW and other optimizers that have two."""
    weight_decay: NonNegativeFloat = 1e-4
    """Weight decay; not applied to biases and norms."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] | None = None
    """Layer-wise LR decay, for fine-tuning: the last layer has the plan's LR, and each block has this factor times the
    LR of the next block. Blocks count in the order in which the model defines them."""
    options: dict[str, Any] = Field(default={})
    """Further arguments of the optimizer's class, such as `{eps: 1.0e-6}`."""

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if ":" in name:
            return name  # imported before a training alone, by `check_optimizer`: other commands need no optimizer
        if name.lower() not in _USUAL:
            from vcycle.train.optimizer import optimizer_class

            with _as_fault():
                optimizer_class(name)
        return name.lower()

    @field_validator("momentum", "betas")
    @classmethod
    def _taken(cls, value: Any, info: ValidationInfo) -> Any:
        name, key = info.data.get("name"), str(info.field_name)
        known = name in _USUAL and (name == "sgd") == (key == "momentum")
        # A saved recipe has every key: one at its default was not set for this optimizer.
        set_here = value != cls.model_fields[key].default
        if name is not None and ":" not in name and not known and set_here:
            from vcycle.train.optimizer import check_key

            with _as_fault():
                check_key(name, key)
        return value

    @field_validator("nesterov")
    @classmethod
    def _has_momentum(cls, nesterov: bool, info: ValidationInfo) -> bool:
        if nesterov and info.data.get("name") == "sgd" and info.data.get("momentum") == 0:
            raise PydanticCustomError("momentum", "Nesterov momentum needs optimizer.momentum above 0")
        return nesterov

    @field_validator("options")
    @classmethod
    def _accepted(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        options = {key: _number(value) for key, value in options.items()}
        if options and ":" not in info.data.get("name", ":"):
            from vcycle.train.optimizer import check_options

            with _as_fault():
                check_options(info.data["name"], options)
        return options


def _number(value: Any) -> Any:
    """A number that YAML reads as text, such as `1e-6`."""
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    return value


@dataclass(frozen=True, kw_only=True)
class EmaSpec:
    """Decay of the EMA of the weights, per sample: a batch m times as large decays it like m steps."""

    decay: float
    """Decay of the EMA in a step of `clips` clips."""
    clips: int
    """The batch size that `decay` refers to."""

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1 or self.clips < 1:
            raise RecipeError(
                f"an average of decay {self.decay:g} at {self.clips} clips: the decay must be in [0, 1), and the clips "
                "at least 1"
            )

    def share(self, batch: int) -> float:
        """The weight of the new weights in a step of `batch` clips.

        >>> f"{EmaSpec(decay=0.999, clips=16).share(64):.6f}"
        '0.003994'
        """
        kept: float = self.decay ** (batch / self.clips)
        return 1 - kept


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """All training options. Model, data and plan are not among them."""

    run: RunSection = field(default_factory=RunSection)
    """How the run is executed."""
    loading: LoadingSection = field(default_factory=LoadingSection)
    """How clips are loaded; the `data` section of a recipe extends this one."""
    optimizer: OptimizerSection = field(default_factory=OptimizerSection)
    """The optimizer."""
    ema: EmaSpec | None = None
    """EMA of the weights, which is evaluated and returned; None for no EMA."""
    precise_bn: int | None = None
    """Number of clips over which BatchNorm's running statistics are recomputed before each validation and at the end;
    None keeps the statistics from training."""
    clip_grad_norm: float | None = None
    """Maximum norm of the gradients of a step; None for no clipping."""
    repeats: int = 1
    """Samples of each item in succession, each with its own random draws; they count as samples."""


@contextmanager
def _as_fault() -> Iterator[None]:
    """Report a `RecipeError` as a validation error of the field."""
    try:
        yield
    except RecipeError as error:
        raise PydanticCustomError("refused", "{reason}", {"reason": str(error)}) from None
