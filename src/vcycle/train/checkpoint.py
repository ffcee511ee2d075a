"""Saves and loads checkpoints atomically: written to a temporary file, flushed to disk, renamed into place.

A checkpoint holds the weights, the optimizer state, the step, the plan and the run's totals. It holds no sampler,
scheduler or generator state: all of that is a function of the step. It is one file or, for a sharded run, a folder
(`vcycle.train.sharded_checkpoint`); any run can read both.
"""

import contextlib
import pickle
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from vcycle.errors import CheckpointError, PlanError
from vcycle.plan import Plan
from vcycle.train.config import SHARDS_FROM
from vcycle.train.outcome import ValidationResult
from vcycle.train.sharded_checkpoint import ShardedWriter, read_sharded, verify_sharded
from vcycle.utils.atomic import PARTIAL, atomic_write
from vcycle.utils.reading import check_regular
from vcycle.utils.versions import older

__all__ = [
    "BEST",
    "Checkpoint",
    "checkpoint_name",
    "finish_saving",
    "kept_best",
    "latest_checkpoint",
    "load_checkpoint",
    "load_weights",
    "newest_path",
    "save_best",
    "save_checkpoint",
    "save_sharded",
]

BEST = "best.pt"
"""The file with the weights of the best validation, beside the checkpoints."""

_T = TypeVar("_T")

_FORMAT = 1
_KEEP = 2
_NAME = re.compile(r"step-(\d+)(?:\.pt)?")
_FOLDER = 0x10
"""The directory bit in the external attributes of a zip member."""
_KINDS = {"step": int, "seed": int, "model": dict, "optimizer": dict, "optimizer_kind": str, "totals": dict}


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The contents of a checkpoint."""

    step: int
    """Steps done: training resumes at this step."""
    plan: Plan
    """The plan of the run."""
    seed: int
    """The seed of the run."""
    model: dict[str, Any]
    """The model's state."""
    optimizer: dict[str, Any]
    """The optimizer's state."""
    optimizer_kind: str
    """Class of the optimizer."""
    totals: dict[str, Any]
    """Running totals of the run, and its validations."""
    averaged: dict[str, Any] | None = None
    """The state of the EMA model, if there is one."""
    scaler: dict[str, Any] | None = None
    """The state of the gradient scaler, if there is one."""

    @property
    def weights(self) -> dict[str, Any]:
        """The state of the model to evaluate: the EMA model, if there is one."""
        return self.model if self.averaged is None else self.averaged


def checkpoint_name(step: int) -> str:
    """The file name of the checkpoint after `step` steps."""
    return f"step-{step:09d}.pt"


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, and keep only the two newest.

    Raises:
        CheckpointError: if it cannot be written. Earlier checkpoints stay as they were.
    """
    path = _written(folder / checkpoint_name(checkpoint.step), checkpoint)
    _remove_old(folder, path)
    return path


def save_sharded(writer: ShardedWriter, folder: Path, checkpoint: Checkpoint, *, write: bool) -> None:
    """Start writing a sharded checkpoint; all ranks call this, each with its own shards.

    Args:
        writer: Writes in the background.
        folder: The folder of checkpoints.
        checkpoint: The checkpoint to save.
        write: Whether this rank is the first.

    Raises:
        CheckpointError: if it cannot be written, or the previous one could not.
    """
    path = folder / checkpoint_name(checkpoint.step).removesuffix(".pt")
    try:
        writer.save(path, _data(checkpoint), write=write, on_saved=lambda: _remove_old(folder, path))
    except (OSError, RuntimeError) as error:
        raise _unsaved(path, error) from error


def finish_saving(writer: ShardedWriter, folder: Path) -> None:
    """Wait until the checkpoint that is written in the background is on disk.

    Raises:
        CheckpointError: if it cannot be written.
    """
    try:
        writer.finish()
    except (OSError, RuntimeError) as error:
        raise _unsaved(folder, error) from error


def _remove_old(folder: Path, newest: Path) -> None:
    """Remove older checkpoints, and partial ones that a killed process left behind."""
    known = [path for _, path in _numbered(folder)]
    twice = [path for path in known if path.stem == newest.stem and path != newest]  # saved as a file and as a folder
    kept = [path for path in known if path not in twice][-_KEEP:]
    for old in [path for path in known if path not in kept] + list(folder.glob(f"*{PARTIAL}")):
        with contextlib.suppress(OSError):
            shutil.rmtree(old) if old.is_dir() else old.unlink()


def save_best(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write the weights of the best validation, replacing the previous ones.

    Raises:
        CheckpointError: if they cannot be written. The previous ones stay as they were.
    """
    return _written(folder / BEST, checkpoint)


