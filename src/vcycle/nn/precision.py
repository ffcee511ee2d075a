"""What `run.precision` means for a model's arithmetic: fp32, or the larger part of it in bf16 or fp16 (autocast)."""

from contextlib import AbstractContextManager, nullcontext

import torch

__all__ = ["DTYPES", "at_precision"]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The precisions other than fp32."""


def at_precision(name: str, device: torch.device) -> AbstractContextManager[object]:
    """Within: forward passes on a device at a precision, as a training at that precision makes them.

    Args:
        name: `fp32`, `bf16` or `fp16`.
        device: Where the model is.
    """
    return torch.autocast(device.type, DTYPES[name]) if name in DTYPES else nullcontext()
