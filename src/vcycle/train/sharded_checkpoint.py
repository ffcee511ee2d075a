"""Sharded checkpoints: a folder to which every rank writes its shards, with `torch.distributed.checkpoint`.

No rank assembles the model. Tensors are copied to main memory and written while training continues. Ranks write to a
temporary folder, which is flushed to disk and renamed once all of them are done, so a checkpoint is complete or absent.
Any number of ranks can read it, and so can a single process.

A folder holds `header.pt` (everything but the tensors of the model, the optimizer and the EMA model), a `.distcp` file
of each rank, `.metadata` (where each tensor is), and `whole.json` (a checksum of `.metadata`).
"""

import hashlib
import io
import json
import os
import pickle
import shutil
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, distributed
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from vcycle.utils.atomic import atomic_write, partial_of, sync_folder

__all__ = ["ShardedWriter", "joined", "read_sharded", "split", "verify_sharded"]

_HEADER, _METADATA, _WHOLE = "header.pt", ".metadata", "whole.json"
_ALLOWED = {
    "torch": {"Size", "strided", "float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool"},
    "torch.serialization": {"_get_layout"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.distributed.checkpoint.metadata": {
        *("Metadata", "TensorStorageMetadata", "TensorProperties", "ChunkStorageMetadata", "MetadataIndex"),
        *("StorageMeta", "_MEM_FORMAT_ENCODING"),
    },
}
"""The names that `.metadata` may use: no others are looked up, so nothing in it is executed."""


def split(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Split a checkpoint's data into its header and its tensors by flat names; `joined` is the inverse.

    Args:
        data: Has `model` and optionally `averaged`, each tensors by name, and `optimizer`, a state dict of it.
    """
    tensors = {f"model.{name}": value for name, value in data["model"].items()}
    tensors |= {f"averaged.{name}": value for name, value in (data.get("averaged") or {}).items()}
    plain: dict[int, dict[str, Any]] = {}
    for place, state in data["optimizer"]["state"].items():
        plain[place] = {}
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{place}.{key}"] = value
            else:
                plain[place][key] = value
    header = {key: value for key, value in data.items() if key not in ("model", "averaged", "optimizer")}
    header["optimizer"] = {**data["optimizer"], "state": plain}
    header["averages"] = data.get("averaged") is not None
    return header, tensors


def joined(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Undo `split`."""
    data = {key: value for key, value in header.items() if key != "averages"}
    state = {place: dict(values) for place, values in header["optimizer"]["state"].items()}
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "averaged": {}}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        if part == "optimizer":
            place, _, key = rest.partition(".")
            state[int(place)][key] = value
        else:
            parts[part][rest] = value
    data["model"], data["optimizer"] = parts["model"], {**header["optimizer"], "state": state}
    return {**data, "averaged": parts["averaged"]} if header["averages"] else data


class ShardedWriter:
    """Writes checkpoints from all ranks in the background, one at a time."""

    def __init__(self) -> None:
        """Create a writer; it makes its process group when it first saves."""
        self._group: Any = None
        self._pending: Future[Any] | None = None

    def save(self, path: Path, data: Mapping[str, Any], *, write: bool, on_saved: Callable[[], None]) -> None:
        """Start writing a checkpoint, after finishing the previous one; all ranks call this.

        Args:
            path: The folder of the checkpoint.
            data: See `split`; each rank's tensors are its own shards.
            write: Whether this rank writes the header.
            on_saved: Called in another thread on the first rank, once the checkpoint is complete.

        Raises:
            OSError, RuntimeError: if it cannot be written, or the previous one could not.
        """
        self.finish()
        if self._group is None:  # a separate group: collectives of another thread must not mix with training's
            self._group = distributed.new_group(backend="gloo")
        aside = partial_of(path)
        header, tensors = split(data)
        failed = torch.zeros(1, dtype=torch.uint8)
        refusal: Exception | None = None
        if write:
            try:
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir(parents=True)
                with atomic_write(aside / _HEADER) as file:
                    torch.save(header, file)
            except (OSError, RuntimeError) as error:
                failed, refusal = torch.ones(1, dtype=torch.uint8), error
        distributed.broadcast(failed, src=0, group=self._group)  # either all ranks write to the folder, or none
        if refusal is not None:
            raise refusal
        if failed:
            raise OSError("the first rank cannot write")
        found: Any = async_save(tensors, storage_writer=_Writer(aside, path, on_saved), process_group=self._group)
        self._pending = found

    def finish(self) -> None:
        """Wait until a checkpoint that was started is written.

        Raises:
            OSError, RuntimeError: if it could not be.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            pending.result()
        except CheckpointException as error:  # of any rank; it is not derived from Exception
            failure = next(iter(error.failures.values()))[0]
            raise OSError(str(failure)) from failure


class _Writer(FileSystemWriter):
    """Writes to a temporary folder, and renames it once all of it is on disk."""

    def __init__(self, aside: Path, path: Path, on_saved: Callable[[], None]) -> None:
        super().__init__(aside)
        self._aside, self._path, self._on_saved = aside, path, on_saved

    def storage_meta(self) -> None:
        """Return None: the default metadata has a path, which is not plain data."""
        return None

    def finish(self, metadata: Metadata, results: Any) -> None:
        """Complete the folder; called on the first rank, after the others have flushed their files."""
        super().finish(metadata, results)
        digest = hashlib.sha256((self._aside / _METADATA).read_bytes()).hexdigest()
        with atomic_write(self._aside / _WHOLE) as file:  # the last file of the folder, which is then synced too
            file.write(json.dumps({"metadata": digest}).encode())
        shutil.rmtree(self._path, ignore_errors=True)  # left over from a step that training repeats
        os.replace(self._aside, self._path)
        sync_folder(self._path.parent)
        self._on_saved()


class _Reader(FileSystemReader):
    """Reads a folder's `.metadata` without executing anything in it."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """Read which tensor is where."""
        return _metadata(Path(self.path))


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in _ALLOWED.get(module, ()):
            raise pickle.UnpicklingError(f"its metadata names {module}.{name}")
        return super().find_class(module, name)