def kept_best(folder: Path, best: ValidationResult | None) -> int | None:
    """The step of the saved best weights, if they belong to the best validation on record.

    Otherwise they are removed: they are left over from before a resume from an older checkpoint, and training may not
    reach them again.
    """
    path = folder / BEST
    if not path.exists():
        return None
    with contextlib.suppress(CheckpointError):
        if best is not None and load_checkpoint(path).step == best.step:
            return best.step
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
    return None


def _written(path: Path, checkpoint: Checkpoint) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            torch.save(_data(checkpoint), file)
    except (OSError, RuntimeError) as error:  # torch wraps a failed write in a RuntimeError
        raise _unsaved(path, error) from error
    return path


def _data(checkpoint: Checkpoint) -> dict[str, Any]:
    data = {f.name: value for f in fields(checkpoint) if (value := getattr(checkpoint, f.name)) is not None}
    return data | {"format": _FORMAT, "plan": checkpoint.plan.to_json()}


def _unsaved(path: Path, error: Exception) -> CheckpointError:
    kept = _numbered(path.parent if path.suffix or _NAME.fullmatch(path.name) else path)
    rest = f"the last one is {kept[-1][1]}" if kept else "there is none before it"
    return CheckpointError(f"checkpoint {path} cannot be saved ({_reason(error)}); {rest}")


def latest_checkpoint(folder: Path) -> tuple[Checkpoint, Path, list[str]] | None:
    """The newest readable checkpoint, its path, and the errors of those skipped; None if there are none.

    Raises:
        CheckpointError: if there are checkpoints and none can be read.
    """
    return _newest(folder, load_checkpoint)


def newest_path(folder: Path) -> tuple[Path, list[str]] | None:
    """As `latest_checkpoint`, but without the contents: for a folder, only checksums are verified.

    Raises:
        CheckpointError: if there are checkpoints and none can be read.
    """

    def check(path: Path) -> None:
        if path.is_dir():
            _reading(path, lambda: verify_sharded(path))
        else:
            load_checkpoint(path)

    found = _newest(folder, check)
    return None if found is None else found[1:]


def _newest(folder: Path, read: Callable[[Path], _T]) -> tuple[_T, Path, list[str]] | None:
    found = _numbered(folder)
    passed: list[str] = []
    for _, path in reversed(found):
        try:
            return read(path), path, passed
        except CheckpointError as error:
            passed.append(str(error))
    if found:
        raise CheckpointError(f"no checkpoint in {folder} can be read: {'; '.join(passed)}")
    return None


def load_checkpoint(
    path: Path,
    *,
    like: Mapping[str, Tensor] | None = None,
    parameters: Sequence[Tensor] = (),
    verified: bool = False,
) -> Checkpoint:
    """Read a checkpoint without executing anything in it.

    Args:
        path: A file or a folder.
        like: For a folder, read only this rank's shards; see `read_sharded`.
        parameters: The optimizer's parameters, in its order, if `like` is given.
        verified: Whether the checksums of a folder have been verified already.

    Raises:
        CheckpointError: if it is damaged or not a vcycle checkpoint, or the installed PyTorch cannot read it.
    """

    def read() -> Any:
        if not path.is_dir():
            check_regular(path)
            _check_archive(path)
            return torch.load(path, map_location="cpu", weights_only=True)
        if not verified:
            verify_sharded(path)
        return read_sharded(path, like, parameters)

    if path.is_dir() and (found := older("torch", SHARDS_FROM)) is not None:
        raise CheckpointError(
            f"checkpoint {path} is sharded, but torch {found} is installed: torch {SHARDS_FROM} or newer reads it"
        )
    data = _reading(path, read)
    if not isinstance(data, dict) or data.pop("format", None) != _FORMAT:
        raise CheckpointError(f"{path} is not a vcycle checkpoint (format {_FORMAT})")
    try:
        checkpoint = Checkpoint(**{**data, "plan": Plan.from_json(data["plan"])})
        _check_fields(checkpoint)
    except (KeyError, TypeError, PlanError) as error:
        raise CheckpointError(f"checkpoint {path} is from another version of vcycle: {_reason(error)}") from error
    return checkpoint


