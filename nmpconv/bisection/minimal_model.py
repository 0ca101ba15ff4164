"""The smallest part of a model that still shows what is lost at one tensor."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import onnx
from onnx import helper

from nmpconv.base.files import npz
from nmpconv.base.progress import silent
from nmpconv.bisection.ranking import TENSOR, Row
from nmpconv.bisection.reconversion import Rebuilt
from nmpconv.calib.engine import OnnxEngine
from nmpconv.calib.original_model import needed
from nmpconv.conversion import recipes
from nmpconv.conversion.options import Options
from nmpconv.conversion.pipeline import Result, convert
from nmpconv.data.samples import model_input
from nmpconv.errors import NmpError
from nmpconv.frontend.read import read
from nmpconv.frontend.toposort import reads
from nmpconv.ir import Graph, Node
from nmpconv.ops.op import quant_of

SHARE = 0.5  # of the gain in the whole model, that a part must show
STEPS = (0, 1, 2, 4, 8, 16, 32)  # ops around the tensor that are tried
WHOLE = {"equalize": "none", "rounding": "nearest"}  # a part would be equalized otherwise, with other exponents


@dataclass(frozen=True)
class Small:
    """A model, its inputs as an .npz file, and recipes with which it shows the loss and with which it does not. db: how
    many dB lie between them. nodes: of the model; of: the whole one's. files: of these, by name."""

    db: float
    nodes: int
    of: int
    files: Mapping[str, bytes]


def smallest(rebuilt: Rebuilt, model: Path, row: Row) -> Small | None:
    """None where no part shows it: the loss is not of the conversion, or only the whole model has it."""
    if row.edited or row.db <= 0:
        return None
    proto, graph = read(model, *rebuilt.options.bound_inputs), rebuilt.fitter.graph
    tensors = {name for node in proto.graph.node for name in node.output} | {v.name for v in proto.graph.input}
    tried: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
    for steps in STEPS:
        ends = _ends(graph, row, steps, tensors)
        if ends is None or ends in tried:
            continue
        tried.add(ends)
        try:
            part = _part(rebuilt, proto, *ends)
            db, lines = _loss(part, row)
        except NmpError:  # a part may be what no whole model is: without a convolution, of other shapes
            continue
        if db >= SHARE * row.db:
            return Small(db, len(part.proto.graph.node), len(proto.graph.node), {**part.files, **lines})
    return None


@dataclass(frozen=True)
class _Part:
    proto: onnx.ModelProto
    data: Mapping[str, np.ndarray]

    @property
    def files(self) -> dict[str, bytes]:
        return {"small.onnx": self.proto.SerializeToString(deterministic=True), "small.npz": npz(self.data)}


def _ends(
    graph: Graph, row: Row, steps: int, tensors: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Inputs and outputs, by ONNX names, of the part of the graph within ``steps`` ops of the tensor, up and down."""
    makers, users = graph.producers(), graph.consumers()
    part = _around(graph, row, steps)
    while part:
        produced = {name for node in part.values() for name in node.outputs}
        read_ = {name for node in part.values() for name in node.inputs if not graph[name].is_const}
        inputs = [name for name in read_ if name not in produced]
        outputs = [
            name for name in produced if name in graph.outputs or any(user.name not in part for user in users[name])
        ]
        unknown = [name for name in (*inputs, *outputs) if name not in tensors]
        if not unknown:
            order = {value.name: i for i, value in enumerate(graph.activations())}
            return tuple(sorted(inputs, key=order.__getitem__)), tuple(sorted(outputs, key=order.__getitem__))
        # What the converter made itself has no name in the ONNX model: one op further.
        more = [makers[name] for name in unknown if name in inputs and name in makers]
        more += [user for name in unknown if name in outputs for user in users[name]]
        if all(node.name in part for node in more):
            return None
        part.update({node.name: node for node in more})
    return None


def _around(graph: Graph, row: Row, steps: int) -> dict[str, Node]:
    """The node that makes the tensor, or else one that reads it, and those within ``steps`` ops of it, by name."""
    makers, users = graph.producers(), graph.consumers()
    start = makers.get(row.name) if row.table == TENSOR else next((n for n in graph.nodes if n.name == row.name), None)
    first = [start] if start else users.get(row.name, [])[:1]
    part = {node.name: node for node in first}
    for _ in range(steps):
        for node in list(part.values()):
            near = [makers[name] for name in node.inputs if name in makers]
            near += [user for name in node.outputs for user in users[name]]
            part.update({near_node.name: near_node for near_node in near})
    return part


def _part(rebuilt: Rebuilt, proto: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> _Part:
    """The nodes between these, and what the inputs are on samples."""
    known, graph = rebuilt.known, rebuilt.fitter.graph
    shapes = {name: graph.source_shapes[name] for name in graph.inputs}
    engine = OnnxEngine(proto, shapes, list(dict.fromkeys([*inputs, *outputs])))
    seen: dict[str, list[np.ndarray]] = {name: [] for name in (*inputs, *outputs)}
    types: dict[str, int] = {}
    for at in rebuilt.measured_samples:
        sample = {name: model_input(s[at], s.preprocess, shapes[name]) for name, s in known.samples.items()}
        for name, value in engine.run(sample).items():
            seen[name].append(np.asarray(value, np.float32))
            types[name] = helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype)
    cut = onnx.ModelProto()
    cut.CopyFrom(proto)
    remaining = [node for node in cut.graph.node if not set(node.output) & set(inputs)]
    del cut.graph.node[:]
    cut.graph.node.extend(remaining)
    nodes = needed(cut.graph, outputs)
    read_ = {*(name for node in nodes for name in reads(node))}
    constants = [tensor for tensor in proto.graph.initializer if tensor.name in read_]

    def info(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, types[name], seen[name][0].shape)

    input_infos, wanted = [info(name) for name in inputs], [info(name) for name in outputs]
    part = helper.make_graph(nodes, proto.graph.name or "part", input_infos, wanted, constants)
    whole = helper.make_model(part, opset_imports=proto.opset_import, ir_version=proto.ir_version)
    return _Part(whole, {name: _stacked(seen[name]) for name in inputs})


def _stacked(samples: Sequence[np.ndarray]) -> np.ndarray:
    """[n, ...]; a batch of 1 is left out."""
    return np.concatenate(samples) if samples[0].shape[:1] == (1,) else np.stack(samples)


def _loss(part: _Part, row: Row) -> tuple[float, dict[str, bytes]]:
    """Returns how many dB the part loses with the tensor as the file has it, against 16 bits, and recipes for both."""
    key = "bits" if row.table == TENSOR else "weight_bits"
    choice: dict[str, Any] = {key: row.bits}
    with tempfile.TemporaryDirectory(prefix="nmpconv-") as folder:
        for name, content in part.files.items():
            (Path(folder) / name).write_bytes(content)
        path, data = (Path(folder) / name for name in part.files)

        def converted(values: Mapping[str, Any]) -> tuple[float, bytes, Result]:
            text = recipes.lines(WHOLE, [(row.table, row.name, values)]).encode()
            recipe = Path(folder) / "recipe.toml"
            recipe.write_bytes(text)
            options = replace(Options(), recipe=recipe)
            result = convert(path, dict.fromkeys(part.data, data), options, silent)
            return fmean(result.report.sqnr_by_head.values()), text, result

        if row.moved:
            choice["exponent"] = quant_of(converted(choice)[2].graph[row.name]).exponent + row.moved
        bad, lossy, _ = converted(choice)
        good, _, _ = converted({key: 16})
    return good - bad, {"small.toml": lossy}
