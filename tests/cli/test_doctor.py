"""`vcycle doctor` says what holds a training back on this machine, and what to change."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import vcycle as package
from vcycle.runs.doctor.disk import Speed, data_disk, reading_speed, spaces
from vcycle.runs.doctor.machine import device, limits
from vcycle.tasks.recipes import load_recipe
from vcycle.utils.cores import cores
from vcycle.utils.memory import free_memory

LEVELS = ["stop", "slow", "note", "ok"]


@pytest.fixture(autouse=True)
def free_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disks with space, whatever this machine's have."""
    monkeypatch.setattr("vcycle.runs.doctor.disk.free_bytes", lambda _: 10**12)


def test_a_machine_that_can_train_is_described_most_important_first(
    vcycle: Any, here: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(cores() + 1))
    ran = vcycle("doctor", "tiny.yaml", f"data={videos}", f"data.workers={cores() + 1}", "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["can_train"]
    by = {finding["about"]: finding for finding in found["findings"]}
    levels = [LEVELS.index(finding["level"]) for finding in found["findings"]]
    assert levels == sorted(levels)
    assert {"torch", "decoder", "data", "data disk", "cores", "threads", "data workers", "run folder"} <= set(by)
    assert by["data"]["found"].endswith("16 training videos in 2 classes and 8 validation videos")
    assert by["threads"]["found"].startswith(f"OMP_NUM_THREADS={cores() + 1} on {cores()} cores")
    assert (by["data workers"]["level"], by["data workers"]["found"]) == (
        "slow",
        f"data.workers={cores() + 1} on {cores()} cores",
    )
    assert found["about"]["vcycle"] == package.__version__
    assert found["about"]["torch"].split("+")[0] == torch.__version__.split("+")[0]


def test_a_page_fits_100_columns_and_ends_with_what_to_paste(vcycle: Any, here: Path) -> None:
    ran = vcycle("doctor")
    assert ran.code == 0
    # Words are not broken: a longer line is one path.
    assert all(len(line) <= 100 or " " not in line[20:] for line in ran.out.splitlines())
    assert f"paste this into an issue:\nvcycle {package.__version__}, python " in ran.out


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the GPU that the recipe asks for")
def test_what_makes_training_impossible_comes_first_and_ends_with_1(vcycle: Any, here: Path) -> None:
    ran = vcycle("doctor", "tiny.yaml", "data=nowhere", "run.device=cuda")
    assert ran.code == 1
    stops = [line for line in ran.out.splitlines() if line.startswith("STOP")]
    assert stops == [line for line in ran.out.splitlines() if not line.startswith(" ")][: len(stops)]
    assert [line.split()[1] for line in stops] == ["device", "data"]
    words = " ".join(ran.out.split())
    assert "run.device is cuda, but " in words
    assert f"{here}/nowhere: no such folder or list file" in words


def test_a_recipe_that_does_not_fit_the_data_makes_training_impossible(vcycle: Any, here: Path, videos: Path) -> None:
    ran = vcycle("doctor", "tiny.yaml", f"data={videos}", "training.class_weights={left: 2, rihgt: 1}")
    assert ran.code == 1
    head = " ".join(ran.out.split())
    assert head.startswith("STOP recipe training.class_weights: ")
    assert " has no class 'rihgt' (did you mean 'right'?) " in head


def test_a_path_is_not_broken_at_its_spaces(vcycle: Any, here: Path) -> None:
    place = here / ("a folder with a long name of many words " * 2).strip()
    ran = vcycle("doctor", "tiny.yaml", f"data={place}")
    assert any(f"{place}: no" in line or line.endswith(f"{place}:") for line in ran.out.splitlines())


def test_a_missing_torch_or_decoder_is_reported_not_raised() -> None:
    script = "import sys; sys.modules[sys.argv.pop(1)] = None; from vcycle.__main__ import main; main()"
    environment = os.environ | {"PYTHONPATH": str(Path(package.__file__).parents[1])}
    for library, line in (("torch", "STOP  torch "), ("av", "STOP  decoder ")):
        ran = subprocess.run(
            [sys.executable, "-c", script, library, "doctor"],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert (ran.returncode, ran.stderr) == (1, "")
        assert ran.stdout.startswith(line)
        assert "cannot be imported" in ran.stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tiny.yaml", "other.yaml"], "one recipe or run is accepted"),
        (["training.batch=2"], "without a recipe, only data=FOLDER is accepted"),
        (["data="], "'data=': without a recipe, only data=FOLDER is accepted"),
        (["tiny.yaml", "data="], "override 'data=': the value is missing; accepted: data=VALUE, data=null for none"),
        ([""], "an argument is empty: is a shell variable unset?"),
        (["nothing/here"], "no recipe 'nothing/here'"),
    ],
)
def test_wrong_arguments_are_refused(vcycle: Any, here: Path, arguments: list[str], words: str) -> None:
    ran = vcycle("doctor", *arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert words in ran.err


@pytest.mark.parametrize(
    ("free", "capability", "level", "words"),
    [(70e9, (9, 0), "ok", "Big, 70 GB of 80 GB free, bf16, torch for "), (9e9, (7, 5), "slow", "no fast bf16")],
)
def test_a_gpu_is_named_with_its_memory_and_whether_it_has_bf16(
    monkeypatch: pytest.MonkeyPatch, free: float, capability: tuple[int, int], level: str, words: str
) -> None:
    properties = SimpleNamespace(name="Big", major=capability[0], minor=capability[1])
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_properties": lambda _: properties,
        "mem_get_info": lambda _: (int(free), int(80e9)),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    (found,) = device(None)
    assert (found.level, found.about) == (level, "GPU 0")
    assert words in found.found
    assert ("nvidia-smi" in found.change) == (level == "slow")


def test_files_are_read_whole_until_the_time_is_over(tmp_path: Path) -> None:
    assert reading_speed(tmp_path) is None
    (tmp_path / "a/b").mkdir(parents=True)
    for name in ("a/one.mp4", "a/b/two.mp4"):
        (tmp_path / name).write_bytes(bytes(100_000))
    (tmp_path / "a/list.csv").write_text("small")
    speed = reading_speed(tmp_path, seconds=60)
    assert speed is not None
    assert (speed.files, speed.bytes) == (2, 200_000)


@pytest.mark.parametrize(
    ("size", "seconds", "idle", "level", "words"),
    [
        (1.4e6, 0.47, 2.0, "ok", "56 files of 16 kB or more, 1.4 MB: too little to measure"),
        (40e6, 1.5, 2.0, "slow", "26.7 MB/s over 56 files of 16 kB or more, 40 MB"),
        (40e6, 1.5, 0.4, "note", "no core is idle, so that this is no speed of the disk"),
        (40e6, 0.1, 0.4, "ok", "400 MB/s over 56 files"),
        (1.4e6, 1.5, None, "slow", "933 kB/s over 56 files"),  # the whole time for so little
    ],
)
def test_a_disk_is_called_slow_only_where_its_speed_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: float, seconds: float, idle: float, level: str, words: str
) -> None:
    speed = Speed(size / seconds, 56, int(size))
    monkeypatch.setattr("vcycle.runs.doctor.disk.reading_speed", lambda _: speed)
    monkeypatch.setattr("vcycle.runs.doctor.disk._filesystem", lambda _: "ext4")
    found = data_disk(tmp_path, idle)
    assert found.level == level
    assert words in found.found
    assert ("local SSD" in found.change) == (level == "slow")


