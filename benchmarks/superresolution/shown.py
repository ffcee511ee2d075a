"""What the pages show of the logs of super-resolution: its study, the former study, and its demo."""

from collections.abc import Mapping
from functools import cache
from statistics import fmean, stdev
from typing import Any

from benchmarks.comparisons import comparison, expected, results
from benchmarks.logs import lines, load, over, signed, table, times

from vcycle.bench.statistics import clip_interval

__all__ = ["sentences", "tables"]

CONSTANT, CONTROL, PLAN = "constant", "control:hierarchical", "hierarchical"
NAMES = {
    CONSTANT: "constant shape",
    CONTROL: "control of hierarchical",
    "spatial": "spatial",
    "temporal": "temporal",
    "synchronous": "synchronous",
    PLAN: "hierarchical",
    "hierarchical+scaled": "hierarchical+scaled",
}
COMPARISON = comparison("superresolution")
"""The comparison of the study."""
CLIPS: Mapping[str, float] = load("superresolution/clips.json")
"""The PSNR of bicubic interpolation by test clip."""


@cache
def tables() -> dict[str, str]:
    """The results, the test clips, and the plans of the former study."""
    return {"results": results(COMPARISON), "clips": _clips(), "former": _former_plans()}


@cache
def _runs(file: str, arm: str) -> list[dict[str, Any]]:
    return [run for run in lines(f"superresolution/{file}.jsonl") if run["arm"] == arm]


def _clips() -> str:
    """What each plan gains over bicubic interpolation on each clip, over seeds."""
    rows = []
    for number, (name, bicubic) in enumerate(CLIPS.items()):
        gains = ([run["each"][number] - bicubic for run in _runs("study", arm)] for arm in (CONSTANT, CONTROL, PLAN))
        rows.append([name, f"{bicubic:.2f}", *(f"{signed(fmean(of), 2)} ± {stdev(of):.2f}" for of in gains)])
    mean = [signed(_gain(arm), 2) for arm in (CONSTANT, CONTROL, PLAN)]
    rows.append(["**mean**", f"{fmean(CLIPS.values()):.2f}", *mean])
    return table(["clip", "bicubic", *(NAMES[arm] for arm in (CONSTANT, CONTROL, PLAN))], rows)


def _gain(arm: str) -> float:
    """PSNR over that of bicubic interpolation."""
    gain: float = COMPARISON["arms"][arm]["value"] - fmean(CLIPS.values())
    return gain


def _former_plans() -> str:
    rows = []
    for arm, name in NAMES.items():
        runs = _runs("former", arm)
        tests = [run["test"] for run in runs]
        against = "" if arm == CONTROL else _former(arm, CONTROL)
        rows.append([name, f"{len(runs)}", f"{runs[0]['steps']}", f"{fmean(tests):.2f} ± {stdev(tests):.2f}", against])
    return table(["plan", "seeds", "steps", "PSNR, test", "minus the control (95 % CI over seeds)"], rows)


def _former(arm: str, other: str) -> str:
    """The difference within a seed, with its interval over seeds."""
    theirs = {run["seed"]: run["test"] for run in _runs("former", other)}
    own = {run["seed"]: run["test"] for run in _runs("former", arm) if run["seed"] in theirs}
    found = clip_interval([list(own.values())], [[theirs[seed] for seed in own]], shares=False)
    if found is None:
        raise ValueError(f"{arm} and {other} share fewer than two seeds")
    return over(found._asdict(), 1.0, 2)


@cache
def sentences() -> dict[str, list[str]]:
    """By page."""
    arms = COMPARISON["arms"]
    constant, control = (arms[PLAN][against] for against in ("over_constant", "over_control"))
    demo = load("superresolution/demo.json")["arms"]
    ended = {arm: (f"{demo[arm]['value']:.2f}", f"{demo[arm]['cpu_seconds']:.0f} s") for arm in demo}
    work, *ratios, over_constant, over_control = expected(COMPARISON)
    constant_work, plan_work = (arms[arm]["work"] for arm in (CONSTANT, PLAN))
    low, high = (times(constant[key], 2) for key in ("speedup_low", "speedup_high"))
    gains = [signed(_gain(arm), 2) for arm in (CONSTANT, CONTROL, PLAN)]
    return {
        "README.md": [
            "| [super-resolution](benchmarks/superresolution/README.md) | `hierarchical` "
            f"| {arms[PLAN]['value']:.2f} dB | {ratios[0]}, {over_constant} | {ratios[1]}, {over_control} |",
            f"the hierarchical plan ended at {ended[PLAN][0]} dB in {ended[PLAN][1]} of processor time. The constant "
            f"shape ended at {ended[CONSTANT][0]} dB in {ended[CONSTANT][1]}, and the plan's control at "
            f"{ended[CONTROL][0]} dB in {ended[CONTROL][1]}.",
        ],
        "docs/expect.md": [
            f"on ten clips of DAVIS and Vid4, hierarchical | {work} | {ratios[0]} | {ratios[1]} "
            f"| {over_constant.replace(' ', ' dB ', 1)} | {over_control.replace(' ', ' dB ', 1)} |",
        ],
        "docs/superresolution.md": [
            f"the constant shape reached {ended[CONSTANT][0]} dB on test in {ended[CONSTANT][1]} of processor time, "
            f"the control {ended[CONTROL][0]} in {ended[CONTROL][1]}, and the hierarchical plan {ended[PLAN][0]} in "
            f"{ended[PLAN][1]}.",
        ],
        "benchmarks/steps/README.md": [
            f"The demo's trainings took {ended[CONSTANT][1]} and {ended[PLAN][1]} of processor time on an AMD EPYC",
        ],
        "benchmarks/superresolution/README.md": [
            f"**{times(constant['speedup'])} faster** than the constant shape and "
            f"{times(control['speedup'])} faster than its control",
            f"better than bicubic interpolation by {gains[0]} dB (constant shape), {gains[1]} dB (control) and "
            f"{gains[2]} dB (hierarchical)",
            f"the range over five turns is {low} to {high}. Its FLOPs predict {times(constant_work / plan_work, 2)}. "
            f"The processor times of the whole trainings give {times(constant['cpu_speedup'], 2)} and "
            f"{times(control['cpu_speedup'], 2)}.",
            f"was {_former(PLAN, CONTROL).replace(' ', ' dB ', 1)} against its control",
        ],
    }
