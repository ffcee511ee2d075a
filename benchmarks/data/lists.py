"""Opening a long list of videos: processor time and peak memory, each part in a process of its own.

Writes a list of distinct videos with their labels, ``class_017/00000012345_000010_000020.mp4 17``. With ``--files`` the
videos exist, as empty files: a few thousand folders are links to one folder of a thousand files. The parts:

- ``read``: ``read_list`` alone.
- ``train``: what ``vcycle train`` does with a list before it loads a clip, up to the fingerprints of its data.
- ``plan``: the command ``vcycle plan``, with the start of Python.
- ``sources``: what ``vcycle prepare`` and ``vcycle check`` list before they start; it looks at every file.

``floor`` reads the file's bytes, a megabyte at a time.

    python lists.py [--lines 1000000] [--files] [--parts floor,read,train,plan,sources] [--folder FOLDER]
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

CLASSES = 400
FILES = 1_000
"""Files in a folder."""
VALIDATION = 50_000


def write_list(path: Path, first: int, count: int) -> None:
    """Write a list of videos, numbered from ``first``."""
    with path.open("w") as file:
        for number in range(first, first + count):
            folder, name = divmod(number, FILES)
            file.write(f"folder_{folder:05}/{name:011}_000010_000020.mp4 {number % CLASSES}\n")


def make_files(folder: Path, count: int) -> None:
    """Make the files that lists name."""
    made = folder / "files"
    made.mkdir()
    for name in range(FILES):
        (made / f"{name:011}_000010_000020.mp4").touch()
    for number in range(-(-count // FILES)):
        (folder / f"folder_{number:05}").symlink_to(made)


def floor(folder: Path) -> None:
    """Read the bytes of the training list."""
    with (folder / "a.csv").open("rb") as file:
        while file.read(1 << 20):
            pass


def read(folder: Path, files: bool) -> None:
    """Read the training list."""
    from vcycle.data.layouts import read_list

    read_list(folder / "a.csv", check_files=files)


def train(folder: Path) -> None:
    """Do what a training does with its lists before it starts workers."""
    from vcycle.runs.experiment import Experiment
    from vcycle.tasks.recipes import load_recipe

    recipe = load_recipe("videos/small", [f"data={folder}/a.csv", f"data.val={folder}/b.csv"])
    experiment = Experiment(recipe, folder)
    experiment.leave_out()
    plan = experiment.plan()
    task, splits = experiment.task, experiment.splits
    task.check(recipe, splits, fresh=True)
    task.describe(recipe, splits)
    task.notices(recipe, splits, plan)
    task.reference(recipe, splits.train, None)
    splits.train.digest()
    splits.val.digest()


def plan(folder: Path) -> None:
    """Run ``vcycle plan``."""
    from vcycle.cli.app import main

    sys.argv = ["vcycle", "plan", "videos/small", f"data={folder}/a.csv", f"data.val={folder}/b.csv"]
    main()


def sources(folder: Path) -> None:
    """List the source files."""
    from vcycle.data.layouts import read_list
    from vcycle.data.prepare.sources import find_sources

    found = {
        split: read_list(folder / name, check_files=False) for split, name in (("train", "a.csv"), ("val", "b.csv"))
    }
    find_sources(found)


def measure(part: str, folder: Path, files: bool) -> None:
    """Run a part in this process, and print its cost as JSON to stderr."""
    parts: dict[str, Callable[[], None]] = {
        "floor": lambda: floor(folder),
        "read": lambda: read(folder, files),
        "train": lambda: train(folder),
        "plan": lambda: plan(folder),
        "sources": lambda: sources(folder),
    }
    before, start, clock = _peak(), time.process_time(), time.monotonic()
    try:
        parts[part]()
    except SystemExit as error:
        if error.code:
            raise
    row = {
        "cpu_s": round(time.process_time() - start, 2),
        "wall_s": round(time.monotonic() - clock, 2),
        "peak_mb": round(_peak()),
        "before_mb": round(before),
    }
    print(json.dumps(row), file=sys.stderr)


def _peak() -> float:
    """Return the peak memory of this process so far in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    """Measure each part in a fresh process, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--files", action="store_true", help="make the files, so that their checks find them")
    parser.add_argument("--parts", default="floor,read,train,plan,sources")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder by default")
    parser.add_argument("--measured", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measured:
        measure(given.measured, given.folder, given.files)
        return
    with TemporaryDirectory(dir=given.folder) as made:
        folder = Path(made)
        write_list(folder / "a.csv", 0, given.lines)
        write_list(folder / "b.csv", given.lines, VALIDATION)
        if given.files:
            make_files(folder, given.lines + VALIDATION)
        about = {"lines": given.lines, "bytes": (folder / "a.csv").stat().st_size, "files": given.files}
        for part in given.parts.split(","):
            command = [sys.executable, __file__, "--measured", part, "--folder", str(folder)]
            ended = subprocess.run(
                [*command, *(["--files"] if given.files else [])],
                check=False,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            last = (ended.stderr.strip().splitlines() or [""])[-1]
            found = json.loads(last) if ended.returncode == 0 else {"failed": last}
            print(json.dumps({"part": part, **about, **found, "python": platform.python_version()}), flush=True)


if __name__ == "__main__":
    main()
