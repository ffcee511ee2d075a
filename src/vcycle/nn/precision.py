"""The precisions of `run.precision`: fp32, or mixed precision (autocast) in bf16 or fp16."""

from contextlib import AbstractContextManager, nullcontext

import torch

__all__ = ["DTYPES", "at_precision"]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The precisions other than fp32."""


def at_precision(name: str, device: torch.device) -> AbstractContextManager[object]:
    """A context for forward passes at a precision, as training at that precision runs them.

    Args:
        name: `fp32`, `bf16` or `fp16`.
        device: The device of the model.
    """
    return torch.autocast(device.type, DTYPES[name]) if name in DTYPES else nullcontext()
