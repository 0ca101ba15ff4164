"""Real models: the import of each agrees with the file in onnxruntime to more than 100 dB."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx_text import feeds

from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx

pytestmark = pytest.mark.zoo

IMPORTED = {
    "cifar10_resnet20": {},
    "cifar10_se_mbv3_local": {},
    "deeplabv3_mnv2_dm05_513_qatdeq": {},
    "fastestdet_352": {},
    "fsrcnn_x2": {},
    "mlperf_ad_autoencoder": {},
    "mlperf_ic_resnet8_nchw": {},
    "mlperf_ic_resnet8_nhwc": {},
    "mlperf_kws_dscnn": {},
    "mlperf_vww_mobilenet025_nchw": {},
    "mnist_cntk": {},
    "mobilenetv1_025_224": {},
    "mobilenetv2_100_224_ptqdeq": {},
    "ppocr_cls": {"x": (1, 3, 48, 192)},
    "squeezenet1.1_227": {},
    "super_resolution_224": {},
    "ultraface_rfb_320": {},
    "yolox_nano_416": {},
    "yunet_n_320": {},
}


@pytest.mark.parametrize("name", IMPORTED)
def test_import(name, zoo):
    path = zoo / "models" / f"{name}.onnx"
    graph = load(path, input_shapes=IMPORTED[name])
    feed = feeds(graph)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    expected = onnxruntime.InferenceSession(path, options).run(list(graph.outputs), feed)
    exported = to_onnx(graph, graph.outputs).SerializeToString()
    found = onnxruntime.InferenceSession(exported, options).run(list(graph.outputs), feed)
    for a, b in zip(expected, found, strict=True):
        assert a.shape == b.shape
        assert np.square(a - b, dtype=np.float64).sum() <= 1e-10 * np.square(a, dtype=np.float64).sum()
