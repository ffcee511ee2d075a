"""The LRs of a plan as an LR scheduler of PyTorch, for trainers and loggers that ask for one."""

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch.optim.lr_scheduler import LRScheduler

from vcycle.errors import CheckpointError, PlanError
from vcycle.nn.rates import note_rates, rates_of, set_rates, unwrapped
from vcycle.plan import Plan, Step
from vcycle.plan.arguments import check_index, check_kind

__all__ = ["PlanLR", "scheduler_of"]

_schedulers: "WeakKeyDictionary[torch.optim.Optimizer, ref[PlanLR]]" = WeakKeyDictionary()
"""The latest `PlanLR` of each optimizer."""


class PlanLR(LRScheduler):
    """Sets the LRs of a plan, those that `vcycle.apply` sets: call ``step()`` once after each step of the plan.

    `last_epoch` is the index of the current step. A parameter group may have ``role`` and ``lr_scale``, as for
    `vcycle.apply`. If `apply` is called too, it refuses a scheduler that has run ahead of the step, as under a trainer
    that calls ``step()`` once per process or per micro-batch, and brings one that is behind to the step, as after
    skipped updates. So neither the LR nor what a logger reads is that of another step.

    Example:
        >>> from vcycle.plan import Baseline, CosineDecay, constant
        >>> plan = constant(Baseline(batch=4, frames=8, size=32, clips=8, epochs=2, lr=0.5, decay=CosineDecay()))
        >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=9.0)
        >>> scheduler, rates = PlanLR(optimizer, plan), []
        >>> for _ in plan:
        ...     rates += scheduler.get_last_lr()
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates == [step.lr for step in plan]
        True
    """

    def __init__(self, optimizer: torch.optim.Optimizer, plan: Plan, *, start: int = 0) -> None:
        """Set the LRs of a step.

        Args:
            optimizer: Any optimizer; the ``lr`` of its groups is overwritten.
            plan: The plan.
            start: The current step, to resume without a state.

        Raises:
            PlanError: if arguments are swapped or of another class, or the plan has no such step or no role that a
                group names.
        """
        call = "vcycle.PlanLR(optimizer, plan)"
        check_kind("plan", plan, Plan, call)
        check_kind("optimizer", optimizer, torch.optim.Optimizer, call)
        check_index("start", start)
        if not 0 <= start <= len(plan):
            raise PlanError(f"start={start}: the plan has steps 0 to {len(plan)}")
        self.plan = plan
        super().__init__(optimizer)
        _schedulers[unwrapped(optimizer)] = ref(self)
        self.move_to(start)

    def get_lr(self) -> list[float | torch.Tensor]:
        """The LR of each parameter group at the current step; after the plan's end, those of its last step."""
        return [*self._rates()]

    def _rates(self) -> list[float]:
        return rates_of(self.plan[min(self.last_epoch, len(self.plan) - 1)], self.optimizer)

    def step(self, epoch: int | None = None) -> None:
        """Go to the next step of the plan and set its LRs. It may be called after the last step, which changes nothing.

        Args:
            epoch: Must be None: a plan has steps.

        Raises:
            PlanError: if it is called more often than the plan has steps, or with an epoch.
        """
        if epoch is not None:
            raise PlanError(f"PlanLR.step(epoch={epoch}): it follows the steps of the plan; call it without an epoch")
        if self.last_epoch >= len(self.plan):
            raise PlanError(
                f"PlanLR.step() was called more than {len(self.plan):,} times, the number of steps of the plan: call "
                "it once after each step of the plan. Accelerate calls a scheduler once per process: do not prepare it"
            )
        super().step()
        note_rates(self.optimizer)

    def move_to(self, step: int) -> None:
        """Make ``step``, an index, the current step, and set its LRs."""
        self.last_epoch = step
        rates = self._rates()
        set_rates(self.optimizer, rates)
        self._last_lr = [*rates]

    def check(self, step: Step) -> None:
        """Refuse a step of another plan, or one that the scheduler has passed.

        Raises:
            PlanError: naming both steps.
        """
        if step.index >= len(self.plan) or self.plan[step.index] != step:
            raise PlanError(
                f"step {step.index:,} ({step.batch} clips of {step.shape}, LR {step.lr:g}) is not a step of the plan "
                f"{self.plan.name!r} {self.plan.fingerprint}, which the optimizer's PlanLR follows"
            )
        if self.last_epoch > step.index:
            raise PlanError(
                f"the optimizer's PlanLR is at step {self.last_epoch:,}, ahead of step {step.index:,}: call its step() "
                "once after each step of the plan, and load its state when you resume. Accelerate calls a scheduler "
                "once per process: do not prepare it"
            )

    def state_dict(self) -> dict[str, Any]:
        """The current step and the plan's fingerprint, which ``torch.load`` reads with ``weights_only=True``."""
        return {"last_epoch": self.last_epoch, "plan": self.plan.fingerprint}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resume from a state, and set the LRs of its step.

        Raises:
            CheckpointError: if the state is not of a `PlanLR`, or of another plan.
        """
        if not isinstance(state_dict, Mapping):
            raise CheckpointError(
                f"the state of the LR scheduler is {type(state_dict).__name__}, not what state_dict() returns"
            )
        try:
            step, plan = state_dict["last_epoch"], state_dict["plan"]
        except KeyError as error:
            raise CheckpointError(f"the state of the LR scheduler lacks {error}: it is not of a PlanLR") from None
        if plan != self.plan.fingerprint:
            raise CheckpointError(
                f"the state of the LR scheduler is of a training with plan {plan}, but this one has "
                f"{self.plan.fingerprint} ({self.plan.name})"
            )
        if not isinstance(step, int) or not 0 <= step <= len(self.plan):
            raise CheckpointError(f"the state of the LR scheduler is at step {step!r} of a plan of {len(self.plan)}")
        self.move_to(step)


def scheduler_of(optimizer: torch.optim.Optimizer) -> PlanLR | None:
    """The latest `PlanLR` made for an optimizer, if it still exists."""
    found = _schedulers.get(unwrapped(optimizer))
    return None if found is None else found()
