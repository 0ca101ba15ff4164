"""Real models: the import of each agrees with the file in onnxruntime to more than 100 dB."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx_text import feeds

from nmpconv.errors import UnsupportedModel
from nmpconv.frontend.export import to_onnx
from nmpconv.frontend.onnx import load

pytestmark = pytest.mark.zoo

IMPORTED = {
    "cifar10_resnet20": {},
    "cifar10_se_mbv3_local": {},
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
}
REFUSED = {
    "deeplabv3_mnv2_dm05_513_qatdeq": {"Resize"},
    "fastestdet_352": {"Resize"},
    "fsrcnn_x2": {"Sub"},
    "ultraface_rfb_320": {"Sub"},
    "yolox_nano_416": {"Resize"},
    "yunet_n_320": {"Resize"},
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


@pytest.mark.parametrize("name", REFUSED)
def test_refusal(name, zoo):
    with pytest.raises(UnsupportedModel) as caught:
        load(zoo / "models" / f"{name}.onnx")
    assert {kind for _, kind, _, _ in caught.value.rows} == REFUSED[name]
