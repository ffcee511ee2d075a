"""How a command ends: its exit code, and what goes wrong in one line on standard error.

0: done. 1: a fault that is not the user's. 2: what the user can mend. 130: interrupted by Ctrl-C; after SIGTERM, SIGHUP
and SIGUSR1 likewise 128 and the signal's number, 143, 129 and 138.
"""

import contextlib
import errno
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from vcycle.console.output import message as tell
from vcycle.errors import VcycleError
from vcycle.train import stopping

__all__ = ["Interrupted", "resumable", "run"]

_DEBUG = "--debug"

_OF_THE_MACHINE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EIO),
}
"""Errors of the system that a user can mend: a full disk, a folder that is not theirs, a name that none can have."""


class Interrupted(BaseException):
    """A signal in the middle of something that can be gone on with; says how."""

    def __init__(self, how: str, by: signal.Signals) -> None:
        """Say how to go on, and by what signal it ended."""
        super().__init__(f"interrupted{'' if by == signal.SIGINT else f' by {by.name}'}; {how}")
        self.code = 128 + by


@contextmanager
def resumable(how: str) -> Iterator[None]:
    """Within: work that an interruption does not lose, and how to go on with it.

    Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 let a training finish the step at hand and save it; anything else they end at
    once, and a second Ctrl-C a training as well.
    """
    with stopping.signals() as stop:
        try:
            yield
        except stopping.Stopped as stopped:
            raise Interrupted(how, stopped.signal) from None
        except KeyboardInterrupt:
            raise Interrupted(how, signal.SIGINT) from None
        except Exception:
            if stop.struck is None:
                raise
            raise Interrupted(how, stop.struck) from None


def run(command: Callable[..., Any], arguments: Sequence[str]) -> int:
    """Run a command and tell what goes wrong.

    Args:
        command: Takes the arguments as `args`.
        arguments: Without the program's name. `--debug`, wherever it stands, shows tracebacks.

    Returns:
        The exit code.
    """
    debug = _DEBUG in arguments
    _prepare_streams()
    if unnamed := next((argument for argument in arguments if "\0" in argument), None):
        tell(f"error: {unnamed!r} has a NUL character, which nothing that a command takes may have")
        return 2
    if not debug:
        warnings.showwarning = _show_warning
    try:
        code = _run(command, [a for a in arguments if a != _DEBUG], debug)
        sys.stdout.flush()
        if code == 130:
            # After a KeyboardInterrupt within exec() (dataclasses call it in imports), CPython ends by the signal and
            # drops the exit code, until an exec() runs to its end.
            exec("pass")
    except BrokenPipeError:
        # Nobody reads on (`| head`); Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _run(command: Callable[..., Any], arguments: Sequence[str], debug: bool) -> int:
    try:
        # Not standalone: what is wrong with the arguments is told here, in a line like any other error.
        ended = command(args=list(arguments), standalone_mode=False)
        return _ended(ended if isinstance(ended, int) else 0)
    except SystemExit as end:
        return _ended(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
    except Interrupted as interruption:
        tell(str(interruption))
        return interruption.code
    except KeyboardInterrupt:
        tell("interrupted")
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        if (misused := _misused(error)) is not None:
            tell(misused)
            return 2
        if debug:
            traceback.print_exc()
        text, code = _explain(error)
        tell(f"error: {text}")
        return code


def _ended(code: int) -> int:
    if code == 130:
        tell("interrupted")
    return code


def _misused(error: Exception) -> str | None:
    """What is wrong with the arguments, and how to see what is accepted; None for any other error.

    Told by what it can do: the parser brings its own copies of these classes.
    """
    if not hasattr(error, "format_message") or not hasattr(error, "exit_code"):
        return None
    text = str(error.format_message())
    if type(error).__name__ == "NoArgsIsHelpError":
        return text
    words, context = ["-h"], getattr(error, "ctx", None)
    while context is not None:
        words.insert(0, "vcycle" if context.parent is None else context.info_name)
        context = context.parent
    return f"error: {' '.join(text.split()).rstrip('.')} (`{' '.join(words)}` shows what is accepted)"


def _explain(error: Exception) -> tuple[str, int]:
    """What went wrong, in a line, and the exit code."""
    if isinstance(error, VcycleError):
        return " ".join(str(error).split("\n")), 2  # whole: a file's name may hold an end of line
    if isinstance(error, MemoryError | RuntimeError) and _out_of_memory(error):
        return f"out of memory: {_line(error)}; smaller clips, a smaller batch or model take less", 2
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}", 2
    return f"unexpected {type(error).__name__}: {_line(error)} ({_DEBUG} shows where)", 1


def _out_of_memory(error: Exception) -> bool:
    if "torch" not in sys.modules:
        return isinstance(error, MemoryError)
    from vcycle.train.memory import is_out_of_memory

    return is_out_of_memory(error)


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else "no message"


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning in a line: the file and line of a library mean nothing to a user of the command."""
    tell(f"warning: {' '.join(str(message).split())}")


def _prepare_streams() -> None:
    """Replace what the terminal cannot show, such as the × of a shape, rather than fail; likewise a closed stream."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # `>&-`; the next file that is opened would be written to by its number
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 -- stays open
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
