"""Forward passes of a sharded model on uneven inputs: ranks may run different numbers of them, or none.

To compute a unit (a block that is gathered by itself, or the whole model), FSDP gathers its parameters from all ranks,
so each gather needs every rank. Here ranks agree on each gather before it starts. A rank that does not need the unit
only sends its shard and drops what it receives, so no rank needs dummy inputs. This holds for any inputs: clips of
different lengths, units that some ranks use more often, and ranks without inputs.

If ranks wait for different units, the rank that is inside of the most units comes first. So no unit is gathered while a
rank computes it, which FSDP cannot do, and ranks that have inputs start their forward passes together.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NoReturn

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from vcycle.train.ranks import Ranks
from vcycle.train.shards import is_sharded, set_reshard

__all__ = ["uneven_inputs"]

_NONE = -1
"""The request of a rank that waits for no unit: it has no more inputs, or wants to exchange results."""


def _never() -> NoReturn:
    raise AssertionError("no rank requests to abort")


@contextmanager
def uneven_inputs(
    model: nn.Module,
    ranks: Ranks,
    *,
    wanted: Callable[[], bool] = lambda: False,
    give_up: Callable[[], NoReturn] = _never,
) -> Iterator[None]:
    """Let ranks run different numbers of forward passes of a sharded model within the context, without gradients.

    All ranks enter the context. Before each exchange of `Ranks`, and at the end of the context, a rank takes part in
    the forward passes of the others until all of them have arrived there. Without a sharded model this does nothing.

    Args:
        model: The model, from `vcycle.train.shards.shard`.
        ranks: The ranks that hold it. Within the context they exchange data only through this.
        wanted: Whether this rank requests to abort. All ranks then do, between two forward passes of each.
        give_up: Raises the exception that ends the work, on each rank.

    Raises:
        PeerExited: if a peer process has exited.

    Example:
        >>> with uneven_inputs(nn.Linear(2, 3), Ranks()):
        ...     pass
    """
    if not is_sharded(model):
        yield
        return
    set_reshard(model, parted=False, last=True)
    gathers = _Gathers(model, ranks, wanted, give_up)
    with ExitStack() as stack:
        stack.enter_context(ranks.together())
        stack.callback(gathers.forget)
        stack.enter_context(gathers.hooked())
        stack.enter_context(ranks.before_exchanges(gathers.serve_all))
        yield
        gathers.serve_all()


class _Gathers:
    """The gathers of a model's units, in an order that all ranks agree on."""

    def __init__(
        self, model: nn.Module, ranks: Ranks, wanted: Callable[[], bool], give_up: Callable[[], NoReturn]
    ) -> None:
        self._units = [module for module in model.modules() if isinstance(module, FSDPModule)]
        self._ranks, self._wanted, self._give_up = ranks, wanted, give_up
        self._inside: list[int] = []
        """The units that this rank is computing, outer ones first."""

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Agree on the gather of each unit before its forward pass."""
        hooks = []
        for number, unit in enumerate(self._units):
            # Before FSDP's own hook, which finds the unit gathered.
            hooks.append(unit.register_forward_pre_hook(partial(self._enter, number), prepend=True))
            hooks.append(unit.register_forward_hook(partial(self._leave, number), always_call=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, number: int, *_: object) -> None:
        if number in self._inside:  # it calls itself
            return
        while (agreed := self._agree(number)) != number:
            self._serve(agreed)
        self._gather(number)
        self._inside.append(number)

    def _leave(self, number: int, *_: object) -> None:
        if self._inside and self._inside[-1] == number:
            self._inside.pop()
            torch.clear_autocast_cache()  # else half-precision copies of all units add up

    def serve_all(self) -> None:
        """Take part in the gathers of other ranks until none of them waits for a unit."""
        while (agreed := self._agree(_NONE)) != _NONE:
            self._serve(agreed)

    def _agree(self, request: int) -> int:
        """The unit to gather next, the same on all ranks: that of the rank which is inside of the most units."""
        rows = self._ranks.table([request, len(self._inside), self._wanted()])
        waiting = [(-depth, unit) for unit, depth, _ in rows if unit != _NONE]
        depth, agreed = min(waiting, default=(0, _NONE))
        if depth == 0 and any(ending for *_, ending in rows):
            self._give_up()
        return agreed

    def _serve(self, number: int) -> None:
        self._gather(number)
        self._units[number].reshard()

    def _gather(self, number: int) -> None:
        # Parameters that are first gathered in inference mode could not be used in training.
        with torch.inference_mode(False), torch.no_grad():
            self._units[number].unshard()

    def forget(self) -> None:
        """Forget the forward passes: FSDP would prefetch their units in the next backward pass, differently by rank."""
        for unit in self._units:
            state = unit._get_fsdp_state()
            getattr(state._comm_ctx, "post_forward_order", []).clear()  # absent before the first forward pass
            if (group := state._fsdp_param_group) is not None:
                group._post_forward_indices.clear()
