"""Encoding of samples between processes: tensors in shared memory, the rest as a few pickled bytes."""

import io
import pickle
import traceback
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from vcycle.data.dataset import Sample
from vcycle.errors import VcycleError

__all__ = ["decode", "encode", "pack_error", "unpack_error"]

_SAMPLE, _OTHER = b"S", b"O"
_ALIGNMENT = 64
_SMALL = 1024
"""Tensors up to this number of bytes are pickled with the rest, as are those that do not fit."""
_REST = tuple(field.name for field in fields(Sample) if field.name != "clip")


def encode(item: Any, slot: Tensor) -> tuple[bytes, int]:
    """Write an item's tensors to a slot of shared memory, as far as they fit.

    Returns:
        The bytes that ``decode`` needs besides the slot, and the slot size in bytes that such an item should have.
    """
    plain = type(item) is Sample and item.clip.dtype == torch.uint8 and not isinstance(item.label, Tensor)
    if plain and item.clip.numel() <= slot.numel():
        size = item.clip.numel()
        if item.clip.data_ptr() != slot.data_ptr():  # else it was loaded straight into the slot
            slot[:size].view(item.clip.shape).copy_(item.clip)
        rest = tuple(getattr(item, name) for name in _REST)
        return _SAMPLE + pickle.dumps((size, tuple(item.clip.shape), rest), pickle.HIGHEST_PROTOCOL), size
    file = io.BytesIO()
    file.write(_OTHER)
    pickler = _Pickler(file, slot)
    pickler.dump(item)
    return file.getvalue(), pickler.wanted


def decode(data: bytes, slot: Tensor) -> Any:
    """Return the encoded item; its tensors are views of the slot."""
    if data[:1] == _SAMPLE:
        size, shape, rest = pickle.loads(memoryview(data)[1:])
        return Sample(clip=slot[:size].view(shape), **dict(zip(_REST, rest, strict=True)))
    return _Unpickler(io.BytesIO(memoryview(data)[1:]), slot).load()


class _Pickler(pickle.Pickler):
    """Pickles everything but tensors."""

    def __init__(self, file: io.BytesIO, slot: Tensor) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._slot = slot
        self._used = 0
        self.wanted = 0

    def persistent_id(self, item: Any) -> Any:
        if type(item) is not Tensor or item.layout != torch.strided or item.device.type != "cpu":
            return None
        if item.requires_grad or item.is_quantized:
            return None
        place: int | bytes
        size = item.numel() * item.element_size()
        first = self._used + -(self._slot.data_ptr() + self._used) % _ALIGNMENT
        if size > _SMALL:
            self.wanted += -(-size // _ALIGNMENT) * _ALIGNMENT
        if _SMALL < size <= self._slot.numel() - first:
            self._used = first + size
            self._slot[first : first + size].view(item.dtype).view(item.shape).copy_(item)
            place = first
        else:
            place = item.reshape(-1).view(torch.uint8).numpy().tobytes() if size else b""
        return place, size, str(item.dtype).removeprefix("torch."), tuple(item.shape)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, slot: Tensor) -> None:
        super().__init__(file)
        self._slot = slot

    def persistent_load(self, place: Any) -> Tensor:
        first, size, name, shape = place
        dtype = getattr(torch, name)
        if not size:
            return torch.empty(shape, dtype=dtype)
        if isinstance(first, bytes):
            return torch.frombuffer(bytearray(first), dtype=dtype).view(shape)
        return self._slot[first : first + size].view(dtype).view(shape)


def pack_error(error: BaseException, name: str) -> bytes:
    """Pickle an error raised while loading: user errors as they are, others with their traceback."""
    if isinstance(error, VcycleError):
        try:
            packed = pickle.dumps(error)
            if str(pickle.loads(packed)) == str(error):
                return packed
        except Exception:  # pickling runs the class's code; fall back to the traceback
            pass
    text = "".join(traceback.format_exception(error)).strip()
    return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error} (in a worker that loaded {name})\n\n{text}"))


def unpack_error(packed: bytes) -> Exception:
    """Return the error to raise."""
    error = pickle.loads(packed)
    return error if isinstance(error, Exception) else RuntimeError(str(error))
