"""Compares measured throughput and memory with vcycle's targets."""

from collections.abc import Mapping
from typing import Any

from vcycle.bench.data.readers import OTHERS

__all__ = ["targets"]

_PREPARED = (("vcycle, prepared video", 8.0), ("vcycle, prepared array", 50.0))
_AS_THEY_ARE = 1.2
_LOADER = {1: 0.8, 2: 0.9}
_LONG_CLIP = 10.0  # milliseconds from which on two workers must deliver twice
_MEMORY = 50.0


def targets(found: Mapping[str, Any], *, standard: bool) -> list[dict[str, Any]]:
    """Each target with its measured value on generated videos.

    Args:
        found: Sets, loader and memory from ``bench_data``.
        standard: Whether the grids are the default ones, for which the targets of prepared data hold.
    """
    rows = []
    for grid in found["sets"][0]["grids"]:
        name = f"{grid['frames']} frames of {grid['size']} pixels"
        readers = grid["readers"]
        if "plain loop" in readers:
            goals = (("vcycle", _AS_THEY_ARE), *(_PREPARED if standard else ()))
            rows += [_at_least(f"{who} over a plain loop, {name}", of, readers[who]["over_plain"]) for who, of in goals]
        for other in OTHERS:
            if other in readers:
                rows.append(_no_slower(f"vcycle over {other}, {name}", readers[other]["under_vcycle"]))
    for row in found["loader"]:
        long = row["bare_ms"]["median"] >= _LONG_CLIP
        # The target is for two workers if clips are slow, and for one worker if they are fast.
        if row["workers"] == (2 if long else 1):
            workers = "1 worker" if row["workers"] == 1 else f"{row['workers']} workers"
            title = f"loader with {workers} over {row['workers']} x bare loop, {row['source']}"
            rows.append(_at_least(title, _LOADER[row["workers"]], row["share"]))
    memory = found["memory"]
    rows.append(
        {
            "what": f"memory growth over {memory['decodes']:,} decodes, MB",
            "target": f"< {_MEMORY:g}",
            "measured": {"median": memory["megabytes"], "low": None, "high": None},
            "reached": memory["megabytes"] < _MEMORY,
        }
    )
    return rows


def _at_least(what: str, least: float, measured: Mapping[str, float]) -> dict[str, Any]:
    return {"what": what, "target": f">= {least:g}", "measured": dict(measured), "reached": measured["median"] >= least}


def _no_slower(what: str, measured: Mapping[str, float]) -> dict[str, Any]:
    """Not slower within noise: the fastest turn reaches 1."""
    return {"what": what, "target": ">= 1", "measured": dict(measured), "reached": measured["high"] >= 1}
