"""The training state: model, optimizer, EMA, scaler and totals, and how checkpoints save and restore it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vcycle.errors import CheckpointError
from vcycle.plan import Plan
from vcycle.train.checkpoint import (
    Checkpoint,
    finish_saving,
    kept_best,
    latest_checkpoint,
    load_checkpoint,
    load_weights,
    newest_path,
    save_best,
    save_checkpoint,
    save_sharded,
)
from vcycle.train.ema import Ema
from vcycle.train.outcome import EvalResult, Totals
from vcycle.train.ranks import SINGLE_PROCESS, Ranks
from vcycle.train.run import RunFolder
from vcycle.train.sharded_checkpoint import ShardedWriter
from vcycle.train.shards import gather_state, local_shard, scatter_optimizer_state, scatter_state, unsharded_copy

__all__ = ["TrainState"]


@dataclass(kw_only=True)
class TrainState:
    """Everything that changes during training. Shapes, LR, samples and crops do not: they are functions of the step."""

    run: RunFolder
    plan: Plan
    seed: int
    model: nn.Module
    optimizer: torch.optim.Optimizer
    ema: Ema | None = None
    scaler: torch.amp.GradScaler | None = None
    totals: Totals = field(default_factory=Totals)

    meta_copy: nn.Module | None = None
    """The model without its weights, if it is sharded."""
    best_step: int | None = field(default=None, init=False)
    """The step of the best validation, if its weights are kept."""
    _noted: Checkpoint | None = field(default=None, init=False)
    """The weights of the best validation, if it came after the last checkpoint."""
    _writer: ShardedWriter = field(default_factory=ShardedWriter, init=False)

    @property
    def evaluated(self) -> nn.Module:
        """The model that is evaluated: the EMA model, if there is one."""
        return self.model if self.ema is None else self.ema.model

    def best(self) -> nn.Module:
        """The model to evaluate; for a sharded one, this is an unsharded copy, and all ranks call this."""
        return self.evaluated if self.meta_copy is None else unsharded_copy(self.evaluated, self.meta_copy)

    def note_best(self, step: int, *, write: bool = True) -> None:
        """Keep the weights of the best validation until the next checkpoint is saved; all ranks call this.

        Args:
            step: Steps done.
            write: Whether this rank writes.
        """
        self.best_step = step
        weights = gather_state(self.evaluated.state_dict(), keep=write)
        if write:
            self._noted = Checkpoint(
                step=step,
                plan=self.plan,
                seed=self.seed,
                model={key: value.detach().to("cpu", copy=True) for key, value in weights.items()},
                optimizer={"param_groups": []},
                optimizer_kind=type(self.optimizer).__name__,
                totals=self.totals.as_data(),
            )

    def save(self, step: int, *, write: bool = True) -> None:
        """Write a checkpoint after `step` steps, and before it the best weights if they are new; all ranks call this.

        If the model is sharded, each rank writes its shards in the background; `finish_saving` waits for it.

        Args:
            step: Steps done.
            write: Whether this rank writes.

        Raises:
            CheckpointError: if it cannot be written; earlier checkpoints stay as they were.
        """
        if write:
            self.save_noted()
        if self.meta_copy is not None:
            save_sharded(self._writer, self.run.checkpoints, self._checkpoint(step), write=write)
        elif write:
            save_checkpoint(self.run.checkpoints, self._checkpoint(step))

    def finish_saving(self) -> None:
        """Wait until the checkpoint that is being written is on disk.

        Raises:
            CheckpointError: if it cannot be written.
        """
        finish_saving(self._writer, self.run.checkpoints)

    def save_noted(self) -> None:
        """Write the best weights, if they are new.

        Raises:
            CheckpointError: if they cannot be written; the previous ones stay as they were.
        """
        if self._noted is not None:
            self.finish_saving()  # it removes temporary files
            save_best(self.run.checkpoints, self._noted)
            self._noted = None

    def _checkpoint(self, step: int) -> Checkpoint:
        return Checkpoint(
            step=step,
            plan=self.plan,
            seed=self.seed,
            model=self.model.state_dict(),
            optimizer=self.optimizer.state_dict(),
            optimizer_kind=type(self.optimizer).__name__,
            totals=self.totals.as_data(),
            averaged=None if self.ema is None else self.ema.model.state_dict(),
            scaler=None if self.scaler is None else self.scaler.state_dict(),
        )

    def restore(
        self, on_message: Callable[[str], None], evaluation: Callable[..., EvalResult], ranks: Ranks = SINGLE_PROCESS
    ) -> int:
        """Load the newest readable checkpoint; return the step to resume at.

        Args:
            on_message: Called with checkpoints that are skipped, and with the step to resume at.
            evaluation: Makes an evaluation from its fields.
            ranks: The ranks that train together, all of which call this.

        Raises:
            CheckpointError: if it belongs to another plan, seed, model or optimizer, or none can be read.
        """
        found = latest_checkpoint(self.run.checkpoints) if self.meta_copy is None else self._newest_in_parts(ranks)
        if found is None:
            raise CheckpointError(f"the run in {self.run.path} has lost its checkpoints: choose another --out")
        checkpoint, path, passed = found
        for fault in passed:
            on_message(f"skipped: {fault}")
        if checkpoint.plan != self.plan or checkpoint.seed != self.seed:
            theirs, ours = checkpoint.plan, self.plan
            raise CheckpointError(
                f"checkpoint {path} was made under plan {theirs.name} {theirs.fingerprint} with seed "
                f"{checkpoint.seed}; this recipe gives plan {ours.name} {ours.fingerprint} with seed {self.seed}: "
                f"resume with the run's own recipe ({self.run.recipe}), or choose another --out"
            )
        load_weights(self.model, scatter_state(checkpoint.model, self.model.state_dict()), path)
        kind = type(self.optimizer).__name__
        if checkpoint.optimizer_kind != kind:
            raise CheckpointError(
                f"checkpoint {path} was made with {checkpoint.optimizer_kind}, this recipe has {kind}"
            )
        trained = [len(group["params"]) for group in self.optimizer.param_groups]
        theirs_trained = [len(group["params"]) for group in checkpoint.optimizer["param_groups"]]
        if theirs_trained != trained:
            raise CheckpointError(
                f"checkpoint {path} was made while {sum(theirs_trained)} parameters were trained, this recipe trains "
                f"{sum(trained)} (training.freeze): resume with the run's own recipe ({self.run.recipe})"
            )
        for what, key, theirs_has, ours_has in (
            ("an average of the weights", "training.ema", checkpoint.averaged is not None, self.ema is not None),
            ("a gradient scaler", "run.precision", checkpoint.scaler is not None, self.scaler is not None),
        ):
            if theirs_has != ours_has:
                had, has = ("with", "without") if theirs_has else ("without", "with")
                raise CheckpointError(
                    f"checkpoint {path} was made {had} {what}, this recipe trains {has} one ({key}): resume with the "
                    f"run's own recipe ({self.run.recipe})"
                )
        if self.ema is not None and checkpoint.averaged is not None:
            load_weights(self.ema.model, scatter_state(checkpoint.averaged, self.ema.model.state_dict()), path)
        try:
            parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
            saved = scatter_optimizer_state(checkpoint.optimizer, parameters)
            self.optimizer.load_state_dict(_on_this_device(saved, self.optimizer))
            _lay_out(self.optimizer)
            if self.scaler is not None and checkpoint.scaler is not None:
                self.scaler.load_state_dict(checkpoint.scaler)
            self.totals = Totals.from_data(checkpoint.totals, evaluation)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"checkpoint {path} is from another version of vcycle: {error!r}") from error
        self.best_step = kept_best(self.run.checkpoints, self.totals.best)
        on_message(f"resuming at step {checkpoint.step:,} of {len(self.plan):,} from {path}")
        return checkpoint.step

    def _newest_in_parts(self, ranks: Ranks) -> tuple[Checkpoint, Path, list[str]] | None:
        """The newest readable checkpoint, which the first rank chooses; of a folder, only this rank's shards."""
        found = ranks.from_first(lambda: newest_path(self.run.checkpoints))
        if found is None:
            return None
        path, passed = found
        like = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        if self.ema is not None:
            like |= {f"averaged.{name}": value for name, value in self.ema.model.state_dict().items()}
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        return load_checkpoint(path, like=like, parameters=parameters, verified=True), path, passed


@torch.no_grad()
def _lay_out(optimizer: torch.optim.Optimizer) -> None:
    """Give optimizer state the memory layout of its parameters: a fused optimizer reads both side by side.

    A checkpoint from another device or from a sharded run may differ: channels first instead of channels last.
    """
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape and value.ndim:
                like = torch.empty_like(parameter.detach(), dtype=value.dtype)
                local_shard(like).copy_(local_shard(value))
                state[key] = like


def _on_this_device(saved: dict[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Set `fused` in a saved optimizer state as it is set here: it depends on the device, not on the run."""
    groups = [
        {**group, "fused": own["fused"]} if "fused" in own else group
        for group, own in zip(saved["param_groups"], optimizer.param_groups, strict=True)
    ]
    return {**saved, "param_groups": groups}
