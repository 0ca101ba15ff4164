"""Accuracy of 8 bits: other quantizers after training and ours, on the same models and images: `make bench-accuracy`.

Every quantizer calibrates with all calibration samples of the zoo's split and is judged on the other samples, against
the float model. Of a peer's settings the one with the best SQNR on those counts; ours has no choice. A quantizer that
is not installed, or cannot take a model, is named and left out. What peers came to lies in --folder and is used again;
ours is converted anew where the converter has changed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

import nmpconv
from accuracy import cases, table
from accuracy.table import Score
from nmpconv.base.sqnr import sqnr_db, top_k
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.evaluation.float_reference import infer
from nmpconv.evaluation.task_metrics import AveragePrecision
from nmpconv.runtime.feed import Feed
from nmpconv.runtime.interpreter import load

BENCH = Path(__file__).resolve().parents[1]
OURS = {"nmpconv": "default", "nmpconv, strict": "strict"}  # column and widths
PEERS = {  # column, what `quantizers` calls it, and its settings; the first is its default
    "ONNX Runtime": ("onnxruntime", ("MinMax", "Percentile")),
    "NNCF": ("nncf", ("default", "min-max")),
    "LiteRT": ("litert", ("default", "min-max")),
}
COLUMNS = (*OURS, *PEERS)


def score(case: cases.Case, outputs: Sequence[np.ndarray]) -> Score:
    """outputs: those of the model for all test samples, stacked, in the model's order; the layout does not matter."""
    pairs = list(zip(case.wanted.items(), outputs, strict=True))
    sqnr = {name: sqnr_db(wanted, outputs) for (name, wanted), outputs in pairs}
    if case.labels is None:
        return Score(sqnr, boxes=_boxes(case, outputs))
    ours, theirs = ([top_k(row, 1)[0] for row in rows] for rows in (outputs[0], next(iter(case.wanted.values()))))
    return Score(sqnr, _percent(ours, theirs), _percent(ours, case.labels))


def _boxes(case: cases.Case, outputs: Sequence[np.ndarray]) -> dict[str, float]:
    """AP and AP50 of a detector, and how far its boxes agree with the float model's."""
    precision = AveragePrecision(cases.DETECTORS[case.name], case.size)
    for i in range(len(outputs[0])):
        floats = [wanted[i] for wanted in case.wanted.values()]
        shaped = [rows[i].reshape(x.shape) for rows, x in zip(outputs, floats, strict=True)]
        precision.add(shaped, None if case.boxes is None else case.boxes[i], floats)
    return dict(precision.result())


def _percent(answers: Sequence[int], wanted: Sequence[int]) -> float:
    return 100 * float(np.mean(np.equal(answers, wanted)))


def ours(case: cases.Case, widths: str, folder: Path) -> list[np.ndarray]:
    """Returns the converted model's outputs for the test images; converts again where the converter has changed."""
    target = folder / f"{widths}.nmp"
    changed = max(path.stat().st_mtime for path in Path(nmpconv.__file__).parent.rglob("*.py"))
    if not target.exists() or target.stat().st_mtime < changed:
        options = Options(bits="8", widths=widths, preprocess=case.data.preprocess)
        result = convert(case.model, {"": case.data.calib}, options, lambda stage, done, total: None)
        target.write_bytes(result.data)
    net = load(target.read_bytes())
    feed = Feed(net, {"": case.data.measure})
    rows = [infer(net, feed.integers(feed[i]))[0] for i in range(len(feed))]
    return [np.stack(column) for column in zip(*rows, strict=True)]


class Failed(Exception):
    """Names the reason for which a quantizer has no figure for a model."""


