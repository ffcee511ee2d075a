"""Plans against the constant shape and their LR-matched controls, over shared seeds.

Arms take turns seed by seed, so that a machine whose speed drifts slows all of them. A study that is cut
short goes on where it stopped: finished runs are read back from the results file.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vcycle.bench.statistics import Interval, mean, paired_bootstrap, spread, welch_interval
from vcycle.errors import RecipeError, VcycleError
from vcycle.plan import Plan
from vcycle.train.run import JsonLines

__all__ = ["Arm", "ArmRun", "Comparison", "Gain", "compare"]


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
        return self.name.startswith("control:")

    @property
    def is_baseline(self) -> bool:
        """Whether the arm is the constant shape."""
        return self.name.partition("@")[0] == "constant"

    @property
    def control_of(self) -> str:
        """The plan whose control it is; empty for other arms."""
        return self.name.removeprefix("control:").partition("@")[0] if self.is_control else ""


@dataclass(frozen=True, kw_only=True)
class ArmRun:
    """One arm trained with one seed."""

    arm: str
    seed: int
    key: str
    """The arm's."""
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
    """Final top-1 on the validation split, in 0..1."""
    test: float | None
    """Final top-1 on the test split, in 0..1."""
    curve: list[tuple[float, int, float]]
    """(seconds, samples, top-1 on validation) over the training."""
    correct: list[int | None] | None = None
    """Whether each video of the test split was recognised (1 or 0), in the split's order; None for one that could not
    be read, and altogether where there is no such split or a video may have several labels."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What an arm gains over another."""

    speedup: float
    """How many times less training time."""
    cpu_speedup: float
    """How many times less processor time of the training process."""
    welch: Interval | None
    """Difference of mean accuracy, over seeds."""
    paired: Interval | None
    """The same, over seeds and test videos."""

    def as_data(self) -> dict[str, Any]:
        """The gain as plain data."""
        return {
            "speedup": self.speedup,
            "cpu_speedup": self.cpu_speedup,
            "accuracy_difference": None if self.welch is None else self.welch._asdict(),
            "paired_difference": None if self.paired is None else self.paired._asdict(),
        }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All runs of all arms."""

    arms: tuple[Arm, ...]
    runs: tuple[ArmRun, ...]

    def of(self, arm: str) -> list[ArmRun]:
        """The runs of an arm, by seed."""
        return [r for r in self.runs if r.arm == arm]

    @property
    def split(self) -> str:
        """The split that accuracies are shown on."""
        return "test" if all(r.test is not None for r in self.runs) else "val"

    def accuracies(self, arm: str) -> list[float]:
        """Final accuracies of an arm on the split that is shown, in 0..1."""
        return [r.test if self.split == "test" and r.test is not None else r.val for r in self.of(arm)]

    def seconds(self, arm: str) -> float:
        """Mean training time of an arm."""
        return mean([r.seconds for r in self.of(arm)])

    def cpu_seconds(self, arm: str) -> float:
        """Mean processor time of an arm's training process."""
        return mean([r.cpu_seconds for r in self.of(arm)])

    @property
    def best(self) -> str | None:
        """The plan to recommend, chosen as `_choose` does.

        Plans whose control was trained come first, because only they can be judged.
        """
        plans = [a.name for a in self.arms if not a.is_control and not a.is_baseline]
        return self._choose([p for p in plans if self.control_of(p)] or plans)

    def control_of(self, plan: str) -> str | None:
        """The control of a plan, if it was trained; of several lengths the one that `_choose` takes."""
        return self._choose([a.name for a in self.arms if a.control_of == plan.partition("@")[0]])

    @property
    def constant(self) -> str | None:
        """The constant shape, if it was trained; of several lengths the one that `_choose` takes."""
        return self._choose([a.name for a in self.arms if a.is_baseline])

    def _choose(self, arms: Sequence[str]) -> str | None:
        """One rule for all, on validation: the fastest within one point of the most accurate."""
        if not arms:
            return None
        val = {name: mean([r.val for r in self.of(name)]) for name in arms}
        return min((name for name in arms if val[name] >= max(val.values()) - 0.01), key=self.seconds)

    def gain(self, arm: str, over: str) -> Gain:
        """What an arm gains over another."""
        cpu = self.cpu_seconds(arm)
        return Gain(
            speedup=self.seconds(over) / self.seconds(arm),
            cpu_speedup=self.cpu_seconds(over) / cpu if cpu > 0 else 1.0,
            welch=welch_interval(self.accuracies(arm), self.accuracies(over)),
            paired=self._paired(arm, over),
        )

    def _paired(self, arm: str, over: str) -> Interval | None:
        rows = [[run.correct for run in self.of(name)] for name in (arm, over)]
        known = [[row for row in of if row is not None] for of in rows]
        if self.split != "test" or len(known[0]) != len(rows[0]) or len(known[1]) != len(rows[1]):
            return None
        lengths = {len(row) for of in known for row in of}
        if len(lengths) != 1 or len(known[0]) != len(known[1]):
            return None
        # A video counts where every run could read it.
        shared = [k for k in range(lengths.pop()) if all(row[k] is not None for of in known for row in of)]
        a, b = ([[float(row[k] or 0) for k in shared] for row in of] for of in known)
        return paired_bootstrap(a, b)

    def as_data(self) -> dict[str, Any]:
        """The comparison as plain data: per arm its means, spreads and gains, and the best plan's name."""
        best, constant = self.best, self.constant
        arms = {arm.name: self._arm_data(arm, constant) for arm in self.arms}
        return {
            "plan": best,
            "constant": constant,
            "control": self.control_of(best) if best else None,
            "split": self.split,
            "arms": arms,
            "runs": [asdict(r) for r in self.runs],
        }

    def _arm_data(self, arm: Arm, constant: str | None) -> dict[str, Any]:
        runs, accuracy = self.of(arm.name), self.accuracies(arm.name)
        data: dict[str, Any] = {
            "train_seconds": mean([r.seconds for r in runs]),
            "train_seconds_std": spread([r.seconds for r in runs]),
            "cpu_seconds": mean([r.cpu_seconds for r in runs]),
            "data_seconds": mean([r.data_seconds for r in runs]),
            "accuracy": mean(accuracy),
            "accuracy_std": spread(accuracy),
            "val_accuracy": mean([r.val for r in runs]),
            "steps": runs[0].steps,
            "samples": runs[0].samples,
            "work": runs[0].work,
            "seeds": len(runs),
            "plan": arm.plan.name,
            "fingerprint": arm.plan.fingerprint,
        }
        for name, other in (("constant", constant), ("control", self.control_of(arm.name))):
            if other is not None and other != arm.name:
                data[f"over_{name}"] = self.gain(arm.name, other).as_data()
        return data


