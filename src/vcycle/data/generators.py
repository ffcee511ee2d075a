"""The global generators of Python, NumPy and torch, keyed to a request for a while."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from vcycle.data.request import SampleRequest

__all__ = ["keyed_global_generators"]

_USER = 2  # purpose of keyed draws


@contextmanager
def keyed_global_generators(request: SampleRequest) -> Iterator[None]:
    """Key the global generators of Python, NumPy and torch (CPU) to a request, for a while."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    seeds = request.generator(_USER).integers(2**32, size=3).tolist()
    random.seed(seeds[0])
    np.random.seed(seeds[1])
    torch.default_generator.manual_seed(seeds[2])  # torch.manual_seed would reset the accelerator's as well
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
