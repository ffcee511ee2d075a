"""Runs a command: sets its exit code and prints errors in one line on stderr.

0: success. 1: an internal error. 2: a user error. 130: interrupted by Ctrl-C; for SIGTERM, SIGHUP and SIGUSR1 likewise
128 plus the signal's number: 143, 129 and 138.
"""

import contextlib
import errno
import os
import re
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

_NEEDED = {"av", "filelock", "numpy", "safetensors", "scipy", "torch"}
"""Packages that vcycle installs, but that `vcycle plan` does without."""

_OF_THE_MACHINE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EIO),
}
"""System errors that a user can fix: a full disk, missing permissions, an invalid file name."""


_EMPTY = re.compile(r"--[\w-]+=")
"""An option without its value."""


class Interrupted(BaseException):
    """A signal interrupted work that can be resumed; the message says how."""

    def __init__(self, how: str, by: signal.Signals) -> None:
        """Build the message from how to resume and the signal."""
        super().__init__(f"interrupted{'' if by == signal.SIGINT else f' by {by.name}'}; {how}")
        self.code = 128 + by


@contextmanager
def resumable(how: str) -> Iterator[None]:
    """A block of work that can be resumed after an interruption; `how` says how.

    On Ctrl-C, SIGTERM, SIGHUP and SIGUSR1, training finishes the current step and saves a checkpoint; other work stops
    at once. A second Ctrl-C also stops training at once.
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
    """Run a command and report its errors.

    Args:
        command: Called with the arguments as `args`.
        arguments: Command-line arguments without the program's name. `--debug`, anywhere, shows tracebacks.

    Returns:
        The exit code.
    """
    debug = _DEBUG in arguments
    _prepare_streams()
    if unnamed := next((argument for argument in arguments if "\0" in argument), None):
        tell(f"error: {unnamed!r} contains a NUL character, which no argument may contain")
        return 2
    if (empty := next((each for each in arguments if not each or _EMPTY.fullmatch(each)), None)) is not None:
        tell(f"error: {empty or 'an argument'} is empty: is a shell variable unset?")
        return 2
    if (gone := _deleted_folder()) is not None:  # torch's libraries end the process there
        tell(f"error: {gone}")
        return 2
    if not debug:
        warnings.showwarning = _show_warning
    try:
        code = _run(command, [a for a in arguments if a != _DEBUG], debug)
        sys.stdout.flush()
        if code == 130:
            # After a KeyboardInterrupt inside exec() (dataclasses call it in imports), CPython exits by the signal and
            # drops the exit code, until another exec() completes.
            exec("pass")
    except BrokenPipeError:
        # The reader closed the pipe (`| head`); redirect stdout so that Python's flush at exit does not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _run(command: Callable[..., Any], arguments: Sequence[str], debug: bool) -> int:
    try:
        # Not standalone: errors in the arguments are reported here, in one line like any other error.
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
            for line in misused.split("\n"):  # a help page, where arguments are missing
                tell(line)
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
    """The message for an error in the arguments, with a pointer to the help; None for any other error.

    Checks for attributes rather than classes: typer vendors its own copies of click's exceptions.
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
    hint = ": --out names the output" if "extra argument" in text and _has_out(error) else ""
    return f"error: {' '.join(text.split()).rstrip('.')}{hint} (see `{' '.join(words)}`)"


def _has_out(error: Exception) -> bool:
    """Whether the command with an error in its arguments has the option --out."""
    command = getattr(getattr(error, "ctx", None), "command", None)
    return any("--out" in parameter.opts for parameter in getattr(command, "params", ()))


def _explain(error: Exception) -> tuple[str, int]:
    """An error's one-line message and exit code."""
    if isinstance(error, VcycleError):
        return str(error), 2  # `tell` keeps a file name with a line break in its line
    if isinstance(error, ModuleNotFoundError) and error.name in _NEEDED:  # after `pip install --no-deps`
        return f"this needs {error.name}, which is not installed: pip install {error.name}", 2
    if isinstance(error, MemoryError | RuntimeError) and _out_of_memory(error):
        return f"out of memory: {_line(error)}; use smaller clips, a smaller batch or a smaller model", 2
    if isinstance(error, FileNotFoundError) and (gone := _deleted_folder()) is not None:
        return gone, 2
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}", 2
    return f"unexpected {type(error).__name__}: {_line(error)} ({_DEBUG} shows where)", 1


def _deleted_folder() -> str | None:
    """The message if the folder in which the command runs has been deleted."""
    try:
        os.getcwd()
    except FileNotFoundError:
        name = os.environ.get("PWD", "")
        shown = "" if not name or os.path.exists(name) else f" {name}"
        return f"the current folder{shown} has been deleted: change to another one"
    return None


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
    """Print a warning in one line, without the file and line of the library."""
    tell(f"warning: {' '.join(str(message).split())}")


def _prepare_streams() -> None:
    """Replace characters that the terminal cannot encode, such as the × of a shape, and streams that are closed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # `>&-`: the next opened file would get its number
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 -- stays open
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
