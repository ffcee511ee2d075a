"""Caffe2's weights: the pickles of PySlowFast's model zoo, read without running them, under PySlowFast's names."""

import io
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vcycle.errors import CheckpointError

__all__ = ["pyslowfast_name", "read_blobs"]

_NORMS = {"s": "weight", "b": "bias", "rm": "running_mean", "riv": "running_var"}
"""Ends of a BatchNorm's blobs: scale, shift, running mean and variance."""
_PLAIN = {"w": "weight", "b": "bias"}
_NAMES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"(t_)?conv1", lambda m: f"s1.pathway{_pathway(m)}_stem.conv"),
        (r"(t_)?res_conv1_bn", lambda m: f"s1.pathway{_pathway(m)}_stem.bn"),
        (r"t_pool1_subsample(_bn)?", lambda m: f"s1_fuse.{'bn' if m[1] else 'conv_f2s'}"),
        (r"t_res(\d)_\d+_branch2c_bn_subsample(_bn)?", lambda m: f"s{m[1]}_fuse.{'bn' if m[2] else 'conv_f2s'}"),
        (
            r"(t_)?res(\d)_(\d+)_branch(1|2[abc])(_bn)?",
            lambda m: f"s{m[2]}.pathway{_pathway(m)}_res{m[3]}.branch{'.'.join(m[4])}{m[5] or ''}",
        ),
        (r"nonlocal_conv(\d)_(\d+)_(theta|phi|g|out)", lambda m: f"s{m[1]}.pathway0_nonlocal{m[2]}.conv_{m[3]}"),
        (r"nonlocal_conv(\d)_(\d+)_bn", lambda m: f"s{m[1]}.pathway0_nonlocal{m[2]}.bn"),
        (r"pred", lambda m: "head.projection"),
    )
)


def _pathway(match: re.Match[str]) -> int:
    """The fast pathway's blobs have a prefix of their own."""
    return 1 if match[1] else 0


def pyslowfast_name(blob: str) -> str | None:
    """PySlowFast's name of a Caffe2 blob; None for one that it has none for, such as a momentum.

    Example:
        >>> pyslowfast_name("t_res4_5_branch2c_bn_subsample_w")
        's4_fuse.conv_f2s.weight'
        >>> pyslowfast_name("res5_1_branch2b_bn_riv")
        's5.pathway0_res1.branch2.b_bn.running_var'
    """
    layer, _, end = blob.rpartition("_")
    suffix = (_NORMS if layer.endswith("_bn") else _PLAIN).get(end)
    if suffix is None:
        return None
    for pattern, name in _NAMES:
        found = pattern.fullmatch(layer)
        if found is not None:
            return f"{name(found)}.{suffix}"
    return None


def read_blobs(path: Path) -> dict[str, Tensor]:
    """Read a Caffe2 pickle's blobs under PySlowFast's names; what is not known keeps its own.

    Optimizer blobs (`*_momentum`) and counters are left out.

    Raises:
        CheckpointError: if the file is damaged, holds no blobs, or would have to be run to be read.
    """
    try:
        data = _Reader(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except _RefusedError as refusal:
        raise CheckpointError(
            f"weights {path}: refused, as {refusal} would have to be run to read it; accepted: arrays and plain values"
        ) from None
    except Exception as error:  # a damaged file can raise anything
        text = next(iter(str(error).splitlines()), type(error).__name__)
        raise CheckpointError(f"weights {path}: the file is cut short or damaged: {text}") from None
    blobs = data.get("blobs") if isinstance(data, Mapping) else None
    if not isinstance(blobs, Mapping):
        raise CheckpointError(f"weights {path}: a pickle without Caffe2's blobs; accepted: a mapping with blobs")
    state = {
        pyslowfast_name(name) or name: torch.from_numpy(np.array(blob))
        for name, blob in blobs.items()
        if isinstance(name, str) and isinstance(blob, np.ndarray) and blob.dtype.kind == "f" and not _of_training(name)
    }
    if not state:
        raise CheckpointError(f"weights {path}: its blobs hold no arrays of numbers")
    return state


def _of_training(blob: str) -> bool:
    return blob.endswith("_momentum") or blob == "lr"


class _RefusedError(Exception):
    """A pickle asked for something that has no place in a file of weights."""


def _reconstruct(kind: Any, shape: Any, code: Any) -> np.ndarray[Any, Any]:
    """An empty array, which the pickle fills; of any other kind it makes none."""
    del kind, code
    return np.ndarray.__new__(np.ndarray, tuple(shape), "b")


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes into pickles of old protocols."""
    del encoding
    return text.encode("latin1")


_SCALAR: Any = np.float64(0).__reduce__()[0]
"""What numpy makes its scalars with, wherever this version keeps it."""
_ALLOWED: Mapping[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("_codecs", "encode"): _encode,
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.multiarray", "scalar"): _SCALAR,
    ("numpy._core.multiarray", "scalar"): _SCALAR,
}
"""All that a pickle may call: what arrays and plain containers are made of."""


class _Reader(pickle.Unpickler):
    """Unpickles arrays and plain containers and refuses everything else before it is called."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _RefusedError(f"{module}.{name}") from None
