"""How a run is carried out."""

from dataclasses import dataclass
from typing import Literal

from vcycle.train.fitting import FitWhen

__all__ = ["Settings"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a run is carried out; of these, only the seed, the precision and the compression change its result."""

    seed: int = 0
    """Keys the order of samples, crops and dropout."""
    device: str = "auto"
    """`cpu`, `cuda`, or `auto`: a GPU where there is one."""
    precision: str = "fp32"
    """`fp32`, or `bf16` or `fp16` (autocast)."""
    compile: bool = False
    """Whether to compile the model, once for each batch shape."""
    graphs: bool = False
    """Whether to record each batch shape's forward and backward as a CUDA graph."""
    compress: Literal["fp16", "bf16"] | None = None
    """What gradients are rounded to on their way between ranks; by default not at all."""
    shard: bool = False
    """Whether each rank holds a part of weights, gradients and optimizer, rather than all of them."""
    threads: int | Literal["auto"] = "auto"
    """Threads that compute in each process; see `vcycle.train.threads`."""
    workers: int = 0
    """Processes that load clips; 0 loads in this one."""
    timeout: float = 60.0
    """Seconds that a worker may take over a clip before it is replaced, and the clip as well."""
    prefetch: int | None = None
    """Clips to load ahead where batches are smallest, by default 4 for each worker; as many batches where they are
    larger, and so more clips. Never less than two batches."""
    validate_every: float = 1.0
    """Epochs of samples between validations."""
    save_every: int = 500
    """Steps between checkpoints."""
    bad_limit: float = 0.05
    """The share of unreadable samples above which the run stops."""
    tensorboard: bool = False
    """Whether to write TensorBoard's event files beside the JSON lines."""
    bad_steps: int = 10
    """Updates in a row that may be skipped because they would not be finite."""
    watchdog: float | None = 10.0
    """Minutes without a step after which it is said where every thread is."""
    fit: FitWhen = "auto"
    """Whether to try each batch shape before the first step: `always`, `never`, or `auto`: on a GPU."""
