"""Message channels between two processes of a pool: frames over a socket pair that forks do not keep open."""

import contextlib
import os
import select
import socket
import struct
from weakref import WeakSet

__all__ = ["Channel", "Closed", "pair"]

_HEADER = struct.Struct("<Q")
_CHUNK = 1 << 18

_open: "WeakSet[Channel]" = WeakSet()


class Closed(Exception):  # noqa: N818 -- how every channel ends
    """The other end is closed: its process ended, or needs no more messages."""


class Channel:
    """One end of a socket pair: sends and receives frames, without blocking unless asked to."""

    def __init__(self, end: socket.socket) -> None:
        """Wrap a socket.

        A forked process does not keep its parent's ends: a copy in a third process would hide from the second that the
        first has died.
        """
        end.setblocking(False)
        self._end = end
        self._incoming = bytearray()
        self._outgoing = bytearray()
        _open.add(self)

    def fileno(self) -> int:
        """Return the file descriptor; -1 once it is closed."""
        return self._end.fileno()

    @property
    def unsent(self) -> bool:
        """Return whether some of the messages are not sent yet."""
        return bool(self._outgoing)

    def put(self, message: bytes) -> None:
        """Send a message, or queue what the socket does not accept for ``flush``.

        Raises:
            Closed: if the other end is closed.
        """
        self._outgoing += _HEADER.pack(len(message))
        self._outgoing += message
        self.flush()

    def flush(self) -> None:
        """Send as much as the socket accepts.

        Raises:
            Closed: if the other end is closed.
        """
        try:
            while self._outgoing:
                with memoryview(self._outgoing) as view, view[:_CHUNK] as part:
                    sent = self._end.send(part, socket.MSG_NOSIGNAL)
                del self._outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError as error:
            raise Closed from error

    def send_all(self) -> None:
        """Block until everything is sent.

        Raises:
            Closed: if the other end is closed.
        """
        poll = select.poll()
        poll.register(self._end, select.POLLOUT)  # not POLLIN: nothing reads meanwhile
        while self._outgoing:
            poll.poll()
            self.flush()

    def take(self) -> list[bytes]:
        """Return the messages received so far.

        Raises:
            Closed: if there are none and the other end is closed.
        """
        ended = False
        try:
            while data := self._end.recv(_CHUNK):
                self._incoming += data
            ended = True
        except BlockingIOError:
            pass
        except OSError:
            ended = True
        messages = self._whole()
        if ended and not messages:
            raise Closed
        return messages

    def _whole(self) -> list[bytes]:
        messages, start = [], 0
        while len(self._incoming) >= start + _HEADER.size:
            (length,) = _HEADER.unpack_from(self._incoming, start)
            first = start + _HEADER.size
            if len(self._incoming) < first + length:
                break
            messages.append(bytes(self._incoming[first : first + length]))
            start = first + length
        del self._incoming[:start]
        return messages

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until there is something to receive or to flush; return whether there is."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
        return bool(poll.poll(None if seconds is None else seconds * 1000))

    def close(self) -> None:
        """Close this end."""
        _open.discard(self)
        with contextlib.suppress(OSError):
            self._end.close()


def pair() -> tuple[Channel, socket.socket]:
    """Create a socket pair: our channel, and the socket for the process that is forked next."""
    ours, theirs = socket.socketpair()
    return Channel(ours), theirs


def _close_inherited() -> None:
    for channel in list(_open):
        channel.close()


os.register_at_fork(after_in_child=_close_inherited)
