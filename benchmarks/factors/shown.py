"""What the pages show of the study that changes one factor of a plan at a time."""

from functools import cache
from statistics import median
from typing import Any

import numpy as np
from benchmarks.logs import lines, mean, over, percent, table
from benchmarks.recognition.folds import difference_of, table_of

__all__ = ["tables"]

OWN, CONTROL, CONSTANT = "cascade@1", "control:cascade@1", "constant@1"
NAMES = {
    CONSTANT: "constant shape",
    CONTROL: "its control, as short a decay as the cascade's",
    OWN: "**cascade as shipped**: `batch_growth` ⅔, LR by the root of the batch",
    "batch_growth 0": "`batch_growth` 0: the batch stays",
    "batch_growth 1/3": "`batch_growth` ⅓",
    "batch_growth 1": "`batch_growth` 1: the work of a step stays",
    "LR not scaled": "LR not scaled with the batch",
    "LR scaled linearly": "LR scaled linearly",
    "all frames": "coarse in space alone",
    "two shapes": "two shapes in place of four",
    "more steps at the full shape": "a quarter of the steps at each shape",
    "constant shape, batch 11": "constant shape, batch 11: the cascade's mean batch and updates",
    "EMA": "cascade with an EMA of 0.99",
    "EMA, control": "control with an EMA of 0.99",
    "twice the LR": "cascade with twice the LR",
    "twice the LR, control": "control with twice the LR",
}


@cache
def runs() -> list[dict[str, Any]]:
    """All trainings, with those of the same seeds that left people out before."""
    own = lines("factors/factors.jsonl")
    seeds = {run["seed"] for run in own}
    before = lines("people/mhad_depth.jsonl")
    return [run for run in before if run["plan"] in (OWN, CONTROL, CONSTANT) and run["seed"] in seeds] + own


def _row(name: str) -> list[str]:
    own = [run for run in runs() if run["plan"] == name]
    spent = median(run["cpu_seconds"] for run in own)
    share = percent(float(np.nanmean(table_of(own))))
    cells = [NAMES[name], str(len(own)), f"{mean(own, 'steps'):,.0f}", f"{spent:.0f} s", share]
    for other in (OWN, CONTROL):
        found = None if name == other else difference_of(runs(), name, other)
        cells.append("" if found is None else over(found._asdict()))
    return cells


@cache
def tables() -> dict[str, str]:
    """By name."""
    head = ["what is changed", "trainings", "updates", "processor time", "accuracy", "minus the cascade's (95 % CI)"]
    return {"factors": table([*head, "minus the control's"], map(_row, NAMES))}
