#!/usr/bin/env bash
# The cascade of videos/small on 27 actions, one factor changed at a time, beside the same changes of its control. Every
# training is tested on people that it has not seen. VCYCLE_TEST_DATA is the folder that holds mhad_depth/. It resumes
# where it stopped. SEEDS chooses a part: SEEDS=30 ./study.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
: "${VCYCLE_TEST_DATA:?the folder that holds mhad_depth/}"
export OMP_NUM_THREADS=1

recipe=benchmarks/auto/mhad_depth.yaml
people=(--data "$VCYCLE_TEST_DATA/mhad_depth" --people '^([FM]?s?[0-9]+)_')
out=benchmarks/factors
muon=(optimizer.name=timm.optim:Muon "optimizer.options={momentum: 0.95, nesterov: true}") # convolutions as matrices
arm() { # arm NAME PLAN KEY=VALUE...
    python -m benchmarks.recognition.folds train "$recipe" "${@:3}" --folds 2 --plans "$2" --named "$1" --seeds "$seed" \
        "${people[@]}" --out $out/factors.jsonl
}
for seed in ${SEEDS:-30 31}; do
    arm "batch_growth 0" cascade@1 plans.cascade.batch_growth=0
    arm "batch_growth 1/3" cascade@1 plans.cascade.batch_growth=0.333
    arm "batch_growth 1" cascade@1 plans.cascade.batch_growth=1
    arm "LR not scaled" cascade@1 plans.cascade.lr_scaling=none
    arm "LR scaled linearly" cascade@1 plans.cascade.lr_scaling=linear
    arm "all frames" cascade@1 "plans.cascade.shapes=[[1,0.5],[1,0.7071],[1,1]]" "plans.cascade.weights=[5,3,2]"
    arm "two shapes" cascade@1 "plans.cascade.shapes=[[0.5,0.5],[1,1]]" "plans.cascade.weights=[8,2]"
    arm "more steps at the full shape" cascade@1 "plans.cascade.weights=[2.5,2.5,2.5,2.5]"
    arm "EMA" cascade@1 training.ema=0.99
    arm "EMA, control" control:cascade@1 training.ema=0.99
    arm "twice the LR" cascade@1 training.lr=4.0e-3
    arm "twice the LR, control" control:cascade@1 training.lr=4.0e-3
    arm "BatchNorm over the whole batch" cascade@1 --whole-batchnorm
    arm "Muon" cascade@1 "${muon[@]}"
    arm "Muon, 1.5 lengths" cascade@1.5 "${muon[@]}"
    arm "Muon, 2 lengths" cascade@2 "${muon[@]}"
    arm "Muon, control" control:cascade@1 "${muon[@]}"
    arm "Muon, control, ½" control:cascade@0.5 "${muon[@]}"
    python -m benchmarks.factors.pruning "$recipe" --plans cascade,control:cascade --seeds "$seed" \
        "${people[@]}" --out $out/factors.jsonl
    arm "constant shape, batch 11" constant@1 training.batch=11 training.lr=3.32e-3
done
python -m benchmarks.factors.noise "$recipe" --plans cascade,control:cascade --seeds 30 \
    "${people[@]}" --out $out/noise.jsonl
