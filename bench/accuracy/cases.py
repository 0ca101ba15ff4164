"""The zoo's models as every quantizer gets them, with the samples that calibrate and those that are judged.

A classifier ends at the input of its final Softmax, where SQNR is measured. Shapes are bound, and the opset is at least
13, the first with scales per channel. Samples are the model's float inputs; ours reads the images themselves, as people
give them, and makes the same numbers of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import zoo
from onnx import version_converter

from nmpconv.base.sqnr import head
from nmpconv.calib.engine import OnnxEngine
from nmpconv.calib.original_model import cut
from nmpconv.data.box_labels import read as read_boxes
from nmpconv.data.samples import Samples, open_samples
from nmpconv.errors import InputError
from nmpconv.evaluation.judge import MOVES

OPSET = 13
CLASSIFIERS = (
    "mlperf_kws_dscnn",
    "mlperf_ic_resnet8_nchw",
    "mlperf_vww_mobilenet025_nchw",
    "cifar10_resnet20",
    "cifar10_se_mbv3_local",
    "mobilenetv1_025_224",
    "mobilenetv2_100_224_ptqdeq",
    "squeezenet1.1_227",
    "ppocr_cls",
)
DETECTORS = {"ultraface_rfb_320": "ultraface", "yunet_n_320": "yunet", "yolox_nano_416": "yolox"}  # and their decoder
BOXES = {"coco": "train.csv"}  # by the folder of data: the boxes of its images
NAMES = (*CLASSIFIERS, *DETECTORS)


@dataclass(frozen=True)
class Case:
    """model: ONNX. data: what calibrates and what is judged. calib, test: the same as .npy of stacked float inputs.
    wanted: the float model's outputs for the latter, stacked, by name. labels: class numbers of the latter. boxes: of
    the latter, where images have them. size: height and width of the input of a detector."""

    name: str
    model: Path
    data: zoo.Split
    calib: Path
    test: Path
    wanted: Mapping[str, np.ndarray]
    labels: tuple[int, ...] | None
    boxes: list[np.ndarray] | None
    size: tuple[int, int]


def prepare(name: str, zoo_folder: Path, folder: Path) -> Case:
    """Writes model and samples into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    about = json.loads((zoo_folder / "zoo.json").read_text())[name]
    model, path = _model(zoo_folder, name, about), folder / "model.onnx"
    onnx.save(model, path)
    data = zoo.split(zoo_folder, name, about, folder)
    shape = tuple(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim)
    calib, test = (open_samples(source, shape, data.preprocess) for source in (data.calib, data.measure))
    files = [_stacked(samples, folder / f"{part}-floats.npy") for part, samples in (("calib", calib), ("test", test))]
    offset = about.get("label_offset", 0)
    ranked = about["task"] == "classification" and test.labels is not None
    labels = tuple(label + offset for label in test.labels) if ranked else None
    size, boxes = shape[2:4], None
    if name in DETECTORS and about["data"] in BOXES:
        truth = zoo_folder / "data" / about["data"] / BOXES[about["data"]]
        try:
            boxes = read_boxes(truth, test.paths, (size[1], size[0]), data.preprocess)
        except InputError as error:
            print(f"{name}  without the boxes of people: {error}", flush=True)
    return Case(name, path, data, files[0], files[1], _wanted(model, files[1]), labels, boxes, size)


def _model(zoo_folder: Path, name: str, about: Mapping[str, Any]) -> onnx.ModelProto:
    model = onnx.load(zoo_folder / "models" / f"{name}.onnx")
    model = version_converter.convert_version(model, max(OPSET, model.opset_import[0].version))
    constants = {tensor.name for tensor in model.graph.initializer}
    port = next(value for value in model.graph.input if value.name not in constants)
    shape = [1, *(dim.dim_value for dim in port.type.tensor_type.shape.dim[1:])]
    makers = {out: (node.op_type, node.input[0]) for node in model.graph.node if node.input for out in node.output}
    heads = [value.name for value in model.graph.output]
    if about["task"] == "classification":
        heads = [head(name, makers.get, "Softmax", MOVES) for name in heads]
    cut(model, heads, {port.name: about.get("input", shape)})
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.ClearField("type")
    return onnx.shape_inference.infer_shapes(model)


def _stacked(samples: Samples, path: Path) -> Path:
    np.save(path, np.stack([samples.model_input(i) for i in range(len(samples))]))
    return path


def _wanted(model: onnx.ModelProto, test: Path) -> dict[str, np.ndarray]:
    port, names = model.graph.input[0], [value.name for value in model.graph.output]
    shape = tuple(dim.dim_value for dim in port.type.tensor_type.shape.dim)
    engine = OnnxEngine(model, {port.name: shape}, names)
    rows = [engine.run({port.name: sample}) for sample in np.load(test, mmap_mode="r")]
    return {name: np.stack([row[name] for row in rows]) for name in names}
