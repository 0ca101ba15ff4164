"""ExecuTorch with XNNPACK: PyTorch's export, quantized statically by its XNNPACK quantizer (per channel)."""

from __future__ import annotations

from importlib.metadata import version as installed
from typing import Any

import numpy as np
import torch
from executorch.extension.pybindings import portable_lib

from peers.job import Job

WEIGHTED = ("conv", "linear", "addmm", "mm")


def version() -> str:
    return installed("executorch")


def prepare(job: Job) -> None:
    target = job.file(".pte")
    if target.exists():
        return
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    from peers import torch_model

    inputs = [torch.from_numpy(sample) for sample in job.inputs]
    model: Any = torch_model.load(job.model)
    if job.bits != "float32":
        model = _quantized(model, inputs)
    exported = torch.export.export(model, (inputs[0],))
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    layers = sum(_weighted(node) for node in torch.export.export(model, (inputs[0],)).graph.nodes)
    left = sum(_weighted(node) for node in lowered.exported_program().graph.nodes)
    job.file(".layers").write_text(f"{layers - left} {layers}")
    target.write_bytes(lowered.to_executorch().buffer)


def _quantized(model: Any, inputs: list[torch.Tensor]) -> Any:
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    config = xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True)
    quantizer = xnnpack_quantizer.XNNPACKQuantizer().set_global(config)
    prepared = prepare_pt2e(torch.export.export(model, (inputs[0],)).module(), quantizer)
    for sample in inputs:
        prepared(sample)
    return convert_pt2e(prepared)


def _weighted(node: torch.fx.Node) -> bool:
    name = str(node.target).split(".")
    return node.op == "call_function" and any(word in part for part in name for word in WEIGHTED)


class Session:
    def __init__(self, job: Job) -> None:
        portable_lib._unsafe_reset_threadpool(job.threads)
        assert portable_lib._threadpool_get_thread_count() == job.threads
        self._module = portable_lib._load_for_executorch(str(job.file(".pte")))
        self._layers = job.file(".layers").read_text().split()
        self._inputs: list[torch.Tensor] = []
        run = self._module.forward
        self.call = lambda: run(self._inputs)

    def result(self, sample: np.ndarray) -> np.ndarray:
        self._inputs = [torch.from_numpy(np.ascontiguousarray(sample))]
        return self.call()[0].numpy().copy()

    def kernels(self) -> tuple[int, int]:
        """Layers that went to XNNPACK: those of a quantized model are quantized there."""
        narrow, layers = map(int, self._layers)
        return narrow, layers


def open(job: Job) -> Session:
    return Session(job)
