#!/usr/bin/env bash
# One real training on a GPU: mhad_depth with R(2+1)D-18 from scratch, from prepared arrays, under the constant shape, its
# LR-matched control and the cascade of one and of one and a half lengths; wall-clock seconds to accuracy on people that no
# training has seen. It resumes where it stopped. VCYCLE_TEST_DATA is the folder that holds mhad_depth/.
# KEY=VALUE arguments change the recipe: ./training.sh run.device=cpu model=r3d_tiny training.size=32 training.epochs=2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
: "${VCYCLE_TEST_DATA:?the folder that holds mhad_depth/}"
out=$(realpath -m "${OUT:-out/training}")
mkdir -p "$out"
vcycle prepare "$VCYCLE_TEST_DATA/mhad_depth" "$out/arrays" --to array --levels 56,112
for length in 1 1.5; do
    vcycle compare training.yaml "data=$out/arrays" plan=constant,cascade "plans.cascade.epoch_factor=$length" \
        "seeds=${SEEDS:-3}" --margin 1.5 --out "$out/cascade-$length" "$@"
done
