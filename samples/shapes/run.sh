#!/usr/bin/env bash
# Converts the shapes model at 8 bits, looks into the file, runs one image and compares 120 with the float model.
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

nmpconv convert model.onnx --data calib --labels labels.txt --bits 8 -o "$out/shapes.nmp" \
  --mean 123.675,116.28,103.53 --std 58.395,57.12,57.375
nmpconv inspect "$out/shapes.nmp"
nmpconv run "$out/shapes.nmp" test/000_circle.png
nmpconv eval "$out/shapes.nmp" --data test/labels.csv --reference model.onnx --json > "$out/eval.json"
python3 ../floors.py "$out/eval.json" n=120 top1=97 agreement=98 sqnr_db=25
