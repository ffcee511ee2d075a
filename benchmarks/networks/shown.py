"""What the pages show of the steps of large networks: tables from the logs."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.logs import HERE, load, percent, table, times

NETWORKS = {
    "slowfast": "SlowFast 8×8 R50",
    "i3d": "I3D R50",
    "r2plus1d": "R(2+1)D-18",
    "mvit": "MViTv2-S",
    "videomae": "VideoMAE-S",
    "basicvsr": "BasicVSR",
}
"""By the names of their logs."""

PAPERS = {
    ("slowfast", "long+short"): ("SlowFast 8×8 R50, T 32", "Wu et al., Kinetics"),
    ("i3d", "long+short"): ("I3D R50", "Wu et al., Kinetics"),
    ("basicvsr", "hierarchical"): ("BasicVSR, REDS", "Lin et al., six stages (3.1 of 1.9)"),
}
"""Where `benchmarks/gpu/plans.json` has a paper's wall-clock speed-up."""

TARGET = 0.95
"""Realised / work that every shape should reach."""

_WAYS = ("", "-bf16", "-compiled", "-bf16-compiled")


def tables() -> dict[str, str]:
    """The tables, by name."""
    return {"plans": _plans(), "plans, short": _short(), "shapes": _shapes()}


def sentences() -> dict[str, list[str]]:
    """Parts of the pages' sentences, by page."""
    parts = []
    for name, found in logs():
        if found["precision"] == "fp32" and not found["compiled"]:
            coarse = [row["realised_cpu"]["median"] for row in found["shapes"][1:]]
            missed = sum(map(_misses, found["shapes"]))
            reached = f"{len(coarse) - missed} of {len(coarse)} shapes reach it"
            parts.append(f"{NETWORKS[name]} {min(coarse):.2f} to {max(coarse):.2f} ({reached})")
    again = load("networks/slowfast-cascade.json")["shapes"][-1]
    parts.append(f"again, the second had {_spread(again['realised_cpu'])}")
    return {"benchmarks/networks/README.md": parts}


def logs() -> Iterator[tuple[str, dict[str, Any]]]:
    """What was measured, by the name of the network."""
    for name in NETWORKS:
        for way in _WAYS:
            if (HERE / "networks" / f"{name}{way}.json").exists():
                yield name, load(f"networks/{name}{way}.json")


def _plans() -> str:
    rows = []
    for name, found in logs():
        network, baseline = _name(name, found), _shape(found["shapes"][0])
        for row in found["plans"]:
            if row["plan"] != "constant":
                speedups = _spread(row["cpu_speedup"], "×"), times(row["flop_speedup"], 2), _paper(name, row["plan"])
                rows.append([network, baseline, row["plan"], *speedups])
    head = ["network", "baseline", "plan", "predicted, this CPU", "by FLOPs alone", "paper, wall clock"]
    return table(head, rows, left=3)


def _short() -> str:
    """The papers' plan of each network."""
    rows = []
    for name, found in logs():
        row = next(row for row in found["plans"] if row["plan"] in ("long+short", "hierarchical"))
        speedups = times(row["cpu_speedup"]["median"]), times(row["flop_speedup"]), _paper(name, row["plan"])
        rows.append([_name(name, found), row["plan"], *speedups])
    return table(["network", "plan", "steps on this CPU", "by FLOPs alone", "paper, wall clock"], rows, left=2)


def _shapes() -> str:
    rows = []
    for name, found in logs():
        normed = len({(row["frames"], row["size"], row["batch"]) for row in found["shapes"]}) < len(found["shapes"])
        for place, row in enumerate(found["shapes"]):
            cells = [
                "" if place else _name(name, found),
                _shape(row) + (", full" if not place else ""),
                str(row["bn_batch"]) if normed else "",
                f"{row['gflop']:,.0f}",
                f"{row['cpu_ms']['median'] / 1e3:.2f} s",
                "1" if not place else _spread(row["realised_cpu"]) + (" *" if _misses(row) else ""),
                percent(row["of_peak"], 0),
            ]
            rows.append(cells)
    return table(["network", "batch shape", "BN", "GFLOP", "step", "realised / work", "of peak"], rows, left=2)


def _misses(row: Mapping[str, Any]) -> bool:
    return bool(round(row["realised_cpu"]["median"], 2) < TARGET)


def _name(name: str, found: Mapping[str, Any]) -> str:
    ways = [found["precision"]] * (found["precision"] != "fp32") + ["compiled"] * found["compiled"]
    return ", ".join([NETWORKS[name], *ways])


def _shape(row: Mapping[str, Any]) -> str:
    return f"{row['batch']}×{row['frames']}×{row['size']}²"


def _paper(name: str, plan: str) -> str:
    if (name, plan) not in PAPERS:
        return "–"
    piece, says = PAPERS[name, plan]
    claims = next(each["claims"] for each in load("gpu/plans.json") if each["name"] == piece)
    return f"{next(each['reported'] for each in claims if each['says'] == says):.3g}×"


def _spread(measured: Mapping[str, float], unit: str = "") -> str:
    return f"{measured['median']:.2f}{unit} ({measured['low']:.2f} to {measured['high']:.2f})"
