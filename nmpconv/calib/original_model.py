"""The user's ONNX model in the form in which onnxruntime can run it next to the float graph.

1. Only what some tensors need: nodes, producers first, and inputs, with their shapes bound.
2. Reals are float32: float16, bfloat16 and double are the file's way to store what a float graph computes in float32.
3. QuantizeLinear and DequantizeLinear of an activation do not round. They saturate where the float graph does, at both
   ends of a grid that begins at 0; where it has left that out, as nothing reaches the ends, one step further away.
4. LRN is written out. That of onnxruntime carries one sum of squares along all channels, and with it the rounding of
   squares that the window has left behind.
5. So is a nearest Resize with coordinates that are ties but for rounding (`resize_ties`).
6. DFT and STFT compute in double: in float32 those of lengths with large prime factors have less than 90 dB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nmpconv.calib import resize_ties
from nmpconv.frontend.integer_operators import MOVES
from nmpconv.frontend.to_float32 import REALS, single_graph
from nmpconv.frontend.to_onnx import IR_VERSION
from nmpconv.frontend.toposort import name_apart, reads
from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS

JUMPS = {
    *("ArgMax", "ArgMin", "Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "Hardmax", "Less", "LessOrEqual"),
    *("Mod", "NonMaxSuppression", "NonZero", "Round", "Shrink", "Sign", "ThresholdedRelu", "TopK"),
}  # ops in which a rounding of the input can change the output by more than a rounding
OF_SHAPES = ("Shape", "Size")
Ends = tuple[float, float]
ANY = (-np.inf, np.inf)


def cut(model: onnx.ModelProto, outputs: Sequence[str], shapes: Mapping[str, Sequence[int]]) -> None:
    """Case 1, in place. outputs: tensors of the model. shapes: of inputs, by name."""
    graph = model.graph
    nodes = needed(graph, outputs)
    read = {*outputs, *(name for node in nodes for name in reads(node))}
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name in read and value.name not in constants]
    for value in inputs:
        if value.name in shapes:
            dims = [onnx.TensorShapeProto.Dimension(dim_value=size) for size in shapes[value.name]]
            value.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto(dim=dims))
    known = {value.name: value for value in graph.output}
    _replace(graph.node, nodes)
    _replace(graph.input, inputs)
    _replace(graph.output, [known.get(name) or onnx.ValueInfoProto(name=name) for name in outputs])
    _replace(graph.initializer, [tensor for tensor in graph.initializer if tensor.name in read])


def axes_from_the_front(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, changed in place. onnxruntime 1.23 crashes where the axes of a Resize count from the end."""
    counted = [
        (axes, node.input[0])
        for node in model.graph.node
        for axes in node.attribute
        if node.op_type == "Resize" and axes.name == "axes" and min(axes.ints, default=0) < 0
    ]
    if not counted:
        return model
    shaped = onnx.shape_inference.infer_shapes(model).graph
    values = (*shaped.input, *shaped.value_info)
    ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in values if v.type.tensor_type.HasField("shape")}
    for axes, name in counted:
        if rank := ranks.get(name):
            axes.ints[:] = [axis % rank for axis in axes.ints]
    return model


def original(model: onnx.ModelProto, graph: Graph) -> onnx.ModelProto:
    """The model, changed in place, that the float graph is to be compared with: all six cases.

    Inputs and outputs are those of the float graph, in the shapes that the model has them in.
    """
    cut(model, graph.outputs, graph.source_shapes)
    single_graph(model.graph)
    _unrounded(model.graph, graph)
    _lrn_written_out(model.graph)
    _spectra_in_double(model.graph)
    resize_ties.write_out(model, _constants(model.graph))
    name_apart(model.graph.node)
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.ClearField("type")
    model.ir_version = IR_VERSION
    return model