def compare(
    arms: Sequence[Arm],
    *,
    seeds: Sequence[int],
    results: Path,
    train: Callable[[Arm, int], ArmRun],
    on_run: Callable[[ArmRun], None] = lambda _: None,
) -> Comparison:
    """Train every arm with every seed, unless the results file already has it.

    Args:
        arms: What to compare.
        seeds: Shared by all arms.
        results: File of JSON lines, one per finished run.
        train: Trains an arm with a seed.
        on_run: Told of each finished run.

    Raises:
        RecipeError: if two arms have one name, or there are none.
        VcycleError: if the results file holds something else, or cannot be written.
    """
    names = [a.name for a in arms]
    if not arms or len(set(names)) != len(names):
        raise RecipeError(f"arms to compare are {names}: at least one is needed, each once")
    with JsonLines(results) as file:
        file.keep({})
        done = {(r.arm, r.seed, r.key): r for r in (_run_of(line, results) for line in file.read())}
        runs = []
        for seed in seeds:
            for arm in arms:
                run = done.get((arm.name, seed, arm.key))
                if run is None:
                    run = train(arm, seed)
                    file.write(**asdict(run))
                    on_run(run)
                runs.append(run)
    return Comparison(arms=tuple(arms), runs=tuple(runs))


def _run_of(data: dict[str, Any], source: Path) -> ArmRun:
    try:
        return ArmRun(**{**data, "curve": [(p[0], p[1], p[2]) for p in data["curve"]]})
    except (KeyError, TypeError, IndexError) as error:
        raise VcycleError(f"{source} holds something else than finished runs ({error}): give another --out") from None
