"""Trains every arm of a study with every seed, and appends each run to the results file.

Arms alternate seed by seed, so that a drift in machine speed affects all of them. An interrupted study resumes:
finished runs are read from the results file.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vcycle.errors import CheckpointError, PlanError, RecipeError, VcycleError
from vcycle.plan import Plan
from vcycle.tasks.plans import CONSTANT, CONTROL
from vcycle.utils.jsonl import JsonLines

__all__ = ["Arm", "ArmRun", "Failure", "attempt", "in_turn", "train_all"]


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A plan in a comparison."""

    name: str
    """Its name, such as `cascade` or `control:cascade`."""
    plan: Plan
    """The plan to train."""
    key: str = ""
    """Digest of everything that determines the outcome; a finished run is reused only under the same key."""

    @property
    def is_control(self) -> bool:
        """Whether the arm is a plan's LR-matched control."""
        return self.name.startswith(CONTROL)

    @property
    def is_baseline(self) -> bool:
        """Whether the arm is the constant shape."""
        return self.name.partition("@")[0] in CONSTANT


@dataclass(frozen=True, kw_only=True)
class ArmRun:
    """One arm trained with one seed."""

    arm: str
    seed: int
    key: str
    """The arm's."""
    measure: str
    """Name of the measure in `val`, `test`, `curve` and `each`."""
    steps: int
    samples: int
    work: float
    """Voxels, in steps of the baseline."""
    seconds: float
    """Wall-clock training time, excluding validation."""
    cpu_seconds: float
    """CPU time of the training process in it."""
    data_seconds: float
    """Wall-clock time spent waiting for data."""
    replaced: int
    """Samples that could not be read."""
    val: float
    """The final value on the validation split."""
    test: float | None
    """The same on the test split."""
    curve: list[tuple[float, int, float]]
    """(seconds, samples, value on validation) during training."""
    each: list[float | None] | None = None
    """The value of each item of the test split, in the split's order. An unreadable item is None; the list is None
    without a test split or if the measure is not a mean over items."""
    references: dict[str, float] = field(default_factory=dict)
    """By split, what its evaluation measured without training (`Measure.reference`)."""
    data: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By split, what identifies its items (`Found.digest`). Empty in lines of older versions."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A training that failed: its loss was not finite, or too much of its data could not be read."""

    arm: str
    seed: int
    key: str
    """The arm's."""
    failed: str
    """The reason, in one line."""


def attempt(arm: Arm, seed: int, train: Callable[[Arm, int], ArmRun]) -> ArmRun | Failure:
    """Train an arm with a seed; an error that meets this training alone is its `Failure`."""
    try:
        return train(arm, seed)
    except (RecipeError, PlanError, CheckpointError):  # which would meet the others too
        raise
    except VcycleError as error:
        return Failure(arm=arm.name, seed=seed, key=arm.key, failed=str(error))


def in_turn(train: Callable[[Arm, int], ArmRun]) -> Callable[[Sequence[tuple[Arm, int]]], Generator[ArmRun | Failure]]:
    """How `train_all` trains one after another."""

    def each(wanted: Sequence[tuple[Arm, int]]) -> Generator[ArmRun | Failure]:
        for arm, seed in wanted:
            yield attempt(arm, seed, train)

    return each


def train_all(
    arms: Sequence[Arm],
    *,
    seeds: Sequence[int],
    results: Path,
    train: Callable[[Sequence[tuple[Arm, int]]], Generator[ArmRun | Failure]],
    outdated: Callable[[ArmRun], bool] = lambda _: False,
    on_run: Callable[[ArmRun | Failure], None] = lambda _: None,
) -> tuple[list[ArmRun], list[Failure]]:
    """Train every arm with every seed, except runs already in the results file. A failed run does not stop the others.

    Args:
        arms: The arms to compare.
        seeds: Seeds, shared by all arms.
        results: JSON Lines file with one line per ended run; failed runs are retried.
        train: Trains each given arm with its seed, and yields what becomes of them in any order.
        outdated: Whether a run of the results file was measured otherwise than runs are now; it is then trained again,
            and its new line counts.
        on_run: Called with each run when it ends.

    Returns:
        The finished runs, and those that failed.

    Raises:
        RecipeError: if two arms have the same name, or there are none.
        VcycleError: if the results file is invalid or cannot be written, or no run finished.
    """
    names = [a.name for a in arms]
    if not arms or len(set(names)) != len(names):
        raise RecipeError(f"arms to compare are {names}: at least one is needed, each once")
    wanted = [(arm, seed) for seed in seeds for arm in arms]
    with JsonLines(results) as file:
        file.keep({})
        done = {(r.arm, r.seed, r.key): r for line in file.read() if (r := _run_of(line, results)) is not None}
        ended: dict[tuple[str, int, str], ArmRun | Failure] = {
            key: done[key]
            for arm, seed in wanted
            if (key := (arm.name, seed, arm.key)) in done and not outdated(done[key])
        }
        missing = [(arm, seed) for arm, seed in wanted if (arm.name, seed, arm.key) not in ended]
        if missing:
            with closing(train(missing)) as trained:
                for found in trained:
                    file.write(**asdict(found))
                    on_run(found)
                    ended[found.arm, found.seed, found.key] = found
    every = [ended[arm.name, seed, arm.key] for arm, seed in wanted]
    runs = [found for found in every if isinstance(found, ArmRun)]
    failures = [found for found in every if isinstance(found, Failure)]
    if not runs:
        raise VcycleError(f"every training failed; {failures[0].arm}, seed {failures[0].seed}: {failures[0].failed}")
    return runs, failures


def _run_of(data: dict[str, Any], source: Path) -> ArmRun | None:
    """Parse a finished run; None for a failed one."""
    try:
        if "failed" in data:
            Failure(**data)
            return None
        return ArmRun(**{**data, "curve": [(p[0], p[1], p[2]) for p in data["curve"]]})
    except (KeyError, TypeError, IndexError) as error:
        raise VcycleError(f"{source} is not the results file of a study ({error}): use another --out") from None
