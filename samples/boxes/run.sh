#!/usr/bin/env bash
# Converts the boxes model at 8 bits, looks into the file, and compares its boxes in 60 images with the true ones.
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

nmpconv convert model.onnx --data calib --mean 0 --std 255 --bits 8 -o "$out/boxes.nmp"
nmpconv inspect "$out/boxes.nmp"
nmpconv eval "$out/boxes.nmp" --data test --metric ap --decoder yolox --boxes test/instances.json \
  --reference model.onnx --json > "$out/eval.json"
python3 ../floors.py "$out/eval.json" n=60 ap=60 ap50=80
