"""Distributed commands: joins the processes that torchrun starts, and prints once for all."""

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
    """Join the process group for the duration of the block; the first rank prints for all.

    The first rank reports an error that all ranks share; a rank reports its own errors, with its number.

    Raises:
        VcycleError: the error of this rank, or if the processes cannot connect.
        SystemExit: if another rank reports the error.
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
