#!/usr/bin/env bash
# The demo's four plans with five seeds that chose nothing, shown on the test split. Goes on where it stopped.
# Run it on an otherwise idle machine: the times are wall-clock times.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=${OUT:-out/study}
vcycle compare demo/digits seeds=10-14 --out "$out" plan=constant,control:cascade,long+short,cascade
cp "$out/results.jsonl" study.jsonl
cp "$out/comparison.json" "$out/comparison.png" .
python - >environment.json <<'P'
import json, os, platform, sys
from importlib.metadata import version
packages = ("vcycle", "torch", "numpy", "av", "lightning-fabric", "torchmetrics")
print(json.dumps({
    "python": sys.version.split()[0], "machine": platform.machine(), "system": platform.system(),
    "cores": len(os.sched_getaffinity(0)), "versions": {p: version(p) for p in packages},
}, indent=1))
P
