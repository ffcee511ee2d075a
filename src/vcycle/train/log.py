"""The log of a run: one JSON line per step and validation, forwarded to the configured loggers."""

import math
import resource
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from vcycle.errors import VcycleError
from vcycle.plan import Plan, Step
from vcycle.train.gradients import Skips, StepResult
from vcycle.train.loggers import Logger
from vcycle.train.outcome import ValidationResult
from vcycle.train.run import RunFolder
from vcycle.utils.jsonl import JsonLines

__all__ = ["RunLog", "Watched"]

_READ_EVERY = 10
"""Steps whose losses are read back together, to avoid synchronizing with the device at every step."""

_SHOWN = (
    *("loss", "grad_norm", "lr", "frames", "size", "batch"),
    *("seconds", "data_seconds", "clips_per_second", "memory_mib"),
)
"""Fields of a step's line that the loggers get, besides samples and epoch."""


class Watched(NamedTuple):
    """A number to check at each step: training cannot recover once it is too high."""

    name: str
    """The key under which it is logged."""
    value: Tensor
    """One number, on any device."""
    limit: float
    """The largest value that it may have."""
    remedy: str
    """What a larger value means, and how to fix it."""


class RunLog:
    """The log of a run; on resume, later lines are removed."""

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
            run: The run folder; None on a rank that writes nothing, but checks the same numbers as the first rank.
            plan: The plan of the run.
            skips: Counts every step in order, once its loss has been read back.
            start: The step at which training starts or resumes.
            device: The device whose memory is logged.

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
        """The newest loss that has been read back from the device."""

    def add(self, loggers: Sequence[Logger]) -> None:
        """Add loggers that get the same numbers; they are closed with the log."""
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
        """Log a step; its loss and its watched number may be read back later.

        Args:
            step: The step.
            result: The result of the step.
            indices: Dataset indices of the batch, in order.
            faults: Faults of clips that were usable nevertheless.
            data_seconds: Seconds spent waiting for the batch.
            seconds: Seconds of the whole step.
            watched: A number that must stay within its limit.

        Raises:
            VcycleError: if too many updates in a row were skipped, or a watched number is above its limit, among the
                steps that are read back now.
        """
        line = {
            "event": "step",
            "step": step.index,
            "stage": step.stage,
            "frames": step.shape.frames,
            "size": step.shape.size,
            "batch": step.batch,
            "bn_batch": step.bn_batch,
            **({"tokens": step.tokens} if step.tokens < 1 else {}),
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
        if self._device.type == "cpu":  # no synchronization
            self.newest_loss = result.loss.item()
        if len(self._pending) == _READ_EVERY:
            self.flush()

    def flush(self) -> None:
        """Read back the pending losses, and write their lines.

        Raises:
            VcycleError: if too many updates in a row were skipped, or a watched number is above its limit.
        """
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        # A single copy from the device.
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

    def slow_data(self, step: Step, wait: str, advice: str) -> None:
        """Log that a stage is data-bound, with cause and remedy."""
        self._write(
            event="slow_data", step=step.index, stage=step.stage, message=f"{wait}: {advice}", wait=wait, advice=advice
        )

    def shortage(self, step: Step, message: str) -> None:
        """Log that memory ran out, and the remedy."""
        self._write(event="shortage", step=step.index, stage=step.stage, message=message)

    def validation(self, point: ValidationResult) -> None:
        """Log a validation."""
        # A validation after step k belongs to step k - 1, so that a resume at k keeps it.
        line: dict[str, Any] = {"step": point.step - 1, "samples": point.samples, "seconds": point.seconds}
        line["evaluation"] = asdict(point.evaluation)
        shown = {f"val_{name}": number for name, number in point.evaluation.numbers.items()}
        if point.stage is not None:
            line |= {"val_stage": asdict(point.stage), "val_stage_shape": point.stage_shape}
            shown |= {f"val_stage_{name}": number for name, number in point.stage.numbers.items()}
        self._write(event="validation", **line)
        self._log(shown, point.step - 1)

    def _write(self, **line: Any) -> None:
        if self._lines is not None:
            self._lines.write(**line)

    def _log(self, numbers: dict[str, float], step: int) -> None:
        for logger in self._loggers:
            logger.log(numbers, step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:  # closes all of them, whatever one of them raises
            for each in (*self._loggers, self._lines):
                if each is not None:
                    stack.callback(each.close)


def _number(value: float) -> float | str:
    """A number for JSON: a string if it is not finite."""
    return value if math.isfinite(value) else str(value)


def _memory(device: torch.device) -> int:
    """Peak memory so far in MiB, of the device or, on a CPU, of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) >> 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
