"""Exports of the zoo's classifiers in onnxruntime against the interpreter: every integer of every tensor.

    python bench/qdq.py                                  # default settings, images that did not calibrate
    python bench/qdq.py --only mobilenetv1_025_224 --limit 400

Exits with 1 where fewer than 99.9 % of the integers are equal, one is off by more than one, or an image has another
best class.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import zoo

from nmpconv.conversion.pipeline import Options, convert
from nmpconv.exporters import qdq
from nmpconv.runtime.feed import Feed
from nmpconv.runtime.interpreter import Net, load

CLASSIFIERS = (
    "mnist_cntk",
    "mlperf_kws_dscnn",
    "mlperf_ic_resnet8_nchw",
    "mlperf_vww_mobilenet025_nchw",
    "cifar10_resnet20",
    "cifar10_se_mbv3_local",
    "ppocr_cls",
    "squeezenet1.1_227",
    "mobilenetv1_025_224",
    "mobilenetv2_100_224_ptqdeq",
)
EQUAL = 0.999


@dataclass
class Found:
    """Counts over all tensors of all images: integers, how many differ, by how much at most and where; images that have
    the same best class."""

    images: int = 0
    integers: int = 0
    unequal: int = 0
    most: int = 0
    where: str = ""
    same_best: int = 0
    onnx_bytes: int = 0

    @property
    def fails(self) -> bool:
        return self.unequal > (1 - EQUAL) * self.integers or self.most > 1 or self.same_best < self.images


def compared(net: Net, feed: Feed, limit: int | None) -> Found:
    """limit: of the images, taken at equal distances."""
    names = qdq.names_of(net.model)
    exported = qdq.to_onnx(net.model)
    counts, data = Found(onnx_bytes=exported.ByteSize()), _with_all(exported, names)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]
    for i in range(0, len(feed), max(1, len(feed) // (limit or len(feed))))[:limit]:
        sample = feed[i]
        reals = dict(zip(outputs, session.run(outputs, feed.floats(sample)), strict=True))
        for k, array in enumerate(feed.integers(sample).values()):
            net.set_input(k, array)
        for tensor, integers in _tensors(net):
            if names[tensor] in reals:
                _count(counts, net, tensor, integers, reals[names[tensor]], names[tensor])
        counts.images += 1
        counts.same_best += int(np.argmax(reals[net.outputs[0].name]) == np.argmax(net.tensor(net.outputs[0].tensor)))
    return counts


def _tensors(net: Net) -> Iterator[tuple[int, np.ndarray]]:
    """Returns each tensor of a run; an input may be overwritten, so it comes first."""
    for port in net.inputs:
        yield port.tensor, net.tensor(port.tensor)
    for k, op in enumerate(net.model.ops):
        net.run_ops(k, k + 1)
        yield from ((tensor, net.tensor(tensor)) for tensor in op.outputs)


def _count(counts: Found, net: Net, tensor: int, integers: np.ndarray, reals: np.ndarray, name: str) -> None:
    stored = net.model.tensors[tensor]
    q = np.rint(np.ldexp(reals.astype(np.float64) - stored.origin, -stored.exponents[0]))
    off = np.abs(q.ravel() - integers.ravel())
    counts.integers += off.size
    counts.unequal += int((off > 0).sum())
    if off.max() > counts.most:
        counts.most, counts.where = int(off.max()), name


def _with_all(model: onnx.ModelProto, names: list[str]) -> bytes:
    """The model with all of its tensors as outputs."""
    computed = {output for node in model.graph.node for output in node.output}
    ports = {output.name for output in model.graph.output}
    for name in (name for name in names if name in computed - ports):
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    data: bytes = model.SerializeToString()
    return data


def measured(folder: Path, name: str, limit: int | None) -> Found:
    """Counts for one model of the zoo."""
    about: Mapping[str, object] = json.loads((folder / "zoo.json").read_text())[name]
    with tempfile.TemporaryDirectory() as scratch:
        data = zoo.split(folder, name, about, Path(scratch))
        options = Options(preprocess=data.preprocess, input_shape=zoo.shapes(folder, name, about))
        converted = convert(
            folder / "models" / f"{name}.onnx", {"": data.calib}, options, lambda stage, done, total: None
        )
        net = load(converted.data)
        return compared(net, Feed(net, {"": data.measure}), limit)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CLASSIFIERS, default=CLASSIFIERS)
    parser.add_argument("--limit", type=int, default=60, help="images of each, at equal distances (default 60)")
    asked, failed = parser.parse_args(), False
    folder = Path(os.environ.get("NMP_ZOO", "../shared/zoo"))
    print(f"{'model':<28} {'images':>6} {'integers':>12} {'equal %':>10} {'most':>5} {'same':>5} {'bytes':>9}")
    for name in asked.only:
        counts = measured(folder, name, asked.limit)
        failed |= counts.fails
        equal = 100 * (1 - counts.unequal / counts.integers)
        numbers = f"{counts.integers:>12} {equal:>10.6f} {counts.most:>5} {counts.same_best:>5} {counts.onnx_bytes:>9}"
        print(f"{name:<28} {counts.images:>6} {numbers} {counts.where}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