def _reading(path: Path, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"checkpoint {path} cannot be read: it contains pickled objects other than tensors and plain values, "
            "and loading those would execute code"
        ) from error
    except Exception as error:  # a damaged file can raise anything
        raise CheckpointError(f"checkpoint {path} cannot be read: {_reason(error)}") from error


def load_weights(model: nn.Module, state: dict[str, Any], source: Path) -> None:
    """Load a model's weights from a checkpoint.

    Raises:
        CheckpointError: if the checkpoint belongs to another model; names the first differences.
    """
    own = model.state_dict()
    missing = [k for k in own if k not in state]
    unexpected = [k for k in state if k not in own]
    shapes = [
        f"{k} is {tuple(state[k].shape)}, the model has {tuple(own[k].shape)}"
        for k in own
        if k in state and state[k].shape != own[k].shape
    ]
    if missing or unexpected or shapes:
        faults = shapes[:3]
        faults += [f"missing {', '.join(missing[:3])} ({len(missing)} in all)"] if missing else []
        faults += [f"unexpected {', '.join(unexpected[:3])} ({len(unexpected)} in all)"] if unexpected else []
        raise CheckpointError(f"checkpoint {source} belongs to another model: {'; '.join(faults)}")
    model.load_state_dict(state)


def _check_archive(path: Path) -> None:
    """Reject an archive that is damaged, or that grows when it is read.

    All members have checksums. Damage to the rest (names, offsets, sizes, dates) either leads to a wrong checksum or
    concerns fields that are not read; the directory bit is the only exception.

    Raises:
        ValueError, OSError, zipfile.BadZipFile: if it is.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("its contents are compressed, which a checkpoint's are not")
        if sum(member.file_size for member in members) > path.stat().st_size:
            raise ValueError("its contents are larger than the file")
        if any(member.external_attr & _FOLDER for member in members):
            # PyTorch's reader skips those, and returns uninitialized memory in their place.
            raise ValueError("some of its contents are marked as a folder")
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"{damaged} has a wrong checksum")


def _check_fields(checkpoint: Checkpoint) -> None:
    """Reject a file with the right fields and wrong contents: it is untrusted input.

    Raises:
        TypeError: if a field has a wrong type or value.
    """
    for name, kind in _KINDS.items():
        if not isinstance(getattr(checkpoint, name), kind):
            raise TypeError(f"its {name} is not a {kind.__name__}")
    for state in (checkpoint.model, checkpoint.weights):
        if not (isinstance(state, dict) and all(isinstance(value, Tensor) for value in state.values())):
            raise TypeError("its weights are not tensors")
    if not 0 <= checkpoint.step <= len(checkpoint.plan):
        raise TypeError(f"its step is {checkpoint.step}, but its plan has {len(checkpoint.plan)} steps")
    groups = checkpoint.optimizer.get("param_groups")
    listed = isinstance(groups, list) and all(isinstance(g, dict) and isinstance(g.get("params"), list) for g in groups)
    if not listed:
        raise TypeError("its optimizer has no parameter groups")


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    matches = ((_NAME.fullmatch(p.name), p) for p in folder.iterdir())
    return sorted((int(m[1]), p) for m, p in matches if m and p.is_dir() == (p.suffix == ""))


def _reason(error: BaseException) -> str:
    """The first line of an error: that of the underlying OSError, if there is one."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    text = str(next((e for e in chain if isinstance(e, OSError)), error))
    return text.splitlines()[0] if text else type(error).__name__
