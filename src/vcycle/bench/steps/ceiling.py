"""Measures the peak FLOP rate of a device, the reference for the FLOP rates of steps."""

import time
from typing import TYPE_CHECKING

import torch

from vcycle.nn.precision import DTYPES

if TYPE_CHECKING:
    from vcycle.bench.steps.turns import Clock

__all__ = ["peak_flops"]

_SIDE = {"cpu": 1536, "cuda": 8192}
_SECONDS = 0.3


def peak_flops(device: torch.device, precision: str, clock: "Clock" = "wall-clock") -> float:
    """FLOP/s of a multiplication of two large square matrices.

    Args:
        device: The device to measure.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        clock: The time that counts.
    """
    now = time.process_time if clock == "processor" else time.perf_counter
    side = _SIDE[device.type]
    kind = DTYPES.get(precision, torch.float32)
    first, second = (torch.randn(side, side, device=device, dtype=kind) for _ in range(2))
    out = torch.empty_like(first)
    best = float("inf")
    until = time.perf_counter() + _SECONDS
    done = 0
    while done < 3 or time.perf_counter() < until:
        began = now()
        torch.mm(first, second, out=out)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if done:  # the first is a warm-up
            best = min(best, now() - began)
        done += 1
    return 2.0 * side**3 / best
