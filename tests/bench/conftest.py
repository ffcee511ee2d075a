"""Arms of a study and runs of theirs that nobody has trained."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from vcycle.bench.runs import Arm, ArmRun
from vcycle.bench.steps.turns import StepTimes
from vcycle.plan import Baseline, BatchShape, Plan, cascade, constant, control, multigrid

BASELINE = Baseline(batch=4, frames=8, size=64, clips=37, epochs=12, lr=0.1)
PLANS = {
    "constant": constant,
    "long+short": multigrid,
    "cascade": cascade,
    "control:cascade": lambda baseline: control(cascade(baseline)),
    "control:long+short": lambda baseline: control(multigrid(baseline)),
}
SECONDS = {"constant": 100.0, "long+short": 50.0, "cascade": 25.0, "control:cascade": 80.0, "control:long+short": 90.0}


def base_of(name: str) -> str:
    """The plan that stands for one of this name."""
    return name.partition("@")[0].removesuffix("+scaled")


@pytest.fixture(scope="session")
def arms_of() -> Callable[..., list[Arm]]:
    """Makes arms of names, such as `cascade@2`."""

    def plan_of(name: str) -> Plan:
        length = float(name.partition("@")[2] or 1)
        return PLANS[base_of(name)](BASELINE.with_(epochs=BASELINE.epochs * length))

    def make(*names: str, key: str = "k") -> list[Arm]:
        return [Arm(name=name, plan=plan_of(name), key=key) for name in names]

    return make


@pytest.fixture(scope="session")
def steps_of() -> Callable[..., StepTimes]:
    """Makes the times of the steps of some arms: a second each, on a machine that is slower in some turns."""

    def make(arms: Sequence[Arm], cost: Callable[[BatchShape, int], float] = lambda shape, turn: 1.0) -> StepTimes:
        shapes = {shape for arm in arms for shape in arm.plan.shapes}
        turns = {shape: [slow * cost(shape, turn) for turn, slow in enumerate((0.9, 1.0, 3.0))] for shape in shapes}
        return StepTimes(clock="wall-clock", turns=turns)

    return make


@pytest.fixture(scope="session")
def run_of() -> Callable[..., ArmRun]:
    """Makes what training an arm with a seed would give."""

    def make(arm: Arm, seed: int, **given: Any) -> ArmRun:
        found = {"val": 0.8, "test": 0.7, "seconds": SECONDS[base_of(arm.name)] + seed} | given
        return ArmRun(
            arm=arm.name,
            seed=seed,
            key=arm.key,
            measure="top-1",
            steps=len(arm.plan),
            samples=arm.plan.samples,
            work=arm.plan.work(),
            cpu_seconds=20.0,
            data_seconds=2.0,
            replaced=0,
            **{"curve": [(1.0, arm.plan.samples // 2, 0.1), (2.0, arm.plan.samples, found["val"])]} | found,
        )

    return make
