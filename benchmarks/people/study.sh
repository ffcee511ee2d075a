#!/usr/bin/env bash
# Leave-people-out folds of two sets: the cascade as shipped in videos/small, the constant shape and its LR-matched control, at
# several lengths. VCYCLE_TEST_DATA is the folder that holds mhad_depth/ and lips_phrases/. It resumes where it stopped.
# SETS chooses a part: SETS=mhad_depth ./study.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
: "${VCYCLE_TEST_DATA:?the folder that holds mhad_depth/ and lips_phrases/}"
export OMP_NUM_THREADS=1

folds() { # folds SET PLANS SEEDS
    local people='^([FM]?s?[0-9]+)_'
    python ../recognition/folds.py train "../auto/$1.yaml" --data "$VCYCLE_TEST_DATA/$1" --people "$people" --folds 2 \
        --plans "$2" --seeds "$3" --out "$1.jsonl"
}
for set in ${SETS:-mhad_depth lips_phrases}; do
    folds "$set" constant@1,control:cascade@1,cascade@1,cascade@1.5,constant@0.5,control:cascade@0.5 30-31
    folds "$set" constant@1,control:cascade@1,cascade@1,cascade@1.5 32-34
    folds "$set" control:cascade@2,constant@2,cascade@2.5 30
    python ../recognition/folds.py table "$set.jsonl"
done
python ../recognition/folds.py picture people.png "actions=mhad_depth.jsonl" "phrases=lips_phrases.jsonl"