def needed(graph: onnx.GraphProto, outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes that these tensors depend on, producers first, else in the file's order."""
    makers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    indices: set[int] = set()
    waiting = list(outputs)
    while waiting:
        i = makers.get(waiting.pop())
        if i is not None and i not in indices:
            indices.add(i)
            waiting += reads(graph.node[i])
    nodes: dict[int, onnx.NodeProto] = {}
    for first in sorted(indices):
        stack = [first]
        while stack:
            above = [makers[name] for name in reads(graph.node[stack[-1]]) if name in makers]
            late = [i for i in above if i not in nodes]
            if late and len(stack) <= len(indices):  # more are a loop, which onnxruntime refuses
                stack += late
            else:
                i = stack.pop()
                nodes.setdefault(i, graph.node[i])
    return list(nodes.values())


def activations(graph: onnx.GraphProto) -> set[str]:
    """The tensors whose values, not only shapes, depend on the inputs. Nodes have to be in order."""
    constants = {tensor.name for tensor in graph.initializer}
    active = {value.name for value in graph.input} - constants
    for node in graph.node:
        if node.op_type not in OF_SHAPES and active.intersection(reads(node)):
            active.update(node.output)
    return active - {""}


def behind_jumps(graph: onnx.GraphProto) -> set[str]:
    """The activations that an op which is not continuous makes, or that depend on one. Nodes have to be in order."""
    moving = activations(graph)
    names: set[str] = set()
    for node in graph.node:
        if moving.intersection(node.output) and (_jumps(node) or names.intersection(reads(node))):
            names.update(node.output)
    return names - {""}


def _jumps(node: onnx.NodeProto) -> bool:
    if node.op_type == "Cast":
        to = next(attribute.i for attribute in node.attribute if attribute.name == "to")
        return to not in REALS
    if node.op_type == "GridSample":
        return any(attribute.s == b"nearest" for attribute in node.attribute if attribute.name == "mode")
    return node.op_type in JUMPS


def _replace(field: object, items: Iterable[object]) -> None:
    """Replaces the contents of a repeated field."""
    copies = list(items)
    del field[:]  # type: ignore[attr-defined]
    field.extend(copies)  # type: ignore[attr-defined]


def _unrounded(graph: onnx.GraphProto, floats: Graph) -> None:  # case 3
    moving = activations(graph) - set(floats.inputs)
    constants, makers, inside = _constants(graph), floats.producers(), _clips(floats)
    names: dict[str, set[str]] = {}  # of integers: the tensors that may have the saturation
    for node in graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] in (*moving, *floats.inputs):
            names[node.output[0]] = {node.input[0], node.output[0]}
        elif node.op_type == "Clip" and node.input[0] in names:
            names[node.output[0]] = {*node.input[:1], *node.output}
        elif node.op_type == "DequantizeLinear" and node.input[0] in names:
            names[node.input[0]].add(node.output[0])
    moved: dict[str, list[Ends | None]] = {}  # by tensor that is rounded: what saturates in its place
    for name, grid in floats.given.items():
        moved.setdefault(grid.source, []).append(floats[name].clamp if name in floats.values else None)
    nodes: list[onnx.NodeProto] = []
    reals = {y: node for node in graph.node for y in node.output if y in names}  # integers; what quantized them
    for node in graph.node:
        y = node.output[0]
        if node.op_type in MOVES and (known := [reals[x] for x in node.input if x in reals]):
            reals.update(dict.fromkeys(node.output, known[0]))
        if y in names or (node.op_type == "Clip" and node.input[0] in reals):
            clamps = [_clamp(floats, makers, name) for name in names[y] if name in floats.values]
            clamps += moved.get(node.input[0], [])
            if node.op_type == "Clip":
                reals[y] = reals[node.input[0]]
                ends = _clipped(node, reals[y], constants, clamps)
            else:
                ends = _ends(node, constants, clamps, inside) if node.input[0] in moving else ANY
            limits = [numpy_helper.from_array(np.float32(end), f"{y}.{i}") for i, end in enumerate(ends)]
            graph.initializer.extend(limits)
            nodes.append(helper.make_node("Max", [node.input[0], limits[0].name], [f"{y}.max"], node.name))
            nodes.append(helper.make_node("Min", [f"{y}.max", limits[1].name], [y], node.name))
        elif node.op_type == "DequantizeLinear" and node.input[0] in reals:
            nodes.append(helper.make_node("Identity", [node.input[0]], [y], node.name))
        else:
            nodes.append(node)
    _replace(graph.node, nodes)


def _constants(graph: onnx.GraphProto) -> dict[str, TensorProto]:
    """Initializers, and what Constant nodes hold."""
    pairs = [(node.output[0], a) for node in graph.node if node.op_type == "Constant" for a in node.attribute]
    return {tensor.name: tensor for tensor in graph.initializer} | {
        name: attribute.t for name, attribute in pairs if attribute.name == "value"
    }


def _clamp(floats: Graph, makers: Mapping[str, Node], name: str) -> Ends | None:
    """Saturation of a value, or of what it holds in other places."""
    while floats[name].clamp is None and (node := makers.get(name)) is not None and OPS[node.op].grid == "same":
        if OPS[node.op].joins:
            break
        name = OPS[node.op].moved(node.inputs)[0]
    return floats[name].clamp


def _clips(floats: Graph) -> list[float]:
    """Upper ends of saturations whose tensors are gone: in composed tables, and in layers that took in a grid's."""
    tables = (getattr(node.params, "composed", ()) for node in floats.nodes)
    composed = [float(step[3]) for steps in tables for step in steps if step[0] == "clip"]
    values = (value for value in floats.activations() if value.name not in floats.given)
    return composed + [value.clamp[1] for value in values if value.clamp is not None]


