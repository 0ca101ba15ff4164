#!/usr/bin/env bash
# Draws sounds, converts the model at 8 bits, compares 240 sounds with the float model, and converts it to a step.
# Usage: run.sh [FOLDER]    where the results are left; without it they go into a temporary folder and are removed
set -euo pipefail
if [ $# -gt 0 ]; then
  mkdir -p "$1"
  out=$(cd "$1" && pwd)
else
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
data=$(mktemp -d)
cd "$(dirname "$0")"

python3 sounds.py "$data"
nmpconv convert model.onnx --data "$data/calib.npy" --labels labels.txt -o "$out/sounds.nmp"
nmpconv eval "$out/sounds.nmp" --data "$data/test.npz" --reference model.onnx --json > "$out/eval.json"
python3 ../floors.py "$out/eval.json" n=240 top1=95 agreement=98 sqnr_db=25
nmpconv convert model.onnx --data "$data/calib.npy" --labels labels.txt --stream axis=2,hop=2 -o "$data/step.nmp"
rm -r "$data"
