"""Conversions of quantized models, and their outputs beside those of onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from nmpconv.conversion.pipeline import Options, Result, convert
from nmpconv.runtime import interpreter

FINE = {"faithful": True, "bits": "a16w8"}


def converted(model: onnx.ModelProto, folder: Path, samples: np.ndarray | None, **options: object) -> Result:
    """samples: [n, *shape] of the one input."""
    onnx.save(model, folder / "m.onnx")
    sources = None if samples is None else {"": samples}
    return convert(folder / "m.onnx", sources, Options(**options), lambda *_: None)  # type: ignore[arg-type]


def faithful(model: onnx.ModelProto, folder: Path, samples: np.ndarray | None, **options: object) -> Result:
    """samples: as of `converted`."""
    return converted(model, folder, samples, **{"faithful": True, **options})


def outputs(model: onnx.ModelProto, result: Result, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first output of onnxruntime and of the file, each [n, ...]. Optimizations, which round biases, are off."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session, net = ort.InferenceSession(model.SerializeToString(), options), interpreter.load(result.data)
    name = session.get_inputs()[0].name
    wanted = np.concatenate([session.run(None, {name: x[None]})[0] for x in samples])
    return wanted, np.concatenate([net.run_float(x[None])[0] for x in samples]).reshape(wanted.shape)


def steps_apart(model: onnx.ModelProto, result: Result, samples: np.ndarray) -> np.ndarray:
    """Differences of the outputs to the model's own in onnxruntime, in steps."""
    wanted, got = outputs(model, result, samples)
    return np.rint((got - wanted) / result.graph.given[model.graph.output[0].name].scale)
