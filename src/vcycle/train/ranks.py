"""The ranks of a distributed job: the processes that `torchrun` started or, without it, this process alone.

They exchange small objects from main memory here, whatever device they compute on, so this uses the gloo backend.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn, TypeVar, cast

import torch
from torch import distributed

from vcycle.errors import VcycleError
from vcycle.utils.ranks import launched_world

__all__ = ["SINGLE_PROCESS", "PeerExited", "Ranks", "is_communication_error", "joined", "restarted"]

_T = TypeVar("_T")
_Part = TypeVar("_Part")

_PATIENCE = timedelta(days=7)
"""Timeout of collectives: ranks wait for one that is busy, and torchrun ends all of them if one fails."""

_MOMENT = timedelta(seconds=5)
"""How long a failing rank waits to learn whether the first rank failed with the same error."""

_agree: Callable[[], None] | None = None
"""Called before every exchange within `Ranks.all_or_none`."""


class PeerExited(VcycleError):  # noqa: N818 -- what has happened
    """Raised when a peer process has exited, so that a collective cannot complete."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among the ranks of the job."""

    rank: int = 0
    """This rank."""
    world: int = 1
    """Number of ranks."""
    local: int = 0
    """Local rank on this machine."""

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which reports to the user and writes files."""
        return self.rank == 0

    def device(self, wanted: str, on_message: Callable[[str], None]) -> torch.device:
        """The device of this rank: its own GPU, unless `cpu` is wanted or there is none.

        Ranks share GPUs if there are more ranks than GPUs. A model trained on a GPU can be used on a CPU, which is
        reported.
        """
        if wanted == "cpu" or not torch.cuda.is_available():
            if wanted == "cuda":
                on_message("run.device is cuda, but torch finds no CUDA device: using the CPU")
            return torch.device("cpu")
        return torch.device("cuda", self.local % torch.cuda.device_count())

    def gather(self, value: _T) -> list[_T] | None:
        """Gather each rank's value on the first rank, in rank order; None on the others.

        Raises:
            VcycleError: if a peer process has exited.
        """
        if self.world == 1:
            return [value]
        _agree_first()
        found: list[_T] | None = [value] * self.world if self.first else None
        try:
            distributed.gather_object(value, found, dst=0)
        except RuntimeError as error:
            raise self._abandoned() from error
        return found

    def from_first(self, make: Callable[[], _T]) -> _T:
        """Call `make` on the first rank and broadcast its result, or the error that it raises.

        Raises:
            VcycleError: if `make` raises it on the first rank, or if a peer process has exited.
        """
        if self.world == 1:
            return make()
        _agree_first()
        told: list[tuple[Any, VcycleError | None]] = [(None, None)]
        if self.first:
            try:
                told = [(make(), None)]
            except VcycleError as error:
                told = [(None, error)]
        try:
            distributed.broadcast_object_list(told, src=0)
        except RuntimeError as error:
            raise self._abandoned() from error
        made, refusal = told[0]
        if refusal is not None:
            raise refusal
        return cast("_T", made)

    def reduce_on_first(self, own: list[_Part], make: Callable[[list[_Part]], _T]) -> _T:
        """Concatenate the lists of all ranks, in rank order, call `make` on the first, and broadcast its result.

        Raises:
            VcycleError: if `make` raises it on the first rank, or if a peer process has exited.
        """
        shares = self.gather(own)
        return self.from_first(lambda: make([found for share in shares or () for found in share]))

    @contextmanager
    def one_after_another(self) -> Iterator[None]:
        """Run the context on the first rank, then on the first of each machine, then on the others.

        For files that one rank creates and the others find, on a shared disk or on one disk per machine.
        """
        turn = 0 if self.first else 1 if self.local == 0 else 2
        for _ in range(turn):
            self.wait()
        yield
        for _ in range(2 - turn):
            self.wait()

    def all_gather_ints(self, row: Sequence[int]) -> list[list[int]]:
        """All-gather one row of integers per rank, in rank order.

        Raises:
            VcycleError: if a peer process has exited.
        """
        if self.world > 1:
            _agree_first()
        return self._table(row)

    def any_rank(self, here: bool) -> bool:
        """Whether the condition holds on any rank.

        Raises:
            VcycleError: if a peer process has exited.
        """
        return any(row[0] for row in self._table([here]))

    def _table(self, row: Sequence[int]) -> list[list[int]]:
        if self.world == 1:
            return [list(row)]
        mine = torch.tensor(row, dtype=torch.int64)
        rows = [torch.empty_like(mine) for _ in range(self.world)]
        try:
            distributed.all_gather(rows, mine)
        except RuntimeError as error:
            raise self._abandoned() from error
        return [found.tolist() for found in rows]

    @contextmanager
    def together(self) -> Iterator[None]:
        """Convert communication errors within the context to `PeerExited`.

        Raises:
            VcycleError: if a peer process has exited.
        """
        try:
            yield
        except RuntimeError as error:
            if self.world > 1 and is_communication_error(error):
                raise self._abandoned() from error
            raise

    @contextmanager
    def all_or_none(self, wanted: Callable[[], bool], give_up: Callable[[], NoReturn]) -> Iterator[Callable[[], None]]:
        """Run work that all ranks abort as soon as one of them requests it, however far each has come.

        A rank announces its request when it calls the yielded function; the others see it at their next exchange, or
        at the end of the context.

        Args:
            wanted: Whether this rank requests to abort.
            give_up: Raises the exception that ends the work, on each rank.

        Yields:
            A function to call often while nothing is being exchanged: checks whether this rank requests to abort.

        Raises:
            VcycleError: if a peer process has exited.
        """
        global _agree

        def agree() -> None:
            if self.any_rank(wanted()):
                give_up()

        def look() -> None:
            if wanted():
                agree()

        _agree = agree
        try:
            yield look
            agree()
        finally:
            _agree = None

    def wait(self) -> None:
        """Wait until every rank has arrived (barrier).

        Raises:
            VcycleError: if a peer process has exited.
        """
        if self.world > 1:
            _agree_first()
            try:
                distributed.barrier()
            except RuntimeError as error:
                raise self._abandoned() from error

    def is_to_tell(self, error: VcycleError) -> bool:
        """Whether this rank reports the error that ends it: not if the first rank ends with the same error.

        Call this last, while the ranks are `joined`.
        """
        if self.world == 1:
            return True
        key = f"vcycle: ended, {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        try:
            place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            store = distributed.TCPStore(*place, is_master=False, timeout=_MOMENT)  # type: ignore[attr-defined]
            if self.first:
                store.set(key, str(error))
                return True
            told = store.get(key).decode()
        except (KeyError, RuntimeError, ValueError):
            return True
        return not (isinstance(error, PeerExited) or told == str(error))

    def _abandoned(self) -> PeerExited:
        return PeerExited(f"rank {self.rank} of {self.world} stops: another process has exited")


SINGLE_PROCESS = Ranks()
"""One process by itself."""


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the process group that `torchrun` set up, while the context is open.

    Raises:
        VcycleError: if the ranks cannot connect.
    """
    world = launched_world()
    if world == 1:
        yield SINGLE_PROCESS
        return
    try:
        # On GPUs, gradients and statistics use NCCL.
        distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=_PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise VcycleError(
            f"WORLD_SIZE is {world}, but the {world} processes cannot connect ({str(error).splitlines()[0]}): start "
            "them with torchrun"
        ) from error
    try:
        yield Ranks(
            rank=distributed.get_rank(),
            world=distributed.get_world_size(),
            local=int(os.environ.get("LOCAL_RANK", distributed.get_rank())),
        )
    finally:
        distributed.destroy_process_group()


def is_communication_error(error: BaseException) -> bool:
    """Whether an error comes from the communication between ranks."""
    # Gloo has no exception class.
    return isinstance(error, distributed.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _agree_first() -> None:
    if _agree is not None:
        _agree()


def restarted() -> bool:
    """Whether torchrun has restarted these processes after one of them failed (`--max-restarts`)."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") not in ("", "0")
