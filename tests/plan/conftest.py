"""The published configurations, as baselines and as the plans that they give."""

from collections.abc import Callable
from typing import Any

import pytest

from vcycle.plan import (
    Baseline,
    CosineDecay,
    Plan,
    RampWarmup,
    Role,
    StepDecay,
    large_minibatch,
    multigrid,
    superresolution,
)

# PySlowFast's multigrid configurations. Kinetics is taken as 240,000 clips; the others as their training splits.
KINETICS = Baseline(
    batch=64,
    frames=32,
    size=224,
    clips=240_000,
    epochs=239,
    lr=0.1,
    decay=StepDecay(milestones=(94, 154, 196)),
    warmup=RampWarmup(length=34, start_lr=0.01),
)
SSV2 = Baseline(
    batch=16,
    frames=64,
    size=224,
    clips=168_913,
    epochs=22,
    lr=0.03,
    decay=StepDecay(milestones=(14, 18)),
    warmup=RampWarmup(length=0.19, start_lr=1e-4),
)
CHARADES = Baseline(
    batch=16,
    frames=64,
    size=224,
    clips=7_985,
    epochs=57,
    lr=0.0375,
    decay=StepDecay(milestones=(41, 49)),
    warmup=RampWarmup(length=4, start_lr=1e-4),
)
# The paper's I3D (sections 4.4 and 5) in whole epochs, as the reference's schedule wants it.
I3D = Baseline(
    batch=16,
    frames=16,
    size=224,
    clips=240_000,
    epochs=106,
    lr=0.04,
    lr_batch=256,
    decay=StepDecay(milestones=(40, 80)),
)
ONE_GPU = Baseline(
    batch=8,
    frames=8,
    size=224,
    clips=240_000,
    epochs=40,
    lr=0.00125,
    decay=StepDecay(milestones=(20, 33)),
)


def stated(
    batch: int, at: int, lr: float, steps: int, drops: tuple[int, ...], warmup: int = 0, **rest: Any
) -> Baseline:
    """A baseline of `batch` clips from what Wu et al. 2020 state for `at` clips, in steps of their own."""
    times = at // batch
    return Baseline(
        **({"size": 224, "clips": 240_000} | rest),
        batch=batch,
        lr=lr,
        lr_batch=at,
        steps=steps * times,
        decay=StepDecay(milestones=tuple(float(drop * times) for drop in drops)),
        warmup=RampWarmup(length=warmup * times, start_lr=0.002) if warmup else None,
    )


# Wu et al. 2020, sections 4, 4.4, 5 and 6: batch, LR, steps and drops as printed. SSv2's warm-up is PySlowFast's.
WU_KINETICS = stated(64, 512, 0.8, 112_000, (44_000, 72_000, 92_000), 16_000, frames=32)
WU_I3D = stated(16, 256, 0.04, 100_000, (37_500, 75_000), frames=16)
WU_ONE_GPU = stated(8, 8, 0.00125, 1_200_000, (600_000, 1_000_000), frames=8)
WU_SSV2 = stated(16, 16, 0.03, 230_000, (150_000, 190_000), frames=64, clips=168_913).with_(
    warmup=RampWarmup(length=0.19 * 168_913 / 16, start_lr=1e-4)
)
# Lin et al. 2022, table 4a: BasicVSR-M on REDS; BasicVSR on Vimeo-90K (seven raw frames, mirrored) and EDVR-M.
COSINE = CosineDecay(floor=1e-7)
REDS = Baseline(batch=16, frames=15, size=64, clips=26_600, steps=300_000, lr=2e-4, decay=COSINE)
VIMEO = Baseline(
    batch=32,
    frames=14,
    size=64,
    clips=64_612,
    steps=300_000,
    lr=2e-4,
    decay=COSINE,
    roles={"flow": Role(multiplier=0.125, frozen_until=5000)},
)
EDVR = Baseline(batch=32, frames=5, size=64, clips=26_600, steps=600_000, lr=4e-4, decay=COSINE)

BASELINES = {
    "kinetics": KINETICS,
    "ssv2": SSV2,
    "charades": CHARADES,
    "i3d": I3D,
    "one_gpu": ONE_GPU,
    "wu_kinetics": WU_KINETICS,
    "wu_i3d": WU_I3D,
    "wu_one_gpu": WU_ONE_GPU,
    "wu_ssv2": WU_SSV2,
    "reds": REDS,
    "vimeo": VIMEO,
    "edvr": EDVR,
}

REFERENCE: dict[str, Callable[[], Plan]] = {
    "kinetics_slowfast_8x8_r50": lambda: multigrid(KINETICS),
    "ssv2_slowfast_16x8_r50": lambda: multigrid(SSV2),
    "charades_slowfast_16x8_r50": lambda: multigrid(CHARADES),
    "kinetics_i3d_paper": lambda: multigrid(I3D),
    "kinetics_i3d_one_gpu": lambda: multigrid(ONE_GPU),
}

PLANS: dict[str, Callable[[], Plan]] = {
    "kinetics_slowfast_8x8_r50": lambda: multigrid(WU_KINETICS),
    "ssv2_slowfast_16x8_r50": lambda: multigrid(WU_SSV2),
    "charades_slowfast_16x8_r50": lambda: multigrid(CHARADES),
    "kinetics_i3d_paper": lambda: multigrid(WU_I3D),
    "kinetics_i3d_one_gpu": lambda: multigrid(WU_ONE_GPU),
    "reds_basicvsr_m": lambda: superresolution(large_minibatch(REDS, 4)),
    "vimeo_basicvsr": lambda: superresolution(large_minibatch(VIMEO, 2), mirrored=True),
    "reds_edvr_m": lambda: superresolution(large_minibatch(EDVR, 2), nesting="spatial", stage_lrs=(2e-4, 8e-4)),
}


@pytest.fixture(scope="session")
def baselines() -> dict[str, Baseline]:
    return BASELINES


@pytest.fixture(scope="session")
def kinetics() -> Baseline:
    return KINETICS


@pytest.fixture(scope="session")
def references() -> dict[str, Plan]:
    """The plans whose schedules the reference's code gave too, by name."""
    return {name: build() for name, build in REFERENCE.items()}


@pytest.fixture(scope="session")
def plans() -> dict[str, Plan]:
    """The plan of each published configuration, by name."""
    return {name: build() for name, build in PLANS.items()}
