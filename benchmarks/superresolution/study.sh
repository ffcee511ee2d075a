#!/usr/bin/env bash
# A small BasicVSR under every plan of super-resolution, with three seeds that chose nothing, tested on two clips of
# Vid4. One thread of one core; goes on where it stopped. VCYCLE_TEST_DATA is the folder that holds scenes/ and vid4/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
: "${VCYCLE_TEST_DATA:?the folder that holds scenes/ and vid4/}"
export OMP_NUM_THREADS=1
out=${OUT:-out}
plans=constant,control:hierarchical,spatial,temporal,synchronous,hierarchical,hierarchical+scaled

[ -f "$out/clips/test/frames.json" ] || python prepare.py "$VCYCLE_TEST_DATA"/{scenes,vid4} "$out/clips"
taskset -c "${CORE:-0}" vcycle compare superres.yaml "data=$out/clips" "plan=$plans" seeds=10-12 --out "$out/study"
taskset -c "${CORE:-0}" vcycle compare superres.yaml "data=$out/clips" \
    plan=constant,control:hierarchical,hierarchical seeds=13-13 --out "$out/study"
taskset -c "${CORE:-0}" vcycle compare superres.yaml "data=$out/clips" \
    plan=constant,control:hierarchical,hierarchical seeds=20-25 --out "$out/again"
taskset -c "${CORE:-0}" vcycle bench superres.yaml data.epoch=104 --plans "$plans" --repeats 3 --seconds 0.5 --json \
    >steps.json
for run in "$out"/study/runs/*; do
    [ -f "$run/eval-test.json" ] || vcycle eval "$run" --split test
done
cp "$out/study/results.jsonl" results.jsonl
cp "$out/again/results.jsonl" again.jsonl
(cd ../.. && python -m benchmarks.superresolution.pooled)
cp "$out/study/environments.json" environment.json
python summary.py "$out/study" "$out/clips" | tee summary.txt
