#!/usr/bin/env bash
# Converts a model with an op of its own (gate.py, gate.c), runs it, compares 120 images with the float model, and
# bundles it with the op's C.
# Usage: run.sh [FOLDER]    where the results are left; without it they go into a temporary folder and are removed
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work
if [ $# -gt 0 ]; then
  mkdir -p "$1"
  out=$(cd "$1" && pwd)
fi
cd "$(dirname "$0")"

# The op's entry point, without a change of your Python: pip install . does this for good.
mkdir "$work/nmpconv_gate-1.0.dist-info"
printf 'Metadata-Version: 2.1\nName: nmpconv-gate\nVersion: 1.0\n' > "$work/nmpconv_gate-1.0.dist-info/METADATA"
printf '[nmpconv.ops]\ngate = gate:Gate\n' > "$work/nmpconv_gate-1.0.dist-info/entry_points.txt"
export PYTHONPATH=$PWD:$work

nmpconv convert model.onnx --data ../digits/calib --mean 0 --std 255 --bits 8 -o "$out/gate.nmp"
nmpconv inspect "$out/gate.nmp"
nmpconv run "$out/gate.nmp" ../digits/test/000_*.png
nmpconv eval "$out/gate.nmp" --data ../digits/test/labels.csv --reference model.onnx --json > "$out/eval.json"
python3 ../floors.py "$out/eval.json" n=120 top1=98 agreement=99 sqnr_db=34
nmpconv bundle "$out/gate.nmp" -o "$work/bundle"
grep -q 'X(gate_op)' "$work/bundle/src/base/build.h"
