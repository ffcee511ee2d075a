"""Graceful stops on a signal: training finishes the current step, saves a checkpoint and exits.

Python's default, an exception wherever the main thread happens to be, may leave a step half done. Here a signal within
a step records a stop request, which the training loop checks after each step. Work that can be dropped without a loss,
such as waiting for data or a validation, is interrupted at once.
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
"""Signals that request a stop: Ctrl-C, a closed terminal, and what job schedulers send before they kill a job."""


class Stopped(KeyboardInterrupt):
    """Raised when a signal has requested a stop."""

    def __init__(self, number: signal.Signals, *, at_once: bool = False) -> None:
        """Store the signal, and whether it stops the process without finishing the step."""
        super().__init__(number.name)
        self.signal, self.at_once = number, at_once


class Stop:
    """A stop request, and whether it may take effect at once."""

    def __init__(self, on_stop_request: Callable[[signal.Signals], None] = lambda _: None) -> None:
        """Start without a request.

        Args:
            on_stop_request: Called in a signal handler with the first signal that waits for the end of the step.
        """
        self._on_stop_request = on_stop_request
        self._signal: signal.Signals | None = None
        self.struck: signal.Signals | None = None
        """The signal that interrupted the running code: an import, for example, turns it into another error."""
        self._waits = False
        self._together = False

    @property
    def wanted(self) -> bool:
        """Whether a stop has been requested."""
        return self._signal is not None

    def ask(self, number: int) -> None:
        """Request a stop, as a signal handler does.

        Raises:
            Stopped: if stopping at once loses nothing; on Ctrl-C after any earlier signal; or on SIGTERM after Ctrl-C,
                which is how torchrun forwards a second Ctrl-C.
        """
        before = self._signal
        self._signal = before or signal.Signals(number)
        if before:
            if number == signal.SIGINT or (before, number) == (signal.SIGINT, signal.SIGTERM):
                self.struck = before
                raise Stopped(before, at_once=True)
            return  # a scheduler may signal both this process and its parent, which forwards the signal
        if not self._waits:
            self.struck = self._signal
            raise Stopped(self._signal)
        self._on_stop_request(self._signal)

    @contextmanager
    def deferred(self, *, together: bool = False) -> Iterator[None]:
        """Defer a stop request to the end of the context.

        Args:
            together: Whether several processes must stop together: `allowed` then has no effect.

        Raises:
            Stopped: at the end of the context, if a stop was requested.
        """
        self._waits, self._together = True, together
        try:
            yield
        finally:
            self._waits = self._together = False
        self.leave_if_wanted()

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Within `deferred`, let a stop request take effect at once: nothing is lost by it here.

        Raises:
            Stopped: if a stop was requested before or while the context is open.
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
        """Stop if a stop was requested.

        Raises:
            Stopped: if it was.
        """
        if self._signal is not None:
            raise Stopped(self._signal)

    def leave(self) -> NoReturn:
        """Stop because another process has been asked to.

        Raises:
            Stopped: always.
        """
        raise Stopped(self._signal or signal.SIGTERM)


_current: Stop | None = None
"""Set by `signals`. Global because signal handlers belong to the whole process."""


def current() -> Stop:
    """The stop request of this process; outside of `signals` it is never set."""
    return _current or Stop()


@contextmanager
def signals(on_stop_request: Callable[[signal.Signals], None] | None = None) -> Iterator[Stop]:
    """Handle signals while the context is open: they set a stop request where `current` is checked.

    Everywhere else they raise `Stopped`. Signals that this process ignores (`nohup`, a background job of a shell) stay
    ignored. Only the main thread can have handlers: in other threads this does nothing.

    Args:
        on_stop_request: Called in a signal handler with the first signal that waits for the end of the step. By
            default a message goes to standard error.

    Raises:
        Stopped: on a signal, outside of a step.
    """
    global _current
    stop = Stop(on_stop_request or _tell)
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
    """Redirect output to the null device: writing to a closed terminal fails and would end the step."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)


def _tell(number: signal.Signals) -> None:
    # Straight to the descriptor: the signal may have interrupted a write to the stream.
    if os.environ.get("RANK", "0") == "0":  # every rank gets the signal, one reports it
        again = " again" if number == signal.SIGINT else ""
        with suppress(OSError):
            os.write(
                2, f"\n{number.name}: finishing and saving the current step; Ctrl-C{again} stops at once\n".encode()
            )
