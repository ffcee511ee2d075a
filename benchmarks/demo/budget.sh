#!/usr/bin/env bash
# How long do the constant shape and the control have to be? Accuracy on the validation split at 1/2, 1 and 2
# baselines; a seed that the study does not use. Goes on where it stopped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
vcycle compare demo/digits seeds=1 --out "${OUT:-out/budget}" \
    plan=constant@0.5,constant@1,constant@2,control:cascade@0.5,control:cascade@1,cascade
cp "${OUT:-out/budget}/results.jsonl" budget.jsonl