def _clipped(
    clip: onnx.NodeProto, grid: onnx.NodeProto, constants: Mapping[str, TensorProto], clamps: Sequence[Ends | None]
) -> Ends:
    """Real values that a Clip of integers saturates at. grid: the QuantizeLinear. clamps: see `_ends`."""

    def number(node: onnx.NodeProto, place: int, default: float) -> float:
        tensor = constants.get(node.input[place]) if len(node.input) > place else None
        return default if tensor is None else float(numpy_helper.to_array(tensor).flat[0])

    step, zero = number(grid, 1, 1.0), number(grid, 2, 0.0)
    low, high = ((number(clip, place, end) - zero) * step for place, end in ((1, -np.inf), (2, np.inf)))
    known = [clamp for clamp in clamps if clamp is not None]
    near = 1e-6 * max((abs(end) for end in (low, high) if np.isfinite(end)), default=0.0)
    return (
        low if any(clamp[0] >= low - near for clamp in known) else low - step,
        high if any(clamp[1] <= high + near for clamp in known) else high + step,
    )


def _reaches(clamp: Ends, ends: Ends) -> bool:
    """Checks for a saturation at both of these ends, or within."""
    near = 1e-6 * max(map(abs, ends))
    return clamp[0] >= ends[0] - near and clamp[1] <= ends[1] + near


def _ends(
    node: onnx.NodeProto,
    constants: Mapping[str, TensorProto],
    clamps: Sequence[Ends | None],
    inside: Sequence[float],
) -> Ends:
    """Ends at which a QuantizeLinear saturates. clamps: what the float graph has of it, at one of its tensors. inside:
    see `_clips`."""
    scale = constants.get(node.input[1])
    zero = constants.get(node.input[2]) if len(node.input) > 2 else None
    asked = [attribute.i for attribute in node.attribute if attribute.name == "output_dtype" and attribute.i]
    dtype = helper.tensor_dtype_to_np_dtype(zero.data_type if zero else asked[0] if asked else TensorProto.UINT8)
    start = int(numpy_helper.to_array(zero).flat[0]) if zero else 0
    if scale is None or dtype.kind not in "iu":
        return ANY
    step = float(numpy_helper.to_array(scale).flat[0])
    if start != np.iinfo(dtype).min:
        ends = ((int(np.iinfo(dtype).min) - start) * step, (int(np.iinfo(dtype).max) - start) * step)
        return ends if any(clamp is not None and _reaches(clamp, ends) for clamp in clamps) else ANY
    end = (int(np.iinfo(dtype).max) - start) * step
    saturates = any(clamp is not None and clamp[1] <= end * (1 + 1e-6) for clamp in clamps)
    saturates |= any(abs(high - end) <= 1e-6 * end for high in inside)
    return (0.0, end) if saturates else (-step, end + step)


def _spectra_in_double(graph: onnx.GraphProto) -> None:  # case 6
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type not in ("DFT", "STFT"):
            nodes.append(node)
            continue
        y = node.output[0]
        for place in (0,) if node.op_type == "DFT" else (0, 2):  # STFT's window
            if len(node.input) > place and node.input[place]:
                wide = f"{y}~double{place}"
                nodes.append(helper.make_node("Cast", [node.input[place]], [wide], node.name, to=TensorProto.DOUBLE))
                node.input[place] = wide
        node.output[0] = f"{y}~double"
        nodes += [node, helper.make_node("Cast", [f"{y}~double"], [y], node.name, to=TensorProto.FLOAT)]
    _replace(graph.node, nodes)


def _lrn_written_out(graph: onnx.GraphProto) -> None:  # case 4
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type != "LRN":
            nodes.append(node)
            continue
        x, y = node.input[0], node.output[0]
        options = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        p = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0, **options}
        numbers = {"alpha": p["alpha"], "bias": p["bias"], "power": -p["beta"]}
        graph.initializer.extend(numpy_helper.from_array(np.float32(n), f"{y}~{name}") for name, n in numbers.items())
        size = p["size"]
        window = {"kernel_shape": [1, size], "pads": [0, (size - 1) // 2, 0, size // 2], "count_include_pad": 1}
        for kind, inputs, output, attributes in (
            ("Mul", (x, x), "~squares", {}),
            ("Transpose", (f"{y}~squares",), "~rows", {"perm": [0, 2, 3, 1]}),
            ("AveragePool", (f"{y}~rows",), "~means", window),
            ("Transpose", (f"{y}~means",), "~mean", {"perm": [0, 3, 1, 2]}),
            ("Mul", (f"{y}~mean", f"{y}~alpha"), "~scaled", {}),
            ("Add", (f"{y}~scaled", f"{y}~bias"), "~base", {}),
            ("Pow", (f"{y}~base", f"{y}~power"), "~factor", {}),
            ("Mul", (x, f"{y}~factor"), "", {}),
        ):
            nodes.append(helper.make_node(kind, inputs, [y + output], node.name, **attributes))
    _replace(graph.node, nodes)
