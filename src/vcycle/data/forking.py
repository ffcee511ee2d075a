"""Forks that no signal tears apart."""

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["signals_wait"]


@contextmanager
def signals_wait(numbers: Iterable[int]) -> Iterator[None]:
    """Within: signals wait, to be handled at the end.

    The system can block them for a thread only, and then any other takes them. Python runs its handler in the main
    thread nonetheless, perhaps in the middle of a hook that a fork calls: what the handler raises is lost there. So the
    handlers wait as well.

    Args:
        numbers: Which signals.
    """
    numbers = tuple(numbers)
    handlers: dict[int, Any] = {}
    came: list[int] = []
    over = False

    def handle(number: int, frame: FrameType | None) -> None:
        if over:  # the end was cut short by another signal
            handlers[number](number, frame)
        else:
            came.append(number)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        if threading.current_thread() is threading.main_thread():  # the only one that may set handlers, and runs them
            handlers |= {number: found for number in numbers if callable(found := signal.getsignal(number))}
            for number in handlers:
                signal.signal(number, handle)
        yield
    finally:
        over = True
        for number in came:
            signal.raise_signal(number)  # it is blocked still
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