@pytest.mark.parametrize(
    ("recipe", "changes", "advice"),
    [
        ("videos/small", (), "suit a CPU: model=r3d_tiny, training.size=64; "),
        ("videos/small", ("training.size=64",), "suit a CPU: model=r3d_tiny; "),
        ("videos/small", ("model={name: r3d_tiny, options: {}}",), "suit a CPU: training.size=64; "),
        ("videos/small", ("model={name: r3d_tiny, options: {}}", "training.size=32"), None),
        ("images/small", (), None),  # has no such model
    ],
)
def test_a_smaller_network_is_advised_only_where_the_recipe_is_larger(
    monkeypatch: pytest.MonkeyPatch, recipe: str, changes: tuple[str, ...], advice: str | None
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("vcycle.runs.doctor.machine._GPU_FILES", ())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    change = device(load_recipe(recipe, list(changes)))[0].change
    assert change.endswith("`vcycle plan auto --hours` fits the training into your time")
    assert advice in change if advice else "suit a CPU" not in change


@pytest.mark.parametrize(("hard", "most"), [(resource.RLIM_INFINITY, 1024), (4096, 1024), (512, 512)])
def test_a_low_limit_on_open_files_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, hard: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, hard))
    (found,) = [finding for finding in limits() if finding.about == "open files"]
    assert (found.level, found.found, found.change) == ("slow", "at most 256", f"ulimit -n {most}")


@pytest.mark.parametrize(("free", "level"), [(50 * 10**6, "stop"), (10**9, "slow"), (10**10, "ok")])
def test_a_full_disk_makes_training_impossible(monkeypatch: pytest.MonkeyPatch, free: int, level: str) -> None:
    monkeypatch.setattr("vcycle.runs.doctor.disk.free_bytes", lambda _: free)
    assert [found.level for found in spaces()] == [level, level]


def test_the_disk_of_the_videos_is_measured_where_a_list_names_them_elsewhere(
    vcycle: Any, here: Path, videos: Path
) -> None:
    (here / "list").mkdir()
    for split in ("train", "val"):
        files = sorted((videos / split).glob("*/*.mp4"))
        lines = [f"{file.relative_to(videos)} {file.parent.name}\n" for file in files]
        (here / f"list/{split}.txt").write_text("".join(lines))
    (here / "elsewhere").mkdir()
    for split in ("train", "val"):
        (here / "elsewhere" / split).symlink_to(videos / split)
    (here / "elsewhere/large.bin").write_bytes(bytes(100_000))
    ran = vcycle("doctor", "tiny.yaml", "data=list", "data.root=elsewhere", "--json")
    (disk,) = [one for one in json.loads(ran.out)["findings"] if one["about"] == "data disk"]
    assert "elsewhere" in disk["found"]
    assert (
        ": 1 file of 16 kB or more, 100 kB: too little to measure" in disk["found"]
    )  # links to folders are not followed


@pytest.mark.parametrize("version", [1, 2])
def test_the_memory_of_a_container_is_its_limit_less_what_cannot_be_freed(tmp_path: Path, version: int) -> None:
    folder = tmp_path / ("memory/docker/x" if version == 1 else "docker/x")
    folder.mkdir(parents=True)
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if version == 1 else ("memory.max", "memory.current")
    for name, text in zip(
        (*names, "memory.stat"), ("1000", "700", "anon 400\ninactive_file 200\nactive_file 100"), strict=True
    ):
        (folder / name).write_text(text)
    own = tmp_path / "cgroup"
    own.write_text("4:memory:/docker/x\n" if version == 1 else "0::/docker/x\n")
    assert free_memory(tmp_path, own) == 600
