"""A training that takes a second: tiny real videos, a narrow network, a plan of 29 steps over ten stages."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from vcycle.data import Sample
from vcycle.plan import Plan
from vcycle.runs.experiment import Experiment
from vcycle.runs.train import train
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.recipe import RecognitionRecipe
from vcycle.train.callbacks import Callbacks
from vcycle.train.checkpoint import Checkpoint, latest_checkpoint
from vcycle.train.outcome import StepReport, TrainResult
from vcycle.train.run import RunFolder
from vcycle.utils.jsonl import JsonLines

RECIPE = """
sampling: {span: [0.8, 1.0], short_side: [18, 22], flip: true}
model: {name: r3d_tiny, options: {widths: [4, 8], blocks: [1, 1], temporal_kernels: [3, 3], dropout: 0.2}}
training:
  batch: 2
  frames: 8
  size: 16
  steps: 96
  lr: 0.02
  bn_batch: 2
  decay: {law: steps, milestones: [48, 72], gamma: 0.1}
  warmup: {length: 60, start_lr: 0.002}
plan: long+short
run: {device: cpu, validate_every: 3, save_every: 1}
"""


@dataclass(frozen=True, kw_only=True)
class Training:
    """A recipe with its videos found and its plan made."""

    file: Path
    recipe: RecognitionRecipe
    plan: Plan
    experiment: Experiment

    def run(self, folder: Path, **how: Any) -> TrainResult:
        """Train in a folder, from the beginning or on from there."""
        reports = {name: how.pop(name) for name in tuple(how) if name.startswith("on_") and name != "on_start"}
        return train(self.experiment, self.plan, RunFolder(folder), callbacks=Callbacks(**reports), **how)

    def run_until(self, step: int, folder: Path, **how: Any) -> None:
        """Train until an exception ends it after the update of a step, before its checkpoint."""

        def stop(report: StepReport) -> None:
            if report.step.index == step:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            self.run(folder, on_step=stop, **how)


@pytest.fixture(scope="session")
def make_training(digit_videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Training]:
    """Makes a training of the recipe above, with changes to it as on the command line."""

    caches = tmp_path_factory.mktemp("caches")  # one for all: the same frames are decoded once

    def make(*overrides: str, videos: Path = digit_videos) -> Training:
        work = tmp_path_factory.mktemp("training")
        file = work / "tiny.yaml"
        file.write_text(RECIPE, encoding="utf-8")
        recipe = load_recipe(str(file), [f"data={videos}", "data.workers=0", *overrides])
        experiment = Experiment(recipe, caches)
        plan = experiment.task.plan(recipe, len(experiment.splits.train))
        experiment.check(plan, fresh=True)
        return Training(file=file, recipe=recipe, plan=plan, experiment=experiment)

    return make


@pytest.fixture(scope="session")
def training(make_training: Callable[..., Training]) -> Training:
    """The training itself, its frames decoded once."""
    return make_training("data.cache=24")


class Noise(torch.utils.data.Dataset[Sample]):
    """Clips of keyed noise in four classes: a dataset without files."""

    samples_grids = True

    def __len__(self) -> int:
        return 24

    def __getitem__(self, request: Any) -> Sample:
        pixels = request.generator().integers(0, 256, (*request.shape, 3), dtype="uint8")
        return Sample(
            clip=torch.from_numpy(pixels), label=request.index % 4, index=request.index, position=request.position
        )


@pytest.fixture(scope="session")
def noise() -> Noise:
    """The dataset without files."""
    return Noise()


class Brightness(nn.Module):
    """Tells four classes by the mean of a clip: the smallest model there is."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm3d(3)
        self.head = nn.Linear(3, 4)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Logits ``(B, 4)`` of clips ``(B, 3, T, H, W)``."""
        logits: torch.Tensor = self.head(self.norm(clips).mean((2, 3, 4)))
        return logits


@pytest.fixture(scope="session")
def brightness() -> type[nn.Module]:
    """The smallest model."""
    return Brightness


def _newest(folder: Path) -> Checkpoint:
    found = latest_checkpoint(RunFolder(folder).checkpoints)
    assert found is not None
    return found[0]


@pytest.fixture(scope="session")
def newest() -> Callable[[Path], Checkpoint]:
    """The newest checkpoint of a run."""
    return _newest


TIMES = {"seconds", "data_seconds", "cpu_seconds", "clips_per_second", "memory_mib"}


def timeless(value: Any) -> Any:
    """A value without what is measured with a clock, as text: equal texts are equal to the last bit."""
    if isinstance(value, dict):
        return {key: timeless(inner) for key, inner in value.items() if key not in TIMES}
    if isinstance(value, list | tuple):
        return [timeless(inner) for inner in value]
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes()
    return value


@pytest.fixture(scope="session")
def record_of() -> Callable[[Path], dict[str, Any]]:
    """Tells all that a run did and learned, without times: two equal records are two identical runs."""

    def record(folder: Path) -> dict[str, Any]:
        checkpoint = _newest(folder)
        return {
            "step": checkpoint.step,
            "weights": timeless(checkpoint.model),
            "optimizer": timeless(checkpoint.optimizer),
            "totals": timeless(checkpoint.totals),
            # Waiting for data is a matter of time, and is told of on a busy machine.
            "log": timeless([x for x in JsonLines(RunFolder(folder).log).read() if x["event"] != "slow_data"]),
            "bad": timeless(list(JsonLines(RunFolder(folder).bad_samples).read())),
            "plan": json.loads(RunFolder(folder).plan.read_text()),
        }

    return record
