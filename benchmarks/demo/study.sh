#!/usr/bin/env bash
# The demo's four plans with five seeds that chose nothing, shown on the test split. Goes on where it stopped.
# Run it on an otherwise idle machine: the times are wall-clock times.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=${OUT:-out/study}
vcycle compare demo/digits seeds=10-14 --out "$out" plan=constant,control:cascade,long+short,cascade
cp "$out/results.jsonl" study.jsonl
cp "$out/comparison.json" "$out/comparison.png" "$out/environments.json" .
