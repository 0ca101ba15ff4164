"""Messages between the parent and an engine's process."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np


class Unavailable(Exception):
    """Names the reason for which an engine cannot run a model."""


@dataclass(frozen=True)
class Job:
    """model: ONNX, batch 1. samples: a .npy of float inputs, stacked. folder: the engine's own, for what it prepares.

    bits: "float32", "int8", "int16" or "default" (int8 where the converter does not choose int16). seeded: the weights
    are no trained ones, so no channel is to be left out that nothing depends on.
    """

    engine: str
    model: str
    samples: str
    folder: str
    bits: str
    threads: int
    seeded: bool = False

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> Job:
        return Job(**json.loads(text))

    @property
    def inputs(self) -> np.ndarray:
        return np.load(self.samples)

    def file(self, suffix: str) -> Path:
        return Path(self.folder) / f"{self.bits}{suffix}"


class Session(Protocol):
    """A loaded model. call: one inference of the input that `result` was given last."""

    call: Callable[[], object]

    def result(self, sample: np.ndarray) -> np.ndarray: ...

    def kernels(self) -> tuple[int, int]:
        """Layers with weights that run on int8 kernels, and all of them."""
        ...


class Engine(Protocol):
    def version(self) -> str: ...

    def prepare(self, job: Job) -> None:
        """Writes job.file(...), unless it is there."""
        ...

    def open(self, job: Job) -> Session: ...


MODULES = {
    "nmpconv": "ours",
    "nmpconv-default": "ours",
    "onnxruntime": "ort",
    "openvino": "ov",
    "litert": "litert",
    "executorch": "xnnpack",
}


def engine(name: str) -> Engine:
    """The module of an engine. Raises Unavailable where its package cannot be imported."""
    try:
        return importlib.import_module(f"peers.engines.{MODULES[name]}")  # type: ignore[return-value]
    except ImportError as error:
        raise Unavailable(f"cannot be imported under {Path(sys.executable).name}: {error}") from error
