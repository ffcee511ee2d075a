#!/usr/bin/env bash
# Both sets under every plan and length, with five seeds that chose nothing (two for the larger batch), shown on the test
# split. One thread of one core; goes on where it stopped. VCYCLE_TEST_DATA is the folder that holds gestures/ and fights/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
: "${VCYCLE_TEST_DATA:?the folder that holds gestures/ and fights/}"
export OMP_NUM_THREADS=1
out=${OUT:-out}

study() { # study SET FOLDER SEEDS PLANS [KEY=VALUE...]
    taskset -c "${CORE:-0}" vcycle compare "$1.yaml" "data=$VCYCLE_TEST_DATA/$1" "seeds=$3" \
        --out "$out/$2" "plan=$4" "${@:5}"
    cp "$out/$2/results.jsonl" "$2.jsonl"
    cp "$out/$2/comparison.json" "$2.json"
}
budgets=constant@0.25,constant@0.5,constant,control:cascade@0.25,control:cascade@0.5,control:cascade
budgets+=,long,short,long+short,cascade@0.5,cascade
study gestures gestures 10-14 "$budgets,constant@2,cascade@1.5"
study fights fights 10-14 "$budgets"
# Twice the batch, and the LR that goes with it: does the constant shape do better so?
study gestures gestures-b8 10-11 constant training.batch=8 training.lr=4.0e-3
python picture.py accuracy.png gestures=gestures.jsonl fights=fights.jsonl
cp "$out/gestures/environments.json" .
