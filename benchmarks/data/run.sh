#!/usr/bin/env bash
# Readers compared on generated videos: the standard grids, and every grid of the Kinetics plan. Writes two lines to
# $OUT/lines.jsonl; results.jsonl keeps lines of several runs, and is not touched.
# The loader's part goes by the clock: run it on an otherwise idle machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=${OUT:-out}
rm -f "$out/data.jsonl" "$out/kinetics/data.jsonl" # to which the command appends
vcycle bench data --out "$out"
vcycle bench data --recipe kinetics/slowfast_8x8_r50 --out "$out/kinetics"
cat "$out/data.jsonl" "$out/kinetics/data.jsonl" >"$out/lines.jsonl"
