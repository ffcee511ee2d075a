"""Commands that several processes share the work of, started by torchrun."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vcycle.console.output import as_one
from vcycle.errors import VcycleError

if TYPE_CHECKING:
    from vcycle.train.ranks import Ranks

__all__ = ["shared"]


@contextmanager
def shared() -> "Iterator[Ranks]":
    """Join the processes that share the work, while it lasts, and speak as one of them.

    What ends all of them is told by the first, and what ends one alone by that one, with its number.

    Raises:
        VcycleError: what ends this process, or if the processes do not find each other.
        SystemExit: if another tells what ends this one.
    """
    from vcycle.train.ranks import joined

    with joined() as ranks, as_one(ranks.rank):
        try:
            yield ranks
        except VcycleError as error:
            if not ranks.is_to_tell(error):
                raise SystemExit(2) from error
            if ranks.first:
                raise
            raise VcycleError(f"rank {ranks.rank}: {error}") from error
