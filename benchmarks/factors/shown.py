"""What the pages show of the study that changes one factor of a plan at a time."""

from functools import cache
from statistics import median
from typing import Any

import numpy as np
from benchmarks.logs import lines, mean, over, percent, table, times
from benchmarks.recognition.folds import difference_of, ratios_of, table_of

__all__ = ["sentences", "tables"]

OWN, CONTROL, CONSTANT = "cascade@1", "control:cascade@1", "constant@1"
MUON, MUON_LONGER, MUON_LONGEST = "Muon", "Muon, 1.5 lengths", "Muon, 2 lengths"
MUON_CONTROL, MUON_HALF = "Muon, control", "Muon, control, ½"
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
    "BatchNorm over the whole batch": "BatchNorm over the whole batch of a step",
    "pruning 0.5, cascade": "cascade with pruning by loss",
    "pruning 0.5, control:cascade": "control with pruning by loss",
    MUON: "cascade with Muon in place of AdamW",
    MUON_LONGER: "cascade of 1.5 lengths with Muon",
    MUON_LONGEST: "cascade of 2 lengths with Muon",
    MUON_HALF: "control of half a length with Muon",
    MUON_CONTROL: "control with Muon",
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
    return {"factors": table([*head, "minus the control's"], map(_row, NAMES)), "noise": _noise()}


def _noise() -> str:
    head = ["training", "samples seen", "batch", "noise scale, coarse clips", "full clips", "cosine"]
    rows = [
        [
            "cascade" if point["plan"] == "cascade" else "control",
            percent(point["samples"] / point["of"], 0),
            str(point["batch"]),
            *(_clips(point["noise"][shape]) for shape in ("coarse", "full")),
            "" if point["cosine"] is None else f"{point['cosine']:.2f}",
        ]
        for point in lines("factors/noise.jsonl")
    ]
    return table(head, rows)


def _clips(scale: float | None) -> str:
    return "too large to measure" if scale is None else f"{scale:,.0f}"


@cache
def sentences() -> dict[str, list[str]]:
    """By page."""
    return {
        "docs/expect.md": [
            f"the cascade of 1.5 lengths was {_points(MUON_LONGER, MUON_HALF)} points from its control of half a "
            "length",
            f"{_points(MUON_CONTROL, CONTROL)} points to the control, {_points(MUON, OWN)} to the cascade",
        ],
        "benchmarks/factors/README.md": [
            f"Muon in place of AdamW is worth {_points(MUON, OWN)} points to the cascade, and "
            f"{_points(MUON_CONTROL, CONTROL)} to its control",
            f"is {_points(MUON_LONGER, MUON_CONTROL)} points from the control of one length with Muon.",
            f"The cascade of 2 lengths is {_points(MUON_LONGEST, MUON_CONTROL)} points from the control with Muon at "
            f"{_faster(MUON_LONGEST, MUON_CONTROL)}",
            f"The cascade of 1.5 lengths is {_points(MUON_LONGER, MUON_HALF)} points from the control of half a "
            f"length, which takes {_faster(MUON_LONGER, MUON_HALF)[:-1]} times its time",
            f"a cascade of 1.5 lengths is {_points(MUON_LONGER, CONTROL)} points from the control with AdamW at "
            f"{_faster(MUON_LONGER, CONTROL)}",
        ],
    }


def _points(plan: str, other: str) -> str:
    found = difference_of(runs(), plan, other)
    assert found is not None
    return over(found._asdict())


def _faster(plan: str, other: str) -> str:
    return times(1 / median(ratios_of(runs(), plan, other)))
