"""nmpconv: one recipe without a search, since which integers the weights are changes no kernel's time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import nmpconv
from nmpconv.calib.samples import graph_input
from nmpconv.convert import Options, convert
from nmpconv.runtime import load
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
    bits, widths = SETTINGS[job.bits]
    options = Options(bits=bits, widths=widths, equalize="vector", rounding="nearest")
    result = convert(Path(job.model), {"": Path(job.samples)}, options, lambda stage, done, total: None)
    target.write_bytes(result.data)


class Session:
    def __init__(self, job: Job) -> None:
        self._net = load(job.file(".nmp"), threads=job.threads)
        self._macs = [op.macs for op in self._net.model.ops]
        net, last = self._net._net, len(self._macs)
        self.call = lambda: net.run_ops(0, last)

    def result(self, sample: np.ndarray) -> np.ndarray:
        return self._net.run_float(graph_input(sample, None, sample.shape, pixels=False))[0]

    def kernels(self) -> tuple[int, int]:
        tensors = self._net.model.tensors
        layers = [op for op in self._net.model.ops if op.kind in WEIGHTED]
        return sum(tensors[op.inputs[0]].dtype == "int8" for op in layers), len(layers)


def open(job: Job) -> Session:
    return Session(job)
