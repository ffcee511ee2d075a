#!/usr/bin/env bash
# The demo with five seeds that chose nothing, shown on the test split; the demo's own are the first four.
# Resumes where it stopped. One thread per training, so that the ratio of processor times is that of the work done.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export OMP_NUM_THREADS=1
out=$(realpath -m "${OUT:-out/study}")
vcycle compare demo/digits seeds=0-4 --margin 1.5 --out "$out" plan=constant,control:cascade,cascade
cp "$out/results.jsonl" study.jsonl
cp "$out/comparison.png" "$out/environments.json" .
cp comparison.png ../../docs/images/demo.png
(cd ../.. && python -m benchmarks.comparisons demo "$out" && python -m benchmarks.pages)