class Peers:
    """Runs peers in processes of their own; keeps what they came to, and their versions."""

    def __init__(self, python: Path, log: IO[str]) -> None:
        self.versions: set[str] = set()
        self._python, self._log = python, log

    def run(self, case: cases.Case, quantizer: str, setting: str, folder: Path) -> list[np.ndarray]:
        """The outputs for the test samples; Failed."""
        outputs, answer = folder / "outputs.npz", folder / "answer.json"
        if not answer.exists():
            job = {
                "quantizer": quantizer,
                "setting": setting,
                "model": str(case.model),
                "calib": str(case.calib),
                "test": str(case.test),
                "folder": str(folder),
                "outputs": str(outputs),
            }
            reply = self._said(json.dumps(job))
            folder.mkdir(parents=True, exist_ok=True)
            answer.write_text(reply)
        result = json.loads(answer.read_text())
        if "error" in result:
            raise Failed(result["error"])
        self.versions.add(result["version"])
        with np.load(outputs) as arrays:
            return [arrays[f"o{i}"] for i in range(len(arrays.files))]

    def _said(self, job: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(BENCH), "OMP_NUM_THREADS": "1"}
        command, pipe = [str(self._python), "-m", "accuracy.peer"], subprocess.PIPE
        try:
            done = subprocess.run(
                command, input=job + "\n", stdout=pipe, stderr=self._log, text=True, env=environment, check=False
            )
        except OSError as error:
            raise Failed(f"{self._python} cannot be started ({error.strerror})") from None
        if not done.stdout:
            raise Failed(f"its process ended with status {done.returncode}")
        return done.stdout


def measure(case: cases.Case, column: str, folder: Path, peers: Peers) -> dict[str, Score]:
    """By setting; what failed is said and left out."""
    if column in OURS:
        return {OURS[column]: score(case, ours(case, OURS[column], folder))}
    quantizer, settings = PEERS[column]
    scores = {}
    for setting in settings:
        try:
            outputs = peers.run(case, quantizer, setting, folder / f"{quantizer}-{setting}")
            scores[setting] = score(case, outputs)
        except Failed as error:
            print(f"{case.name}  {column}, {setting}: left out: {error}", flush=True)
    return scores


def _arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    root = BENCH.parent
    parser = argparse.ArgumentParser(prog="make bench-accuracy", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--zoo", type=Path, default=os.environ.get("NMP_ZOO"), help="the folder with zoo.json")
    parser.add_argument("--folder", type=Path, default=root / "build" / "accuracy", help="what is prepared; results")
    parser.add_argument("--peers-python", type=Path, default=root / "build" / "bench-venv" / "bin" / "python")
    parser.add_argument("--only", nargs="+", default=cases.NAMES, choices=cases.NAMES, metavar="MODEL")
    parser.add_argument("--columns", nargs="+", default=COLUMNS, choices=COLUMNS, metavar="COLUMN")
    return parser.parse_args(argv)


def main() -> int:
    args = _arguments()
    if args.zoo is None or not (args.zoo / "zoo.json").is_file():
        print(f"no zoo.json in {args.zoo}: set NMP_ZOO to the folder of models and images", file=sys.stderr)
        return 1
    args.folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, table.Row] = {}
    with (args.folder / "log.txt").open("a") as log:
        peers = Peers(args.peers_python, log)
        for name in args.only:
            folder = args.folder / name
            case = cases.prepare(name, args.zoo, folder)
            rows[name] = {table.FLOAT: {"": score(case, list(case.wanted.values()))}}
            for column in args.columns:
                rows[name][column] = measure(case, column, folder, peers)
                text = "; ".join(f"{setting} {score.cell}" for setting, score in rows[name][column].items())
                print(f"{name}  {column}: {text}", flush=True)
            _report(args.folder, rows, peers.versions)
    print("\n" + (args.folder / "results.md").read_text())
    return 0


def _report(folder: Path, rows: Mapping[str, table.Row], versions: set[str]) -> None:
    date = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"
    text = f"{date}. {'; '.join(sorted(versions))}.\n\n{table.best(rows, COLUMNS)}\n{table.settings(rows, PEERS)}"
    (folder / "results.md").write_text(text)
    (folder / "results.json").write_text(json.dumps(table.as_json(rows), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
