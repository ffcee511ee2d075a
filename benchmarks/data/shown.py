"""What the pages show of the logs of engines and long lists."""

from collections.abc import Mapping
from typing import Any

from benchmarks.logs import lines, table

__all__ = ["sentences", "tables"]

PARTS = {
    "floor": "reading the bytes",
    "read": "`read`",
    "train": "`train`",
    "sources": "`sources`",
    "plan": "`plan`, the whole command",
}


def tables() -> dict[str, str]:
    """By name."""
    return {"engines": _engines(), "lists": _lists()}


def sentences() -> dict[str, list[str]]:
    """By page."""
    idle = _idle()
    ratios = idle["throughput_per_core_over_direct"]
    one, two = (f"{ratios[way]['median']:.2f}" for way in ("local, 1", "local, 2"))
    ray_one, ray_two = (f"{ratios[way]['median']:.2f}" for way in ("ray, 1", "ray, 2"))
    job = idle["main_process_cpu_seconds_per_job"]
    local, ray = (f"{1e3 * job[f'{way}, 2']:.1f} to {1e3 * job[f'{way}, 1']:.1f} ms" for way in ("local", "ray"))
    before, after = (
        f"{line['cpu_s']:.1f} s and {line['peak_mb']:,} MB"
        for line in sorted(lines("data/lists.jsonl"), key=lambda line: str(line["code"]), reverse=True)
        if (line["lines"], line["part"]) == (10_000_000, "read")
    )
    return {
        "benchmarks/data/README.md": [
            f"**Measured: {after}**, for a list of 467 MB whose files are not looked for; {before} before the change.",
            f"on an idle machine: {one} and {two} with local workers, {ray_one} and {ray_two} on Ray",
            f"costs the main process {local} of processor time with local workers, and {ray} with Ray",
        ],
    }


def _idle() -> dict[str, Any]:
    """The run on an idle machine, the only one with Ray."""
    (idle,) = (line for line in lines("data/engines.jsonl") if "ray, 1" in line.get("cpu_seconds_per_file", {}))
    return idle


def _engines() -> str:
    rows = []
    for line in lines("data/engines.jsonl"):
        spent = line.get("cpu_seconds_per_file", {})
        for way in (way for way in spent if not way.startswith("direct")):
            engine, workers = way.split(", ")
            plain = spent.get(f"direct, {workers}", spent["direct, 1"])
            ratio = line["throughput_per_core_over_direct"][way]
            files = f"{line['files']} of {line['frames']} frames"
            rows.append([files, engine, workers, _spread(plain), _spread(spent[way]), _spread(ratio)])
    head = ["files", "engine", "workers", "plain loops, CPU s a file", "engine, CPU s a file"]
    return table([*head, "files per CPU s, engine over plain"], rows, left=2)


def _lists() -> str:
    found = {(line["lines"], line["part"], line["code"]): line for line in lines("data/lists.jsonl")}
    rows = []
    for count in sorted({count for count, _, _ in found}):
        for part in PARTS:
            before, after = (found.get((count, part, code)) for code in ("before", "after"))
            if before or after:
                cells = [_cell(line, key) for key in ("cpu_s", "peak_mb") for line in (before, after)]
                rows.append([f"{count:,}", PARTS[part], *cells])
    return table(["lines", "part", "before, s", "after, s", "before, MB", "after, MB"], rows, left=2)


def _cell(line: Mapping[str, Any] | None, key: str) -> str:
    if line is None:
        return ""
    if key == "cpu_s":
        return f"{line[key]:.1f}" if line[key] >= 1 else f"{line[key]:.2f}"
    return f"{line[key]:,}"


def _spread(found: Mapping[str, float]) -> str:
    return f"{found['median']:.2f} ({found['low']:.2f} to {found['high']:.2f})"
