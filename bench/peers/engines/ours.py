"""nmpconv: one recipe without a search, since which integers the weights are changes no kernel's time."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import nmpconv
from nmpconv.runtime.interpreter import load
from peers.job import Job

# bits and widths of a conversion.
SETTINGS = {"int8": ("8", "strict"), "default": ("8", "default"), "int16": ("16", "default")}
WEIGHTED = ("conv2d", "fully_connected")


def version() -> str:
    return nmpconv.__version__


def prepare(job: Job) -> None:
    """Again when the converter has changed."""
    target = job.file(".nmp")
    changed = max(path.stat().st_mtime for path in Path(nmpconv.__file__).parent.rglob("*.py"))
    if target.exists() and target.stat().st_mtime > changed:
        return
    from nmpconv.conversion.pipeline import Options, convert  # what only runs a model has not the converter in memory

    bits, widths = SETTINGS[job.bits]
    options = Options(bits=bits, widths=widths, equalize="vector", rounding="nearest", drop_channels=not job.seeded)
    result = convert(Path(job.model), {"": Path(job.samples)}, options, lambda stage, done, total: None)
    target.write_bytes(result.data)


class Session:
    def __init__(self, job: Job) -> None:
        self._net = load(job.file(".nmp"), threads=job.threads)
        self._macs = [op.macs for op in self._net.model.ops]
        net, last = self._net._net, len(self._macs)
        self.call = lambda: net.run_ops(0, last)
        while not self._net.settled:  # its first runs find out how many threads each step is worth
            self.call()

    def result(self, sample: np.ndarray) -> np.ndarray:
        return self._net.run_float(sample)[0]

    def kernels(self) -> tuple[int, int]:
        tensors = self._net.model.tensors
        layers = [op for op in self._net.model.ops if op.kind in WEIGHTED]
        return sum(tensors[op.inputs[0]].dtype == "int8" for op in layers), len(layers)


def kinds(job: Job, runs: int = 50) -> list[tuple[str, float, int]]:
    """Seconds and multiply-accumulates of each kind of op in one inference, the longest first: medians of runs."""
    net = load(job.file(".nmp"), threads=job.threads)
    net.run_float(job.inputs[0])
    found: dict[str, tuple[float, int]] = {}
    for op in net.profile(runs):
        seconds, macs = found.get(op.kind, (0.0, 0))
        found[op.kind] = seconds + op.seconds, macs + op.macs
    return sorted(((kind, *figures) for kind, figures in found.items()), key=lambda row: -row[1])


def empty_run(calls: int = 10000, rounds: int = 30) -> float:
    """Seconds of a run of one Reshape, which has nothing to do: the fastest of some rounds."""
    from nmpconv.file.writer import to_bytes
    from nmpconv.ir import Graph, Node, Quant, Value
    from nmpconv.ops import OPS

    grid = Quant(8, (0,), -128, 127)
    values = {name: Value(name, shape, "int8", quant=grid, offset=0) for name, shape in (("x", (1, 8)), ("y", (8,)))}
    node = Node("reshape", "reshape", ("x",), ("y",), OPS["reshape"].Params(shape=(8,)))
    graph = Graph("empty", ("x",), ("y",), (node,), values, source_shapes={"x": (1, 8), "y": (8,)})
    run_ops = load(to_bytes(graph, {}))._net.run_ops
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            run_ops(0, 1)
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def open(job: Job) -> Session:
    return Session(job)
