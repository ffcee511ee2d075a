#!/usr/bin/env bash
# Fine-tuning on a toy: the demo's network, trained on its 12 classes, learns 8 others from 12 videos each.
# Goes on where it stopped. Steps and samples do not depend on what else runs, times do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=${OUT:-out}
[ -f "$out/trained/plan.json" ] || vcycle train demo/digits plan=cascade --out "$out/trained"
digits='digits: [0, 4], motions: [up-left, up-right, down-left, down-right], clips: {train: 12, val: 12, test: 50}'
look='frames: 24, size: 40, digit_size: 24, contrast: [0.6, 0.9], texture: 0.05, jitter: 0.0, noise: 0.02'
given=(
  model=r3d_tiny 'model.options={temporal_kernels: [1, 3, 3], temporal_strides: [1, 2, 2], zero_gamma: false}'
  "init=$out/trained" "data.digits={$digits, $look}" data.cache=40 data.workers=0
  sampling.short_side=null 'sampling.field=[0.8, 1.0]' 'sampling.span=[0.8, 1.0]' sampling.flip=false
  training.frames=12 training.size=32 training.min_steps=400 training.lr=3e-3
  run.device=cpu run.validate_every=1000 run.save_every=100000
)
equal='plans.cascade.weights=[1, 1, 1]' more='plans.cascade.weights=[1, 1, 2]'
vcycle compare finetune "${given[@]}" "$equal" plan=constant,cascade seeds=3 --out "$out/equal"
vcycle compare finetune "${given[@]}" "$equal" plan=constant@0.43,cascade,control:cascade@0.43 seeds=3 --out "$out/short"
vcycle compare finetune "${given[@]}" "$more" plan=cascade,cascade@2 seeds=3 --out "$out/more"
for name in equal short more; do cp "$out/$name/results.jsonl" "$name.jsonl"; done
