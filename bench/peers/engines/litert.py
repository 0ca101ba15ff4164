"""LiteRT with XNNPACK: converted by way of PyTorch, quantized by ai-edge-quantizer (static, 8 bits, per channel)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version as installed
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from peers.job import Job

WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
DELEGATE = "DELEGATE"


def version() -> str:
    return installed("ai-edge-litert")


Calibration = Callable[[Any, str, list[dict[str, np.ndarray]]], dict[str, Any]]


def averages(quantizing: Any, signature: str, feeds: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    """The ranges as its own calibration finds them: moving averages of each sample's."""
    return quantizing.calibrate({signature: feeds})


def extremes(quantizing: Any, signature: str, feeds: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    """The least and greatest of all samples: each sample is calibrated by itself."""
    ranges = quantizing.calibrate({signature: feeds[:1]})
    for feed in feeds[1:]:
        for name, ends in quantizing.calibrate({signature: [feed]}).items():
            for end, outer in (("min", np.minimum), ("max", np.maximum)):
                ranges[name][end] = outer(ranges[name][end], ends[end])
    return ranges


def prepare(job: Job, calibration: Calibration = averages) -> None:
    target = job.file(".tflite")
    if target.exists():
        return
    import litert_torch
    import torch

    from peers import same_padding, torch_model

    inputs, model = _nhwc(job.inputs), torch_model.load(job.model)
    if inputs.shape != job.inputs.shape:
        model = litert_torch.to_channel_last_io(model, args=[0])
    whole = target if job.bits == "float32" else job.file("-float.tflite")
    litert_torch.convert(model, (torch.from_numpy(inputs[0]),)).export(str(whole))
    if job.bits != "float32":
        _quantize(str(whole), str(target), inputs, calibration)
    same_padding.run(str(target))


def _quantize(whole: str, target: str, inputs: np.ndarray, calibration: Calibration) -> None:
    from ai_edge_quantizer import quantizer, recipe

    quantizing = quantizer.Quantizer(whole)
    quantizing.load_quantization_recipe(recipe.static_wi8_ai8())
    name, signature = next(iter(Interpreter(whole).get_signature_list().items()))
    feeds = [{signature["inputs"][0]: sample} for sample in inputs]
    quantizing.quantize(calibration(quantizing, name, feeds)).export_model(target)


def _nhwc(samples: np.ndarray) -> np.ndarray:
    """Stacked images [n, 1, C, H, W] with their channels last, as LiteRT has them; others as they are."""
    picture = samples.ndim == 5 and samples.shape[2] in (1, 3)
    return np.ascontiguousarray(np.moveaxis(samples, 2, -1)) if picture else samples


class Session:
    def __init__(self, job: Job) -> None:
        self._net = Interpreter(str(job.file(".tflite")), num_threads=job.threads)
        self._net.allocate_tensors()
        self._input, self._output = self._net.get_input_details()[0], self._net.get_output_details()[0]
        self.call: Callable[[], object] = self._net._interpreter.Invoke

    def result(self, sample: np.ndarray) -> np.ndarray:
        sample = _nhwc(sample[np.newaxis])[0]
        scale, zero = self._input["quantization"]
        if scale:
            sample = np.clip(np.round(sample / scale) + zero, -128, 127)
        self._net.set_tensor(self._input["index"], sample.astype(self._input["dtype"]))
        self.call()
        scale, zero = self._output["quantization"]
        output = self._net.get_tensor(self._output["index"])
        return (output.astype(np.float32) - zero) * scale if scale else output

    def kernels(self) -> tuple[int, int]:
        """A layer counts if all of them went to XNNPACK and its input is int8."""
        ops = self._net._get_ops_details()
        tensors = {tensor["index"]: tensor for tensor in self._net.get_tensor_details()}
        layers = [op for op in ops if op["op_name"] in WEIGHTED]
        narrow = sum(tensors[op["inputs"][0]]["dtype"] == np.int8 for op in layers)
        delegated = any(op["op_name"] == DELEGATE for op in ops)
        return narrow if delegated else 0, len(layers)


def open(job: Job) -> Session:
    return Session(job)
