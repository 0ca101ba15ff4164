"""The models, batch 1, with inputs to calibrate with: some of the zoo, and a ResNet-50 of random weights."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import zoo
from onnx import TensorProto, helper, numpy_helper, version_converter

from nmpconv.conversion.pipeline import Options, plan
from nmpconv.data.samples import open_samples

OPSET = 13  # the first with scales per channel, which the peers want
SAMPLES = 16  # that calibrate, and whose outputs are compared

CLASSIFIERS = {
    "MLPerf Tiny AD": "mlperf_ad_autoencoder",
    "MLPerf Tiny KWS": "mlperf_kws_dscnn",
    "MLPerf Tiny VWW": "mlperf_vww_mobilenet025_nchw",
    "MLPerf Tiny IC": "mlperf_ic_resnet8_nchw",
    "MobileNetV2": "mobilenetv2_100_224_ptqdeq",
    "SqueezeNet 1.1": "squeezenet1.1_227",
}
ZOO = CLASSIFIERS | {
    "DeepLab": "deeplabv3_mnv2_dm05_513_qatdeq",
    "YOLOX-nano": "yolox_nano_416",
    "YuNet": "yunet_n_320",
    "FastestDet": "fastestdet_352",
}
RESNET = "ResNet-50"
EXPORTED = {
    "DeiT-tiny": "timm.deit_tiny_patch16_224",
    "ConvNeXt-atto": "timm.convnext_atto",
    "EfficientViT-B0": "timm.efficientvit_b0",
    "MobileViT-XXS": "timm.mobilevit_xxs",
    "EfficientNet-lite0": "timm.efficientnet_lite0",
    "MobileNetV3": "timm.mobilenetv3_large_100",
    "ResNet-18": "timm.resnet18",
    "YOLO11n": "ultralytics.yolo11n",
}
LIST = Path(__file__).with_name("exported.txt")
EXPORT_GIB = 8  # of memory, for the packages that export
NAMES = [*ZOO, RESNET, *EXPORTED]


@dataclass(frozen=True)
class Model:
    """path: ONNX, batch 1. samples: a .npy of float inputs, stacked. macs: of one inference. seeded: its weights are
    no trained ones."""

    name: str
    path: Path
    samples: Path
    macs: int
    seeded: bool = False


class NotExported(Exception):
    """Reason why a package's model is not there."""


def prepare(name: str, zoo_folder: Path, folder: Path, models_python: str = "") -> Model:
    """Writes model and samples into the folder. models_python: what has PyTorch and the packages of models. Raises
    NotExported."""
    folder.mkdir(parents=True, exist_ok=True)
    path, samples = folder / "model.onnx", folder / "samples.npy"
    if not samples.exists():
        if name in EXPORTED:
            model, inputs = _of_package(EXPORTED[name], folder, models_python)
        else:
            model, inputs = resnet50() if name == RESNET else _of_zoo(ZOO[name], zoo_folder)
        onnx.save(model, path)
        np.save(samples, inputs)
    return Model(name, path, samples, plan(path, Options()).report.macs, name not in ZOO)


def _of_package(name: str, folder: Path, python: str) -> tuple[onnx.ModelProto, np.ndarray]:
    """Exports an architecture of EXPORTED with seeded weights, as `make models` does."""
    program = Path(__file__).resolve().parents[1] / "models_export.py"
    command = [python, str(program), str(folder), str(EXPORT_GIB), str(LIST)]
    try:
        done = subprocess.run(command, input=f"old {name}\n", capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotExported(f"{python} cannot be started ({error.strerror}): was its environment installed?") from error
    said = json.loads(done.stdout) if done.stdout else {"error": (done.stderr.strip().splitlines() or ["nothing"])[-1]}
    if said["error"]:
        raise NotExported(f"its export failed: {said['error']}")
    return onnx.load(folder / f"{name}_old.onnx"), np.load(folder / f"{name}.calib.npy")[:, None]


def _of_zoo(name: str, folder: Path) -> tuple[onnx.ModelProto, np.ndarray]:
    about = json.loads((folder / "zoo.json").read_text())[name]
    model = onnx.load(folder / "models" / f"{name}.onnx")
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.shape.dim[0].dim_value = 1
    del model.graph.value_info[:]
    model = version_converter.convert_version(model, max(OPSET, model.opset_import[0].version))
    model = onnx.shape_inference.infer_shapes(model)
    shape = tuple(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim)
    with tempfile.TemporaryDirectory() as temporary:
        data = zoo.split(folder, name, about, Path(temporary))
        samples = open_samples(data.calib, shape, data.preprocess)
        chosen = np.linspace(0, len(samples) - 1, SAMPLES).astype(int)
        return model, np.stack([samples.model_input(int(i)) for i in chosen])


def resnet50(
    side: int = 224, width: int = 64, blocks: tuple[int, ...] = (3, 4, 6, 3)
) -> tuple[onnx.ModelProto, np.ndarray]:
    """The shapes of ResNet-50 v1.5 (stride in the 3x3), no batch normalization; seeded weights that keep variances."""
    net = _Builder(np.random.default_rng(50))
    x = net.pool(net.conv("input", 3, width, 7, 2))
    channels = width
    for stage, count in enumerate(blocks):
        inner = width << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            skip = net.conv(x, channels, 4 * inner, 1, stride, relu=False) if not block else x
            y = net.conv(net.conv(x, channels, inner, 1, 1), inner, inner, 3, stride)
            y = net.conv(y, inner, 4 * inner, 1, 1, relu=False, gain=0.3)
            x = net.node("Relu", [net.node("Add", [y, skip])])
            channels = 4 * inner
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])])
    weights = net.constant((net.rng.normal(size=(1000, channels)) * (2 / channels**0.5)).astype(np.float32))
    net.nodes.append(helper.make_node("Gemm", [x, weights, net.constant(net.bias(1000))], ["logits"], transB=1))
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("input", [1, 3, side, side]), ("logits", [1, 1000]))
    ]
    graph = helper.make_graph(net.nodes, "resnet50", ports[:1], ports[1:], net.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    return model, net.rng.normal(size=(SAMPLES, 1, 3, side, side)).astype(np.float32)


class _Builder:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def bias(self, n: int) -> np.ndarray:
        return (self.rng.normal(size=n) * 0.1).astype(np.float32)

    def node(self, kind: str, inputs: list[str], **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"n{len(self.nodes)}", **attributes))
        return name

    def conv(self, x: str, cin: int, cout: int, k: int, stride: int, relu: bool = True, gain: float = 1.0) -> str:
        scale = gain * (2 / (cin * k * k)) ** 0.5
        weights = (self.rng.normal(size=(cout, cin, k, k)) * scale).astype(np.float32)
        inputs = [x, self.constant(weights), self.constant(self.bias(cout))]
        y = self.node("Conv", inputs, kernel_shape=[k, k], strides=[stride, stride], pads=[k // 2] * 4)
        return self.node("Relu", [y]) if relu else y

    def pool(self, x: str) -> str:
        return self.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
