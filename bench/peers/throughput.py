"""Images a second of batches, ours and ONNX Runtime's, on all cores: `make bench-throughput`.

A batch is float32, as the ONNX model takes it, and the results are real numbers: rounding to integers and back is part
of the work. The nets are those of `make bench`, int8. Each engine has a process of its own, and they take turns. ONNX
Runtime does it in three ways, of which the best counts:

    batch   a model with a free batch, all cores for each of its ops
    calls   a call a sample, in as many threads as there are cores, one core for each call
    row     a call a sample, all cores for each of its ops
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from peers.job import Job

WAYS = ("nmpconv", "batch", "calls", "row")
REST = 0.06  # seconds between turns: threads that spin after their work (ONNX Runtime's for 45 ms) have stopped
CORES = len(os.sched_getaffinity(0))

Engine = Callable[[np.ndarray], np.ndarray]  # results [n, ...] of samples [n, ...]


def opened(way: str, model: Path) -> Engine:
    if way == "nmpconv":
        import nmpconv

        net = nmpconv.load(model)
        return lambda batch: net(batch)[0].reshape(len(batch), -1)
    import onnx
    import onnxruntime

    proto = onnx.load(model)
    if way == "batch":
        for port in (*proto.graph.input, *proto.graph.output):
            port.type.tensor_type.shape.dim[0].dim_param = "n"
        del proto.graph.value_info[:]
        reshapes = {node.input[1] for node in proto.graph.node if node.op_type == "Reshape"}
        for tensor in proto.graph.initializer:
            shape = onnx.numpy_helper.to_array(tensor).copy()
            if tensor.name in reshapes and shape[:1] == 1:
                shape[0] = 0  # as its input has it
                tensor.CopyFrom(onnx.numpy_helper.from_array(shape, tensor.name))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1 if way == "calls" else CORES
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def single(sample: np.ndarray) -> Any:
        return session.run(None, {name: sample})[0].ravel()

    if way == "batch":
        return lambda batch: session.run(None, {name: batch})[0].reshape(len(batch), -1)
    if way == "row":
        return lambda batch: np.stack([single(batch[i : i + 1]) for i in range(len(batch))])
    pool = ThreadPoolExecutor(CORES)

    def part(piece: np.ndarray) -> list[Any]:
        return [single(piece[i : i + 1]) for i in range(len(piece))]

    return lambda batch: np.stack(list(chain.from_iterable(pool.map(part, np.array_split(batch, CORES)))))


def serve(way: str, model: Path, samples: Path, size: int) -> None:
    """Answers each line with the seconds of a batch; first with the results of the samples."""
    inputs = np.load(samples)
    inputs = inputs.reshape(len(inputs), *inputs.shape[2:]).astype(np.float32)
    batch = np.ascontiguousarray(np.resize(inputs, (size, *inputs.shape[1:])))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        engine = opened(way, model)
        outputs = engine(batch)
    except Exception as error:
        print(json.dumps({"error": str(error).strip().splitlines()[0][:200]}), file=out, flush=True)
        return
    print(json.dumps({"outputs": outputs[: len(inputs)].tolist()}), file=out, flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        engine(batch)
        print(json.dumps(time.perf_counter() - start), file=out, flush=True)


def row(files: dict[str, Path], samples: Path, size: int, rounds: int, log: Any) -> dict[str, float]:
    """Images a second by way: of the best round. Ways that fail, or compute something else, are left out."""
    pipe, running, rates = subprocess.PIPE, {}, {}
    for way in WAYS:
        model = files["ours" if way == "nmpconv" else "theirs"]
        command = [sys.executable, "-m", "peers.throughput", "--serve", way, str(model), str(samples), str(size)]
        running[way] = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True)
    first = {way: json.loads(engine.stdout.readline()) for way, engine in running.items()}  # type: ignore[union-attr]
    wanted = np.ravel(first["calls"]["outputs"])
    for way, about in first.items():
        fits = "outputs" in about and np.corrcoef(np.ravel(about["outputs"]), wanted)[0, 1] > 0.9
        if fits:
            rates[way] = 0.0
        else:
            print(f"  {way} is left out: {about.get('error', 'other outputs')}", file=sys.stderr)
    for _ in range(rounds):
        for way in rates:
            time.sleep(REST)
            running[way].stdin.write("\n")  # type: ignore[union-attr]
            running[way].stdin.flush()  # type: ignore[union-attr]
            seconds = float(json.loads(running[way].stdout.readline()))  # type: ignore[union-attr]
            rates[way] = max(rates[way], size / seconds)
    for engine in running.values():
        engine.stdin.close()  # type: ignore[union-attr]
        engine.wait()
    return rates


def main() -> int:
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(prog="make bench-throughput", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--zoo", type=Path, default=os.environ.get("NMP_ZOO"), help="the folder with zoo.json")
    parser.add_argument("--folder", type=Path, default=root / "build" / "bench", help="what is prepared, and the table")
    parser.add_argument("--only", nargs="+", metavar="MODEL", help="default: all")
    parser.add_argument("--sizes", nargs="+", type=int, default=[64], help="samples of a batch")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        way, model, samples, size = args.serve
        serve(way, Path(model), Path(samples), int(size))
        return 0
    import onnxruntime

    from peers import models
    from peers.engines import ort, ours

    lines = ["| model | batch | nmpconv | ONNX Runtime, batch | calls | row | nmpconv / best |", "|---|" + "---:|" * 6]
    args.folder.mkdir(parents=True, exist_ok=True)
    with (args.folder / "throughput.log").open("w") as log:
        for name in args.only or (*models.CLASSIFIERS, models.RESNET):
            prepared = models.prepare(name, args.zoo, args.folder / name.replace(" ", "-").lower())
            files = {}
            for key, engine, suffix in (("ours", ours, ".nmp"), ("theirs", ort, ".onnx")):
                where = prepared.path.parent / {"ours": "nmpconv", "theirs": "onnxruntime"}[key]
                where.mkdir(exist_ok=True)
                job = Job(key, str(prepared.path), str(prepared.samples), str(where), "int8", CORES)
                engine.prepare(job)
                files[key] = job.file(suffix)
            for size in args.sizes:
                rates = row(files, prepared.samples, size, args.rounds, log)
                peer = max((rate for way, rate in rates.items() if way != "nmpconv"), default=float("nan"))
                cells = [f"{rates[way]:,.0f}" if way in rates else "-" for way in WAYS]
                lines.append(f"| {name} | {size} | {' | '.join(cells)} | {rates['nmpconv'] / peer:.2f} |")
                print(lines[-1], flush=True)
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    caption = f"Images a second, the best of {args.rounds} rounds in turns, {CORES} cores, {date}; ONNX Runtime "
    text = "\n".join([f"{caption}{onnxruntime.__version__}, nmpconv {ours.version()}.", "", *lines, ""])
    (args.folder / "throughput.md").write_text(text)
    print("\n" + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
