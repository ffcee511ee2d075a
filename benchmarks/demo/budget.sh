#!/usr/bin/env bash
# How long do the constant shape and the control have to be? Accuracy on the validation split at 1/2, 1, 2 and 4
# baselines; seeds that the study does not use. Goes on where it stopped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
vcycle compare demo/digits seeds=1 --out "${OUT:-out/budget}" \
    plan=constant@0.5,constant@1,constant@2,constant@4,control:cascade@0.5,control:cascade@1,control:cascade@2,cascade,long+short
cp "${OUT:-out/budget}/results.jsonl" budget.jsonl
