"""What the pages show of the logs of super-resolution: its study, BasicSR beside it, the former study, and its demo."""

from collections.abc import Mapping
from functools import cache
from statistics import fmean, stdev
from typing import Any

from benchmarks.comparisons import comparison, expected, results
from benchmarks.logs import lines, load, over, signed, table, times
from benchmarks.turns import Turns, causes, less, range_of, spread

from vcycle.bench.statistics import clip_interval
from vcycle.bench.timing import Spread

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
SMALLER: Mapping[str, Any] = load("superresolution/ten-clips.json")
"""That of the same network with smaller crops, trained on fewer clips."""
BASICSR = {
    "BasicSR, PNG": "BasicSR, PNG files",
    "BasicSR, LMDB": "BasicSR, LMDB",
    "vcycle, constant": "vcycle, constant shape",
    "vcycle, hierarchical": "**vcycle, hierarchical**",
}
"""Arms of the comparison with BasicSR, the same network in each."""
ALIGNED = {f"{arm}, its BasicVSR": name for arm, name in BASICSR.items() if "LMDB" not in arm}
"""Those with BasicSR's BasicVSR, which has a flow network."""
PEERS = {"BasicSR, PNG": BASICSR, "BasicSR, LMDB": BASICSR, "BasicSR, PNG, its BasicVSR": ALIGNED}
"""Each of BasicSR's arms, with those that it is measured with."""
CAUSES = (
    "1. vcycle's loading, from tiles",
    "2. the training process",
    "3. the plan: hierarchical instead of the constant shape",
)
TURNS = Turns("superresolution/basicsr.jsonl")
CLIPS: Mapping[str, float] = load("superresolution/clips.json")
"""The PSNR of bicubic interpolation by test clip."""


@cache
def tables() -> dict[str, str]:
    """The results, the test clips, BasicSR beside it, and the former studies."""
    return {
        "results": results(COMPARISON),
        "clips": _clips(),
        "basicsr": _basicsr(BASICSR),
        "basicsr-aligned": _basicsr(ALIGNED),
        "basicsr-causes": _basicsr_causes(),
        "basicsr-trainings": _basicsr_trainings(),
        "ten-clips": results(SMALLER),
        "former": _former_plans(),
    }


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


def _against(arm: str, place: int = -1) -> Spread:
    """How many times the processor time of another arm that is measured with it; by default, the hierarchical plan."""
    group = next(names for names in (BASICSR, ALIGNED) if arm in names)
    return TURNS.against(arm, list(group)[place])


def _basicsr(names: Mapping[str, str]) -> str:
    """What the arms of a group cost."""
    parts = (["loading"], ["main"], ["main", "loading"], ["wall"])
    rows = [
        [name, *(spread(Spread.of(TURNS.spent(arm, *part))) for part in parts), spread(_against(arm), 2)]
        for arm, name in names.items()
    ]
    head = ["per 1,000 clips, processor seconds", "loading", "training process", "both", "wall-clock, decides nothing"]
    return table([*head, "times those of hierarchical"], rows)


def _basicsr_causes() -> str:
    """The factors that make vcycle faster than BasicSR: its loading is replaced, then the rest, then the shapes."""
    factors = []
    for peer, names in PEERS.items():
        constant, plan = list(names)[-2:]
        main, loading = TURNS.spent(peer, "main"), TURNS.spent(constant, "loading")
        loaded = [a + b for a, b in zip(main, loading, strict=True)]
        factors.append(causes([TURNS.total(peer), loaded, TURNS.total(constant), TURNS.total(plan)]))
    head = ["the cause", "BasicSR, PNG files", "BasicSR, LMDB", "BasicSR, PNG files, its BasicVSR"]
    return table(head, zip(CAUSES, *factors, strict=True))


def _trained() -> dict[str, dict[str, Any]]:
    return {run["arm"]: run for run in lines("superresolution/basicsr.jsonl") if run["kind"] == "training"}


def _basicsr_trainings() -> str:
    bicubic = fmean(CLIPS.values())
    rows = [
        [
            BASICSR[arm],
            f"{run['steps']}",
            f"{run['main'] + run['loading']:.0f} s",
            f"{run['psnr']:.2f} dB",
            signed(run["psnr"] - bicubic, 2),
        ]
        for arm, run in _trained().items()
    ]
    return table(["training", "steps", "processor time", "PSNR (test)", "over bicubic"], rows)


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
    planned, shaped = (_against("BasicSR, PNG", place) for place in (-1, -2))
    own, own_shaped = (_against("BasicSR, PNG, its BasicVSR", place) for place in (-1, -2))
    made = next(line for line in lines("superresolution/basicsr.jsonl") if line["kind"] == "prepared")
    first, second = (len(TURNS.total(next(iter(names)))) for names in (BASICSR, ALIGNED))
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
        "docs/coming-from.md": [
            f"BasicSR's own training takes {less(shaped)} as much processor time per clip as vcycle's constant shape, "
            f"and {less(planned)} as much as its hierarchical plan",
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
            f"**vcycle takes {less(planned)} less processor time per clip than BasicSR's own training "
            f"{range_of(planned)} with its hierarchical plan, and {less(shaped)} less with the constant shape "
            f"{range_of(shaped)}**",
            f"With BasicSR's BasicVSR it takes {less(own)} less {range_of(own)} and {less(own_shaped)} less "
            f"{range_of(own_shaped)}.",
            f"Making the tiles took {made['cpu_seconds']:.1f} s of processor time, once.",
            f"Median, lowest and highest of {first} turns, of {second} in the second table",
            f"was {_former(PLAN, CONTROL).replace(' ', ' dB ', 1)} against its control",
        ],
    }
