"""What the pages show of the logs of super-resolution: the study's, and that of its demo."""

from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean, median, stdev
from typing import Any

from benchmarks.logs import HERE, interval, lines, load, mean, signed, table, times
from benchmarks.superresolution.pooled import CONSTANT, CONTROL, PLAN, gain, ratios, values

__all__ = ["sentences", "tables"]

NAMES = {
    "constant": "constant shape",
    "control:hierarchical": "control of hierarchical",
    "spatial": "spatial",
    "temporal": "temporal",
    "synchronous": "synchronous ¹",
    "hierarchical": "**hierarchical**",
    "hierarchical+scaled": "hierarchical+scaled",
}


@cache
def _arms(file: str) -> dict[str, list[dict[str, Any]]]:
    runs = lines(f"superresolution/{file}.jsonl")
    return {arm: [run for run in runs if run["arm"] == arm] for arm in NAMES if any(run["arm"] == arm for run in runs)}


def _clip(run: Mapping[str, Any], key: str) -> float:
    """The mean of a quality over the clips."""
    return fmean(clip[key] for clip in run["clips"])


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{fmean(values):.{digits}f} ± {stdev(values):.{digits}f}"


def _against(arm: str, other: str) -> str:
    """The mean difference on test and, if it is not that of the control to its plan, the one of each seed."""
    if arm == other:
        return ""
    tests = {run["seed"]: run["test"] for run in _arms("results")[other]}
    gains = [run["test"] - tests[run["seed"]] for run in _arms("results")[arm]]
    each = f" ({', '.join(signed(gain, 3) for gain in gains)})"
    return signed(fmean(gains), 3) + ("" if arm == CONSTANT else each)


@cache
def tables() -> dict[str, str]:
    """The plans, the clips, and the later seeds."""
    predicted = {row["plan"]: row for row in load("superresolution/steps.json")["plans"]}
    rows, clips = [], [_bicubic()]
    for arm, runs in _arms("results").items():
        quality = _arms("clips")[arm]
        steps, bold = predicted[arm]["speedup"], "**" * (arm == PLAN)
        unshaped = arm in (CONSTANT, CONTROL)
        by_steps = f"{bold}{steps['median']:.2f}{bold} ({steps['low']:.2f} to {steps['high']:.2f})"
        rows.append(
            [
                *(NAMES[arm], str(len(runs)), f"{runs[0]['steps']}"),
                _spread([run["cpu_seconds"] for run in runs], 1).replace(" ±", " s ±"),
                *(("1", "1") if unshaped else (f"{predicted[arm]['flop_speedup']:.2f}", by_steps)),
                _spread([_clip(run, "psnr") for run in quality], 3),
                *(_against(arm, other) for other in (CONSTANT, CONTROL)),
                _spread([_clip(run, "ssim") for run in quality], 4),
                _spread([run["val"] for run in runs], 3),
            ]
        )
        of_clips = [
            _spread([run["clips"][number][key] for run in quality], digits)
            for number in range(2)
            for key, digits in (("psnr", 3), ("ssim", 4))
        ]
        clips.append([NAMES[arm].strip("* ¹"), *of_clips])
    again = [
        [
            *(NAMES[arm], str(len(runs)), _spread([run["cpu_seconds"] for run in runs], 1).replace(" ±", " s ±")),
            *(_spread([run["test"] for run in runs], 2), f"{mean(runs, 'val'):.2f}"),
        ]
        for arm, runs in _arms("again").items()
    ]
    head = ["plan", "seeds", "steps", "processor time", "by FLOPs", "by steps", "PSNR, test"]
    head += ["against the constant shape", "against the control", "SSIM, test", "PSNR, validation"]
    return {
        "plans": table(head, rows),
        "clips": table(["", "calendar, PSNR", "SSIM", "walk, PSNR", "SSIM"], clips),
        "again": table(["plan", "seeds", "processor time", "PSNR, test", "PSNR, validation"], again),
    }


def _bicubic() -> list[str]:
    text = (HERE / "superresolution" / "summary.txt").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| bicubic"))
    return row.strip("| ").split(" | ")


