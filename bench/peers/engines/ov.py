"""OpenVINO: quantized after training by NNCF."""

from __future__ import annotations

import logging

import numpy as np
import openvino

from peers.job import Job

WEIGHTED = ("Convolution", "FullyConnected", "MatMul", "GroupConvolution")


def version() -> str:
    return str(openvino.__version__).split("-")[0]


def prepare(job: Job) -> None:
    target = job.file(".xml")
    if target.exists():
        return
    model = openvino.Core().read_model(job.model)
    if job.bits != "float32":
        import nncf

        nncf.set_log_level(logging.ERROR)
        samples = list(job.inputs)
        model = nncf.quantize(model, nncf.Dataset(samples), subset_size=len(samples))
    openvino.save_model(model, target, compress_to_fp16=False)


class Session:
    def __init__(self, job: Job) -> None:
        config: dict[str, object] = {
            "INFERENCE_NUM_THREADS": job.threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
        }
        if job.bits == "float32":
            config["INFERENCE_PRECISION_HINT"] = "f32"  # bf16 is the default where the CPU has it
        self._model = openvino.Core().compile_model(str(job.file(".xml")), "CPU", config)
        self._request = self._model.create_infer_request()
        start, wait = self._request.start_async, self._request.wait

        def call() -> None:
            start()
            wait()

        self.call = call

    def result(self, sample: np.ndarray) -> np.ndarray:
        self._request.get_input_tensor().data[:] = sample
        self.call()
        return np.array(self._request.get_output_tensor(0).data)

    def kernels(self) -> tuple[int, int]:
        layers = [node.get_rt_info() for node in self._model.get_runtime_model().get_ops()]
        weighted = [info for info in layers if str(info["layerType"].astype(str)) in WEIGHTED]
        narrow = [info for info in weighted if str(info["runtimePrecision"].astype(str)) in ("i8", "u8", "I8", "U8")]
        return len(narrow), len(weighted)


def open(job: Job) -> Session:
    return Session(job)
