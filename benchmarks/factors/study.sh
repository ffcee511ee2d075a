#!/usr/bin/env bash
# The cascade of videos/small on 27 actions, one factor changed at a time, beside the same changes of its control. Every
# training is tested on people that it has not seen. VCYCLE_TEST_DATA is the folder that holds mhad_depth/. It resumes
# where it stopped. SEEDS chooses a part: SEEDS=30 ./study.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
: "${VCYCLE_TEST_DATA:?the folder that holds mhad_depth/}"
export OMP_NUM_THREADS=1

arm() { # arm NAME PLAN KEY=VALUE...
    python ../recognition/folds.py train ../auto/mhad_depth.yaml "${@:3}" --data "$VCYCLE_TEST_DATA/mhad_depth" \
        --people '^([FM]?s?[0-9]+)_' --folds 2 --plans "$2" --named "$1" --seeds "$seed" --out factors.jsonl
}
muon=(optimizer.name=timm.optim:Muon "optimizer.options={momentum: 0.95, nesterov: true}") # convolutions as matrices
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
    for lr in 2.0e-3 1.0e-3; do
        arm "Muon, LR $lr" cascade@1 "${muon[@]}" training.lr=$lr
        arm "Muon, LR $lr, control" control:cascade@1 "${muon[@]}" training.lr=$lr
    done
    arm "Muon, constant shape" constant@1 "${muon[@]}"
    arm "constant shape, batch 11" constant@1 training.batch=11 training.lr=3.32e-3
done
python -m benchmarks.factors.noise ../auto/mhad_depth.yaml --data "$VCYCLE_TEST_DATA/mhad_depth" --people '^([FM]?s?[0-9]+)_' \
    --plans cascade,control:cascade --seeds 30-31 --out noise.jsonl
