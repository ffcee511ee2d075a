#!/usr/bin/env bash
# The cascade of videos/small on 27 actions, one factor changed at a time, beside the same changes of its control; and with
# Muon on ten phrases. Every training is tested on people that it has not seen. VCYCLE_TEST_DATA is the folder that holds
# mhad_depth/ and lips_phrases/. It resumes where it stopped. SEEDS chooses a part: SEEDS=30 ./study.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
: "${VCYCLE_TEST_DATA:?the folder that holds mhad_depth/ and lips_phrases/}"
export OMP_NUM_THREADS=1

recipe=benchmarks/auto/mhad_depth.yaml
of='^([FM]?s?[0-9]+)_' # the person in the name of a file
people=(--data "$VCYCLE_TEST_DATA/mhad_depth" --people "$of")
out=benchmarks/factors
muon=(optimizer.name=timm.optim:Muon "optimizer.options={momentum: 0.95, nesterov: true}") # convolutions as matrices
soap=(optimizer.name=pytorch_optimizer:SOAP "optimizer.betas=[0.95, 0.95]") # the betas of its authors
folds() { # folds LOG SET NAME PLAN KEY=VALUE...
    python -m benchmarks.recognition.folds train "benchmarks/auto/$2.yaml" "${@:5}" --folds 2 --plans "$4" --named "$3" \
        --seeds "$seed" --data "$VCYCLE_TEST_DATA/$2" --people "$of" --out "$out/$1.jsonl"
}
arm() { folds factors mhad_depth "$@"; }
phrases() { folds phrases lips_phrases "$@"; }
trial() { folds trials mhad_depth "$@"; }
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
    arm "SOAP" cascade@1 "${soap[@]}"
    arm "SOAP, 1.5 lengths" cascade@1.5 "${soap[@]}"
    arm "SOAP, control" control:cascade@1 "${soap[@]}"
    arm "SOAP, control, ½" control:cascade@0.5 "${soap[@]}"
    phrases "Muon" cascade@1 "${muon[@]}"
    phrases "Muon, 1.5 lengths" cascade@1.5 "${muon[@]}"
    phrases "Muon, control" control:cascade@1 "${muon[@]}"
    phrases "Muon, control, ½" control:cascade@0.5 "${muon[@]}"
    python -m benchmarks.factors.pruning "$recipe" --plans cascade,control:cascade --seeds "$seed" \
        "${people[@]}" --out $out/factors.jsonl
    arm "constant shape, batch 11" constant@1 training.batch=11 training.lr=3.32e-3
done
if [ -z "${SEEDS:-}" ]; then # trials of other plans with Muon
    seed=40
    trial "Muon, control, ½" control:cascade@0.5 "${muon[@]}"
    trial "Muon, 1.5 lengths" cascade@1.5 "${muon[@]}"
    trial "Muon, 1.5 lengths, LR not scaled" cascade@1.5 "${muon[@]}" plans.cascade.lr_scaling=none
    trial "Muon, more steps at the full shape" cascade@1 "${muon[@]}" "plans.cascade.weights=[2.5,2.5,2.5,2.5]"
fi
python -m benchmarks.factors.noise "$recipe" --plans cascade,control:cascade --seeds 30 \
    "${people[@]}" --out $out/noise.jsonl
