#!/usr/bin/env bash
# Small transformers under plans, three seeds that chose nothing, shown on people who are in neither training nor
# validation. Processor time of one thread. VCYCLE_TEST_DATA is the folder that holds mhad_depth/. Needs transformers and
# torchvision. Goes on where it stopped. NETS and SEEDS choose a part: NETS=plain SEEDS=11 ./study.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
: "${VCYCLE_TEST_DATA:?the folder that holds mhad_depth/}"
export OMP_NUM_THREADS=1
out=${OUT:-out}

for net in ${NETS:-plain hierarchical}; do
    weights=$out/pretrain-$net
    if [ ! -d "$weights" ]; then
        vcycle train "pretrain-$net.yaml" --out "$weights"
    elif [ ! -e "$weights.done" ]; then
        vcycle train "$weights" --resume
    fi
    touch "$weights.done"
    [ -s "steps-$net.json" ] || python study.py steps "$net.yaml" --out "steps-$net.json"
    python study.py train "$net.yaml" "data=$VCYCLE_TEST_DATA/mhad_depth" "init.path=$weights" \
        --seeds "${SEEDS:-11-13}" --work "$out/$net" --out "$net.jsonl"
    cp "$out/$net/environments.json" "environments-$net.json"
    python study.py losses "$net.yaml" --work "$out/$net" --out "losses-$net.jsonl"
done
python study.py picture
(cd ../.. && python -m benchmarks.pages)
