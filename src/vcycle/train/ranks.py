"""The processes that share a piece of work: those that `torchrun` has started or, without it, this one alone.

What they tell each other here is small and lies in main memory, whatever device they compute on, so it goes over gloo.
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

__all__ = ["ALONE", "Abandoned", "Ranks", "joined", "restarted"]

_T = TypeVar("_T")
_Part = TypeVar("_Part")

_PATIENCE = timedelta(days=7)
"""How long ranks wait for one that is at work; torchrun ends them all if one fails."""

_MOMENT = timedelta(seconds=5)
"""How long a rank that fails waits to hear whether the first has failed of the same."""

_agree: Callable[[], None] | None = None
"""What is to be done before anything is exchanged, within `Ranks.all_or_none`."""


class Abandoned(VcycleError):  # noqa: N818 -- what has happened
    """Another rank has ended, so that what this one waits for will not come."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among those that share the work."""

    rank: int = 0
    """This one's number."""
    world: int = 1
    """How many there are."""
    local: int = 0
    """This one's number on its machine."""

    @property
    def first(self) -> bool:
        """Whether this is the one that talks to the user and writes files."""
        return self.rank == 0

    def device(self, wanted: str, on_message: Callable[[str], None]) -> torch.device:
        """Where this rank computes: on a GPU of its own, unless `cpu` is wanted or there is none.

        Ranks share GPUs where there are more of them than GPUs. A model that was trained on a GPU can be used without
        one; that is told.
        """
        if wanted == "cpu" or not torch.cuda.is_available():
            if wanted == "cuda":
                on_message("run.device is cuda, and torch finds no CUDA device: the CPU is used")
            return torch.device("cpu")
        return torch.device("cuda", self.local % torch.cuda.device_count())

    def gather(self, value: _T) -> list[_T] | None:
        """What each rank gives, in their order, on the first; None on the others.

        Raises:
            VcycleError: if another rank has ended.
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
        """What the first rank makes, on all of them. What it refuses, it refuses for all.

        Raises:
            VcycleError: what it raises on the first, or if another rank has ended.
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

    def pooled(self, own: list[_Part], make: Callable[[list[_Part]], _T]) -> _T:
        """What the first rank makes of all that the ranks have found, in their order; on all of them.

        Raises:
            VcycleError: what it raises on the first, or if another rank has ended.
        """
        shares = self.gather(own)
        return self.from_first(lambda: make([found for share in shares or () for found in share]))

    @contextmanager
    def one_after_another(self) -> Iterator[None]:
        """Let the first rank go alone, then the first of each machine, then the others.

        For what is made once and then found, on a disk that all share or that each machine has for itself.
        """
        turn = 0 if self.first else 1 if self.local == 0 else 2
        for _ in range(turn):
            self.wait()
        yield
        for _ in range(2 - turn):
            self.wait()

    def table(self, row: Sequence[int]) -> list[list[int]]:
        """Each rank's row of whole numbers, in their order, on all of them.

        Raises:
            VcycleError: if another rank has ended.
        """
        if self.world > 1:
            _agree_first()
        return self._table(row)

    def anywhere(self, here: bool) -> bool:
        """Whether something holds on any rank.

        Raises:
            VcycleError: if another rank has ended.
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
        """Within, what cannot be exchanged because another rank has ended is told as that.

        Raises:
            VcycleError: if another rank has ended.
        """
        try:
            yield
        except RuntimeError as error:
            # Gloo has no class of its own for it.
            if self.world > 1 and (isinstance(error, distributed.DistError) or "gloo" in str(error)):
                raise self._abandoned() from error
            raise

    @contextmanager
    def all_or_none(self, wanted: Callable[[], bool], give_up: Callable[[], NoReturn]) -> Iterator[Callable[[], None]]:
        """Within: work that all ranks give up as soon as one of them wishes to, however far each has come.

        A rank that wishes tells the others where it looks; they learn of it where they next exchange something, or
        where their work ends.

        Args:
            wanted: Whether this rank wishes to give up.
            give_up: Raises what ends the work, on each rank.

        Yields:
            What is to be called often, where nothing is being exchanged: looks whether this rank wishes to.

        Raises:
            VcycleError: if another rank has ended.
        """
        global _agree

        def agree() -> None:
            if self.anywhere(wanted()):
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
        """Wait until every rank is here.

        Raises:
            VcycleError: if another rank has ended.
        """
        if self.world > 1:
            _agree_first()
            try:
                distributed.barrier()
            except RuntimeError as error:
                raise self._abandoned() from error

    def is_to_tell(self, error: VcycleError) -> bool:
        """Whether this rank is to tell the error that ends it: not if the first rank ends of the same, and tells it.

        To be asked while they are `joined`, as the last thing.
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
        return not (isinstance(error, Abandoned) or told == str(error))

    def _abandoned(self) -> Abandoned:
        return Abandoned(f"rank {self.rank} of {self.world} stops: another process has exited")


ALONE = Ranks()
"""One process by itself."""


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the processes that share the work, while it lasts.

    Raises:
        VcycleError: if they do not find each other.
    """
    said = os.environ.get("WORLD_SIZE", "1")
    if not said.isdigit() or int(said) < 1:
        raise VcycleError(f"WORLD_SIZE is {said!r}: a number of processes is accepted, as torchrun sets it")
    world = int(said)
    if world == 1:
        yield ALONE
        return
    try:
        # Gradients and statistics lie on GPUs where there are any, and go over NCCL there.
        distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=_PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise VcycleError(
            f"WORLD_SIZE is {world}, and the {world} processes do not find each other ({str(error).splitlines()[0]}): "
            "start them with torchrun"
        ) from error
    try:
        yield Ranks(
            rank=distributed.get_rank(),
            world=distributed.get_world_size(),
            local=int(os.environ.get("LOCAL_RANK", distributed.get_rank())),
        )
    finally:
        distributed.destroy_process_group()


def _agree_first() -> None:
    if _agree is not None:
        _agree()


def restarted() -> bool:
    """Whether torchrun has started these processes again after one of them failed (`--max-restarts`)."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") not in ("", "0")
