"""Signal handling around forks."""

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["signals_wait"]


@contextmanager
def signals_wait(numbers: Iterable[int]) -> Iterator[None]:
    """Delay signals within the block, and handle them at its end.

    Blocking applies to one thread only, so another thread can receive the signal. Python still runs its handler in the
    main thread, perhaps inside a hook that a fork calls, where an exception from the handler is lost. So the handlers
    are delayed too.

    Args:
        numbers: The signals to delay.
    """
    numbers = tuple(numbers)
    handlers: dict[int, Any] = {}
    came: list[int] = []
    over = False

    def handle(number: int, frame: FrameType | None) -> None:
        if over:  # another signal interrupted the end of the block
            handlers[number](number, frame)
        else:
            came.append(number)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        if threading.current_thread() is threading.main_thread():  # only the main thread can set and run handlers
            handlers |= {number: found for number in numbers if callable(found := signal.getsignal(number))}
            for number in handlers:
                signal.signal(number, handle)
        yield
    finally:
        over = True
        for number in came:
            signal.raise_signal(number)  # it is still blocked
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
