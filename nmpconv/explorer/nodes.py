"""A .nmp file as a graph of Model Explorer: a node for each input, op, constant and output.

SQNR is not in a .nmp file. It is shown where what `nmpconv convert --json` printed lies beside the file, with the same
name but for .json.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from model_explorer.graph_builder import Graph, GraphNode, IncomingEdge, KeyValue, MetadataItem

from nmpconv.base.files import read_text
from nmpconv.base.quantities import ends
from nmpconv.errors import NmpError
from nmpconv.file.reader import FileOp, FilePort, FileTensor, Model
from nmpconv.runtime.interpreter import load

SHOWN = 16  # elements of a constant, where nobody says how many
# Of a layer in a report: how it is called, with its unit.
MEASURED = {"sqnr_cumulative": "SQNR (dB)", "sqnr_isolated": "SQNR alone (dB)", "clipped": "clipped (share)"}

Facts = Mapping[str, object]


def graph(path: Path, shown: int = SHOWN) -> Graph:
    """shown: elements of each constant, -1 being all. Raises InputError (unreadable) or ModelError (refused)."""
    model = load(path, cpu="portable").model  # verified
    measured = _measured(path.with_suffix(".json"), model.file_bytes)
    makers = _makers(model)
    nodes = [_input(i, port, model) for i, port in enumerate(model.inputs)]
    homes: dict[int, str] = {}
    for i, op in enumerate(model.ops):
        for tensor in op.inputs:
            homes.setdefault(tensor, _namespace(op))
        nodes.append(_op(i, op, model, makers, measured.get(op.name, {})))
    constants = [i for i, tensor in enumerate(model.tensors) if tensor.data is not None]
    nodes += [_constant(i, model.tensors[i], homes.get(i, ""), shown) for i in constants]
    nodes += [_output(i, port, model, makers) for i, port in enumerate(model.outputs)]
    return Graph(id=model.name or path.stem, nodes=nodes, groupNodeAttributes={"": _text(_file(model))})


def _makers(model: Model) -> dict[int, tuple[str, str]]:
    """Maps each tensor to the node that makes it: the node, and which of its outputs."""
    makers = {port.tensor: (f"input{i}", "0") for i, port in enumerate(model.inputs)}
    makers |= {tensor: (f"op{i}", str(n)) for i, op in enumerate(model.ops) for n, tensor in enumerate(op.outputs)}
    return makers | {i: (f"constant{i}", "0") for i, t in enumerate(model.tensors) if t.data is not None}


def _file(model: Model) -> Facts:
    return {
        "format": ".".join(map(str, model.version)),
        "file (bytes)": model.file_bytes,
        "constants (bytes)": model.weights_bytes,
        "activations (bytes)": model.arena_bytes,
        "MACs": sum(op.macs for op in model.ops),
        "labels": ", ".join(model.labels),
        **model.metadata,
    }


def _input(number: int, port: FilePort, model: Model) -> GraphNode:
    state = "" if port.state is None else f"{model.outputs[port.state].name} of the call before, first {port.start}"
    facts: dict[str, object] = {**_port(port), "pixels - 128": port.pixels, "state": state}
    if port.preprocess is not None:
        facts |= vars(port.preprocess)
    outputs = [_item(0, model.tensors[port.tensor])]
    return GraphNode(f"input{number}", "input", "", attrs=_attributes(facts), outputsMetadata=outputs)


def _output(number: int, port: FilePort, model: Model, makers: Mapping[int, tuple[str, str]]) -> GraphNode:
    edges = _edges([port.tensor], makers)
    return GraphNode(f"output{number}", "output", "", attrs=_attributes(_port(port)), incomingEdges=edges)


def _port(port: FilePort) -> Facts:
    return {"name": port.name, "shape in the ONNX model": port.source_shape}


def _op(number: int, op: FileOp, model: Model, makers: Mapping[int, tuple[str, str]], measured: Facts) -> GraphNode:
    facts: dict[str, object] = {"name": op.name, "number": number, "MACs": op.macs or "", **op.params, **measured}
    return GraphNode(
        f"op{number}",
        op.kind,
        _namespace(op),
        attrs=_attributes(facts),
        incomingEdges=_edges(op.inputs, makers),
        inputsMetadata=[_called(i, model.tensors[tensor]) for i, tensor in enumerate(op.inputs)],
        outputsMetadata=[_item(i, model.tensors[tensor]) for i, tensor in enumerate(op.outputs)],
    )


def _constant(number: int, tensor: FileTensor, namespace: str, shown: int) -> GraphNode:
    assert tensor.data is not None
    values = tensor.data.ravel()[: shown if shown >= 0 else None].tolist()
    facts = {"name": tensor.name, **_statistics(tensor), "__value": values}
    return GraphNode(
        f"constant{number}", "constant", namespace, attrs=_attributes(facts), outputsMetadata=[_item(0, tensor)]
    )


def _edges(tensors: Iterable[int], makers: Mapping[int, tuple[str, str]]) -> list[IncomingEdge]:
    return [IncomingEdge(*makers[tensor], str(i)) for i, tensor in enumerate(tensors)]


def _namespace(op: FileOp) -> str:
    """The folders of a name such as /features/0/Conv."""
    return "/".join(part for part in op.name.split("/")[:-1] if part)


def _called(number: int, tensor: FileTensor) -> MetadataItem:
    return MetadataItem(str(number), _attributes({"name": tensor.name}))


def _item(number: int, tensor: FileTensor) -> MetadataItem:
    return MetadataItem(str(number), _attributes(_tensor(tensor)))


def _tensor(tensor: FileTensor) -> Facts:
    """tensor_shape is what Model Explorer writes beside an edge."""
    facts: dict[str, object] = {
        "tensor_shape": f"{tensor.dtype}{list(tensor.shape)}",
        "name": tensor.name,
        "width (bits)": 8 * np.dtype(tensor.dtype).itemsize,
        "exponent": ends(tensor.exponents),
        "exponents along axis": "" if tensor.axis is None else tensor.axis,
        "bytes": tensor.nbytes,
        "exponent chosen by": tensor.method or "",
    }
    if tensor.data is not None:
        return facts
    facts |= {"clip range": f"{tensor.clip_min}..{tensor.clip_max}", "origin": tensor.origin}
    if tensor.float_exponents is not None:
        facts["exponent in the float model"] = ends(tensor.float_exponents)
    if tensor.float_mantissas:
        facts["steps in the float model"] = ", ".join(f"{step:g}" for step in tensor.float_steps)
    if tensor.float_offsets:
        facts["offsets in the float model"] = ", ".join(f"{offset:g}" for offset in tensor.float_offsets)
    facts["offset in the arena (bytes)"] = tensor.offset
    if tensor.observed_min is not None:
        facts["observed"] = f"{tensor.observed_min:.6g}..{tensor.observed_max:.6g}"
    return facts


def _statistics(tensor: FileTensor) -> Facts:
    """Statistics of a constant: of its integers, and of the values that they stand for."""
    data = tensor.data
    assert data is not None
    shape = [1] * data.ndim
    if tensor.axis is not None:
        shape[tensor.axis] = -1
    values = np.ldexp(data.astype(np.float64), np.array(tensor.exponents).reshape(shape))
    limits = np.iinfo(data.dtype)
    return {
        "least value": f"{values.min():.6g}",
        "largest value": f"{values.max():.6g}",
        "mean": f"{values.mean():.6g}",
        "standard deviation": f"{values.std():.6g}",
        "integers": f"{data.min()}..{data.max()}",
        "zeros": f"{100 * np.mean(data == 0):.1f} %",
        "at an end of the type": f"{100 * np.mean((data == limits.min) | (data == limits.max)):.1f} %",
    }


def _measured(path: Path, file_bytes: int) -> dict[str, Facts]:
    """By the name of an op: what a conversion measured, where its report is there and of a file of this size."""
    if not path.is_file():
        return {}
    try:
        report = json.loads(read_text(path, "report"))
        layers = report["layers"] if report["file_bytes"] == file_bytes else []
        return {
            layer["name"]: {title: f"{layer[key]:.4g}" for key, title in MEASURED.items() if layer[key] is not None}
            for layer in layers
        }
    except (NmpError, ValueError, TypeError, KeyError, RecursionError):  # something else
        return {}


def _attributes(facts: Facts) -> list[KeyValue]:
    return [KeyValue(key, value) for key, value in _text(facts).items()]


def _text(facts: Facts) -> dict[str, str]:
    """Without what has nothing to say."""
    return {key: _word(value) for key, value in facts.items() if not _empty(value)}


def _empty(value: object) -> bool:
    return value is None or (isinstance(value, str | tuple | list) and not value)


def _word(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(_word, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}"
    return str(value)
