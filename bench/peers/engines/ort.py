"""ONNX Runtime: static quantization in QDQ form, uint8 activations and int8 weights per channel, its fastest."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from peers.job import Job

INTEGER = ("QLinearConv", "QLinearMatMul", "QGemm", "MatMulIntegerToFloat", "NhwcQLinearConv")
FLOAT = ("Conv", "FusedConv", "NhwcFusedConv", "Gemm", "FusedGemm", "MatMul", "FusedMatMul")


def version() -> str:
    return str(onnxruntime.__version__)


class Reader(CalibrationDataReader):
    def __init__(self, name: str, samples: np.ndarray) -> None:
        self._left = iter([{name: sample} for sample in samples])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)


def prepare(job: Job) -> None:
    target = job.file(".onnx")
    if job.bits == "float32" or target.exists():
        return
    logging.disable(logging.WARNING)
    prepared = job.file("-prepared.onnx")
    quant_pre_process(job.model, str(prepared), skip_symbolic_shape=True)
    name = onnx.load(str(prepared)).graph.input[0].name
    quantize_static(
        str(prepared),
        str(target),
        Reader(name, job.inputs),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )


class Session:
    def __init__(self, job: Job) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = job.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._optimized = job.file("-optimized.onnx")
        options.optimized_model_filepath = str(self._optimized)
        model = job.model if job.bits == "float32" else str(job.file(".onnx"))
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._name = session.get_inputs()[0].name
        self._binding = binding = session.io_binding()
        binding.bind_output(session.get_outputs()[0].name, "cpu")
        run = session._sess.run_with_iobinding
        self.call = lambda: run(binding._iobinding, None)

    def result(self, sample: np.ndarray) -> np.ndarray:
        self._held = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(sample))
        self._binding.bind_ortvalue_input(self._name, self._held)
        self.call()
        return self._binding.copy_outputs_to_cpu()[0]

    def kernels(self) -> tuple[int, int]:
        kinds = [node.op_type for node in onnx.load(str(self._optimized)).graph.node]
        narrow = sum(kind in INTEGER for kind in kinds)
        return narrow, narrow + sum(kind in FLOAT for kind in kinds)


def open(job: Job) -> Session:
    return Session(job)
