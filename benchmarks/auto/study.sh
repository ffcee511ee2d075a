#!/usr/bin/env bash
# What `vcycle plan auto` proposes on three sets, and every plan of its pilot, the constant shape and its control trained in
# full for the same time. Processor time of one thread. VCYCLE_TEST_DATA is the folder that holds mhad_depth/ and
# lips_phrases/. It resumes where it stopped.
# SETS and SEEDS choose a part: SETS=demo SEEDS=10 ./study.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
: "${VCYCLE_TEST_DATA:?the folder that holds mhad_depth/ and lips_phrases/}"
export OMP_NUM_THREADS=1
out=${OUT:-out}

study() { # study NAME RECIPE [KEY=VALUE...]
    [ -s "$1.json" ] || vcycle plan auto "${@:2}" --work "$out/$1/auto" --json > "$1.json.part"
    [ -s "$1.json" ] || mv "$1.json.part" "$1.json"
    python full.py train "$1.json" "${@:2}" --seeds "${SEEDS:-10,11,12}" --work "$out/$1/full" --out "$1.jsonl"
    python full.py table "$1.json" "$1.jsonl"
}
for set in ${SETS:-demo mhad_depth lips_phrases}; do
    case $set in
        demo) study demo demo/digits run.threads=1 ;;
        *) study "$set" "$set.yaml" "data=$VCYCLE_TEST_DATA/$set" ;;
    esac
done
