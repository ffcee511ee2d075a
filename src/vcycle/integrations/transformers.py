"""Hugging Face's Trainer follows a plan.

With a model and a dataset::

    trainer = PlanTrainer(model, TrainingArguments(...), train_dataset=dataset, plan=plan)
    trainer.train()

The training is the whole plan, one step of it per step of the trainer. The position in it is ``state.global_step``,
which a checkpoint restores: a resumed training has the batches and LRs of an uninterrupted one.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from vcycle import BatchPartition, Plan, PlanError, PlanLR, any_shape, apply, loader, one_step
from vcycle.integrations.common import BatchesFromStep, require_plan, require_prepared
from vcycle.utils.extras import require

if TYPE_CHECKING:
    from transformers import PreTrainedModel, Trainer
else:
    Trainer, PreTrainedModel = require("transformers").Trainer, require("transformers").PreTrainedModel

__all__ = ["PlanTrainer"]


class PlanTrainer(Trainer):
    """A Trainer whose batches, clip shapes, LRs and BatchNorm groups are those of a plan.

    The loss that the model returns is the mean over the rank's clips, as that of every video classifier of transformers
    is. These arguments of ``TrainingArguments`` have another meaning: ``max_steps`` is the plan's length;
    ``per_device_train_batch_size``, ``learning_rate``, ``lr_scheduler_type``, ``warmup_steps`` and
    ``num_train_epochs`` are not used, as the plan has these. ``dataloader_num_workers`` and ``dataloader_pin_memory``
    apply to ``vcycle.loader``, as does ``data_seed``, or ``seed`` without it. The positions of a video transformer
    follow the shape of each step (``vcycle.any_shape``).
    """

    def __init__(self, *args: Any, plan: Plan, loader_options: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """Create a trainer; all other arguments are those of ``Trainer``.

        Args:
            args: Positional arguments of ``Trainer``: model, args, ....
            plan: The plan, the whole training.
            loader_options: Options of ``vcycle.loader`` for ``train_dataset``; by default ``key="pixel_values"`` and
                ``layout="TCHW"``, as the video processors of transformers make items. Items are dicts of the model's
                arguments. ``key=None`` is for a dataset that samples its own grids.
            kwargs: Keyword arguments of ``Trainer``.

        Raises:
            PlanError: if ``plan`` is none, or an argument contradicts it: gradient accumulation, an LR
                scheduler, a sampling strategy, a search for a batch size, a dataset that the plan cannot order.
        """
        require_plan(plan, "PlanTrainer(model, args, plan=plan)")
        super().__init__(*args, **kwargs)
        self.plan = plan
        self.loader_options = {"key": "pixel_values", "layout": "TCHW", **(loader_options or {})}
        self._refuse()
        any_shape(self.model, strict=False)
        self.args.max_steps = len(plan)
        self.args.ignore_data_skip = True  # the loader starts at the step

    def _refuse(self) -> None:
        args, scheduler = self.args, getattr(self, "lr_scheduler", None)
        if args.gradient_accumulation_steps != 1:
            raise PlanError(
                f"gradient_accumulation_steps={args.gradient_accumulation_steps}: a plan's batches are whole, one per "
                "step; accepted: 1"
            )
        if scheduler is not None:
            raise PlanError(
                f"optimizers has the LR scheduler {type(scheduler).__name__}, but the plan is the LR schedule; "
                "accepted: optimizers=(optimizer, None). Baseline(decay=..., warmup=...) sets the schedule"
            )
        if args.train_sampling_strategy != "random":
            raise PlanError(
                f"train_sampling_strategy={args.train_sampling_strategy!r}: the plan orders the clips; accepted: "
                "'random'"
            )
        if args.max_steps not in (-1, len(self.plan)):
            raise PlanError(
                f"max_steps={args.max_steps}: the plan is the training, and has {len(self.plan)} steps; accepted: "
                "leave it out. Baseline(steps=...) or epoch_factor sets the plan's length"
            )
        if args.auto_find_batch_size:
            raise PlanError("auto_find_batch_size=True: the plan has the batches; accepted: False")
        if args.n_gpu > 1:
            raise PlanError(
                f"{args.n_gpu} GPUs in one process split batches without regard to BatchNorm groups; accepted: one GPU "
                f"per process, as of torchrun --nproc-per-node {args.n_gpu}"
            )

    def get_train_dataloader(self) -> Any:
        """The plan's batches from the trainer's step on."""
        require_prepared(self.model, self.plan, all_train=True)
        options = {
            "seed": self.args.seed if self.args.data_seed is None else self.args.data_seed,
            "workers": self.args.dataloader_num_workers,
            "pin_memory": self.args.dataloader_pin_memory,
        }
        batches = loader(self.train_dataset, self.plan, **(options | self.loader_options))
        return BatchesFromStep(batches, lambda: self.state.global_step)

    def get_total_train_batch_size(self, args: Any) -> Any:
        """The plan's mean batch, from which the Trainer computes its samples per second."""
        return self.plan.samples / len(self.plan)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """The plan as a torch scheduler, so that logs have the LR that each step uses."""
        self.lr_scheduler = PlanLR(self.optimizer if optimizer is None else optimizer, self.plan)
        return self.lr_scheduler

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Save a checkpoint under the model's own names, by which the Trainer loads it."""
        with _own_names(self.model):
            super()._save_checkpoint(*args, **kwargs)

    def training_step(self, model: torch.nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Apply the step to model and optimizer and compute its gradients.

        Raises:
            PlanError: if the batch is not that of the step.
        """
        step = self.plan[self.state.global_step]
        sharing = BatchPartition.of(step, rank=self.args.process_index, world=self.args.world_size)
        world, seed = self.args.world_size, self.args.seed
        apply(step, model, self.optimizer, inputs, rank=sharing.rank, world=world, seed=seed)
        with one_step(model, sharing), self._weighted_loss(sharing.loss_weight):
            # Without a number of items each rank's loss is a mean, which can be weighted.
            loss: torch.Tensor = super().training_step(model, inputs)
        return loss

    @contextmanager
    def _weighted_loss(self, weight: float) -> Iterator[None]:
        """Weight the loss by this rank's share of the batch, as ranks have slices of different lengths.

        It replaces the method for the time, as subclasses may override it without a call of this class's.
        """
        compute_loss = self.compute_loss

        def weighted(*args: Any, **kwargs: Any) -> Any:
            found = compute_loss(*args, **kwargs)
            return (found[0] * weight, *found[1:]) if isinstance(found, tuple) else found * weight

        try:
            if weight != 1:
                self.__dict__["compute_loss"] = weighted
            yield
        finally:
            self.__dict__.pop("compute_loss", None)


@contextmanager
def _own_names(model: Any) -> Iterator[None]:
    """Let ``save_pretrained`` keep the names of a model's tensors.

    By default it renames some to those of published files, such as VideoMAE's biases of queries and values.
    ``from_pretrained`` reads both. The Trainer resumes by the model's own names, and leaves a tensor that it does not
    find as it was initialised.
    """
    if not isinstance(model, PreTrainedModel):
        yield
        return
    model.__dict__["save_pretrained"] = partial(model.save_pretrained, save_original_format=False)
    try:
        yield
    finally:
        del model.__dict__["save_pretrained"]
