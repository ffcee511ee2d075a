"""Both sets in one picture: accuracy on test against processor time, every plan at every length.

Usage: python picture.py OUT.png SET=RESULTS.jsonl...   The files are what `vcycle compare` writes.
"""

import json
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from vcycle.report.lengths import lengths_figure
from vcycle.tasks.base import measures


def comparison(file: str) -> dict[str, Any]:
    """The arms of a results file, however many seeds each has."""
    arms: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in Path(file).read_text().splitlines():
        run = json.loads(line)
        arms[run["arm"]].append(run)
    rows = {
        name: {
            "cpu_seconds": fmean(run["cpu_seconds"] for run in runs),
            "value": fmean(run["test"] for run in runs),
            "value_std": stdev(run["test"] for run in runs) if len(runs) > 1 else 0.0,
        }
        for name, runs in arms.items()
    }
    return {"measure": asdict(measures()["top-1"]), "split": "test", "arms": rows}


sets = dict(argument.split("=") for argument in sys.argv[2:])
figure = lengths_figure({name: comparison(file) for name, file in sets.items()}, "cpu_seconds")
figure.savefig(sys.argv[1], dpi=150)
