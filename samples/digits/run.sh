#!/usr/bin/env bash
# Converts the digits model at 8 bits, looks into the file, runs one image and compares 120 with the float model.
# Usage: run.sh [FOLDER]    where the results are left; without it they go into a temporary folder and are removed
set -euo pipefail
if [ $# -gt 0 ]; then
  mkdir -p "$1"
  out=$(cd "$1" && pwd)
else
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
cd "$(dirname "$0")"

nmpconv convert model.onnx --data calib --mean 0 --std 255 --bits 8 -o "$out/digits.nmp"
nmpconv inspect "$out/digits.nmp"
nmpconv run "$out/digits.nmp" test/000_*.png
nmpconv eval "$out/digits.nmp" --data test/labels.csv --reference model.onnx --json > "$out/eval.json"
python3 ../floors.py "$out/eval.json" n=120 top1=98 agreement=99 sqnr_db=34
