#!/usr/bin/env bash
# Cross-validation of cascades whose batch grows less, the constant shape and the control, over all videos of both
# sets. VCYCLE_TEST_DATA is the folder that holds gestures/ and fights/. Goes on where it stopped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
: "${VCYCLE_TEST_DATA:?the folder that holds gestures/ and fights/}"
export OMP_NUM_THREADS=1
grown=(plans.cascade.batch_growth=0.667 'plans.cascade.weights=[5, 1.5, 1.5, 2]')
taskset -c "${CORE:-0}" python folds.py train gestures.yaml "${grown[@]}" --data "$VCYCLE_TEST_DATA/gestures" \
    --plans cascade@1.7,control:cascade@2,constant@2 --seeds 20-24 --out folds-gestures.jsonl
taskset -c "${CORE:-0}" python folds.py train gestures.yaml --data "$VCYCLE_TEST_DATA/gestures" \
    --plans cascade@2 --seeds 20-24 --out folds-gestures-usual.jsonl # with the usual batches
taskset -c "${CORE:-0}" python folds.py train gestures.yaml "${grown[@]}" --data "$VCYCLE_TEST_DATA/gestures" \
    --plans cascade@1.4 --seeds 20-24 --out folds-gestures.jsonl
# Again, with seeds and machine of its own and all in turns, when the rest was known
taskset -c "${CORE:-0}" python folds.py train gestures.yaml "${grown[@]}" --data "$VCYCLE_TEST_DATA/gestures" \
    --plans cascade@1.4,cascade@1.7,control:cascade@2,constant@2 --seeds 25-29 --out folds-gestures-again.jsonl
taskset -c "${CORE:-0}" python folds.py train gestures.yaml --data "$VCYCLE_TEST_DATA/gestures" \
    --plans cascade@2 --seeds 25-29 --out folds-gestures-usual-again.jsonl
taskset -c "${CORE:-0}" python folds.py train fights.yaml "${grown[@]}" --data "$VCYCLE_TEST_DATA/fights" --shuffled \
    --plans cascade@0.9,control:cascade@1,constant@1 --seeds 20-24 --out folds-fights.jsonl
space=(plans.cascade.batch_growth=0.667 'plans.cascade.shapes=[[1, 0.5], [1, 0.7071], [1, 1]]'
    'plans.cascade.weights=[5, 1.5, 2]' plans.cascade.lr_scaling=none)
taskset -c "${CORE:-0}" python folds.py train fights.yaml "${space[@]}" --data "$VCYCLE_TEST_DATA/fights" --shuffled \
    --plans cascade@1.15,control:cascade@2,constant@2 --seeds 20-24 --out folds-fights-space.jsonl
python folds.py table folds-gestures{,-again,-usual,-usual-again}.jsonl --times folds-gestures{,-usual}-again.jsonl
for results in folds-fights*.jsonl; do python folds.py table "$results"; done
python folds.py picture folds.png gestures=folds-gestures.jsonl,folds-gestures-again.jsonl fights=folds-fights-space.jsonl
