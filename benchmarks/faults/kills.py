"""Kill a short training at random moments with SIGKILL, again and again: each resumes, and ends with the same bits.

Every attempt draws its number of workers and its interval of checkpoints anew. One line of JSON for each kill and for
each end, a summary at the last. Needs no data and no GPU, and what the tests need; takes a few minutes of an idle core.
"""

import argparse
import json
import multiprocessing
import os
import random
import runpy
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from vcycle.errors import VcycleError
from vcycle.runs.experiment import Experiment
from vcycle.runs.train import train
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.digits import render_digits
from vcycle.tasks.recognition.recipe import DigitsSection, RecognitionRecipe
from vcycle.train.checkpoint import Checkpoint, latest_checkpoint
from vcycle.train.ranks import SINGLE_PROCESS, Ranks
from vcycle.train.run import RunFolder
from vcycle.utils.jsonl import JsonLines

TINY = runpy.run_path(str(Path(__file__).parents[2] / "tests" / "train" / "conftest.py"))
RECIPE: str = TINY["RECIPE"]
"""The tests' own: 29 steps over ten stages, with both cycles, warm-up, dropout and validations."""
timeless: Callable[[Any], Any] = TINY["timeless"]
"""A value without times and sizes of processes; tensors by their bytes."""

FORK = multiprocessing.get_context("fork")


