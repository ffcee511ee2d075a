#!/usr/bin/env bash
# Three peers beside vcycle on mhad_depth: what a part of each training costs, in turns, then each training to its end.
# VCYCLE_TEST_DATA is the folder that holds mhad_depth/. It resumes where it stopped; README.md says what it needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
: "${VCYCLE_TEST_DATA:?the folder that holds mhad_depth/}"
export OMP_NUM_THREADS=1
out=${OUT:-benchmarks/peers/out}
recipe=(benchmarks/auto/mhad_depth.yaml "data=$VCYCLE_TEST_DATA/mhad_depth" --work "$out")

python -m benchmarks.peers.peers turns "${recipe[@]}" --out benchmarks/peers/turns.jsonl
python -m benchmarks.peers.peers train "${recipe[@]:0:2}" run.seed=40 "${recipe[@]:2}" --out benchmarks/peers/trainings.jsonl
