"""What happened, step by step: JSON lines always, TensorBoard where it is asked for."""

import math
import resource
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from vcycle.errors import VcycleError
from vcycle.plan import Step
from vcycle.train.nonfinite import Learned, Skips
from vcycle.train.outcome import Point
from vcycle.train.run import RunFolder
from vcycle.utils.jsonl import JsonLines

__all__ = ["RunLog", "Watched"]

_READ_EVERY = 10
"""Steps whose losses are read back at once, so that a device is not waited for at every step."""

_SHOWN = ("loss", "lr", "batch", "seconds", "data_seconds")
"""What TensorBoard shows of a step."""


class Watched(NamedTuple):
    """A number of a step that training does not recover from once it is too high."""

    name: str
    """Under which it is logged."""
    value: Tensor
    """One number, on any device."""
    limit: float
    """What it must not exceed."""
    remedy: str
    """What it means and what helps."""


class RunLog:
    """A run's log, cut back to the step at which the run goes on."""

    def __init__(
        self, run: RunFolder | None, skips: Skips, *, start: int, device: torch.device, tensorboard: bool
    ) -> None:
        """Open the log.

        Args:
            run: The run; None on a rank that writes nothing, but reads back and refuses what the first does.
            skips: Told of every step in order, once its loss has been read.
            start: The step at which it goes on.
            device: Whose memory is logged.
            tensorboard: Whether to write TensorBoard's files too.

        Raises:
            VcycleError: if the log cannot be written, or TensorBoard is asked for and not there.
        """
        self._lines = None if run is None else JsonLines(run.log)
        if self._lines is not None:
            self._lines.keep({"step": start})
        self._device = device
        self._board = _tensorboard(run, start) if tensorboard and run is not None else None
        self._skips = skips
        self._pending: list[tuple[dict[str, Any], Tensor, Learned, Watched | None]] = []

    def step(
        self,
        step: Step,
        learned: Learned,
        *,
        indices: Tensor,
        faults: Sequence[str],
        data_seconds: float,
        seconds: float,
        watched: Watched | None = None,
    ) -> None:
        """Log a step; its loss and what is watched may be read later.

        Args:
            step: The step.
            learned: What its update tells.
            indices: Dataset indices of the batch, in order.
            faults: What is wrong with clips that were usable all the same.
            data_seconds: How long the batch was waited for.
            seconds: How long the step took.
            watched: What training does not recover from.

        Raises:
            VcycleError: if of what is read now too many updates in a row were skipped, or a number is above its limit.
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
            "ids_crc32": zlib.crc32(indices.numpy().tobytes()),
            "data_seconds": round(data_seconds, 6),
            "seconds": round(seconds, 6),
            "clips_per_second": round(step.batch / seconds, 2),
            "memory_mib": _memory(self._device),
        }
        if faults:
            line["faults"] = list(faults)
        self._pending.append((line, indices, learned, watched))
        if len(self._pending) == _READ_EVERY:
            self.flush()

    def flush(self) -> None:
        """Read back the losses that are waiting, and write their lines.

        Raises:
            VcycleError: if too many updates in a row were skipped, or what is watched is above its limit.
        """
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        losses = torch.stack([learned.loss for _, _, learned, _ in pending]).tolist()
        made = torch.stack([learned.kept for _, _, learned, _ in pending]).tolist()
        watching = [watched.value.float() for _, _, _, watched in pending if watched is not None]
        watch = iter(torch.stack(watching).tolist() if watching else ())
        for (line, indices, _, watched), loss, kept in zip(pending, losses, made, strict=True):
            found = 0.0 if watched is None else next(watch)
            if watched is not None:
                line[watched.name] = _number(found)
            line["loss"] = _number(loss)
            if not kept:
                line |= {"skipped": True, **self._skips.samples(indices)}
            self._write(**line)
            self._skips.count(line, loss, kept=kept)
            if kept and watched is not None and not found <= watched.limit:
                raise VcycleError(
                    f"{watched.name} became {found:.4g} at step {line['step']:,}, above {watched.limit:g} "
                    f"(LR {line['lr']:g}): {watched.remedy}"
                )
            if self._board is not None:
                self._board.log_metrics({key: float(line[key]) for key in _SHOWN}, line["step"])

    def slow_data(self, step: Step, message: str) -> None:
        """Log that a stage waits for data, why, and what helps."""
        self._write(event="slow_data", step=step.index, stage=step.stage, message=message)

    def shortage(self, step: Step, message: str) -> None:
        """Log that memory ran out, and what is done about it."""
        self._write(event="shortage", step=step.index, stage=step.stage, message=message)

    def validation(self, point: Point) -> None:
        """Log a validation."""
        found = asdict(point.evaluation)
        # A validation after step k belongs to step k - 1, so that a resume at k keeps it.
        line = {"step": point.step - 1, "samples": point.samples, "seconds": point.seconds, "evaluation": found}
        self._write(event="validation", **line)
        if self._board is not None:
            shown = {f"val_{name}": number for name, number in point.evaluation.numbers.items()}
            self._board.log_metrics(shown, point.step)

    def _write(self, **line: Any) -> None:
        if self._lines is not None:
            self._lines.write(**line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lines is not None:
            self._lines.close()
        if self._board is not None:
            self._board.finalize("success")


def _number(value: float) -> float | str:
    """A number as JSON takes it: without those that are not finite."""
    return value if math.isfinite(value) else str(value)


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
