"""What the pages show of the logs of step times."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import median
from typing import Any

from benchmarks.logs import HERE, lines, load, table, times

__all__ = ["sentences", "tables"]

FULL = {"demo": "8×12×32²", "gestures": "4×16×48²"}
"""The full batch shape of each network."""


@cache
def tables() -> dict[str, str]:
    """Predicted and taken time, realised over work, and ways of taking a step."""
    ways, superres = (load(f"steps/{file}.json")["ways"] for file in ("ways", "ways-superresolution"))
    eager, compiled = (_way(ways, "fp32", each) for each in (False, True))
    fp32, bf16 = (_way(superres, precision, False) for precision in ("fp32", "bf16"))
    return {
        "predicted": _predicted(),
        "shared": _shared(),
        "groups": _groups(),
        "compiled": _ways(
            {"eager, fp32": eager, "compiled, fp32": compiled},
            "cascade",
            "cascade against the constant shape, predicted",
        ),
        "super-resolution": _ways(
            {"fp32": fp32, "bf16": bf16}, "hierarchical", "hierarchical against the constant shape, predicted"
        ),
    }


def _range(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


@cache
def _rounds(name: str, plan: str) -> list[dict[str, Any]]:
    return [line for line in lines("steps/results.jsonl") if (line["name"], line["plan"]) == (name, plan)]


def _ratios(name: str, plan: str, taken: str) -> list[float]:
    predicted = {"seconds": "predicted", "cpu_seconds": "predicted_cpu"}[taken]
    return [line[predicted]["median"] / line[taken] for line in _rounds(name, plan)]


@cache
def _names() -> list[str]:
    return list(dict.fromkeys(line["name"] for line in lines("steps/results.jsonl")))


def _predicted() -> str:
    rows = []
    for name, shown in zip(_names(), ("demo's network, one process", "real videos, two workers"), strict=True):
        for plan in ("constant", "cascade"):
            own = _rounds(name, plan)
            cells = [shown if plan == "constant" else "", plan, f"{own[0]['steps']:,}", str(len(own))]
            for taken in ("seconds", "cpu_seconds"):
                cells += [f"{median(line[taken] for line in own):.1f} s", _range(_ratios(name, plan, taken))]
            rows.append(cells)
    head = ["", "plan", "steps", "rounds", "training", "predicted / taken", "processor", "predicted / taken"]
    return table(head, rows, left=2)


def _shared() -> str:
    """Of all turns of all repeats together the ratio and its interval; of each repeat the ratio."""
    from benchmarks.steps.shared import interval

    rows = []
    for plan in ("constant", "cascade"):
        own = [line for line in lines("steps/shared.jsonl") if line["plan"] == plan]
        pairs = [(bench, taken) for line in own for bench, taken in line["pairs"]]
        middle, low, high = interval(pairs)
        each = [line["predicted_over_taken"][0] for line in own]
        listed = f"{', '.join(f'{ratio:.2f}' for ratio in each)}; median {median(each):.2f}"
        together = f"**{middle:.2f}** ({low:.2f} to {high:.2f})"
        rows.append([plan, str(own[0]["steps"]), str(len(own)), str(len(pairs)), together, listed])
    head = ["plan", "steps", "repeats", "turns", "predicted / taken, all", "each repeat"]
    return table(head, rows).replace("---:|\n", "---|\n", 1)


@cache
def _realised() -> dict[tuple[str, str], dict[int, str]]:
    """Realised over work with its range, by network and shape, and then by clips in a group."""
    found: dict[tuple[str, str], dict[int, str]] = {}
    for line in (HERE / "steps" / "groups.log").read_text(encoding="utf-8").splitlines():
        network, shape, _, group, value = line.replace(":", "").split(" ", 4)
        found.setdefault((network, shape), {})[int(group)] = value
    return found


def _groups() -> str:
    rows, before = [], ""
    for (network, shape), values in _realised().items():
        group, *larger = values
        full = ", full" if shape == FULL[network] else ""
        cells = [values[group], values[larger[0]] if larger else ""]
        rows.append([network if network != before else "", f"{shape}{full}", str(group), *cells])
        before = network
    return table(["network", "batch shape", "groups of", "realised / work", "in one group"], rows, left=2)


def _way(ways: Sequence[Mapping[str, Any]], precision: str, compiled: bool) -> Mapping[str, Any]:
    return next(way for way in ways if (way["precision"], way["compiled"]) == (precision, compiled))


def _ways(ways: Mapping[str, Mapping[str, Any]], plan: str, last: str) -> str:
    rows = []
    for place, shape in enumerate(next(iter(ways.values()))["shapes"]):
        cells = [f"{shape['batch']}×{shape['frames']}×{shape['size']}²{'' if place else ', full'}"]
        for way in ways.values():
            step, realised = way["shapes"][place]["step_ms"], way["shapes"][place]["realised"]
            cells.append(f"{step['median']:.{_digits(way)}f} ms ({step['low']:.{_digits(way)}f} to ")
            cells[-1] += f"{step['high']:.{_digits(way)}f})"
            cells.append(
                f"{realised['median']:.2f} ({realised['low']:.2f} to {realised['high']:.2f})" if place else "1"
            )
        rows.append(cells)
    rows.append([last])
    for way in ways.values():
        rows[-1] += [times(next(row for row in way["plans"] if row["plan"] == plan)["speedup"]["median"], 2), ""]
    return table(["batch shape", *(head for name in ways for head in (name, "realised / work"))], rows)


def _digits(way: Mapping[str, Any]) -> int:
    return 1 if way["shapes"][0]["step_ms"]["median"] < 100 else 0


@cache
def sentences() -> dict[str, list[str]]:
    """By page."""
    demo, real = _names()
    wall = {
        key: _range(_ratios(*key, "seconds")) for key in ((n, p) for n in (demo, real) for p in ("constant", "cascade"))
    }
    cpu = [median(_ratios(*key, "cpu_seconds")) for key in wall]
    cost = {network: _cost(network) for network in FULL}
    small = {shape: float(values[max(values)].split()[0]) for (_, shape), values in _realised().items()}
    coarse = [
        float(next(iter(values.values())).split()[0])
        for (network, shape), values in _realised().items()
        if shape != FULL[network]
    ]
    missed = [value for value in coarse if value < 0.95]
    every = [round(100 * share) for shares in cost.values() for share in shares]
    of_demo = [round(100 * share) for share in cost["demo"]]
    return {
        "docs/expect.md": [
            f"groups of the baseline's size takes {min(of_demo)} to {max(of_demo)} % of a coarse step of the demo's",
            f"what else does not shrink with the FLOPs {100 * (1 - small['32×12×16²']):.0f} % more, and "
            f"{100 * (1 - small['128×3×16²']):.0f} % where clips have a quarter of the frames",
        ],
        "benchmarks/demo/README.md": [
            f"BatchNorm in groups takes {min(of_demo)} to {max(of_demo)} % of a coarse step of so small a network",
        ],
        "benchmarks/steps/README.md": [
            f"in one process: {wall[demo, 'constant']} for the constant shape, {wall[demo, 'cascade']} for the",
            f"real videos with two workers: {wall[real, 'constant']} and {wall[real, 'cascade']}.",
            f"In processor time all four are between {min(cpu):.2f} and {max(cpu):.2f}.",
            f"({min(missed):.2f} to {max(missed):.2f}). The main cause is BatchNorm in groups.",
            f"except those of the long cycle ({small['128×3×16²']:.2f} and {small['64×4×24²']:.2f}), whose",
            f"Groups cost {min(every)} to {max(every)} % of a coarse step of so small a network.",
        ],
    }


def _cost(network: str) -> list[float]:
    """The share of each coarse step that groups take."""
    both = [
        [float(re.split(r"\s", value)[0]) for value in values.values()]
        for (name, _), values in _realised().items()
        if name == network and len(values) > 1
    ]
    return [1 - grouped / whole for grouped, whole in both]
