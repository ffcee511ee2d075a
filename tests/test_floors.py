"""The oldest versions are the same wherever they are written."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_TESTED = {"wandb", "mlflow", "onnx", "onnxscript"}
"""The services of the first two are replaced in the tests. ONNX is tested with the versions that are installed."""


def release(version: str) -> tuple[int, ...]:
    """`1.26.0` is (1, 26)."""
    numbers = [int(part) for part in version.split(".")]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def floors() -> dict[str, tuple[int, ...]]:
    """The lower bounds of all dependencies and extras, without the tools of developers."""
    extras = PROJECT["optional-dependencies"]
    required = [*PROJECT["dependencies"], *(line for name in extras.keys() - {"dev", "test"} for line in extras[name])]
    found = [
        re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)(,<\d+)?", line) for line in required if "vcycle[" not in line
    ]
    assert all(found)
    return {bound[1]: release(bound[2]) for bound in found if bound}


def oldest() -> dict[str, tuple[int, ...]]:
    lines = (ROOT / "constraints" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    pins = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {name: release(version) for name, version in pins}


def test_the_oldest_environment_has_every_floor():
    assert oldest() == {name: bound for name, bound in floors().items() if name not in NOT_TESTED}


def test_the_documented_oldest_versions_are_the_floors():
    text = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
    table = re.search(r"^\| \| (Python \|.+) \|\n.+\n\| oldest \| (.+) \|$", text, re.MULTILINE)
    shown = dict(zip(*(line.split(" | ") for line in table.groups()), strict=True))
    assert release(shown.pop("Python")) == release(PROJECT["requires-python"].removeprefix(">="))
    names = {"NumPy": "numpy", "PyAV": "av"}
    assert {names.get(name, name): release(version) for name, version in shown.items()} == {
        name: oldest()[name] for name in ("torch", "torchvision", "numpy", "av")
    }
