"""What `run.py` found, as Markdown: a table for each network, and one of speed-ups beside what the papers report."""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["markdown"]

Found = Mapping[tuple[str, int, str], Mapping[str, Any]]
"""What was measured, by piece, place of the shape, and mode."""

_MODES = ("eager", "graphs")


def markdown(pieces: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]) -> str:
    """The report.

    Args:
        pieces: `plans.json`.
        lines: `results.jsonl`.
    """
    found: Found = {tuple(line["cell"]): line for line in lines if "cell" in line}
    parts = ["# Step times on a GPU", *_environments(lines), "## Beside the papers", *_claims(pieces, found)]
    for piece in pieces:
        if any(key[0] == piece["name"] for key in found):
            parts += [f"## {piece['name']}", f"`{piece['recipe']}`", _shapes(piece, found)]
    return "\n\n".join(parts) + "\n"


def _environments(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    seen = list(dict.fromkeys(_words(line["environment"]) for line in lines if "environment" in line))
    smoke = any(line.get("environment", {}).get("smoke") for line in lines)
    warning = ["**At reduced width and size, on a CPU: these figures mean nothing but that everything ran.**"]
    return ["\n".join(f"- {words}" for words in seen), *(warning if smoke else [])]


def _words(environment: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in environment.items()
        if name != "smoke"
    )


def _claims(pieces: Sequence[Mapping[str, Any]], found: Found) -> list[str]:
    """Speed-ups, integrated over whole plans, where every shape of one was measured."""
    rows = []
    for piece in pieces:
        for claim in piece["claims"]:
            work = _total(claim, "steps", [shape["gflop"] for shape in piece["shapes"]])
            base = _total(claim, "constant", [shape["gflop"] for shape in piece["shapes"]])
            cells = [piece["name"], claim["says"], f"{claim['reported']:.3g}", f"{base / work:.2f}"]
            for mode in _MODES:
                took = [_milliseconds(found, piece, place, mode) for place in range(len(piece["shapes"]))]
                fast, slow = _total(claim, "steps", took), _total(claim, "constant", took)
                cells.append(f"{slow / fast:.2f}" if fast and slow else "")
            rows.append(cells)
    head = ("network", "figure", "reported", "by FLOPs", "eager", "CUDA graphs")
    note = (
        "How many times faster than the constant shape: as reported (of super-resolution, what is left without the "
        "larger minibatch on more GPUs), by the work alone, and put together from the steps measured here. Loading is "
        "not in any of these columns but the reported one of Wu et al. and PaddleVideo."
    )
    return [_table(head, rows), note]


def _total(claim: Mapping[str, Any], which: str, each: Sequence[float | None]) -> float:
    """Sum over a plan's steps; 0 where a shape was not measured."""
    counts = {int(place): count for place, count in claim[which].items()}
    values = [each[place] for place in counts]
    if any(value is None for value in values):
        return 0.0
    return float(sum(count * (each[place] or 0.0) for place, count in counts.items()))


def _shapes(piece: Mapping[str, Any], found: Found) -> str:
    head: tuple[str, ...] = (
        "clips × frames × side",
        "BN",
        "GFLOP",
        "eager, ms",
        "forward",
        "backward",
        "optimizer",
        "MiB",
        "launch",
    )
    more = list(dict.fromkeys(mode for shape in piece["shapes"] for mode in shape["more"]))
    head += ("realised / work", "graphs, ms", "realised / work", *(f"{mode}, ms" for mode in more))
    rows = []
    for place, shape in enumerate(piece["shapes"]):
        name = (piece["name"], place)
        eager, graphs = (found.get((*name, mode), {}) for mode in _MODES)
        parts = eager.get("parts_ms", {})
        rows.append(
            [
                f"{shape['batch']}×{shape['frames']}×{shape['size']}²",
                str(shape["bn_batch"]),
                f"{shape['gflop']:,.0f}",
                _step(eager),
                *(f"{parts[part]:.1f}" if part in parts else "" for part in ("forward", "backward", "optimizer")),
                f"{eager['memory_mib']:,}" if "memory_mib" in eager else "",
                f"{eager['launch_share']:.0%}" if "launch_share" in eager else "",
                _realised(piece, found, place, "eager"),
                _step(graphs),
                _realised(piece, found, place, "graphs"),
                *(_step(found.get((*name, mode), {})) for mode in more),
            ]
        )
    return _table(head, rows)


def _step(line: Mapping[str, Any]) -> str:
    if "step_ms" not in line:
        return str(line.get("failed", ""))
    spread = line["step_ms"]
    return f"{spread['median']:.1f} ({spread['low']:.1f} to {spread['high']:.1f})"


def _realised(piece: Mapping[str, Any], found: Found, place: int, mode: str) -> str:
    """The rate of arithmetic over that of the full shape."""
    own, base = (_milliseconds(found, piece, each, mode) for each in (place, 0))
    if own is None or base is None:
        return ""
    shapes = piece["shapes"]
    return f"{shapes[place]['gflop'] / own / (shapes[0]['gflop'] / base):.2f}"


def _milliseconds(found: Found, piece: Mapping[str, Any], place: int, mode: str) -> float | None:
    line = found.get((piece["name"], place, mode), {})
    return line["step_ms"]["median"] if "step_ms" in line else None


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
