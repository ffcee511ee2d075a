"""Reads pickles as data: the calls that a file of arrays contains are recorded, never executed.

Python's own unpickler builds objects while it reads, and NumPy's constructors trust what they are given: a few hundred
bytes corrupt memory, or take gigabytes. Here a small interpreter knows the opcodes of plain containers, text, numbers
and arrays alone. A call becomes a `Call`, and an array is made of one only once its dtype is known to be a plain float,
its shape is checked, and its bytes are exactly as many as that takes.
"""

import codecs
import math
import os
import pickletools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

import numpy as np

__all__ = ["Call", "RefusedError", "array_of", "is_array", "mapping_of", "read_pickle"]

_MOST = 1_000_000
"""Opcodes of a pickle; one of a thousand arrays has some 30,000. Each takes a constant amount of time and memory."""
_LONGEST_NUMBER = 100
"""Bytes of a whole number."""
_DIMENSIONS = 8

_OPCODES = {opcode.code: opcode for opcode in pickletools.opcodes}
_ENCODE, _DTYPE, _NDARRAY, _ARRAY, _SCALAR, _ORDERED = "encode", "dtype", "ndarray", "array", "scalar", "ordered"
_NAMES: Mapping[str, str] = {
    "collections OrderedDict": _ORDERED,
    "_codecs encode": _ENCODE,
    "numpy dtype": _DTYPE,
    "numpy ndarray": _NDARRAY,
    "numpy.core.multiarray _reconstruct": _ARRAY,
    "numpy._core.multiarray _reconstruct": _ARRAY,
    "numpy.core.multiarray scalar": _SCALAR,
    "numpy._core.multiarray scalar": _SCALAR,
}
"""The names that a pickle may use: those that arrays and plain containers need."""
_FLOATS: Mapping[str, int] = {"f2": 2, "f4": 4, "f8": 8}
"""The types of weights, and their bytes."""


class RefusedError(Exception):
    """Raised when a pickle contains something that does not belong in a weight file."""


@dataclass(frozen=True)
class _Name:
    """One of the names that a pickle may use."""

    name: str


@dataclass(eq=False)
class Call:
    """A call in a pickle, and the state and items that it would set on the result."""

    name: str
    arguments: tuple[Any, ...]
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)


class _Mark:
    """Where a list of values on the stack starts."""


_MARK = _Mark()


def read_pickle(file: BinaryIO) -> Any:
    """The value in a pickle, of `None`, booleans, numbers, text, bytes, lists, tuples, dictionaries and `Call`s.

    Memory is bounded by the size of the file and the number of its opcodes, whatever lengths it claims.

    Args:
        file: A regular file, at its start.

    Raises:
        RefusedError: if it names anything but what arrays are made of.
        ValueError: if it is cut short, damaged, or no pickle of arrays.
    """
    return _Reader(file).load()


