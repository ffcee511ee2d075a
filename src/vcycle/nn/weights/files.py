"""Reads weight files of several formats without executing anything in them.

The first bytes of a file decide the format, not its name: PyTorch (`.pt`, `.pth`, `.pyth`), safetensors, or the Caffe2
pickles (`.pkl`) of PySlowFast's model zoo.
"""

import argparse
import json
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from vcycle.errors import CheckpointError
from vcycle.nn.weights.caffe2 import read_blobs
from vcycle.nn.weights.config import config_beside, read_config, weights_file
from vcycle.utils.reading import open_regular

__all__ = ["Weights", "read_weights"]

_CONTAINERS = ("model_state", "state_dict", "averaged", "model", "params_ema", "params")
"""Keys under which checkpoints store weights: PySlowFast and pytorchvideo, Lightning and others, vcycle (EMA first),
BasicSR (EMA first)."""
_PREFIXES = ("module.", "_orig_mod.", "model.")
"""Prefixes that DistributedDataParallel, torch.compile and Lightning add to every name."""
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The first bytes of PyTorch's legacy format, before files were zip archives."""
_PICKLES = (b"\x80", b"}q", b"(d")
"""The first bytes of a pickled mapping in each protocol."""
_PAGES = (b"<!doctype", b"<html", b"<?xml", b"<head", b"<!--")
_MARK = b"\xef\xbb\xbf"
"""The UTF-8 byte order mark."""
_FOLDER = 0x10
"""The directory bit in the external attributes of a zip member."""
_LONGEST = 60
"""The most characters of a text to show."""


class _Inert:
    """A stand-in for NumPy numbers and dtypes in a checkpoint, none of which is a weight.

    NumPy's constructors trust the file, including memory flags, so they are never called.
    """

    def __new__(cls, *_: object) -> Self:
        return super().__new__(cls)

    def __setstate__(self, _: object) -> None:
        pass


_HARMLESS: list[Any] = [
    argparse.Namespace,
    *((_Inert, f"numpy.{name}") for name in ("dtype", "core.multiarray.scalar", "_core.multiarray.scalar")),
]
"""What training scripts store in checkpoints besides tensors and plain values: their arguments and some numbers."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The named tensors in a file."""

    state: Mapping[str, Tensor]
    """The tensors by name, without the prefixes of wrappers."""
    source: str
    """The file."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The metadata of a safetensors file."""
    config: str | None = None
    """The configuration as text, if there is one: PySlowFast's in its checkpoints (YAML), transformers' beside its
    files (JSON)."""


def read_weights(path: Path) -> Weights:
    """Read the weights in a file without executing anything in it.

    Args:
        path: A PyTorch, safetensors or Caffe2 file, or a folder that transformers wrote. A checkpoint may store its
            weights under `model_state`, `state_dict` or `model`, or consist only of weights.

    Raises:
        CheckpointError: if the file is missing, has another format, is damaged or truncated, has no weights, or could
            only be loaded by executing code; or if the `config.json` beside it is damaged.
    """
    path = weights_file(path) or path
    weights = _read(path)
    if weights.config is None and (config := config_beside(path)) is not None:
        weights = replace(weights, config=json.dumps(read_config(config)))
    return weights


def _read(path: Path) -> Weights:
    try:
        with open_regular(path) as file:
            head = file.read(1024)
    except OSError as error:
        raise CheckpointError(f"weights {path} cannot be read: {error.strerror or error}") from None
    if head.startswith(b"PK\x03\x04"):
        return _weights_in(_torch_archive(path), path)
    if head.startswith(_LEGACY):
        return _weights_in(_torch_load(path), path)
    if head[8:9] == b"{" and not head.lstrip().startswith(b"<"):
        return _safetensors(path)
    if head.startswith(_PICKLES):
        return Weights(state=read_blobs(path), source=str(path))
    raise CheckpointError(f"weights {path}: {_what_else(head)}; accepted: PyTorch's, safetensors' and Caffe2's files")


