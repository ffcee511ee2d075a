"""Dataset layouts that are not vcycle's: registered by a module that a recipe imports, or by an installed package."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

import vcycle
from vcycle.data.layouts import VideoList, layout_of, read_videos, splits_of
from vcycle.errors import DataError, RecipeError

MINE = """
import json
from torch import nn
import vcycle
from vcycle.data import VideoList
from vcycle.tasks.superres import ClipPairs, read_pairs


@vcycle.register_model("brightness")
class Brightness(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Conv3d(3, 4, 1)
        self.head = nn.Linear(4, classes)

    def forward(self, clips):
        return self.head(self.body(clips).mean((2, 3, 4)))


def splits(folder):
    index = folder / "index.json"
    return tuple(json.loads(index.read_text())) if index.is_file() else ()


@vcycle.register_layout("indexed", splits=splits)
def read_indexed(folder, split):
    rows = json.loads((folder / "index.json").read_text())[split]
    return VideoList(
        root=folder,
        paths=[name for name, _ in rows],
        labels=[label for _, label in rows],
        classes=("dark", "light"),
        source=folder / "index.json",
    )


@vcycle.register_layout("numbered", task="superresolution", splits=lambda folder: ("train", "val"))
def read_numbered(folder, split, *, degradation):
    return read_pairs(folder / {"train": "1", "val": "2"}[split], degradation=degradation)
"""

RECIPE = """
task: recognition
import: mine
data: {path: set, workers: 0}
model: brightness
sampling: {span: [0.8, 1.0], field: [0.8, 1.0], flip: false}
training: {batch: 2, frames: 4, size: 16, steps: 2, lr: 0.01}
plan: constant
run: {device: cpu}
"""


@pytest.fixture
def here(tmp_path, monkeypatch, own_models):
    """A module of a user, a recipe, and four videos that an index lists."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    Path("own.yaml").write_text(RECIPE)
    Path("set").mkdir()
    for name, level in {"a": 20, "b": 200, "c": 30, "d": 220}.items():
        write_video(Path("set") / f"{name}.mp4", level)
    Path("set/index.json").write_text(
        '{"train": [["a.mp4", 0], ["b.mp4", 1], ["c.mp4", 0]], "val": [["c.mp4", 0], ["d.mp4", 1]]}'
    )
    return tmp_path


def write_video(path: Path, level: int) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=8, options={"preset": "ultrafast"})
        stream.height, stream.width, stream.pix_fmt = 24, 32, "yuv420p"
        for number in range(8):
            picture = np.full((24, 32, 3), level + number, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`vcycle` in a process of its own, which starts in the current folder."""
    return subprocess.run(
        [sys.executable, "-m", "vcycle", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_recipe_trains_a_users_network_on_a_users_layout(here, vcycle):
    ran = vcycle("train", "own.yaml", "data.layout=indexed", "--out", "run")
    assert ran.code == 0, ran.err
    assert f"layout: indexed, by {here / 'set' / 'index.json'}" in ran.err
    evaluated = command("eval", "run")  # the run's recipe imports the module again
    assert evaluated.returncode == 0, evaluated.stderr
    assert "on 2 val videos" in evaluated.stdout
    ran = vcycle("plan", "own.yaml")  # the layout is recognised
    assert ran.code == 0, ran.err
    assert "layout: indexed, by " in ran.out + ran.err


def test_super_resolution_trains_on_a_users_layout(here, vcycle):
    noise = np.random.default_rng(0)
    for place in ("clips/1/a", "clips/2/b"):
        Path(place).mkdir(parents=True)
        for number in range(6):
            Image.fromarray(noise.integers(0, 256, (72, 72, 3), dtype=np.uint8)).save(f"{place}/{number}.png")
    ran = vcycle(
        "train", "demo/superresolution", "import=mine", "data=clips", "data.workers=0", "data.layout=numbered",
        "data.epoch=2", "model.options={channels: 4, head_channels: 4, blocks: 1, flow: none}", "plan=constant",
        "training.batch=1", "training.steps=1", "training.warmup=null", "training.frames=3", "training.size=16",
        "run.device=cpu", "--out", "run",
    )  # fmt: skip
    assert ran.code == 0, ran.err


def test_a_layout_that_nobody_registered_is_one_line_and_exit_code_2(here, vcycle):
    ran = vcycle("plan", "own.yaml", "data.layout=indexes")
    assert ran.code == 2
    assert ran.err.splitlines()[-1] == (
        "error: data.layout=indexes: unknown (did you mean 'indexed'?); accepted: auto, charades, ssv2, ucf101, "
        "hmdb51, kinetics, list, folder, indexed"
    )
    ran = vcycle("plan", "own.yaml", "data.layout=indexed", "data.fold=2")
    assert ran.code == 2
    assert "fold=2: layout indexed of " in ran.err
    assert ran.err.rstrip().endswith("has no folds, only ucf101 and hmdb51 have")
    ran = vcycle("plan", "own.yaml", "data.layout=indexed", f"data.root={here}")
    assert ran.code == 2
    assert "goes with list files: the layout indexed of data.path" in ran.err


def test_installed_packages_offer_layouts_by_entry_points(here):
    info = here / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vcycle.layouts.recognition]\nindexed = mine:read_indexed\n")
    Path("plain.yaml").write_text(
        RECIPE.replace("import: mine\n", "").replace("model: brightness", "model: mine:Brightness")
    )
    ran = command("plan", "plain.yaml", PYTHONPATH=f"{here}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert ran.returncode == 0, ran.stderr
    assert "layout: indexed" in ran.stdout + ran.stderr


def videos(folder: Path, label: int = 0) -> VideoList:
    return VideoList(root=folder, paths=["a.mp4"], labels=[label], classes=("a", "b"), source=folder)


def test_a_reader_gets_the_options_that_it_takes(tmp_path, own_models):
    given = []

    @vcycle.register_layout("folds", splits=("train", "test"), folds=5)
    def read(folder, split, *, fold, val_fraction):
        given.append((folder, split, fold, val_fraction))
        return videos(folder)

    assert splits_of(tmp_path, "folds") == ("train", "test")
    assert read_videos(tmp_path, "test", layout="folds", fold=5, val_fraction=0.3).source == tmp_path
    assert given == [(tmp_path, "test", 5, 0.3)]
    with pytest.raises(DataError, match=r"fold=6: must be one of 1, 2, 3, 4, 5"):
        read_videos(tmp_path, "test", layout="folds", fold=6)
    with pytest.raises(DataError, match="no labelled val split for layout folds; it has train, test"):
        read_videos(tmp_path, "val", layout="folds")
    assert layout_of(tmp_path) == "folder", "only a function recognises folders"


def test_a_users_layout_is_recognised_before_folders_and_lists_and_after_official_files(tmp_path, own_models):
    for name in ("train.csv", "val.csv"):
        (tmp_path / name).write_text("a.mp4,0\n")
    assert layout_of(tmp_path) == "list"
    vcycle.register_layout("any", splits=lambda folder: ("train",))(lambda folder, split: videos(folder))
    assert layout_of(tmp_path) == "any"
    (tmp_path / "train.csv").write_text("label,youtube_id,time_start,time_end,split\nrun,x,0,10,train\n")
    assert layout_of(tmp_path) == "kinetics"


def test_what_a_reader_returns_and_the_names_are_checked(tmp_path, own_models):
    vcycle.register_layout("odd")(lambda folder, split: ["a.mp4"])
    with pytest.raises(DataError, match="layout 'odd' reads list; accepted: VideoList"):
        read_videos(tmp_path, "train", layout="odd")
    with pytest.raises(RecipeError, match="layout 'kinetics' is already registered"):
        vcycle.register_layout("kinetics")(lambda folder, split: videos(folder))
    with pytest.raises(RecipeError, match="layout 'auto' stands for"):
        vcycle.register_layout("auto")(lambda folder, split: videos(folder))
    with pytest.raises(RecipeError, match="task 'recognitoin' is unknown"):
        vcycle.register_layout("x", task="recognitoin")(lambda folder, split: videos(folder))


def test_layouts_are_known_without_torch():
    code = textwrap.dedent("""
        import sys
        import vcycle
        vcycle.register_layout("a", task="superresolution")(print)
        vcycle.register_layout("b")(print)
        assert "torch" not in sys.modules
    """)
    subprocess.run([sys.executable, "-c", code], check=True)
