"""What the pages show of the study that changes one factor of a plan at a time."""

from functools import cache
from statistics import median
from typing import Any

import numpy as np
from benchmarks.logs import lines, mean, over, percent, table, times
from benchmarks.recognition.folds import difference_of, ratios_of, table_of

__all__ = ["sentences", "tables"]

OWN, LONGER, CONTROL, CONSTANT = "cascade@1", "cascade@1.5", "control:cascade@1", "constant@1"
MUON, MUON_LONGER, MUON_LONGEST = "Muon", "Muon, 1.5 lengths", "Muon, 2 lengths"
MUON_CONTROL, MUON_HALF = "Muon, control", "Muon, control, ½"
SOAP, SOAP_LONGER, SOAP_CONTROL, SOAP_HALF = "SOAP", "SOAP, 1.5 lengths", "SOAP, control", "SOAP, control, ½"
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
    SOAP: "cascade with SOAP in place of AdamW",
    SOAP_LONGER: "cascade of 1.5 lengths with SOAP",
    SOAP_HALF: "control of half a length with SOAP",
    SOAP_CONTROL: "control with SOAP",
}
PHRASES = {
    CONTROL: "control",
    OWN: "cascade as shipped",
    LONGER: "cascade of 1.5 lengths",
    "control:cascade@0.5": "control of half a length",
    **{name: NAMES[name] for name in (MUON, MUON_LONGER, MUON_HALF, MUON_CONTROL)},
}
TRIALS = {
    MUON_HALF: "control of half a length",
    MUON_LONGER: "cascade of 1.5 lengths",
    "Muon, 1.5 lengths, LR not scaled": "the same, LR not scaled with the batch",
    "Muon, more steps at the full shape": "cascade of one length, a quarter of the steps at each shape",
}


@cache
def runs() -> list[dict[str, Any]]:
    """All trainings, with those of the same seeds that left people out before."""
    own = lines("factors/factors.jsonl")
    seeds = {run["seed"] for run in own}
    before = lines("people/mhad_depth.jsonl")
    return [run for run in before if run["plan"] in (OWN, CONTROL, CONSTANT) and run["seed"] in seeds] + own


@cache
def on_phrases() -> list[dict[str, Any]]:
    """The trainings on phrases, with those of the same seeds before."""
    own = lines("factors/phrases.jsonl")
    seeds = {run["seed"] for run in own}
    before = lines("people/lips_phrases.jsonl")
    return [run for run in before if run["plan"] in PHRASES and run["seed"] in seeds] + own


def _row(name: str, what: str, of: list[dict[str, Any]]) -> list[str]:
    own = [run for run in of if run["plan"] == name]
    spent = median(run["cpu_seconds"] for run in own)
    share = percent(float(np.nanmean(table_of(own))))
    cells = [what, str(len(own)), f"{mean(own, 'steps'):,.0f}", f"{spent:.0f} s", share]
    for other in (OWN, CONTROL):
        found = None if name == other else difference_of(of, name, other)
        cells.append("" if found is None else over(found._asdict()))
    return cells


@cache
def tables() -> dict[str, str]:
    """By name."""
    head = ["what is changed", "trainings", "updates", "processor time", "accuracy", "minus the cascade's (95 % CI)"]
    head.append("minus the control's")
    return {
        "factors": table(head, [_row(name, what, runs()) for name, what in NAMES.items()]),
        "phrases": table(["plan", *head[1:]], [_row(name, what, on_phrases()) for name, what in PHRASES.items()]),
        "trials": _trials(),
        "noise": _noise(),
    }


def _trials() -> str:
    found = lines("factors/trials.jsonl")
    rows = []
    for name, what in TRIALS.items():
        own = [run for run in found if run["plan"] == name]
        spent = f"{median(run['cpu_seconds'] for run in own):.0f} s"
        rows.append([what, f"{mean(own, 'steps'):,.0f}", spent, percent(float(np.nanmean(table_of(own))))])
    return table(["with Muon, seed 40", "updates", "processor time", "accuracy"], rows)


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
    phrases = on_phrases()
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
            f"the cascade of 1.5 lengths is {_points(MUON_LONGER, MUON_HALF, phrases)} points from the control of half "
            f"a length, in {_longer(MUON_LONGER, MUON_HALF, phrases)} times its time",
            f"the cascade of 1.5 lengths with AdamW is {_points(LONGER, MUON_CONTROL, phrases)} points from the "
            f"control with Muon, the best training here, at {_faster(LONGER, MUON_CONTROL, phrases)}",
            f"SOAP is worth {_points(SOAP, OWN)} points to the cascade, and {_points(SOAP_CONTROL, CONTROL)} to its "
            "control",
            f"The cascade of one length is {_points(SOAP, SOAP_HALF)} points from the control of half a length, in "
            f"{_longer(SOAP, SOAP_HALF)} times its time",
            f"Of 1.5 lengths it is {_points(SOAP_LONGER, SOAP_CONTROL)} points from the control of one length at "
            f"{_faster(SOAP_LONGER, SOAP_CONTROL)}",
            f"{_points(SOAP, MUON_HALF)} points from the control of half a length with Muon, in "
            f"{_longer(SOAP, MUON_HALF)} times its time",
        ],
    }


def _points(plan: str, other: str, of: list[dict[str, Any]] | None = None) -> str:
    found = difference_of(of or runs(), plan, other)
    assert found is not None
    return over(found._asdict())


def _longer(plan: str, other: str, of: list[dict[str, Any]] | None = None) -> str:
    """The processor time of a plan over that of another."""
    return f"{median(ratios_of(of or runs(), plan, other)):.1f}"


def _faster(plan: str, other: str, of: list[dict[str, Any]] | None = None) -> str:
    return times(1 / median(ratios_of(of or runs(), plan, other)))
