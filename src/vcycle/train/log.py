"""What happened, step by step: JSON lines always, TensorBoard where it is asked for."""

import math
import resource
import zlib
from dataclasses import asdict
from typing import Any, Self

import torch
from torch import Tensor

from vcycle.data import Batch
from vcycle.errors import VcycleError
from vcycle.plan import Step
from vcycle.train.outcome import Point
from vcycle.train.run import JsonLines, RunFolder

__all__ = ["RunLog"]

_READ_EVERY = 10
"""Steps whose losses are read back at once, so that a device is not waited for at every step."""

_SHOWN = ("loss", "lr", "batch", "seconds", "data_seconds")
"""What TensorBoard shows of a step."""


class RunLog:
    """A run's log, cut back to the step at which the run goes on."""

    def __init__(self, run: RunFolder, *, start: int, device: torch.device, tensorboard: bool) -> None:
        """Open the log.

        Raises:
            VcycleError: if the log cannot be written, or TensorBoard is asked for and not there.
        """
        self._lines = JsonLines(run.log)
        self._lines.keep({"step": start})
        self._device = device
        self._board = _tensorboard(run, start) if tensorboard else None
        self._pending: list[tuple[dict[str, Any], Tensor]] = []

    def step(self, step: Step, batch: Batch, loss: Tensor, *, data_seconds: float, seconds: float) -> None:
        """Log a step; its loss may be read later.

        Raises:
            VcycleError: if a loss that is read now is not finite.
        """
        line = {
            "event": "step",
            "step": step.index,
            "stage": step.stage,
            "frames": step.shape.frames,
            "size": step.shape.size,
            "batch": step.batch,
            "bn_batch": step.bn_batch,
            "lr": step.lr,
            "first_sample": step.first_sample,
            "ids_crc32": zlib.crc32(batch.indices.numpy().tobytes()),
            "data_seconds": round(data_seconds, 6),
            "seconds": round(seconds, 6),
            "clips_per_second": round(step.batch / seconds, 2),
            "memory_mib": _memory(self._device),
        }
        if batch.faults:
            line["faults"] = batch.faults
        self._pending.append((line, loss))
        if len(self._pending) == _READ_EVERY:
            self.flush()

    def flush(self) -> None:
        """Read back the losses that are waiting, and write their lines.

        Raises:
            VcycleError: if a loss is not finite.
        """
        if not self._pending:
            return
        lines = [line for line, _ in self._pending]
        losses = torch.stack([loss for _, loss in self._pending]).tolist()
        self._pending.clear()
        for line, loss in zip(lines, losses, strict=True):
            finite = math.isfinite(loss)
            line["loss"] = loss if finite else str(loss)
            self._lines.write(**line)
            if not finite:
                raise VcycleError(
                    f"the loss became {loss} at step {line['step']:,} (LR {line['lr']:g}, {line['batch']} clips of "
                    f"{line['frames']}×{line['size']}²): lower training.lr or lengthen training.warmup"
                )
            if self._board is not None:
                self._board.log_metrics({key: line[key] for key in _SHOWN}, line["step"])

    def slow_data(self, step: Step, message: str) -> None:
        """Log that a stage waits for data, why, and what helps."""
        self._lines.write(event="slow_data", step=step.index, stage=step.stage, message=message)

    def validation(self, point: Point) -> None:
        """Log a validation."""
        found = asdict(point.evaluation)
        # A validation after step k belongs to step k - 1, so that a resume at k keeps it.
        line = {"step": point.step - 1, "samples": point.samples, "seconds": point.seconds, "evaluation": found}
        self._lines.write(event="validation", **line)
        if self._board is not None:
            self._board.log_metrics({f"val_{key}": found[key] for key in ("top1", "top5", "loss")}, point.step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        if self._board is not None:
            self._board.finalize("success")


def _tensorboard(run: RunFolder, start: int) -> Any:
    from lightning_fabric.loggers.tensorboard import TensorBoardLogger

    try:
        # Events of steps that are done again are not shown twice.
        return TensorBoardLogger(root_dir=run.path, name="tensorboard", version="", purge_step=start)
    except ModuleNotFoundError:
        raise VcycleError('run.tensorboard needs TensorBoard: pip install "vcycle[tensorboard]"') from None


def _memory(device: torch.device) -> int:
    """Largest use of memory so far, in MiB: the device's, or this process's on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) >> 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