def _what_else(head: bytes) -> str:
    """Describe a file that has no weights."""
    text = head.removeprefix(_MARK).lstrip()
    start = text.lower()
    if not head:
        return "the file is empty"
    if start.startswith(_PAGES):
        return "this is a web page, not weights: the download got a page in their place"
    if start.startswith(b"version https://git-lfs"):
        return "this is a pointer of Git LFS, not the file itself"
    # Show a server's reply that was saved instead of the file; its last character may be cut.
    words = text.decode("utf-8", "ignore").splitlines()[:1]
    if words and words[0].isprintable() and len(words[0].encode()) >= min(len(text), 8):
        return f"this is text, not weights: {words[0][:_LONGEST]!r}"
    return f"no file of weights begins with {head[:8]!r}"


def _torch_archive(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            names = {member.filename.partition("/")[2] for member in members}
            packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
            # The member names identify the archive; only one that PyTorch may have written is read in full.
            whole = "data.pkl" in names and "constants.pkl" not in names and not packed
            damaged = archive.testzip() if whole else None
            # PyTorch's reader skips members marked as a folder, and returns uninitialized memory in their place.
            marked = (member.filename for member in members if member.external_attr & _FOLDER)
            damaged = damaged or next(marked, None)
    except Exception:  # a damaged archive can raise anything
        raise CheckpointError(f"weights {path}: the file is cut short or damaged: its archive has no end") from None
    if "constants.pkl" in names:
        raise CheckpointError(
            f"weights {path}: this is a TorchScript program, which would have to be run; accepted: its state_dict alone"
        )
    if "data.pkl" not in names:
        raise CheckpointError(f"weights {path}: this is an archive (zip), and not one that PyTorch wrote")
    if packed:  # a few bytes may stand for more than memory holds
        raise CheckpointError(f"weights {path}: its contents are compressed, which those of PyTorch's files are not")
    if damaged is not None:
        raise CheckpointError(f"weights {path}: the file is damaged: {damaged} has a wrong checksum")
    return _torch_load(path)


def _torch_load(path: Path) -> Any:
    try:
        with torch.serialization.safe_globals(_HARMLESS):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(_unsafe(path, str(error))) from None
    except Exception as error:  # a damaged file can raise anything
        text = next(iter(str(error).splitlines()), type(error).__name__)
        raise CheckpointError(f"weights {path}: the file is cut short or damaged: {text}") from None


def _unsafe(path: Path, text: str) -> str:
    found = re.search(r"(?:GLOBAL|global:?) ([\w.]+\.\w+)", text)
    if found is None:
        return f"weights {path}: the file is damaged, or holds something else than tensors and plain values"
    return f"weights {path}: refused, as {found[1]} would have to be run to read it; accepted: tensors and plain values"


def _safetensors(path: Path) -> Weights:
    import safetensors

    try:
        with safetensors.safe_open(path, framework="pt") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 -- no mapping
            metadata = file.metadata() or {}
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        text = next(iter(str(error).splitlines()), type(error).__name__)
        raise CheckpointError(f"weights {path}: the file is cut short or damaged: {text}") from None
    if not state:
        raise CheckpointError(f"weights {path}: the file holds no tensors")
    return Weights(state=_unwrapped(state), source=str(path), metadata=metadata)


def _weights_in(data: Any, path: Path) -> Weights:
    """Find the weights in the contents of a PyTorch file."""
    if not isinstance(data, Mapping):
        raise CheckpointError(f"weights {path}: the file holds {type(data).__name__}, not named tensors")
    for key in _CONTAINERS:
        if isinstance(data.get(key), Mapping):
            state = data[key]
            break
    else:
        state = data
    named = {name: value for name, value in state.items() if isinstance(name, str) and isinstance(value, Tensor)}
    if not named or len(named) < len(state):
        shown = ", ".join(str(key) for key in list(state)[:5]) or "nothing"
        raise CheckpointError(
            f"weights {path}: no weights among what the file holds ({shown}); accepted: named tensors, alone or under "
            f"{', '.join(_CONTAINERS[:-1])} or {_CONTAINERS[-1]}"
        )
    config = None if state is data else data.get("cfg")
    return Weights(state=_unwrapped(named), source=str(path), config=config if isinstance(config, str) else None)


def _unwrapped(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Remove prefixes that all names share."""
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in state):
            return _unwrapped({name.removeprefix(prefix): value for name, value in state.items()})
    return dict(state)
