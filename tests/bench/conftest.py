"""Arms of a study and runs of theirs that nobody has trained."""

from collections.abc import Callable
from typing import Any

import pytest

from vcycle.bench.runs import Arm, ArmRun
from vcycle.plan import Baseline, cascade, constant, control, multigrid

BASELINE = Baseline(batch=4, frames=8, size=64, clips=37, epochs=12, lr=0.1)
PLANS = {
    "constant": constant(BASELINE),
    "long+short": multigrid(BASELINE),
    "cascade": cascade(BASELINE),
    "control:cascade": control(cascade(BASELINE)),
    "control:long+short": control(multigrid(BASELINE)),
}
SECONDS = {"constant": 100.0, "long+short": 50.0, "cascade": 25.0, "control:cascade": 80.0, "control:long+short": 90.0}


def base_of(name: str) -> str:
    """The plan that stands for one of this name."""
    return name.partition("@")[0].removesuffix("+scaled")


@pytest.fixture(scope="session")
def arms_of() -> Callable[..., list[Arm]]:
    """Makes arms of names, such as `cascade@2`."""

    def make(*names: str, key: str = "k") -> list[Arm]:
        return [Arm(name=name, plan=PLANS[base_of(name)], key=key) for name in names]

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
            **{"curve": [(1.0, 10, 0.1), (2.0, 20, found["val"])]} | found,
        )

    return make
