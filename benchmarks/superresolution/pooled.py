"""The hierarchical plan against the constant shape and its control, over the seeds of both studies.

python pooled.py results.jsonl again.jsonl

PSNR is the mean of the test clips; intervals are Student's, of 95 %, over the differences within a seed. Times are
those of the last file alone.
"""

import json
import sys
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from scipy.stats import t

PLAN = "hierarchical"

studies: list[dict[tuple[str, int], Any]] = [
    {(run["arm"], run["seed"]): run for run in map(json.loads, Path(file).read_text(encoding="utf-8").splitlines())}
    for file in sys.argv[1:]
]
for arm in ("constant", f"control:{PLAN}", PLAN):
    found = [run["test"] for study in studies for (name, _), run in study.items() if name == arm]
    print(f"{arm}: {fmean(found):.3f} dB ± {stdev(found):.3f}, {len(found)} seeds")
for other in ("constant", f"control:{PLAN}"):
    pairs = [[(study[PLAN, seed], study[other, seed]) for name, seed in study if name == PLAN] for study in studies]
    differences = [run["test"] - of["test"] for study in pairs for run, of in study]
    half = float(t.ppf(0.975, len(differences) - 1)) * stdev(differences) / len(differences) ** 0.5
    times = [of["cpu_seconds"] / run["cpu_seconds"] for run, of in pairs[-1]]
    print(
        f"against {other}: {fmean(differences):+.3f} dB ({fmean(differences) - half:+.3f} to "
        f"{fmean(differences) + half:+.3f}), {median(times):.2f}× faster in processor time ({min(times):.2f}× to "
        f"{max(times):.2f}×)"
    )
