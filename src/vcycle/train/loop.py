"""The training loop: one pass over a plan, resumable at any step.

Nothing that varies is kept as state: shapes, LR, samples, crops and dropout are functions of the step. What a
checkpoint holds is what was *learned*.
"""

import json
import math
import resource
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from vcycle.data import Batch, loader
from vcycle.errors import CheckpointError, DataError, VcycleError
from vcycle.nn import apply, bf16_conv3d_is_sound, convert_batchnorm
from vcycle.plan import Plan, Step
from vcycle.tasks.recognition import Evaluation
from vcycle.train.checkpoint import Checkpoint, latest_checkpoint, load_weights, save_checkpoint
from vcycle.train.optimizer import OptimizerSpec
from vcycle.train.run import JsonLines, RunFolder

__all__ = ["Fitted", "Point", "Settings", "StepReport", "fit", "make_fabric"]

_LOG_EVERY = 10
"""Steps whose losses are read back at once, so that a device is not waited for at every step."""


class Task(Protocol):
    """What the loop asks of a task."""

    def loss(self, model: nn.Module, clips: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of a batch."""
        ...


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a run is carried out; of these, only the seed and the precision change its result."""

    seed: int = 0
    device: str = "auto"
    precision: str = "fp32"
    workers: int = 0
    validate_every: float = 1.0
    save_every: int = 500
    bad_limit: float = 0.05
    tensorboard: bool = False


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """What happened in a step."""

    step: Step
    work: float
    """Work of the step, in steps of the baseline (voxels)."""
    data_seconds: float
    """How long the batch was waited for."""
    seconds: float
    """How long the whole step took."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A validation: after how many steps, samples and seconds of training, and what was found."""

    step: int
    samples: int
    seconds: float
    evaluation: Evaluation


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The outcome of a training."""

    model: nn.Module
    steps: int
    samples: int
    seconds: float
    """Training time: data, forward, backward and update; not validation."""
    cpu_seconds: float
    """Processor time of this process in it (since the last resume)."""
    data_seconds: float
    """How much of it was waiting for data (since the last resume)."""
    replaced: int
    """Samples that could not be read and were replaced."""
    curve: list[Point]


@dataclass
class _Progress:
    """Running totals, as a checkpoint keeps them."""

    step: int = 0
    seen: int = 0
    replaced: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    data_seconds: float = 0.0
    curve: list[Point] = field(default_factory=list)
    named: set[str] = field(default_factory=set)


def make_fabric(settings: Settings) -> Fabric:
    """One device, as Lightning Fabric drives it.

    Raises:
        VcycleError: if the device is not there, or its arithmetic cannot be trusted at this precision.
    """
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise VcycleError("run.device is cuda, and torch finds no CUDA device: cpu or auto")
    accelerator = "cuda" if settings.device != "cpu" and torch.cuda.is_available() else "cpu"
    if settings.precision == "bf16" and not bf16_conv3d_is_sound(torch.device(accelerator)):
        raise VcycleError(
            f"run.precision is bf16, and this {accelerator} computes wrong conv3d weight gradients in bf16 for clips "
            "of few frames, which coarse grids have: fp32"
        )
    precision: Any = {"fp32": "32-true", "bf16": "bf16-mixed"}[settings.precision]
    return Fabric(accelerator=accelerator, devices=1, precision=precision)


def fit(
    *,
    plan: Plan,
    model: nn.Module,
    dataset: Any,
    task: Task,
    optimizer: OptimizerSpec,
    run: RunFolder,
    settings: Settings,
    recipe: str | None = None,
    resume: bool = False,
    validate: Callable[[nn.Module, torch.device], Evaluation] | None = None,
    on_step: Callable[[StepReport], None] = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> Fitted:
    """Train a model under a plan.

    Args:
        plan: What to do at every step.
        model: Takes float `(B, C, T, H, W)`; its BatchNorms are converted in place.
        dataset: Gives a clip for a `SampleRequest`, or `dataset[i]`.
        task: The loss.
        optimizer: Which optimizer.
        run: The run's folder.
        settings: How to carry it out.
        recipe: The resolved recipe, written beside the run.
        resume: Go on from the newest checkpoint in the folder, or start if there is none.
        validate: Evaluates the model; called every `validate_every` epochs of samples and at the end.
        on_step: Told of every step.
        on_message: Told what a user should know: a bad sample, a checkpoint passed over.

    Raises:
        CheckpointError: if the checkpoint belongs to another plan or model, or cannot be written.
        DataError: if more samples are unreadable than `bad_limit` allows.
        VcycleError: if the loss is not finite, or the folder already holds a run.
    """
    run.prepare(plan, recipe, resume=resume)
    fabric = make_fabric(settings)
    convert_batchnorm(model, plan[0].bn_batch)
    inner = model.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
    model, optim = fabric.setup(inner, optimizer.build(inner))
    progress = _restore(run, plan, settings, inner, optim, on_message) if resume else _Progress()
    with ExitStack() as stack:
        log = stack.enter_context(JsonLines(run.log))
        bad = stack.enter_context(JsonLines(run.bad_samples))
        board = _tensorboard(run, settings, stack)
        log.keep({"step": progress.step})
        journal = _journal(bad, plan, progress.step)
        batches = _batches(fabric, plan, dataset, settings, progress.step, journal)
        pending: list[tuple[dict[str, Any], Tensor]] = []
        model.train()
        for step in plan.iterate(progress.step):
            began, cpu_began = time.perf_counter(), time.process_time()
            batch = next(batches)
            waited = time.perf_counter() - began
            _count_bad(batch, journal, bad, progress, on_message)
            _refuse_too_many(progress, settings, run, plan.baseline.clips)
            apply(step, inner, optim)
            torch.manual_seed(_step_seed(settings.seed, step.index))
            loss = task.loss(model, batch.clips, batch.labels)
            fabric.backward(loss)
            optim.step()
            optim.zero_grad()
            took = time.perf_counter() - began
            progress.step += 1
            progress.seconds += took
            progress.cpu_seconds += time.process_time() - cpu_began
            progress.data_seconds += waited
            pending.append((_line(step, batch, waited, took), loss.detach()))
            last = progress.step == len(plan)
            if len(pending) == _LOG_EVERY or last:
                _flush(pending, log, board)
            on_step(StepReport(step=step, work=_work(plan, step), data_seconds=waited, seconds=took))
            if validate is not None and (last or _due(plan, progress.step, settings.validate_every)):
                evaluation = validate(inner, fabric.device)
                point = Point(
                    step=progress.step,
                    samples=plan.samples_before(progress.step),
                    seconds=progress.seconds,
                    evaluation=evaluation,
                )
                progress.curve.append(point)
                _flush(pending, log, board)
                _write_point(point, log, board)
            if last or progress.step % settings.save_every == 0:
                _flush(pending, log, board)
                _save(run, plan, settings, inner, optim, progress)
    return Fitted(
        model=inner,
        steps=len(plan),
        samples=plan.samples,
        seconds=progress.seconds,
        cpu_seconds=progress.cpu_seconds,
        data_seconds=progress.data_seconds,
        replaced=progress.replaced,
        curve=progress.curve,
    )


# Resuming ------------------------------------------------------------------------------------------------


def _restore(
    run: RunFolder,
    plan: Plan,
    settings: Settings,
    model: nn.Module,
    optimizer: Any,
    on_message: Callable[[str], None],
) -> _Progress:
    """Weights, optimizer and totals from the newest readable checkpoint."""
    found = latest_checkpoint(run.checkpoints)
    if found is None:
        on_message(f"no checkpoint in {run.path}: starting from the beginning")
        return _Progress()
    checkpoint, path, passed = found
    for fault in passed:
        on_message(f"passed over: {fault}")
    if checkpoint.plan != plan or checkpoint.seed != settings.seed:
        theirs, ours = checkpoint.plan, plan
        raise CheckpointError(
            f"checkpoint {path} was made under plan {theirs.name} {theirs.fingerprint} with seed {checkpoint.seed}; "
            f"this recipe gives plan {ours.name} {ours.fingerprint} with seed {settings.seed}: resume with the run's "
            f"own recipe ({run.recipe}), or choose another --out"
        )
    load_weights(model, checkpoint.model, path)
    optimizer.load_state_dict(checkpoint.optimizer)
    on_message(f"resuming at step {checkpoint.step:,} of {len(plan):,} from {path}")
    points = [x for x in JsonLines(run.log).read() if x.get("event") == "validation" and x["step"] < checkpoint.step]
    return _Progress(
        step=checkpoint.step,
        seconds=checkpoint.seconds,
        curve=[
            Point(step=x["step"] + 1, samples=x["samples"], seconds=x["seconds"], evaluation=Evaluation(**x["evaluation"]))
            for x in points
        ],
        **checkpoint.counts,
    )


def _save(
    run: RunFolder, plan: Plan, settings: Settings, model: nn.Module, optimizer: Any, progress: _Progress
) -> None:
    save_checkpoint(
        run.checkpoints,
        Checkpoint(
            step=progress.step,
            plan=plan,
            seed=settings.seed,
            model=model.state_dict(),
            optimizer=optimizer.state_dict(),
            counts={"seen": progress.seen, "replaced": progress.replaced},
            seconds=progress.seconds,
        ),
    )


# Data ----------------------------------------------------------------------------------------------------


def _batches(
    fabric: Fabric, plan: Plan, dataset: Any, settings: Settings, start: int, replaced: dict[int, int]
) -> Iterator[Batch]:
    loading = loader(
        dataset,
        plan,
        seed=settings.seed,
        start=start,
        workers=settings.workers,
        replaced=replaced,
        pin_memory=fabric.device.type == "cuda",
    )
    # The plan's own batch sampler already knows ranks; re-sharding it would give each rank other shapes.
    return iter(fabric.setup_dataloaders(loading, use_distributed_sampler=False))


def _journal(bad: JsonLines, plan: Plan, start: int) -> dict[int, int]:
    """Replacements that an interrupted run made past its checkpoint: stream position to dataset index."""
    first = plan.samples_before(start)
    return {x["position"]: x["by"] for x in bad.read() if x["position"] >= first}


def _count_bad(
    batch: Batch, journal: dict[int, int], bad: JsonLines, progress: _Progress, on_message: Callable[[str], None]
) -> None:
    """Count, name and write down the samples that had to be replaced."""
    fresh = {r.position: r for r in batch.replaced}
    progress.seen += len(batch.labels)
    progress.replaced += len(fresh.keys() | (journal.keys() & set(batch.positions.tolist())))
    for fault in batch.replaced:
        if fault.path not in progress.named:
            progress.named.add(fault.path)
            on_message(f"bad video {fault.path}: {fault.cause}; another takes its place")
        bad.write(**fault._asdict())


def _refuse_too_many(progress: _Progress, settings: Settings, run: RunFolder, clips: int) -> None:
    """Stop a run that is not training on its own dataset any more."""
    share = progress.replaced / progress.seen
    if progress.seen >= min(200, clips) and share > settings.bad_limit:
        raise DataError(
            f"{progress.replaced:,} of the first {progress.seen:,} samples could not be read ({share:.1%}); "
            f"run.bad_limit allows {settings.bad_limit:.1%}. They are listed in {run.bad_samples}"
        )


# Logging -------------------------------------------------------------------------------------------------


def _line(step: Step, batch: Batch, waited: float, took: float) -> dict[str, Any]:
    ids = zlib.crc32(batch.indices.numpy().tobytes())
    return {
        "event": "step",
        "step": step.index,
        "stage": step.stage,
        "frames": step.shape.frames,
        "size": step.shape.size,
        "batch": step.batch,
        "bn_batch": step.bn_batch,
        "lr": step.lr,
        "first_sample": step.first_sample,
        "ids_crc32": ids,
        "data_seconds": round(waited, 6),
        "seconds": round(took, 6),
        "clips_per_second": round(step.batch / took, 2),
        "memory_mib": _memory(batch.clips.device),
    }


def _memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) >> 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _flush(pending: list[tuple[dict[str, Any], Tensor]], log: JsonLines, board: Any) -> None:
    """Read the losses back, all at once, and write the lines.

    Raises:
        VcycleError: if a loss is not finite.
    """
    if not pending:
        return
    losses = torch.stack([loss for _, loss in pending]).tolist()
    for (line, _), loss in zip(pending, losses, strict=True):
        log.write(**line, loss=loss if math.isfinite(loss) else str(loss))
        if not math.isfinite(loss):
            raise VcycleError(
                f"the loss became {loss} at step {line['step']:,} (LR {line['lr']:g}, {line['batch']} clips of "
                f"{line['frames']}×{line['size']}²): lower training.lr or lengthen training.warmup"
            )
        if board is not None:
            board.log_metrics({k: line[k] for k in ("lr", "seconds", "data_seconds", "batch")} | {"loss": loss}, line["step"])
    pending.clear()


def _write_point(point: Point, log: JsonLines, board: Any) -> None:
    found = asdict(point.evaluation)
    # A validation after step k belongs to step k - 1, so that a resume at k keeps it.
    log.write(event="validation", step=point.step - 1, samples=point.samples, seconds=round(point.seconds, 3), evaluation=found)
    if board is not None:
        board.log_metrics({f"val_{k}": found[k] for k in ("top1", "top5", "loss")}, point.step)


def _tensorboard(run: RunFolder, settings: Settings, stack: ExitStack) -> Any:
    if not settings.tensorboard:
        return None
    try:
        from lightning_fabric.loggers import TensorBoardLogger

        board = TensorBoardLogger(root_dir=run.path, name="tensorboard", version="")
    except ModuleNotFoundError:
        raise VcycleError('run.tensorboard needs TensorBoard: pip install "vcycle[tensorboard]"') from None
    stack.callback(board.finalize, "success")
    return board


# Arithmetic of the step ------------------------------------------------------------------------------------


def _due(plan: Plan, step: int, every: float) -> bool:
    """Whether a multiple of `every` epochs was passed by the step before `step`."""
    before, after = plan.epochs_before(step - 1), plan.epochs_before(step)
    return math.floor(after / every) > math.floor(before / every)


def _work(plan: Plan, step: Step) -> float:
    b = plan.baseline
    return step.batch * step.shape.voxels / (b.batch * b.frames * b.size**2)


def _step_seed(seed: int, step: int) -> int:
    """The device generator's seed at a step: dropout is keyed too, so that nothing is left to save."""
    return zlib.crc32(json.dumps([seed, step]).encode()) | (step << 32)
