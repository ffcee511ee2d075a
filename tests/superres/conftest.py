"""Clips of textures under a moving camera, written as pictures, and a training on them that takes seconds."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import av
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from vcycle.plan import Plan
from vcycle.runs.experiment import Experiment
from vcycle.runs.train import train
from vcycle.tasks.base import Splits
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.superres.pairs.layouts import ClipPairs
from vcycle.tasks.superres.recipe import SuperresRecipe
from vcycle.train.callbacks import Callbacks
from vcycle.train.outcome import TrainResult
from vcycle.train.run import RunFolder

COUNTS = {"train": 5, "val": 2, "test": 3}
FRAMES, HEIGHT, WIDTH = 5, 80, 96

RECIPE = """
task: superresolution
data: {workers: 0}
model: {name: basicvsr_m, options: {blocks: 1, channels: 4, head_channels: 4}}
init: {needed: false}
training:
  batch: 1
  frames: 2
  size: 16
  steps: 16
  lr: 2.0e-3
  minibatch: {factor: 2}
  warmup: {steps: 2}
  flow: {frozen_steps: 3}
  ema: 0.9
plan: spatial
plans: {spatial: {sizes: [8, 16]}}
run: {device: cpu, save_every: 1, validate_every: 3}
"""


def png(picture: np.ndarray) -> bytes:
    encoder = av.CodecContext.create("png", "w")
    encoder.height, encoder.width = picture.shape[:2]
    encoder.pix_fmt, encoder.time_base = "rgb24", 1
    frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
    return b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])


def write_clip(folder: Path, seed: int, frames: int = FRAMES) -> None:
    """A texture that moves by whole pixels."""
    draws = np.random.default_rng(seed)
    texture = gaussian_filter(draws.random((HEIGHT + 24, WIDTH + 24, 3)), (1.5, 1.5, 0))
    texture = (255 * (texture - texture.min()) / np.ptp(texture)).astype(np.uint8)
    down, right = draws.integers(0, 4, size=2)
    folder.mkdir(parents=True)
    for t in range(frames):
        top, left = t * down, t * right
        picture = np.ascontiguousarray(texture[top : top + HEIGHT, left : left + WIDTH])
        (folder / f"{t:08d}.png").write_bytes(png(picture))


@pytest.fixture(scope="session")
def recipe() -> str:
    """The recipe above."""
    return RECIPE


@pytest.fixture(scope="session")
def make_clip() -> Callable[..., None]:
    """Writes a clip: folder, seed, frames."""
    return write_clip


@pytest.fixture(scope="session")
def write_png() -> Callable[[Path, np.ndarray], None]:
    """Writes a picture, and the folder that it lies in."""

    def write(path: Path, picture: np.ndarray) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(np.ascontiguousarray(picture)))

    return write


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with clips to train on, to validate and to test. Read only."""
    root = tmp_path_factory.mktemp("superres") / "clips"
    for split, count in COUNTS.items():
        for number in range(count):
            write_clip(root / split / f"{split}{number}", seed=100 * len(split) + number)
    return root


@dataclass(frozen=True, kw_only=True)
class Training:
    """A recipe with its clips found and its plan made."""

    file: Path
    experiment: Experiment
    plan: Plan

    @property
    def recipe(self) -> SuperresRecipe:
        """The recipe."""
        assert isinstance(self.experiment.recipe, SuperresRecipe)
        return self.experiment.recipe

    @property
    def clips(self) -> Splits[ClipPairs]:
        """The clips, by split."""
        return self.experiment.splits

    def run(self, folder: Path, **how: Any) -> TrainResult:
        """Train in a folder, from the start or from its newest checkpoint."""
        reports = {name: how.pop(name) for name in tuple(how) if name.startswith("on_") and name != "on_start"}
        return train(self.experiment, self.plan, RunFolder(folder), callbacks=Callbacks(**reports), **how)


@pytest.fixture(scope="session")
def make_training(clips: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Training]:
    """Makes a training of the recipe above, with changes to it as on the command line."""

    def make(*overrides: str) -> Training:
        file = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
        file.write_text(RECIPE, encoding="utf-8")
        experiment = Experiment(load_recipe(str(file), [f"data={clips}", *overrides]), file.parent)
        return Training(file=file, experiment=experiment, plan=experiment.plan())

    return make


def conftest_of_train() -> ModuleType:
    """What tests of training share, such as the one definition of when two runs are the same."""
    path = Path(__file__).parents[1] / "train" / "conftest.py"
    spec = importlib.util.spec_from_file_location("conftest_of_train", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_training = conftest_of_train()
record_of, newest = _training.record_of, _training.newest


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with the recipe as tiny.yaml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(RECIPE, encoding="utf-8")
    return tmp_path
