"""What happened, step by step: JSON lines always, and other loggers where they are asked for."""

import math
import resource
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from vcycle.errors import VcycleError
from vcycle.plan import Plan, Step
from vcycle.train.gradients import Skips, StepResult
from vcycle.train.loggers import Logger
from vcycle.train.outcome import Point
from vcycle.train.run import RunFolder
from vcycle.utils.jsonl import JsonLines

__all__ = ["RunLog", "Watched"]

_READ_EVERY = 10
"""Steps whose losses are read back at once, so that a device is not waited for at every step."""

_SHOWN = (
    *("loss", "grad_norm", "lr", "frames", "size", "batch"),
    *("seconds", "data_seconds", "clips_per_second", "memory_mib"),
)
"""Numbers of a step's line that other loggers show, beside its samples and epoch."""


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
        self,
        run: RunFolder | None,
        plan: Plan,
        skips: Skips,
        *,
        start: int,
        device: torch.device,
    ) -> None:
        """Open the log.

        Args:
            run: The run; None on a rank that writes nothing, but reads back and refuses what the first does.
            plan: What is trained.
            skips: Told of every step in order, once its loss has been read.
            start: The step at which it goes on.
            device: Whose memory is logged.

        Raises:
            VcycleError: if the log cannot be written.
        """
        self._lines = None if run is None else JsonLines(run.log)
        if self._lines is not None:
            self._lines.keep({"step": start})
        self._device = device
        self._plan = plan
        self._loggers: list[Logger] = []
        self._skips = skips
        self._pending: list[tuple[dict[str, Any], Tensor, StepResult, Watched | None]] = []
        self.newest_loss: float | None = None
        """The last loss that has been read back."""

    def add(self, loggers: Sequence[Logger]) -> None:
        """Have other loggers take the same numbers; they are closed with this."""
        self._loggers += loggers

    def step(
        self,
        step: Step,
        result: StepResult,
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
            result: What it found.
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
        self._pending.append((line, indices, result, watched))
        if self._device.type == "cpu":  # nothing to wait for
            self.newest_loss = result.loss.item()
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
        # One copy from the device for all of it.
        columns = [
            torch.stack(column).double() for column in zip(*(result for _, _, result, _ in pending), strict=True)
        ]
        rows = torch.stack(columns, dim=1).tolist()
        watching = [watched.value.float() for _, _, _, watched in pending if watched is not None]
        watch = iter(torch.stack(watching).tolist() if watching else ())
        self.newest_loss = rows[-1][0]
        for (line, indices, _, watched), (loss, kept, norm) in zip(pending, rows, strict=True):
            found = 0.0 if watched is None else next(watch)
            if watched is not None:
                line[watched.name] = _number(found)
            line |= {"loss": _number(loss), "grad_norm": _number(norm)}
            if not kept:
                line |= {"skipped": True, **self._skips.samples(indices)}
            self._write(**line)
            self._skips.count(line, loss, kept=bool(kept))
            if kept and watched is not None and not found <= watched.limit:
                raise VcycleError(
                    f"{watched.name} became {found:.4g} at step {line['step']:,}, above {watched.limit:g} "
                    f"(LR {line['lr']:g}): {watched.remedy}"
                )
            done = line["step"] + 1
            progress = {"samples": line["first_sample"] + line["batch"], "epoch": self._plan.epochs_before(done)}
            self._log({key: float(line[key]) for key in _SHOWN} | progress, line["step"])

    def slow_data(self, step: Step, message: str) -> None:
        """Log that a stage waits for data, why, and what helps."""
        self._write(event="slow_data", step=step.index, stage=step.stage, message=message)

    def shortage(self, step: Step, message: str) -> None:
        """Log that memory ran out, and what is done about it."""
        self._write(event="shortage", step=step.index, stage=step.stage, message=message)

    def validation(self, point: Point) -> None:
        """Log a validation."""
        # A validation after step k belongs to step k - 1, so that a resume at k keeps it.
        line: dict[str, Any] = {"step": point.step - 1, "samples": point.samples, "seconds": point.seconds}
        line["evaluation"] = asdict(point.evaluation)
        shown = {f"val_{name}": number for name, number in point.evaluation.numbers.items()}
        if point.stage is not None:
            line |= {"val_stage": asdict(point.stage), "val_stage_shape": point.stage_shape}
            shown |= {f"val_stage_{name}": number for name, number in point.stage.numbers.items()}
        self._write(event="validation", **line)
        self._log(shown, point.step)

    def _write(self, **line: Any) -> None:
        if self._lines is not None:
            self._lines.write(**line)

    def _log(self, numbers: dict[str, float], step: int) -> None:
        for logger in self._loggers:
            logger.log(numbers, step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lines is not None:
            self._lines.close()
        for logger in self._loggers:
            logger.close()


def _number(value: float) -> float | str:
    """A number as JSON takes it: without those that are not finite."""
    return value if math.isfinite(value) else str(value)


def _memory(device: torch.device) -> int:
    """Largest use of memory so far, in MiB: the device's, or this process's on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) >> 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
