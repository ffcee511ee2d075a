#!/usr/bin/env bash
# A small BasicVSR under the hierarchical plan, its control and the constant shape, with five seeds that chose nothing,
# tested on eight clips of DAVIS and two of Vid4. One thread of one core; resumes where it stopped. VCYCLE_TEST_DATA is
# the folder that holds davis/ and vid4/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
: "${VCYCLE_TEST_DATA:?the folder that holds davis/ and vid4/}"
export OMP_NUM_THREADS=1
out=$(realpath -m "${OUT:-out}")

[ -f "$out/clips/test/frames.json" ] || python prepare.py "$VCYCLE_TEST_DATA" "$out/clips"
vcycle compare superres.yaml "data=$out/clips" plan=constant,control:hierarchical,hierarchical seeds=0-4 \
    --out "$out/study"
cp "$out/study/results.jsonl" study.jsonl
cp "$out/study/comparison.png" "$out/study/environments.json" .
python clips.py "$out/study" "$out/clips"

# BasicSR's own training beside vcycle's; README.md says what it needs. Without it, this part is left out.
cd ../..
if python -c 'from importlib.util import find_spec; raise SystemExit(find_spec("basicsr") is None)'; then
    recipe=(benchmarks/superresolution/superres.yaml training.size=48)
    beside=("data=$out/clips" --work "$out/basicsr" --out benchmarks/superresolution/basicsr.jsonl)
    python -m benchmarks.superresolution.basicsr_arms turns "${recipe[@]}" training.steps=700 "${beside[@]}"
    python -m benchmarks.superresolution.basicsr_arms train "${recipe[@]}" training.steps=150 "${beside[@]}"
fi

python -m benchmarks.comparisons superresolution "$out/study"
python -m benchmarks.pages
