"""Reads the Caffe2 pickles of PySlowFast's model zoo, without executing them, with PySlowFast's names."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vcycle.errors import CheckpointError
from vcycle.nn.weights.inert import RefusedError, array_of, is_array, mapping_of, read_pickle
from vcycle.utils.reading import open_regular

__all__ = ["pyslowfast_name", "read_blobs"]

_LONGEST = 2 << 30
"""Bytes of a file; PySlowFast's largest has less than a quarter of that."""
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
    """PySlowFast's name of a Caffe2 blob; None if it has none, as for a momentum.

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
    """Read a Caffe2 pickle's blobs with PySlowFast's names; unknown blobs keep their own.

    Optimizer blobs (`*_momentum`), counters and everything else that is not an array of floats are left out.

    Raises:
        CheckpointError: if the file is too long, damaged, holds no blobs, or would have to be run to be read.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > _LONGEST:
                raise CheckpointError(
                    f"weights {path}: {size:,} bytes are no pickle of Caffe2's; at most {_LONGEST:,} are accepted"
                )
            blobs = mapping_of((mapping_of(read_pickle(file)) or {}).get("blobs"))
        if blobs is None:
            raise CheckpointError(f"weights {path}: a pickle without Caffe2's blobs; accepted: a mapping with blobs")
        arrays = _arrays(blobs, size)
    except RefusedError as refusal:
        raise CheckpointError(
            f"weights {path}: refused, as {refusal} would have to be run to read it; accepted: arrays and plain values"
        ) from None
    except CheckpointError:
        raise
    except Exception as error:  # a damaged file can raise anything
        text = next(iter(str(error).splitlines()), type(error).__name__)
        raise CheckpointError(f"weights {path}: the file is cut short or damaged: {text}") from None
    if not arrays:
        raise CheckpointError(f"weights {path}: its blobs hold no arrays of numbers")
    return {pyslowfast_name(name) or name: torch.from_numpy(array) for name, array in arrays.items()}


def _arrays(blobs: Mapping[str, Any], most: int) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of floats among blobs.

    Args:
        blobs: What the pickle holds, by name.
        most: Bytes of all arrays together: those of the file. One array under many names would take more.

    Raises:
        ValueError: if an array is damaged, or all of them take more.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, blob in blobs.items():
        if not is_array(blob) or name.endswith("_momentum") or name == "lr":
            continue
        array = array_of(blob)
        if array is None:
            continue
        arrays[name], most = array, most - array.nbytes
        if most < 0:
            raise ValueError("its arrays take more bytes than the file has")
    return arrays
