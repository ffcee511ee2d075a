"""The trainings of a study: every arm with every seed, each kept in a file as it ends.

Arms take turns seed by seed, so that a machine whose speed drifts slows all of them. A study that is cut
short goes on where it stopped: finished runs are read back from the results file.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vcycle.errors import CheckpointError, PlanError, RecipeError, VcycleError
from vcycle.plan import Plan
from vcycle.tasks.plans import CONSTANT, CONTROL
from vcycle.utils.jsonl import JsonLines

__all__ = ["Arm", "ArmRun", "Failure", "train_all"]


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A plan in a comparison."""

    name: str
    """Its name, such as `cascade` or `control:cascade`."""
    plan: Plan
    """What is trained."""
    key: str = ""
    """Names everything that decides the outcome; a finished run is only read back under the same key."""

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
    """Name of the number that `val`, `test`, `curve` and `each` are about."""
    steps: int
    samples: int
    work: float
    """Voxels, in steps of the baseline."""
    seconds: float
    """Wall-clock training time, validation left out."""
    cpu_seconds: float
    """Processor time of the training process in it."""
    data_seconds: float
    """How much of the wall-clock time was waiting for data."""
    replaced: int
    """Samples that could not be read."""
    val: float
    """The number at the end, on the validation split."""
    test: float | None
    """The same on the test split."""
    curve: list[tuple[float, int, float]]
    """(seconds, samples, the number on validation) over the training."""
    each: list[float | None] | None = None
    """The number of each video or clip of the test split, in the split's order (of top-1, 1 where it was recognised,
    else 0); None for one that could not be read, and altogether where there is no such split or the number is no mean
    over its videos."""
    val_bicubic: float | None = None
    """Of super-resolution, what bicubic interpolation reaches on the validation split."""
    test_bicubic: float | None = None
    """The same on the test split."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A training that did not end: its loss was not finite, or too much of its data could not be read."""

    arm: str
    seed: int
    key: str
    """The arm's."""
    failed: str
    """Why, in a line."""


def train_all(
    arms: Sequence[Arm],
    *,
    seeds: Sequence[int],
    results: Path,
    train: Callable[[Arm, int], ArmRun],
    on_run: Callable[[ArmRun | Failure], None] = lambda _: None,
) -> tuple[list[ArmRun], list[Failure]]:
    """Train every arm with every seed, unless the results file already has it. One that fails does not end the others.

    Args:
        arms: What to compare.
        seeds: Shared by all arms.
        results: File of JSON lines, one per run that has ended; those that failed are tried again.
        train: Trains an arm with a seed.
        on_run: Told of each run as it ends.

    Returns:
        The finished runs, and those that failed.

    Raises:
        RecipeError: if two arms have one name, or there are none.
        VcycleError: if the results file holds something else, or cannot be written, or no run at all was finished.
    """
    names = [a.name for a in arms]
    if not arms or len(set(names)) != len(names):
        raise RecipeError(f"arms to compare are {names}: at least one is needed, each once")
    runs: list[ArmRun] = []
    failures: list[Failure] = []
    with JsonLines(results) as file:
        file.keep({})
        done = {(r.arm, r.seed, r.key): r for line in file.read() if (r := _run_of(line, results)) is not None}
        for seed in seeds:
            for arm in arms:
                found: ArmRun | Failure | None = done.get((arm.name, seed, arm.key))
                if found is None:
                    found = _ended(arm, seed, train)
                    file.write(**asdict(found))
                    on_run(found)
                if isinstance(found, ArmRun):
                    runs.append(found)
                else:
                    failures.append(found)
    if not runs:
        raise VcycleError(f"no training was finished; {failures[0].arm}, seed {failures[0].seed}: {failures[0].failed}")
    return runs, failures


def _ended(arm: Arm, seed: int, train: Callable[[Arm, int], ArmRun]) -> ArmRun | Failure:
    """A run however it ends, unless what stops it would stop the others too."""
    try:
        return train(arm, seed)
    except (RecipeError, PlanError, CheckpointError):
        raise
    except VcycleError as error:
        return Failure(arm=arm.name, seed=seed, key=arm.key, failed=str(error))


def _run_of(data: dict[str, Any], source: Path) -> ArmRun | None:
    """A finished run; None for one that failed."""
    try:
        if "failed" in data:
            Failure(**data)
            return None
        return ArmRun(**{**data, "curve": [(p[0], p[1], p[2]) for p in data["curve"]]})
    except (KeyError, TypeError, IndexError) as error:
        raise VcycleError(
            f"{source} holds something else than the runs of a study ({error}): give another --out"
        ) from None
