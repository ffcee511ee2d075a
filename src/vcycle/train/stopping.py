"""Ending early because a signal asks for it: at the edge of a step, which is saved, instead of anywhere.

Python's own way, an exception wherever the main thread happens to be, may tear a step apart. Here a signal within a
step only leaves a wish, which the training looks at once the step is done. Whatever can be cut short without a loss,
such as waiting for data or a validation, is cut short at once.
"""

import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

__all__ = ["SIGNALS", "Stop", "Stopped", "current", "signals"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that ask for an end: Ctrl-C, a terminal that closes, and what job schedulers send before they kill."""


class Stopped(KeyboardInterrupt):
    """A signal has asked for an end."""

    def __init__(self, number: signal.Signals, *, at_once: bool = False) -> None:
        """Say which, and whether for an end wherever this process is."""
        super().__init__(number.name)
        self.signal, self.at_once = number, at_once


class Stop:
    """A wish to end, and whether it may be fulfilled at once."""

    def __init__(self, on_wish: Callable[[signal.Signals], None] = lambda _: None) -> None:
        """Begin without a wish.

        Args:
            on_wish: Told of the first signal where it has to wait. It is called in a signal handler.
        """
        self._on_wish = on_wish
        self._signal: signal.Signals | None = None
        self.struck: signal.Signals | None = None
        """What has ended the code at hand, wherever that was: an import, say, that makes another error of it."""
        self._waits = False
        self._together = False

    @property
    def wanted(self) -> bool:
        """Whether an end has been asked for."""
        return self._signal is not None

    def ask(self, number: int) -> None:
        """Ask for an end, as a signal handler does.

        Raises:
            Stopped: where nothing is lost by it; and on Ctrl-C, once any signal has been there before, or on SIGTERM
                after Ctrl-C, which is how torchrun hands on a second one.
        """
        before = self._signal
        self._signal = before or signal.Signals(number)
        if before:
            if number == signal.SIGINT or (before, number) == (signal.SIGINT, signal.SIGTERM):
                self.struck = before
                raise Stopped(before, at_once=True)
            return  # a scheduler may tell both this process and its parent, who tells it once more
        if not self._waits:
            self.struck = self._signal
            raise Stopped(self._signal)
        self._on_wish(self._signal)

    @contextmanager
    def deferred(self, *, together: bool = False) -> Iterator[None]:
        """Within: a signal leaves a wish; at the end it is fulfilled.

        Args:
            together: Whether other processes do the same, and none may leave on its own: then `allowed` allows nothing.

        Raises:
            Stopped: at the end, if it is wanted.
        """
        self._waits, self._together = True, together
        try:
            yield
        finally:
            self._waits = self._together = False
        self.leave_if_wanted()

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Within `deferred`: nothing is lost by an end at any moment.

        Raises:
            Stopped: if it is wanted, already or meanwhile.
        """
        if self._together or not self._waits:
            yield
            return
        try:
            self._waits = False
            self.leave_if_wanted()
            yield
        finally:
            self._waits = True

    def leave_if_wanted(self) -> None:
        """End, if that has been asked for.

        Raises:
            Stopped: if so.
        """
        if self._signal is not None:
            raise Stopped(self._signal)

    def leave(self) -> NoReturn:
        """End: another process has been asked to.

        Raises:
            Stopped: always.
        """
        raise Stopped(self._signal or signal.SIGTERM)


_current: Stop | None = None
"""That of `signals`: handlers of signals are the whole process's, too."""


def current() -> Stop:
    """What the signals of this process have asked for; without `signals`, nothing ever."""
    return _current or Stop()


@contextmanager
def signals(on_wish: Callable[[signal.Signals], None] | None = None) -> Iterator[Stop]:
    """Within: signals ask for an end, wherever `current` is looked at, and raise `Stopped` everywhere else.

    Signals that this process was told to ignore (`nohup`, a shell's background) stay ignored. Only the main thread has
    handlers: elsewhere nothing changes.

    Args:
        on_wish: Told of the first signal where it has to wait, in a signal handler; by default standard error is.

    Raises:
        Stopped: on a signal, outside of a step.
    """
    global _current
    stop = Stop(on_wish or _tell)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _leave_lost_terminal()
        stop.ask(number)

    outer, before = _current, {}
    _current = stop
    try:
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if handler is not None and handler is not signal.SIG_IGN:
                before[number] = handler
                signal.signal(number, handle)
        yield stop
    finally:
        _current = outer
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_lost_terminal() -> None:
    """Have what is still to be said go nowhere: a terminal that has closed refuses it, which would end the step."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)


def _tell(number: signal.Signals) -> None:
    # Straight to the descriptor: what the signal interrupted may be in the middle of writing to the stream.
    if os.environ.get("RANK", "0") == "0":  # of several that are told, one says so
        again = " again" if number == signal.SIGINT else ""
        with suppress(OSError):
            os.write(
                2, f"\n{number.name}: the step at hand is finished and saved; Ctrl-C{again} ends at once\n".encode()
            )
