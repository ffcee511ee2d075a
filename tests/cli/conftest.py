"""A folder of tiny videos, and a recipe that trains on them in a second."""

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from vcycle.cli.app import app
from vcycle.console import process

RECIPE = """\
description: Tiny
data: {workers: 0}
sampling: {span: [0.8, 1.0], short_side: [16, 20], flip: false}
model: {name: r3d_tiny, options: {widths: [4, 8, 8]}}
training:
  batch: 2
  frames: 4
  size: 16
  steps: 24
  lr: 0.02
  decay: {law: steps, milestones: [12], gamma: 0.1}
plan: cascade
run: {device: cpu, save_every: 2}
"""

COUNTS = {"train": 8, "val": 4, "test": 4}
"""Videos of each class in each split."""


def write_square(path: Path, direction: int, seed: int) -> None:
    """A video of 12 frames of 24 x 32 pixels, in which a light square moves left or right."""
    path.parent.mkdir(parents=True, exist_ok=True)
    start = np.random.default_rng(seed).integers(0, 8, size=2)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=12, options={"preset": "ultrafast"})
        stream.height, stream.width, stream.pix_fmt = 24, 32, "yuv420p"
        for number in range(12):
            picture = np.full((24, 32, 3), 30, dtype=np.uint8)
            left = (12 + start[0] + direction * number) % 26
            picture[start[1] + 4 : start[1] + 12, left : left + 6] = 220
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


@pytest.fixture(scope="session")
def recipe() -> str:
    """A recipe that trains on such videos in a second."""
    return RECIPE


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes in a folder per split and class."""
    root = tmp_path_factory.mktemp("data") / "videos"
    for split, count in COUNTS.items():
        for name, direction in (("left", -1), ("right", 1)):
            for number in range(count):
                write_square(root / split / name / f"{number}.mp4", direction, seed=number)
    return root


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with the recipe as tiny.yaml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    return tmp_path


@pytest.fixture(scope="session")
def trained_once(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A finished run of the recipe, and what the command printed."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(RECIPE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        code = process.run(
            app, ["train", str(folder / "tiny.yaml"), f"data={videos}", "--out", str(folder / "run"), "--json"]
        )
    assert code == 0
    return folder / "run", json.loads(printed.getvalue())


@pytest.fixture(scope="module")
def trained(
    trained_once: tuple[Path, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """The same for one file of tests, whose commands write into it: no other file finds what they wrote."""
    run, printed = trained_once
    copied = shutil.copytree(run, tmp_path_factory.mktemp("trained") / "run")
    return copied, printed | {"run": str(copied)}


@pytest.fixture
def one_job(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has a demo train in this process, which is there already; lists for how many trainings it asked for more."""
    asked: list[int] = []
    monkeypatch.setattr("vcycle.bench.jobs.most_jobs", lambda recipe, trainings: asked.append(trainings) or 1)
    return asked
