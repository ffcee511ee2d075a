"""The stage tables of the published configurations are committed, so that a change of numbers is seen.

After a change that is meant, write them anew with

    VCYCLE_WRITE_GOLDEN=1 python -m pytest tests/plan/test_golden.py
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from vcycle.plan import Plan

GOLDEN = Path(__file__).resolve().parents[1] / "golden"

NAMES = (
    "kinetics_slowfast_8x8_r50",
    "ssv2_slowfast_16x8_r50",
    "charades_slowfast_16x8_r50",
    "kinetics_i3d_paper",
    "kinetics_i3d_one_gpu",
    "reds_basicvsr_m",
    "vimeo_basicvsr",
    "reds_edvr_m",
)


def rounded(value: float) -> float:
    """Twelve digits: what is left does not depend on the machine's cosine."""
    return float(f"{value:.12g}")


def stage_table(plan: Plan) -> dict[str, Any]:
    stages, first = [], 0
    for stage in plan.stages:
        stages.append(
            {
                "name": stage.name,
                "steps": stage.steps,
                "first_epoch": rounded(plan.epochs_before(first)),
                "pattern": [
                    {"frames": c.frames, "size": c.size, "batch": c.batch, "bn_batch": c.bn_batch}
                    for c in stage.pattern
                ],
                "lr": [rounded(stage.rate.at(0.0)), rounded(stage.rate.at(1.0))],
            }
        )
        first += stage.steps
    return {
        "steps": len(plan),
        "samples": plan.samples,
        "warmup_samples": rounded(plan.warmup_samples),
        "saving": {name: rounded(value) for name, value in plan.saving()._asdict().items()},
        "stages": stages,
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_stage_table_is_the_committed_one(plans: dict[str, Plan], name: str) -> None:
    file = GOLDEN / f"{name}.json"
    table = stage_table(plans[name])
    if os.environ.get("VCYCLE_WRITE_GOLDEN"):
        file.write_text(json.dumps(table, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    assert table == json.loads(file.read_text(encoding="utf-8"))


def test_every_published_plan_and_no_other_has_a_stage_table(plans: dict[str, Plan]) -> None:
    assert set(NAMES) == set(plans)
    assert {file.stem for file in GOLDEN.glob("*.json")} >= set(NAMES)