def _gain(other: str, unit: str = " dB") -> str:
    found = gain(other)
    return f"{signed(found.difference, 2)}{unit} ({interval(found.low, found.high, 2)})"


def _seeds(arm: str, other: str) -> list[str]:
    theirs = {run["seed"]: run["test"] for run in _arms("again")[other]}
    return [signed(run["test"] - theirs[run["seed"]], 3) for run in _arms("again")[arm]]


@cache
def sentences() -> dict[str, list[str]]:
    """By page."""
    fast = {other: times(median(ratios(other))) for other in (CONSTANT, CONTROL)}
    spread = {other: f"{ratios(other)[0]:.2f}× to {ratios(other)[-1]:.2f}×" for other in (CONSTANT, CONTROL)}
    better = {other: gain(other) for other in (CONSTANT, CONTROL)}
    wide = {other: interval(found.low, found.high, 3) for other, found in better.items()}
    demo = load("superresolution/demo.json")["arms"]
    ended = {arm: (f"{demo[arm]['value']:.2f}", f"{demo[arm]['cpu_seconds']:.0f} s") for arm in demo}
    predicted = {row["plan"]: row for row in load("superresolution/steps.json")["plans"]}[PLAN]
    work, steps = predicted["flop_speedup"], predicted["speedup"]
    realised = [steps[key] / work for key in ("median", "low", "high")]
    bicubic = fmean(float(_bicubic()[place]) for place in (1, 3))
    taken = [
        [theirs["cpu_seconds"] / own["cpu_seconds"] for own, theirs in zip(*both, strict=True)]
        for both in ((_arms("results")[PLAN], _arms("results")[other]) for other in (CONTROL, CONSTANT))
    ]
    listed = [[f"{ratio:.2f}" for ratio in each] for each in taken]
    hierarchical, plain = (_seeds(PLAN, other) for other in (CONTROL, CONSTANT))
    return {
        "README.md": [
            "[super-resolution](benchmarks/superresolution/README.md), 2 clips of Vid4 | hierarchical | "
            f"| {fast[CONSTANT]} | {_gain(CONSTANT)} "
            f"| {fast[CONTROL]} | {_gain(CONTROL)} |",
            f"the hierarchical plan ended at {ended[PLAN][0]} dB in {ended[PLAN][1]} of processor time. The constant "
            f"shape ended at {ended[CONSTANT][0]} dB in {ended[CONSTANT][1]}, and the plan's control at "
            f"{ended[CONTROL][0]} dB in {ended[CONTROL][1]}.",
        ],
        "docs/expect.md": [
            f"on two clips of Vid4, hierarchical | {times(work)} less | {fast[CONSTANT]} | {fast[CONTROL]} "
            f"| {_gain(CONSTANT)}, over seeds | {_gain(CONTROL)}, over seeds |",
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
            f"**Time**: {fast[CONSTANT]} faster than the constant shape in processor time (six seeds, interleaved: "
            f"{spread[CONSTANT]}) and {fast[CONTROL]} faster than its control ({spread[CONTROL]}). Its FLOPs predict "
            f"{work:.2f}×. Interleaved single steps give {steps['median']:.2f}× ({steps['low']:.2f} to "
            f"{steps['high']:.2f}): {realised[0]:.2f} of the FLOPs' ({realised[1]:.2f} to {realised[2]:.2f}).",
            f"on two clips of Vid4, ten seeds: {fmean(values(PLAN)):.2f} dB. Its control has "
            f"{fmean(values(CONTROL)):.2f}: {signed(better[CONTROL].difference, 3)} dB (95 % interval {wide[CONTROL]} "
            f"over seeds). The constant shape has {fmean(values(CONSTANT)):.2f}: "
            f"{signed(better[CONSTANT].difference, 3)} dB ({wide[CONSTANT]}).",
            f"Bicubic interpolation has {bicubic:.2f} dB.",
            f"the control took {', '.join(listed[0][:-1])} and {listed[0][-1]} times the processor time of the "
            f"hierarchical plan, and the constant shape {', '.join(listed[1][:-1])} and {listed[1][-1]} times",
            f"Hierarchical minus control, seed by seed: {', '.join(hierarchical)} dB; minus the constant shape: "
            f"{', '.join(plain)}.",
        ],
    }
