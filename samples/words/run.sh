#!/usr/bin/env bash
# Speaks words, converts the model with its state, compares 350 words with the float model, and listens to a WAV file.
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

python3 words.py "$data"
nmpconv convert model.onnx --data "$data/calib.npy" --labels labels.txt -o "$out/words.nmp" \
  --state h_next=h --audio rate=8000,window=512,hop=256,bands=20
nmpconv eval "$out/words.nmp" --data "$data/test.npz" --reference model.onnx --json > "$out/eval.json"
python3 ../floors.py "$out/eval.json" n=350 top1=95 agreement=98 sqnr_db=25
nmpconv run "$out/words.nmp" "$data/spoken.wav"
rm -r "$data"