class Training:
    """The training, its videos made and its plan known."""

    def __init__(self, folder: Path, world: int) -> None:
        self.world = world
        self._folder = folder
        digits = DigitsSection(
            motions=("left", "right"), clips={"train": 6, "val": 2, "test": 2}, frames=12, size=24, digit_size=12
        )
        self._videos = render_digits(folder / "videos", digits)
        self._file = folder / "tiny.yaml"
        self._file.write_text(RECIPE, encoding="utf-8")
        experiment = Experiment(self.recipe(workers=0, save_every=1), folder)
        self.plan = experiment.plan()
        for split in ("train", "val"):  # frames are cached once, before processes are forked
            experiment.dataset(split)

    def recipe(self, *, workers: int, save_every: int) -> RecognitionRecipe:
        """The recipe, with what each attempt draws."""
        drawn = [f"data={self._videos}", "data.cache=24", f"data.workers={workers}", f"run.save_every={save_every}"]
        recipe = load_recipe(str(self._file), drawn)
        assert isinstance(recipe, RecognitionRecipe)
        return recipe

    def train(
        self, run: Path, recipe: RecognitionRecipe, *, resume: bool = False, ranks: Ranks = SINGLE_PROCESS
    ) -> None:
        """Train in this process."""
        train(Experiment(recipe, self._folder), self.plan, RunFolder(run), resume=resume, ranks=ranks)

    def start(self, run: Path, recipe: RecognitionRecipe) -> list[Any]:
        """Start or resume a run, in a process for each rank."""
        meeting = self._folder / f"meeting-{uuid.uuid4()}"
        processes = [FORK.Process(target=self._rank, args=(rank, meeting, run, recipe)) for rank in range(self.world)]
        for process in processes:
            process.start()
        return processes

    def _rank(self, rank: int, meeting: Path, run: Path, recipe: RecognitionRecipe) -> None:
        os.setpgid(0, 0)  # with its workers, so that all can be killed at once
        os.dup2(os.open(run.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        ranks = SINGLE_PROCESS
        if self.world > 1:
            distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=self.world)
            ranks = Ranks(rank=rank, world=self.world, local=rank)
        try:
            self.train(run, recipe, resume=True, ranks=ranks)
        except VcycleError as error:  # another rank was killed
            print(error, file=sys.stderr)
            os._exit(3)
        os._exit(0)


def bits(run: Path) -> tuple[int, Any]:
    """All that a run has learned and done, without what was measured by a clock."""
    found = latest_checkpoint(RunFolder(run).checkpoints)
    assert found is not None
    checkpoint: Checkpoint = found[0]
    log = [timeless(line) for line in JsonLines(RunFolder(run).log).read()]
    return checkpoint.step, timeless([checkpoint.model, checkpoint.optimizer, checkpoint.totals, log])


def logged(run: Path) -> int:
    """Steps in a run's log."""
    return sum(line["event"] == "step" for line in JsonLines(RunFolder(run).log).read())


def newest(run: Path) -> int:
    """Steps of a run's newest checkpoint; -1 if it has none."""
    return max((int(file.stem[5:]) for file in RunFolder(run).checkpoints.glob("step-*.pt")), default=-1)


def strike(processes: list[Any], draws: random.Random) -> str:
    """Kill a rank, alone or with its workers; the other ranks end by themselves, or are killed as torchrun would."""
    victim = draws.choice(processes)
    whole_group = draws.random() < 0.5
    try:
        (os.killpg if whole_group else os.kill)(victim.pid, signal.SIGKILL)
    except ProcessLookupError:
        return "none"
    for process in processes:
        process.join(20)
        if process.exitcode is None:
            process.kill()
            process.join()
    return "with its workers" if whole_group else "alone"


def kills(training: Training, folder: Path, wanted: int, seed: int) -> Iterator[dict[str, Any]]:
    """Kill and resume until there have been as many kills; a finished training is compared, and another started."""
    draws = random.Random(seed)
    # Once in this process: libraries are loaded, and forked attempts begin with what they have to do.
    training.train(folder / "warm-up", training.recipe(workers=0, save_every=5))
    whole = folder / "whole"
    began = time.monotonic()
    finish(training.start(whole, training.recipe(workers=0, save_every=5)))
    lasts = time.monotonic() - began
    expected = bits(whole)
    number, killed = 0, 0
    while killed < wanted:
        run = folder / f"run-{number}"
        number += 1
        own = 0
        while True:
            workers, save_every = draws.randrange(4), draws.randint(1, 8)
            before = newest(run)
            processes = training.start(run, training.recipe(workers=workers, save_every=save_every))
            # A moment of the whole training, however much of it is left; at times, of its end.
            after = draws.uniform(0, lasts)
            deadline = time.monotonic() + after
            while time.monotonic() < deadline and all(process.exitcode is None for process in processes):
                time.sleep(0.001)
            if killed < wanted and all(process.exitcode is None for process in processes):
                how = strike(processes, draws)
                killed, own = killed + 1, own + 1
                yield {
                    "event": "kill",
                    "training": number,
                    "workers": workers,
                    "save_every": save_every,
                    "seconds": round(after, 3),
                    "killed": how,
                    "began_at": max(before, 0),
                    "logged": logged(run),
                    "checkpoint": newest(run),
                    "while_saving": any(RunFolder(run).checkpoints.glob("*.tmp")),
                }
                continue
            finish(processes)
            break
        steps, found = bits(run)
        yield {"event": "end", "training": number, "kills": own, "steps": steps, "same": (steps, found) == expected}


def finish(processes: list[Any]) -> None:
    """Wait for the end of an attempt that nobody kills.

    Raises:
        SystemExit: if it fails.
    """
    for process in processes:
        process.join()
        if process.exitcode != 0:
            raise SystemExit(f"an attempt ended with {process.exitcode}")


def figures(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """What a log says, of however many calls."""
    struck = [line for line in lines if line["event"] == "kill"]
    ended = [line for line in lines if line["event"] == "end"]
    return {
        "kills": len(struck),
        "trainings": len(ended),
        "most_kills_of_one": max((line["kills"] for line in ended), default=0),
        "before_the_first_step": sum(line["logged"] == 0 for line in struck),
        "while_saving": sum(line["while_saving"] for line in struck),
        "with_workers": sum(line["workers"] > 0 for line in struck),
        "ended_with_the_same_bits": sum(line["same"] for line in ended),
    }


def main() -> None:
    """Add to a log, and print what all of it says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("kills.jsonl"), help="added to what is there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, arguments.out.open("a", encoding="utf-8") as out:
        training = Training(Path(folder), arguments.ranks)
        for line in kills(training, Path(folder), arguments.kills, arguments.seed):
            print(json.dumps({**line, "ranks": arguments.ranks, "seed": arguments.seed}), file=out, flush=True)
    found = figures([json.loads(line) for line in arguments.out.read_text(encoding="utf-8").splitlines()])
    print(json.dumps(found))
    if found["ended_with_the_same_bits"] != found["trainings"]:
        raise SystemExit("not all trainings ended with the same bits")


if __name__ == "__main__":
    main()
