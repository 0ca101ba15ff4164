"""The float passes and the memory plan on real models: the function stays, and what costs time and memory is gone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from float_run import run_float

from nmpconv.frontend.onnx import load
from nmpconv.graph.verify import verify
from nmpconv.ir import Preprocess
from nmpconv.passes.float import FLOAT, fold_input
from nmpconv.passes.memory.plan_memory import lower_bound, run

# Model: the ops that may remain besides layers, pools and add, and the arena in bytes if all activations are int8.
MODELS = {
    "mnist_cntk": ("reshape", 7840),
    "mlperf_ic_resnet8_nchw": ("reshape softmax", 49152),
    "mlperf_ic_resnet8_nhwc": ("reshape softmax", 49152),
    "mlperf_vww_mobilenet025_nchw": ("reshape softmax", 55296),
    "mlperf_kws_dscnn": ("reshape softmax", 16000),
    "mlperf_ad_autoencoder": ("", 768),
    "cifar10_resnet20": ("reshape", 49152),
    "mobilenetv1_025_224": ("reshape softmax", 301056),
    "mobilenetv2_100_224_ptqdeq": ("reshape softmax", 1505280),
    "squeezenet1.1_227": ("reshape concat softmax", 1017920),
}
USUAL = {"conv2d", "fully_connected", "add", "average_pool", "max_pool"}


@pytest.mark.zoo
@pytest.mark.parametrize("model", MODELS)
def test_float_passes(zoo: Path, model: str) -> None:
    path = zoo / "models" / f"{model}.onnx"
    about = json.loads((zoo / "zoo.json").read_text())[model]
    graph = load(path)
    (name,) = graph.inputs
    shape = graph[name].shape
    rng = np.random.default_rng(0)
    pixels = None
    if about["data"] in ("mnist", "cifar10", "vww", "imagenet"):
        order = about.get("channel_order", "RGB").lower()
        how = Preprocess(
            mean=tuple(about["mean"]),
            std=tuple(about["std"]),
            layout="nchw" if shape[1] in (1, 3) else "nhwc",
            channel_order=order,
        )
        graph = fold_input.run(graph, {name: how})
        pixels = rng.integers(0, 256, graph[name].shape).astype(np.float32)
        x = (pixels[..., :: -1 if order == "bgr" else 1] - how.mean) / how.std
        x = x.transpose(0, 3, 1, 2) if how.layout == "nchw" else x
    else:
        x = rng.standard_normal(shape)
    x = np.ascontiguousarray(x, dtype=np.float32)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    wanted = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"]).run(None, {name: x})
    for stage, function in FLOAT:
        graph = function(graph)
        verify(graph, "FLOAT", stage)
    found = run_float(graph, {name: x if pixels is None else pixels - 128})
    for a, b in zip(wanted, found, strict=True):
        assert a.shape == b.shape
        assert np.square(a - b).sum() <= 1e-9 * np.square(a).sum()
    others, arena = MODELS[model]
    assert {node.op for node in graph.nodes} <= USUAL | set(others.split())
    assert [value.name for value in graph.activations() if "~" in value.name] == []
    integer = graph.with_values(*(replace(value, dtype="int8") for value in graph.activations()))
    assert lower_bound(integer) == arena
    assert max((value.offset or 0) + value.nbytes for value in run(integer).activations()) == arena