def _metadata(path: Path) -> Metadata:
    with open(path / _METADATA, "rb") as file:
        found = _PlainUnpickler(file).load()
    if not isinstance(found, Metadata):
        raise TypeError("its metadata is invalid")
    return found


def verify_sharded(path: Path) -> None:
    """Verify the checksums of a folder.

    Raises:
        OSError, ValueError, TypeError, zipfile.BadZipFile, pickle.UnpicklingError: if it is damaged or incomplete.
    """
    whole = json.loads((path / _WHOLE).read_text(encoding="utf-8"))
    if hashlib.sha256((path / _METADATA).read_bytes()).hexdigest() != whole["metadata"]:
        raise ValueError(f"{_METADATA} has a wrong checksum")
    places: dict[str, list[Any]] = {}
    for info in _metadata(path).storage_data.values():
        places.setdefault(info.relative_path, []).append(info)
    for name, infos in places.items():
        if Path(name).name != name:
            raise ValueError(f"its metadata names the file {name!r} outside of the folder")
        with open(path / name, "rb") as file:
            for info in infos:
                _verify_slice(file, info.offset, info.length, name)
    with zipfile.ZipFile(path / _HEADER) as archive:
        if archive.testzip() is not None:
            raise ValueError(f"{_HEADER} has a wrong checksum")


def _verify_slice(file: IO[bytes], offset: int, length: int, name: str) -> None:
    file.seek(offset)
    with zipfile.ZipFile(io.BytesIO(file.read(length))) as archive:
        if archive.testzip() is not None:
            raise ValueError(f"{name} has a wrong checksum")


def read_sharded(path: Path, like: Mapping[str, Tensor] | None = None, parameters: Sequence[Tensor] = ()) -> Any:
    """Read the data of a checkpoint, in the form that `split` takes.

    Args:
        path: The folder.
        like: Tensors of the model and of the EMA model by flat names (`model.…`, `averaged.…`): a tensor that is
            sharded here is read as this rank's shard. By default all tensors are read in full.
        parameters: The optimizer's parameters in its order; state of the shape of its parameter is sharded likewise.

    Raises:
        Exception: any error that a damaged folder causes.
    """
    header = torch.load(path / _HEADER, map_location="cpu", weights_only=True)
    wanted = dict(like or {})
    tensors: dict[str, Tensor] = {}
    skipped: dict[str, Tensor] = {}
    for name, stored in _metadata(path).state_dict_metadata.items():
        if not isinstance(stored, TensorStorageMetadata):
            raise TypeError(f"its {name} is not a tensor")
        target = wanted.get(name)
        if name.startswith("optimizer.") and parameters:
            place = int(name.split(".")[1])
            target = parameters[place] if place < len(parameters) else None
            target = target if target is not None and target.shape == stored.size else None
        if like is not None and not name.startswith("optimizer.") and (target is None or target.shape != stored.size):
            skipped[name] = torch.empty(stored.size, dtype=stored.properties.dtype, device="meta")
        elif target is None:
            tensors[name] = torch.empty(stored.size, dtype=stored.properties.dtype)
        else:
            tensors[name] = torch.empty_like(target.detach(), dtype=stored.properties.dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # each rank reads on its own
        load(tensors, storage_reader=_Reader(path), no_dist=True)
    return joined(header, {**tensors, **skipped})
