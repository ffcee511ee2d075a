"""What the pages show of the log of fine-tuning."""

from functools import cache
from typing import Any

from benchmarks.logs import lines, mean, over, percent, table, times

from vcycle.bench.statistics import paired_bootstrap

__all__ = ["sentences", "tables"]

MORE, CONTROL, CONSTANT = ("more", "cascade"), ("more", "control:cascade"), ("equal", "constant")
EQUAL, EQUAL_CONTROL = ("equal", "cascade"), ("equal", "control:cascade")
ROWS = {
    CONSTANT: "constant shape, cosine",
    EQUAL: "cascade, equal steps per shape",
    EQUAL_CONTROL: "its control: constant shape, LR curve of that cascade",
    MORE: "cascade, twice the steps at the full shape",
    CONTROL: "its control: constant shape, LR curve of that cascade",
    ("more", "cascade@2"): "the same cascade, twice as long",
    ("short", "constant@0.43"): "constant shape, shorter",
    ("short", "control:cascade@0.43"): "control of the cascade of equal steps, shorter",
}


@cache
def _runs(arm: tuple[str, str]) -> list[dict[str, Any]]:
    return [run for run in lines(f"finetune/{arm[0]}.jsonl") if run["arm"] == arm[1]]


@cache
def _difference(a: tuple[str, str], b: tuple[str, str], digits: int = 2) -> str:
    found = paired_bootstrap([run["each"] for run in _runs(a)], [run["each"] for run in _runs(b)])
    assert found is not None
    return over(found._asdict(), digits=digits)


@cache
def tables() -> dict[str, str]:
    """The plans."""
    rows = []
    for arm, name in ROWS.items():
        runs, bold = _runs(arm), "**" * (arm == MORE)
        accuracy = percent([run["test"] for run in runs], 2)
        cells = name, f"{mean(runs, 'steps'):.0f}", f"{mean(runs, 'cpu_seconds'):.1f} s", accuracy
        rows.append([f"{bold}{cell}{bold}" for cell in cells])
    return {"plans": table(["plan", "steps", "processor time", "accuracy (test)"], rows)}


@cache
def sentences() -> dict[str, list[str]]:
    """By page."""
    own, control = (mean(_runs(arm), "test") for arm in (MORE, CONTROL))
    fast = [times(mean(_runs(arm), "cpu_seconds") / mean(_runs(MORE), "cpu_seconds")) for arm in (CONSTANT, CONTROL)]
    work = mean(_runs(CONSTANT), "work") / mean(_runs(MORE), "work")
    short = [_difference(MORE, arm, 1) for arm in (CONSTANT, CONTROL)]
    points, bounds = short[1].rstrip(")").split(" (")
    return {
        "docs/expect.md": [
            f"| [fine-tuning](../benchmarks/finetune/README.md), cascade | {times(work, 0)} less | {fast[0]} "
            f"| {fast[1]} | {short[0]} | {short[1]} |",
        ],
        "docs/finetuning.md": [
            f"the cascade ended at {percent(own)} after half the steps of its LR-matched control, which ended at "
            f"{percent(control, 2)}. The difference is {points} points (95 % interval {bounds}).",
        ],
        "benchmarks/finetune/README.md": [
            f"with half the steps: {_difference(MORE, CONTROL)} against its control, {_difference(MORE, CONSTANT)} "
            "against the constant shape.",
            f"The cascade with equal steps: {_difference(EQUAL, EQUAL_CONTROL)} against its control.",
        ],
    }