class _Bounded:
    """A file that never returns more bytes than it has: a claimed length allocates nothing."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._left = file, os.fstat(file.fileno()).st_size - file.tell()

    def read(self, count: int) -> bytes:
        if count > self._left:
            raise ValueError("it ends within a value")
        self._left -= count
        return self._file.read(count)

    def readline(self) -> bytes:
        line = self._file.readline()
        self._left -= len(line)
        return line


class _Reader:
    """Interprets a pickle."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = _Bounded(file)
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def load(self) -> Any:
        for _ in range(_MOST):
            code = self._file.read(1).decode("latin-1")
            opcode = _OPCODES.get(code)
            if opcode is not None and opcode.name == "STOP":
                return self._pop()
            step = _STEPS.get(opcode.name) if opcode is not None else None
            if opcode is None or step is None:
                raise ValueError(f"opcode {code!r} has no place in a pickle of arrays")
            if opcode.name == "STRING":  # of Python 2: bytes, in quotes
                argument: Any = _unquoted(self._file.readline())
            else:
                # The readers only call `read` and `readline`.
                argument = None if opcode.arg is None else opcode.arg.reader(cast("BinaryIO", self._file))
            step(self, argument)
        raise ValueError(f"it has more than {_MOST:,} opcodes")

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise ValueError("a value is missing")
        return self._stack.pop()

    def _top(self) -> Any:
        value = self._pop()
        self._stack.append(value)
        return value

    def _marked(self) -> list[Any]:
        """Pop the values from the last mark on, and the mark."""
        for index in range(len(self._stack) - 1, -1, -1):
            if self._stack[index] is _MARK:
                values = self._stack[index + 1 :]
                del self._stack[index:]
                return values
        raise ValueError("a mark is missing")

    def push(self, value: Any) -> None:
        if type(value) is int and value.bit_length() > 8 * _LONGEST_NUMBER:
            raise ValueError("a number is too long")
        self._stack.append(value)

    def mark(self, _: None) -> None:
        self._stack.append(_MARK)

    def pop(self, _: None) -> None:
        if not self._stack:
            raise ValueError("a value is missing")
        self._stack.pop()

    def pop_mark(self, _: None) -> None:
        self._marked()

    def put(self, index: int) -> None:
        self._memo[index] = self._top()

    def memoize(self, _: None) -> None:
        self._memo[len(self._memo)] = self._top()

    def get(self, index: int) -> None:
        if index not in self._memo:
            raise ValueError(f"it remembers nothing under {index}")
        self._stack.append(self._memo[index])

    def tuple_of(self, count: int) -> None:
        values = [self._pop() for _ in range(count)]
        self._stack.append(tuple(reversed(values)))

    def marked_tuple(self, _: None) -> None:
        self._stack.append(tuple(self._marked()))

    def marked_list(self, _: None) -> None:
        self._stack.append(self._marked())

    def marked_dict(self, _: None) -> None:
        values = self._marked()
        self._stack.append({})
        self._set(values)

    def append(self, _: None) -> None:
        self._extend([self._pop()])

    def appends(self, _: None) -> None:
        self._extend(self._marked())

    def _extend(self, values: list[Any]) -> None:
        target = self._top()
        if type(target) is not list:
            raise ValueError("a list is missing")
        target.extend(values)

    def set_item(self, _: None) -> None:
        value, key = self._pop(), self._pop()
        self._set([key, value])

    def set_items(self, _: None) -> None:
        self._set(self._marked())

    def _set(self, values: list[Any]) -> None:
        target = self._top()
        items = target.items if type(target) is Call and target.name == _ORDERED else target
        if type(items) is not dict or len(values) % 2:
            raise ValueError("a dictionary is missing, or a value of it")
        for key, value in zip(values[::2], values[1::2], strict=True):
            # Other keys, such as tuples that share their parts, may take forever to hash.
            if type(key) not in (str, bytes, int):
                raise ValueError(f"a key is {type(key).__name__}")
            items[key] = value

    def name(self, name: str) -> None:
        if name not in _NAMES:
            raise RefusedError(name.replace(" ", "."))
        self._stack.append(_Name(_NAMES[name]))

    def stack_name(self, _: None) -> None:
        name, module = self._pop(), self._pop()
        if type(name) is not str or type(module) is not str:
            raise ValueError("a name is no text")
        self.name(f"{module} {name}")

    def call(self, _: None) -> None:
        arguments, called = self._pop(), self._pop()
        if type(called) is not _Name or type(arguments) is not tuple:
            raise ValueError("it calls what has no name")
        self._stack.append(Call(called.name, arguments))

    def build(self, _: None) -> None:
        state, target = self._pop(), self._top()
        if type(target) is not Call or target.name not in (_ARRAY, _DTYPE) or target.state is not None:
            raise ValueError("it changes what is neither an array nor a dtype")
        target.state = state


