"""Hugging Face's Trainer follows a plan.

    trainer = PlanTrainer(model, TrainingArguments(...), train_dataset=dataset, plan=plan)
    trainer.train()

The training is the whole plan, one step of it per step of the trainer. The position in it is ``state.global_step``,
which a checkpoint restores: a resumed training has the batches and LRs of an uninterrupted one.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from vcycle import BatchPartition, Plan, PlanError, PlanLR, Shape, apply, loader, one_step
from vcycle.integrations.common import BatchesFromStep, require_groups
from vcycle.utils.extras import require

if TYPE_CHECKING:
    from transformers import Trainer
else:
    Trainer = require("transformers").Trainer

__all__ = ["PlanTrainer"]


class PlanTrainer(Trainer):
    """A Trainer whose batches, clip shapes, LRs and BatchNorm groups are those of a plan.

    The loss that the model returns is the mean over the rank's clips, as that of every video classifier of transformers
    is. These arguments of ``TrainingArguments`` have another meaning: ``max_steps`` is the plan's length;
    ``per_device_train_batch_size``, ``learning_rate``, ``lr_scheduler_type``, ``warmup_steps`` and
    ``num_train_epochs`` are not used, as the plan has these. ``dataloader_num_workers`` and ``dataloader_pin_memory``
    apply to ``vcycle.loader``, as does ``data_seed``, or ``seed`` without it.
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
            PlanError: if an argument contradicts the plan: gradient accumulation, an LR scheduler, a sampling strategy,
                a search for a batch size, a dataset that the plan cannot order.
        """
        super().__init__(*args, **kwargs)
        self.plan = plan
        self.loader_options = {"key": "pixel_values", "layout": "TCHW", **(loader_options or {})}
        self._refuse()
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
        strategy = "group_by_length" if getattr(args, "group_by_length", False) else args.train_sampling_strategy
        if strategy != "random":
            raise PlanError(f"train_sampling_strategy={strategy!r}: the plan orders the clips; accepted: 'random'")
        if args.auto_find_batch_size:
            raise PlanError("auto_find_batch_size=True: the plan has the batches; accepted: False")
        if args.n_gpu > 1:
            raise PlanError(
                f"{args.n_gpu} GPUs in one process split batches without regard to BatchNorm groups; accepted: one GPU "
                f"per process, as of torchrun --nproc-per-node {args.n_gpu}"
            )

    def get_train_dataloader(self) -> Any:
        """The plan's batches from the trainer's step on."""
        require_groups(self.model, self.plan)
        batches = loader(
            self.train_dataset,
            self.plan,
            seed=self.args.seed if self.args.data_seed is None else self.args.data_seed,
            workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            **self.loader_options,
        )
        return BatchesFromStep(batches, lambda: self.state.global_step)

    def get_total_train_batch_size(self, args: Any) -> Any:
        """The plan's mean batch, from which the Trainer computes its samples per second."""
        return self.plan.samples / len(self.plan)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """The plan as a torch scheduler, so that logs have the LR that each step uses."""
        self.lr_scheduler = PlanLR(self.optimizer if optimizer is None else optimizer, self.plan)
        return self.lr_scheduler

    def training_step(self, model: torch.nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Apply the step to model and optimizer and compute its gradients.

        Raises:
            PlanError: if the batch is not that of the step.
        """
        step = self.plan[self.state.global_step]
        sharing = BatchPartition.of(step, rank=self.args.process_index, world=self.args.world_size)
        apply(step, model, self.optimizer, inputs, rank=sharing.rank, world=self.args.world_size)
        config = getattr(self.model, "config", None)  # that of the model itself: DistributedDataParallel has none
        with one_step(model, sharing), _shape_in_config(config, step.shape), self._weighted_loss(sharing.loss_weight):
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
def _shape_in_config(config: Any, shape: Shape) -> Iterator[None]:
    """Set the frames and the side in a model's config to those of a step.

    TimeSformer reads them there in every forward pass, and computes something else, without an error, if they are not
    those of its input. Models that make tables of positions from them do not read them again.
    """
    of_step = {"num_frames": shape.frames, "image_size": shape.size}
    before = {name: getattr(config, name) for name in of_step if hasattr(config, name)}
    try:
        for name in before:
            setattr(config, name, of_step[name])
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)
