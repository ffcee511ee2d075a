"""Compares plans with the constant shape and their LR-matched controls: speed-up, and non-inferiority of accuracy."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from vcycle.bench.environment import differences
from vcycle.bench.runs import Arm, ArmRun, Failure
from vcycle.bench.statistics import (
    Interval,
    Verdict,
    clip_interval,
    mean,
    no_worse,
    paired_bootstrap,
    spread,
    welch_interval,
)
from vcycle.bench.steps.turns import StepTimes
from vcycle.plan import Plan
from vcycle.tasks.base import Measure
from vcycle.tasks.plans import control_name
from vcycle.tasks.reference import Reference

__all__ = ["Comparison", "Doubt", "Gain", "Reach", "Untimed"]

Doubt = Literal["failed", "few"]
"""Why a verdict is inconclusive: a training failed, or there are too few test videos or clips."""

_APART = 0.10
"""Relative difference of two speed-ups above which their clocks disagree."""

_Rows = list[list[float]]


@dataclass(frozen=True, kw_only=True)
class Untimed:
    """Stands for the times of steps where they could not be timed: the wall clock of the trainings counts instead."""

    reason: str
    """Why they could not, in one line."""

    def as_data(self) -> dict[str, Any]:
        """The clock as plain data."""
        return {"clock": "wall clock of the trainings", "reason": self.reason}


@dataclass(frozen=True, kw_only=True)
class Gain:
    """The gain of one arm over another."""

    speedup: float
    """Ratio of training times, by the steps of both timed in turns."""
    speedup_low: float
    """The lowest such ratio of a single turn; by the wall clock of the trainings, of a single seed."""
    speedup_high: float
    """The highest."""
    wall_speedup: float
    """Ratio of the wall-clock times of the trainings, which other programs change."""
    cpu_speedup: float
    """Ratio of CPU times of the training process."""
    welch: Interval | None
    """Welch interval of the difference of means, over seeds."""
    paired: Interval | None
    """Paired bootstrap interval, over seeds and test videos or clips."""
    clips: Interval | None
    """Student interval, over test videos or clips alone."""
    no_worse: Verdict
    """Non-inferiority verdict, on which all known intervals must agree."""
    doubt: Doubt | None
    """Why the verdict is inconclusive although the first two intervals lie on one side of the margin."""

    @property
    def clocks_disagree(self) -> bool:
        """Whether the wall-clock times of the trainings give a speed-up that differs by more than 10 %."""
        apart = self.wall_speedup / self.speedup
        return max(apart, 1 / apart) > 1 + _APART

    def as_data(self) -> dict[str, Any]:
        """The gain as plain data."""
        return {
            "speedup": self.speedup,
            "speedup_low": self.speedup_low,
            "speedup_high": self.speedup_high,
            "wall_speedup": self.wall_speedup,
            "clocks_disagree": self.clocks_disagree,
            "cpu_speedup": self.cpu_speedup,
            "difference": None if self.welch is None else self.welch._asdict(),
            "paired": None if self.paired is None else self.paired._asdict(),
            "clips": None if self.clips is None else self.clips._asdict(),
            "no_worse": self.no_worse,
            "doubt": self.doubt,
        }


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Training time until an arm's validations reach a target, by its steps timed in turns."""

    reached: int
    """Runs that reached the target."""
    runs: int
    """All runs."""
    median: float | None
    """Median over all runs of the training seconds to the first validation at or above the target. Failed runs never
    reach it; None if the median run does not."""
    low: float | None
    """Time of the fastest run; None if no run reaches the target."""
    high: float | None
    """Time of the slowest run; None if a run does not reach the target."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All runs of all arms."""

    measure: Measure
    """The measure to compare."""
    arms: tuple[Arm, ...]
    runs: tuple[ArmRun, ...]
    steps: StepTimes | Untimed
    """The time of a step at each batch shape of the trained arms, by which trainings are compared; where it is not
    known, their wall-clock times compare them."""
    failures: tuple[Failure, ...] = ()
    environments: tuple[dict[str, Any], ...] = ()
    """Machines and versions of the runs; several if a study was resumed elsewhere."""
    margin: float | None = None
    """Non-inferiority margin, in the measure's scale; by default the measure's."""
    target: float | None = None
    """Validation target, in the same scale; by default the final value of the constant shape."""
    references: Mapping[str, Reference] = field(default_factory=dict)
    """What each split gives without training; empty if the task knows of nothing."""

    def of(self, arm: str) -> list[ArmRun]:
        """The finished runs of an arm, by seed."""
        return [r for r in self.runs if r.arm == arm]

    @property
    def split(self) -> str:
        """The reported split: test if all runs have it, else validation."""
        return "test" if all(r.test is not None for r in self.runs) else "val"

    @property
    def accepted(self) -> float:
        """The non-inferiority margin."""
        return self.measure.margin if self.margin is None else self.margin

    def values(self, arm: str) -> list[float]:
        """The values of an arm's runs on the reported split."""
        return [r.test if self.split == "test" and r.test is not None else r.val for r in self.of(arm)]

    def seconds(self, arm: str) -> float:
        """Training time of an arm, by its steps timed in turns: the only time that verdicts use."""
        if isinstance(self.steps, Untimed):
            return self.wall_seconds(arm)
        plan = self._plan(arm)
        return mean([self.steps.of(plan, r.samples) for r in self.of(arm)])

    def _speedups(self, arm: str, over: str) -> list[float]:
        """The speed-up of an arm by each turn alone; by the wall clock of the trainings, of each seed of both."""
        if isinstance(self.steps, Untimed):
            slow = {run.seed: run.seconds for run in self.of(over)}
            return [slow[run.seed] / run.seconds for run in self.of(arm) if run.seed in slow]
        times = []
        for name in (over, arm):
            plan = self._plan(name)
            runs = [self.steps.of_each_turn(plan, run.samples) for run in self.of(name)]
            times.append([mean(turn) for turn in zip(*runs, strict=True)])
        return [slow / fast for slow, fast in zip(*times, strict=True)]

    def _plan(self, arm: str) -> Plan:
        return next(each.plan for each in self.arms if each.name == arm)

    def wall_seconds(self, arm: str) -> float:
        """Mean wall-clock training time of an arm."""
        return mean([r.seconds for r in self.of(arm)])

    def cpu_seconds(self, arm: str) -> float:
        """Mean CPU time of an arm's training process."""
        return mean([r.cpu_seconds for r in self.of(arm)])

    @property
    def best(self) -> str | None:
        """The plan to recommend, selected by `_choose`.

        Plans with a trained control are preferred, because only they can be judged.
        """
        plans = [a.name for a in self.arms if not a.is_control and not a.is_baseline]
        return self._choose([p for p in plans if self.control_of(p)]) or self._choose(plans)

    def control_of(self, plan: str) -> str | None:
        """The control of a plan, if trained; of several lengths, the one selected by `_choose`."""
        return self._choose([a.name for a in self.arms if a.name.partition("@")[0] == control_name(plan)])

    @property
    def constant(self) -> str | None:
        """The constant shape, if trained; of several lengths, the one selected by `_choose`."""
        return self._choose([a.name for a in self.arms if a.is_baseline])

    def _choose(self, arms: Sequence[str]) -> str | None:
        """Select the fastest arm whose validation mean is within the margin of the best.

        Arms with a failed run are considered only if all arms have one.
        """
        failed = {failure.arm for failure in self.failures}
        trained = [name for name in arms if self.of(name)]
        trained = [name for name in trained if name not in failed] or trained
        if not trained:
            return None
        val = {name: mean([r.val for r in self.of(name)]) for name in trained}
        return min((name for name in trained if val[name] >= max(val.values()) - self.accepted), key=self.seconds)

    def gain(self, arm: str, over: str) -> Gain:
        """The gain of `arm` over another."""
        cpu = self.cpu_seconds(arm)
        welch, rows = welch_interval(self.values(arm), self.values(over)), self._paired(arm, over)
        paired = None if rows is None else paired_bootstrap(*rows)
        clips = None if rows is None or paired is None else clip_interval(*rows, shares=self.measure.is_share)
        known = [i for i in (welch, paired) if i is not None]
        verdict = no_worse([i for i in (*known, clips) if i is not None], self.accepted)
        doubt: Doubt | None = None
        if (
            verdict == "not shown"
            and known
            and (all(i.low > -self.accepted for i in known) or all(i.high < -self.accepted for i in known))
        ):
            doubt = "few"
        elif verdict != "not shown" and any(failure.arm in (arm, over) for failure in self.failures):
            verdict, doubt = "not shown", "failed"  # the runs that did not fail are biased towards good results
        speedup = self.seconds(over) / self.seconds(arm)
        each = self._speedups(arm, over)
        return Gain(
            speedup=speedup,
            speedup_low=min(speedup, *each),
            speedup_high=max(speedup, *each),
            wall_speedup=self.wall_seconds(over) / self.wall_seconds(arm),
            cpu_speedup=self.cpu_seconds(over) / cpu if cpu > 0 else 1.0,
            welch=welch,
            paired=paired,
            clips=clips,
            no_worse=verdict,
            doubt=doubt,
        )

    def _paired(self, arm: str, over: str) -> tuple[_Rows, _Rows] | None:
        """One row per shared seed, one value per video or clip that all of these runs could read."""
        if self.split != "test":
            return None
        of_arm, of_other = ({run.seed: run.each for run in self.of(name)} for name in (arm, over))
        seeds = [seed for seed in of_arm if seed in of_other]
        rows = [[of[seed] or [] for seed in seeds] for of in (of_arm, of_other)]
        lengths = {len(row) for of in rows for row in of}
        if len(lengths) != 1:
            return None
        shared = [k for k in range(lengths.pop()) if all(row[k] is not None for of in rows for row in of)]
        a, b = ([[float(row[k] or 0) for k in shared] for row in of] for of in rows)
        return a, b

    def reach(self, arm: str, target: float) -> Reach:
        """The training time until an arm reaches a target on validation."""
        failed = sum(failure.arm == arm for failure in self.failures)
        times = sorted([*(self._seconds_to(run, target) for run in self.of(arm)), *[math.inf] * failed])
        middle = statistics.median(times)
        return Reach(
            reached=sum(math.isfinite(t) for t in times),
            runs=len(times),
            median=_finite(middle),
            low=_finite(times[0]),
            high=_finite(times[-1]),
        )

    def _seconds_to(self, run: ArmRun, target: float) -> float:
        """Seconds to the first validation at or above a target, not interpolated; infinite if there is none."""
        curve = zip(self._curve_seconds(run), run.curve, strict=True)
        return next((seconds for seconds, (*_, value) in curve if value >= target), math.inf)

    def as_data(self) -> dict[str, Any]:
        """The comparison as plain data: per arm its means, spreads and gains, and the best plan's name."""
        best, constant = self.best, self.constant
        target = self.target
        if target is None and constant is not None:
            target = mean([r.val for r in self.of(constant)])
        arms = {arm.name: self._arm_data(arm, constant, target) for arm in self.arms if self.of(arm.name)}
        return {
            "plan": best,
            "constant": constant,
            "control": self.control_of(best) if best else None,
            "split": self.split,
            "measure": asdict(self.measure),
            "margin": self.accepted,
            "target": target,
            "target_of": constant if self.target is None else None,
            "arms": arms,
            "clock": self._clock_data(),
            "runs": [asdict(r) | {"curve_seconds": self._curve_seconds(r)} for r in self.runs],
            "references": {split: asdict(reference) for split, reference in self.references.items()},
            "failures": [asdict(f) for f in self.failures],
            "environments": list(self.environments),
        }

    def _clock_data(self) -> dict[str, Any]:
        """What training times are by; for steps, also whether a training ran on another machine than they."""
        if isinstance(self.steps, Untimed):
            return self.steps.as_data()
        elsewhere = any(differences(known, self.steps.where) for known in self.environments)
        return self.steps.as_data() | {"elsewhere": elsewhere}

    def _curve_seconds(self, run: ArmRun) -> list[float]:
        """The training time until each validation of a run, by its steps timed in turns."""
        if isinstance(self.steps, Untimed):
            return [seconds for seconds, *_ in run.curve]
        plan = self._plan(run.arm)
        return [self.steps.of(plan, samples) for _, samples, _ in run.curve]

    def _arm_data(self, arm: Arm, constant: str | None, target: float | None) -> dict[str, Any]:
        runs, values = self.of(arm.name), self.values(arm.name)
        data: dict[str, Any] = {
            "train_seconds": self.seconds(arm.name),
            "wall_seconds": self.wall_seconds(arm.name),
            "wall_seconds_std": spread([r.seconds for r in runs]),
            "cpu_seconds": mean([r.cpu_seconds for r in runs]),
            "data_seconds": mean([r.data_seconds for r in runs]),
            "value": mean(values),
            "value_std": spread(values),
            "val": mean([r.val for r in runs]),
            "steps": runs[0].steps,
            "samples": runs[0].samples,
            "work": runs[0].work,
            "seeds": len(runs),
            "plan": arm.plan.name,
            "fingerprint": arm.plan.fingerprint,
        }
        reference = self.references.get(self.split)
        data["beats_reference"] = None if reference is None else reference.beaten_by(data["value"])
        if target is not None:
            data["to_target"] = asdict(self.reach(arm.name, target))
        for name, other in (("constant", constant), ("control", self.control_of(arm.name))):
            if other is not None and other != arm.name:
                data[f"over_{name}"] = self.gain(arm.name, other).as_data()
        return data


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
