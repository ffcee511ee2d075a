"""What the pages show of the logs of kills and flipped bits."""

from functools import cache
from typing import Any

from benchmarks.logs import lines, load, table

__all__ = ["sentences", "tables"]

FILES = {"one process": "kills", "two ranks (gloo), one of them killed": "kills-ranks"}


@cache
def _events(file: str, event: str) -> list[dict[str, Any]]:
    return [line for line in lines(f"faults/{file}.jsonl") if line["event"] == event]


@cache
def tables() -> dict[str, str]:
    """The kills."""
    rows = []
    for name, file in FILES.items():
        kills, ends = _events(file, "kill"), _events(file, "end")
        most = max(end["kills"] for end in ends)
        early = sum(kill["logged"] == 0 for kill in kills)
        workers = sum(kill["workers"] > 0 for kill in kills)
        same = sum(end["same"] for end in ends)
        rows.append([name, *map(str, (len(kills), len(ends), most, early, workers, same))])
    head = ["", "kills", "trainings", "most kills of one", "before a step was in the log", "with workers", "same bits"]
    return {"kills": table(head, rows)}


@cache
def sentences() -> dict[str, list[str]]:
    """By page."""
    ends = [end for file in FILES.values() for end in _events(file, "end")]
    same, flips = sum(end["same"] for end in ends), load("faults/flips.json")
    return {
        "benchmarks/faults/README.md": [
            f"A hundred kills, {len(ends)} trainings: **all {same} ended with the bits of the uninterrupted "
            f"training.** A training is {ends[0]['steps']} steps",
            f"Each of the {flips['flipped']:,} bits of a checkpoint of {flips['bytes']:,} bytes was flipped. The file "
            f"was refused {flips['detected']:,} times. It was read with bit-identical contents "
            f"{flips['harmless']:,} times",
        ],
    }
