"""Random generators keyed to a request: the global ones of Python, NumPy and torch, and those a dataset holds."""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from types import BuiltinMethodType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

import numpy as np
import torch

from vcycle.data.request import SampleRequest

__all__ = ["KeyedDraws", "generators_in", "keyed_generators"]

_Made = TypeVar("_Made")

_USER = 2  # purpose of keyed draws
_GLOBAL = 3
_MOST = 4_000
"""Maximum number of objects to search for generators; a dataset may hold its samples as objects."""
_MOST_EACH = 256
"""Maximum number of elements to search of one list, tuple or dictionary."""
_BIT_GENERATORS = (np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64)
_KINDS = (torch.Generator, random.Random, np.random.RandomState, np.random.Generator, *_BIT_GENERATORS)
_GLOBAL_ONES = {id(getattr(draw, "__self__", None)) for draw in (random.random, np.random.rand)}
_GLOBAL_ONES |= {id(np.random.get_bit_generator()), id(torch.default_generator)}  # type: ignore[attr-defined]
"""Global generators are keyed separately, even if a dataset refers to them."""
_EMPTY_CELL = CellType()
_NOTHING_INSIDE = (str, bytes, int, float, complex, type(None), np.ndarray, np.generic, torch.Tensor, ModuleType, type)


class KeyedDraws:
    """Creates items with keyed random draws, including draws from generators that the dataset or transform holds.

    Generators are searched for once per process, and again after the first item, which often creates them.
    """

    def __init__(self) -> None:
        """Start without known generators."""
        self._holder: Any = None
        self._found: list[Any] = []
        self._settled = False

    def __reduce__(self) -> "tuple[type[KeyedDraws], tuple[()]]":
        """Pickle without generators: a copy belongs to another dataset and searches again."""
        return KeyedDraws, ()

    def make(self, request: SampleRequest, holder: Any, draw: Callable[[], _Made]) -> _Made:
        """Call a function with its random draws keyed to a request.

        Args:
            request: Its key determines the draws.
            holder: The dataset or transform that holds further generators.
            draw: Called once, or twice if the first call created generators, which were not keyed.
        """
        if self._holder is not holder or not self._settled:
            self._holder, self._settled, self._found = holder, False, generators_in(holder)
        with keyed_generators(request, self._found):
            made = draw()
        if not self._settled:
            found = generators_in(holder)
            is_new = list(map(id, found)) != list(map(id, self._found))
            self._settled, self._found = True, found
            if is_new:
                with keyed_generators(request, found):
                    made = draw()
        return made


@contextmanager
def keyed_generators(request: SampleRequest, own: Sequence[Any] = ()) -> Iterator[None]:
    """Key the global generators of Python, NumPy and torch (CPU), and others, to a request within a block.

    Args:
        request: Its key determines the draws.
        own: Further generators, from ``generators_in``.
    """
    seeds = request.generator(_USER).integers(2**32, size=_GLOBAL + len(own)).tolist()
    with ExitStack() as states:
        states.callback(random.setstate, random.getstate())
        states.callback(np.random.set_state, np.random.get_state())
        states.callback(torch.set_rng_state, torch.get_rng_state())
        random.seed(seeds[0])
        np.random.seed(seeds[1])
        torch.default_generator.manual_seed(seeds[2])  # torch.manual_seed would reset the accelerator's as well
        for generator, seed in zip(own, seeds[_GLOBAL:], strict=True):
            states.callback(_seed(generator, seed))
        yield


def generators_in(holder: Any) -> list[Any]:
    """Find the generators that an object holds, in the same order in every process.

    Searches attributes, lists, tuples, dictionaries and the objects of bound methods: nested datasets, transforms,
    torch modules. For NumPy's ``Generator``, its bit generator is returned.
    """
    found: dict[int, Any] = {}
    seen: set[int] = set()
    waiting = deque([holder])  # breadth first: a long list of samples does not hide a transform
    while waiting and len(seen) < _MOST:
        held = waiting.popleft()
        if id(held) in seen or isinstance(held, _NOTHING_INSIDE):
            continue
        seen.add(id(held))
        generator = held.bit_generator if isinstance(held, np.random.Generator) else held
        if id(generator) in _GLOBAL_ONES:
            continue
        if _can_be_seeded(generator):
            found.setdefault(id(generator), generator)
        else:
            waiting.extend(_inside(held))
    return list(found.values())


def _inside(held: Any) -> Iterable[Any]:
    """Return what an object holds directly."""
    inside: list[Any] = list(getattr(held, "__dict__", {}).values())
    for slots in (vars(kind).get("__slots__", ()) for kind in type(held).__mro__):
        names = (slots,) if isinstance(slots, str) else slots
        inside += [getattr(held, name, None) for name in names if name not in ("__dict__", "__weakref__")]
    if isinstance(held, dict):
        inside += islice(held.values(), _MOST_EACH)
    elif isinstance(held, list | tuple):
        inside += held[:_MOST_EACH]
    elif isinstance(held, partial):
        inside += [held.func, *held.args, *held.keywords.values()]
    elif isinstance(held, MethodType):
        inside += [held.__self__, held.__func__]
    elif isinstance(held, BuiltinMethodType):
        inside.append(held.__self__)
    elif isinstance(held, FunctionType):
        inside += [*(held.__defaults__ or ()), *(held.__kwdefaults__ or {}).values()]
        inside += [cell.cell_contents for cell in held.__closure__ or () if cell != _EMPTY_CELL]
    for kind in type(held).__mro__[:-1]:
        inside += [value for value in vars(kind).values() if isinstance(value, _KINDS)]
    return inside


def _can_be_seeded(held: Any) -> bool:
    if isinstance(held, torch.Generator):
        return held.device.type == "cpu"  # a forked process cannot use a CUDA device
    if isinstance(held, random.Random):
        return not isinstance(held, random.SystemRandom)
    if isinstance(held, np.random.RandomState):
        return bool(held.get_state(legacy=False)["bit_generator"] == "MT19937")
    return type(held) in _BIT_GENERATORS


def _seed(generator: Any, seed: int) -> Callable[[], Any]:
    """Seed a generator, and return a function that restores its state."""
    if isinstance(generator, torch.Generator):
        before = generator.get_state()
        generator.manual_seed(seed)
        return partial(generator.set_state, before)
    if isinstance(generator, random.Random):
        state = generator.getstate()
        generator.seed(seed)
        return partial(generator.setstate, state)
    if isinstance(generator, np.random.RandomState):
        legacy = generator.get_state(legacy=False)
        generator.seed(seed)
        return partial(generator.set_state, legacy)
    state = generator.state
    generator.state = type(generator)(seed).state
    return partial(setattr, generator, "state", state)
