"""Lightning's Trainer follows a plan. The LightningModule stays as it is.

With a module and a dataset::

    follow = FollowPlan(plan)
    trainer = L.Trainer(max_epochs=1, callbacks=[follow])
    trainer.fit(module, follow.loader(dataset, workers=8), ckpt_path="last")

One epoch of the trainer is the whole plan. The position in it is ``trainer.global_step``, which a checkpoint restores:
a resumed training has the batches and LRs of an uninterrupted one.
"""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from torch import Tensor

from vcycle import BatchPartition, CheckpointError, Plan, PlanError, apply, loader, one_step
from vcycle.integrations.common import BatchesFromStep, require_plan, require_prepared
from vcycle.utils.extras import require

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    Callback = require("lightning.pytorch").Callback

__all__ = ["FollowPlan"]


class FollowPlan(Callback):
    """Sets each step's LR and BatchNorm groups, weights the loss over ranks, and checks that step and batch agree.

    The loss of ``training_step`` is the mean over the rank's clips, and there is one optimizer, which steps once per
    batch. The plan is the LR schedule: ``configure_optimizers`` returns the optimizer alone. The callback moves before
    all others, so that ``LearningRateMonitor`` logs the LR of the step and not that of the step before.
    """

    def __init__(self, plan: Plan, *, seed: int = 0) -> None:
        """Follow a plan.

        Args:
            plan: The plan, the whole training.
            seed: The seed by which tokens are dropped, if the plan drops any.

        Raises:
            PlanError: if ``plan`` is none.
        """
        require_plan(plan, "FollowPlan(plan)")
        self.plan = plan
        self._seed = seed
        self._trainer: Trainer | None = None
        self._step = ExitStack()
        self._weight = 1.0

    def loader(self, dataset: Any, **options: Any) -> BatchesFromStep:
        """The train dataloader, for ``Trainer.fit`` or for ``train_dataloader()`` to return.

        Args:
            dataset: The dataset, as for ``vcycle.loader``.
            options: Options of ``vcycle.loader``, except ``start`` and ``stop``.
        """
        return BatchesFromStep(loader(dataset, self.plan, **options), self._global_step)

    def _global_step(self) -> int:
        if self._trainer is None:
            raise PlanError("FollowPlan is not a callback of the Trainer; accepted: Trainer(callbacks=[follow, ...])")
        step: int = self._trainer.global_step
        return step

    def setup(self, trainer: "Trainer", pl_module: "LightningModule", stage: str) -> None:
        """Refuse gradient accumulation, and move before all other callbacks."""
        if stage != "fit":
            return
        if trainer.accumulate_grad_batches != 1:
            raise PlanError(
                f"accumulate_grad_batches={trainer.accumulate_grad_batches}: a plan's batches are whole, one per "
                "optimizer step; accepted: 1"
            )
        self._trainer = trainer
        trainer.callbacks.remove(self)
        trainer.callbacks.insert(0, self)

    def on_load_checkpoint(self, trainer: "Trainer", pl_module: "LightningModule", checkpoint: dict[str, Any]) -> None:
        """Resume within the epoch, which is the whole plan.

        A trainer that has stopped at its ``max_steps`` or ``limit_train_batches`` counts the epoch as completed.
        Resumed, it would train nothing, without a word.
        """
        if 0 < checkpoint["global_step"] < len(self.plan):
            loop = checkpoint["loops"]["fit_loop"]
            for counts in loop["epoch_progress"].values():
                counts.update(processed=0, completed=0)
            loop["epoch_loop.batch_progress"]["is_last_batch"] = False

    def on_train_start(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        """Refuse a second LR schedule, several optimizers, and BatchNorm without groups."""
        if trainer.lr_scheduler_configs:
            name = type(trainer.lr_scheduler_configs[0].scheduler).__name__
            raise PlanError(
                f"configure_optimizers returns the LR scheduler {name}, but the plan is the LR schedule; accepted: the "
                "optimizer alone. Baseline(decay=..., warmup=...) sets the schedule"
            )
        if len(trainer.optimizers) != 1:
            raise PlanError(f"configure_optimizers returns {len(trainer.optimizers)} optimizers; accepted: one")
        require_prepared(pl_module, self.plan)
        self._stop_at_the_end(trainer)

    def on_train_batch_start(
        self, trainer: "Trainer", pl_module: "LightningModule", batch: Any, batch_idx: int
    ) -> None:
        """Apply the step to module and optimizer, if the batch is that step's."""
        self._step.close()
        if trainer.global_step != batch_idx:
            raise PlanError(
                f"the optimizer has taken {trainer.global_step} steps before batch {batch_idx}: a plan's batches are "
                "whole, one per optimizer step"
            )
        step = self.plan[trainer.global_step]
        sharing = BatchPartition.of(step, rank=trainer.global_rank, world=trainer.world_size)
        world, seed = trainer.world_size, self._seed
        apply(step, pl_module, trainer.optimizers[0], batch, rank=sharing.rank, world=world, seed=seed)
        self._step.enter_context(one_step(pl_module, sharing))
        self._weight = sharing.loss_weight

    def on_before_backward(self, trainer: "Trainer", pl_module: "LightningModule", loss: Tensor) -> None:
        """Weight this rank's gradients by its share of the batch: ranks have slices of different lengths."""
        weight = self._weight
        if weight != 1:
            loss.register_hook(lambda gradient: gradient * weight)

    def on_train_batch_end(
        self, trainer: "Trainer", pl_module: "LightningModule", outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Commit the step's BatchNorm statistics; stop after the plan's last step."""
        self._step.close()
        self._stop_at_the_end(trainer)

    def on_exception(self, trainer: "Trainer", pl_module: "LightningModule", exception: BaseException) -> None:
        """Leave the step without committing its statistics."""
        self._step.__exit__(type(exception), exception, exception.__traceback__)

    def teardown(self, trainer: "Trainer", pl_module: "LightningModule", stage: str) -> None:
        """Let go of the trainer."""
        self._step.close()
        self._trainer = None

    def _stop_at_the_end(self, trainer: "Trainer") -> None:
        # Lightning would run empty epochs up to `max_epochs`.
        if trainer.global_step >= len(self.plan):
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        """The fingerprint of the plan. The step is the trainer's."""
        return {"plan": self.plan.fingerprint}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Check that a checkpoint is of this plan.

        Raises:
            CheckpointError: if it is of another.
        """
        if state_dict["plan"] != self.plan.fingerprint:
            raise CheckpointError(
                f"the checkpoint is of a training with plan {state_dict['plan']}, but this one has "
                f"{self.plan.fingerprint} ({self.plan.name})"
            )