_STEPS: Mapping[str, Any] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda reader, _: None),
    **dict.fromkeys(
        (
            *("INT", "LONG", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
            *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
            *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        ),
        _Reader.push,
    ),
    "NONE": lambda reader, _: reader.push(None),
    "NEWTRUE": lambda reader, _: reader.push(True),
    "NEWFALSE": lambda reader, _: reader.push(False),
    "EMPTY_TUPLE": lambda reader, _: reader.push(()),
    "EMPTY_LIST": lambda reader, _: reader.push([]),
    "EMPTY_DICT": lambda reader, _: reader.push({}),
    "TUPLE1": lambda reader, _: reader.tuple_of(1),
    "TUPLE2": lambda reader, _: reader.tuple_of(2),
    "TUPLE3": lambda reader, _: reader.tuple_of(3),
    "TUPLE": _Reader.marked_tuple,
    "LIST": _Reader.marked_list,
    "DICT": _Reader.marked_dict,
    "APPEND": _Reader.append,
    "APPENDS": _Reader.appends,
    "SETITEM": _Reader.set_item,
    "SETITEMS": _Reader.set_items,
    "MARK": _Reader.mark,
    "POP": _Reader.pop,
    "POP_MARK": _Reader.pop_mark,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Reader.put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Reader.get),
    "MEMOIZE": _Reader.memoize,
    "GLOBAL": _Reader.name,
    "STACK_GLOBAL": _Reader.stack_name,
    "REDUCE": _Reader.call,
    "BUILD": _Reader.build,
}
"""The supported opcodes. Opcodes that create objects of any class or refer to external data are missing."""


def _unquoted(line: bytes) -> str:
    """Decode a Python 2 string, which is bytes, as `STRING` writes it."""
    text = line.strip()
    if len(text) < 2 or text[:1] != text[-1:] or text[:1] not in (b"'", b'"'):
        raise ValueError("a text has no quotes")
    return codecs.escape_decode(text[1:-1])[0].decode("latin-1")


def mapping_of(value: Any) -> dict[str, Any] | None:
    """A dictionary's items with text keys; None for any other value."""
    if type(value) is Call and value.name == _ORDERED:
        pairs = value.arguments[0] if len(value.arguments) == 1 else []
        if not isinstance(pairs, list | tuple) or len(value.arguments) > 1:
            return None
        if not all(isinstance(pair, list | tuple) and len(pair) == 2 and type(pair[0]) is str for pair in pairs):
            return None
        value = {pair[0]: pair[1] for pair in pairs} | value.items
    if type(value) is not dict:
        return None
    return {
        key if isinstance(key, str) else key.decode("latin-1"): item
        for key, item in value.items()
        if isinstance(key, str | bytes)
    }


def is_array(value: Any) -> bool:
    """Whether a value describes an array."""
    return type(value) is Call and value.name == _ARRAY


def array_of(value: Call) -> np.ndarray[Any, Any] | None:
    """The array that a pickle describes, in this machine's byte order; None if it is not an array of floats.

    Raises:
        ValueError: if it is not of a plain numeric type, or its shape does not fit its bytes.
    """
    state = value.state
    if type(state) is not tuple or len(state) != 5:
        raise ValueError("an array has no content")
    _, shape, kind, by_column, raw = state
    name, order = _dtype(kind)
    if name not in _FLOATS:
        return None
    content = _bytes(raw)
    if type(shape) is not tuple or len(shape) > _DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"an array of {name} has no plain shape")
    if math.prod(shape) * _FLOATS[name] != len(content):
        raise ValueError(f"an array of shape {'×'.join(map(str, shape))} and {name} has {len(content):,} bytes")
    flat = np.frombuffer(content, dtype=np.dtype(f"{order}{name}")).astype(np.dtype(name))
    return flat.reshape(shape, order="F" if by_column is True or by_column == 1 else "C")


def _dtype(kind: Any) -> tuple[str, str]:
    """The name and byte order of a dtype.

    Raises:
        ValueError: if it is not plain.
    """
    if type(kind) is not Call or kind.name != _DTYPE or not kind.arguments or type(kind.arguments[0]) is not str:
        raise ValueError("an array has no plain dtype")
    name, state = kind.arguments[0], kind.state
    order = "="
    if state is not None:
        if type(state) is not tuple or len(state) < 5 or state[2:5] != (None, None, None):
            raise ValueError("an array has no plain dtype")
        order = state[1]
    if len(name) != 2 or name[0] not in "fiub" or order not in ("<", ">", "=", "|"):
        raise ValueError(f"an array is of {name[:20]!r}; accepted: numbers")
    return name, order


def _bytes(raw: Any) -> bytes:
    """Bytes as any of pickle's protocols has them."""
    if type(raw) is Call and raw.name == _ENCODE and len(raw.arguments) == 2:  # Python 3's, in protocols below 3
        raw = raw.arguments[0]
    if type(raw) is str:
        return raw.encode("latin-1")
    if type(raw) is not bytes:
        raise ValueError("an array has no bytes")
    return raw
