"""From an ONNX file to the float graph: one walk over the nodes, with shapes and constants known as we go."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from nmpconv.base.quantities import utf8
from nmpconv.errors import Computed, InputError, Invalid, InvalidModel, Row, Unsupported, UnsupportedModel, UsageError
from nmpconv.frontend import fixed_batch, normalization
from nmpconv.frontend.bind import bind, is_real, type_name
from nmpconv.frontend.custom_nodes import custom_name
from nmpconv.frontend.cut_work import Work, of_branches, with_whole_tensors
from nmpconv.frontend.expand import expansion_of
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.frontend.importer import FollowsError, Importer
from nmpconv.frontend.input_values import FLAG, Shapes, Values
from nmpconv.frontend.node_check import SIZE_MAX, TensorType, check, check_form, check_size
from nmpconv.frontend.operator_advice import unknown
from nmpconv.frontend.read import DEFAULT_DOMAINS, OPSET_MAX, opset, read
from nmpconv.frontend.tflite import variables
from nmpconv.frontend.to_onnx import is_batchable
from nmpconv.frontend.toposort import label, reads, rename, subgraphs
from nmpconv.frontend.unroll import Unroller
from nmpconv.ir import Graph
from nmpconv.ops import OPS, Op
from nmpconv.ops.common.aligned import TERMS_MAX
from nmpconv.ops.custom import Custom
from nmpconv.ops.onnx_node import OnnxNode

__all__ = ["Importer", "OnnxNode", "load"]

OP_OF_ONNX: dict[str, Op] = {kind: op for op in OPS.values() for kind in op.onnx}
OP_OF_ONNX[f"{normalization.DOMAIN}.{normalization.NORMALIZE}"] = OP_OF_ONNX[normalization.NORMALIZE]

WITH_GRAPHS = ("If", "Loop", "Scan")  # operators that hold graphs: a branch is taken or chosen, steps are unrolled
AUTO = ("auto",)  # outputs: the model's own, or those that can be had
BOTH_MAX = 2  # times the work of the larger branch, that an If on data may take
CUTS_MAX = 4  # tries to find them
STEPS_OF_NODE = 640  # of a file's verifier, which has 4 for a byte of the file; a constant's element is a byte at least
# No op of a fixed plan of memory: (why, what to do).
NOT_FIXED = {
    "If": ("what it runs depends on the data", ""),
    **dict.fromkeys(("NonZero", "Unique"), ("the shape of its result depends on data", "")),
    **dict.fromkeys(
        ("ConstantOfShape", "NonMaxSuppression", "Range"),
        ("the shape of its result depends on data", "fixed sizes; of a detector, what comes before boxes are selected"),
    ),
}


def load(
    path: str | os.PathLike[str],
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    input_values: Values | None = None,
    outputs: Sequence[str] = (),
) -> Graph:
    """The float graph of an ONNX file, batch 1, with the model's own layout at inputs and outputs.

    input_shapes: sizes for dynamic dimensions, by input name. input_values: of inputs that become constants.
    outputs: tensors to cut the graph at instead of the model's outputs. Raises InputError (the file), InvalidModel
    (all nodes that are no valid ONNX), UsageError (the arguments), UnsupportedModel (all nodes that cannot be
    converted). With outputs AUTO the model is cut where that one says, if it has to be.
    """
    bound = input_shapes or {}, input_values or {}
    if tuple(outputs) != AUTO:
        return _load(path, *bound, outputs)
    try:
        return _load(path, *bound, ())
    except UnsupportedModel as error:
        if not error.cut:
            raise
        return _load(path, *bound, error.cut)


def _readable(graph: Graph, where: str) -> Graph:
    """UnsupportedModel where there are more reads than a file's verifier follows, each back to where it is made."""
    for name, nodes in graph.consumers().items():
        if len(nodes) > TERMS_MAX and not graph[name].is_const:
            node = nodes[TERMS_MAX]
            why = f"{name!r} is read by {len(nodes)} nodes, this is one of them"
            raise UnsupportedModel([(node.name, node.op, why, f"at most {TERMS_MAX} readers of a tensor")], where=where)
    makers = {name: i for i, node in enumerate(graph.nodes) for name in node.outputs}
    reads = [(len(graph.nodes), name) for name in graph.outputs]
    reads += [(i, name) for i, node in enumerate(graph.nodes) for name in node.inputs if not graph[name].is_const]
    far = [(i - makers.get(name, 0), name) for i, name in reads]
    steps = sum(between for between, _ in far)
    most = STEPS_OF_NODE * len(graph.nodes) + sum(4 * value.size for value in graph.values.values() if value.is_const)
    if steps > most:
        between, name = max(far)
        node = graph.nodes[makers.get(name, 0)]
        why = f"{name!r} is read, or handed out, {between} nodes after this one; all tensors together {steps}"
        raise UnsupportedModel([(node.name, node.op, why, f"at most {most} together")], where=where)
    return graph


def _load(path: str | os.PathLike[str], shapes: Shapes, values: Values, outputs: Sequence[str]) -> Graph:
    """UnsupportedModel with the cut that was tried, where there is one, and what it leaves to the host. A cut that
    leaves it all convolutions and products, or all that is more than moves, is none."""

    def walked(ends: Sequence[str]) -> Walk:
        free = {name: shape for name, shape in shapes.items() if name not in values}
        walk = Walk(read(path, values, shapes), str(path), free, ends)
        walk.run()
        return walk

    walk = walked(outputs)
    if not walk.rows:
        graph = walk.to.graph(utf8(Path(walk.path).stem), walk.outputs)
        if (follow := fixed_batch.following(walk.model)) and not is_batchable(graph):
            hint = "export the model with a batch of 1, or of any size"
            why = "it has the size of the model's own batch, which is not axis 0 everywhere"
            rows = [(_name(node), node.op_type, why, "") for node in follow]
            raise UnsupportedModel(rows, where=walk.path, hint=hint)
        return _readable(replace(graph, variables=variables.of_metadata(walk.model)), str(path))
    cut = walk.cut()
    for _ in range(CUTS_MAX):
        if not cut:
            break
        try:
            shorter = walked(cut)
        except InputError:  # nothing is left that depends on an input
            break
        if shorter.rows:
            cut = shorter.cut()
            continue
        work = Work.of(walk.nodes, shorter.nodes, walk.to.tensor, shorter.to.is_const)
        if not work.is_some_left:
            break
        hint = f"to leave {work} to the host, cut the graph: --outputs {','.join(cut)}"
        raise UnsupportedModel(walk.rows, where=str(path), hint=hint, cut=cut)
    raise UnsupportedModel(walk.rows, where=str(path))


# Contrib ops of onnxruntime that are ONNX's own, with more types than its older opsets allow.
_CONTRIB = ("QuantizeLinear", "DequantizeLinear")


class Walk:
    """One import of one model."""

    def __init__(self, model: onnx.ModelProto, path: str, input_shapes: Shapes, outputs: Sequence[str]) -> None:
        self.model, self.path = model, path
        self.opset = opset(model, path)
        self.outputs = tuple(dict.fromkeys(outputs)) or tuple(value.name for value in model.graph.output)
        self._ends = frozenset(self.outputs)
        self.rows: list[Row] = []  # of nodes that cannot be converted
        self.invalid: list[Row] = []
        initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        real = [value for value in model.graph.input if value.name not in initializers]
        names = [value.name for value in real]
        self.refused: set[str] = set()  # outputs of nodes that are refused already
        # All nodes are loaded by onnxruntime; but with a cut, those after it are none of the user's concern.
        for node in self._live(names, initializers)[0] if outputs else model.graph.node:
            self._check_form(node)
        if not self.invalid:
            normalization.fuse(model.graph)
        self.nodes, self.read = self._live(names, initializers)
        # An input that the outputs do not depend on needs no shape and no calibration data.
        used = [value for value in real if value.name in self.read]
        if not used:
            raise InputError("the outputs do not depend on any input", where=path)
        shapes = bind(real, self.read, input_shapes)
        self._has_other_batch = any(  # only a batch may be another one than the model's
            dim.dim_value > 1 and shapes[value.name][0] == 1
            for value in used
            for dim in value.type.tensor_type.shape.dim[:1]
        )
        self.rows += [
            (value.name, "input", f"is {_type_name(value)}", "an input of numbers")
            for value in used
            if not is_real(value)
        ]
        if large := [(name, shape) for name, shape in shapes.items() if prod(shape) > SIZE_MAX]:
            rows = [
                (name, "input", f"its shape {list(shape)} is too large", f"{SIZE_MAX} elements")
                for name, shape in large
            ]
            raise UnsupportedModel(rows, where=path)
        constants = {name: self._array(tensor) for name, tensor in initializers.items() if name in self.read}
        activations = [name for node in self.nodes for name in node.output if name]
        elements = {value.name: value.type.tensor_type.elem_type for value in real}
        self.to = Importer(shapes, elements, constants, activations, path)
        self.to.note_readers(self.nodes, self.outputs)
        self._unroller = Unroller(self.to, self._inlined, self._written, lambda: len(self.rows) + len(self.invalid))

    def run(self) -> None:
        """Fills the graph, and the rows of nodes that cannot be in it. Raises InvalidModel."""
        for node in self.nodes:
            self._node(node)
        self.rows += [
            (name, "output", "is a sequence", "its tensors") for name in self.outputs if name in self.to.sequences
        ]
        for name in self.outputs:
            if self.to.is_const(name) and self.to.constants[name].dtype.kind in "fiu" and self.to.constants[name].size:
                self._constant(name)
        del self._unroller  # it knows the walk, so that the model would stay until garbage is collected
        if self.invalid:
            hint = "another exporter, or another version of it"
            if self._has_other_batch:
                hint = "an export with a batch of 1, or of any size: nodes have the sizes of the model's own batch"
            raise InvalidModel(self.invalid, where=self.path, hint=hint)

    def _constant(self, output: str) -> None:
        """An output that depends on no input: 0 times an element of one, and the constant added."""
        x = next(iter(self.to.input_shapes))
        node = OnnxNode(output, "Constant", (), (output,), {}, OPSET_MAX)
        body = Body(node, self.to, self._written)
        data = self.to.release(output)
        try:
            first = body("Slice", body("Reshape", x, np.array([-1])), np.array([0]), np.array([1]))
            real = body("Cast", first, to=onnx.TensorProto.FLOAT)
            nothing = body("Reshape", body("Mul", real, 0.0), np.ones(data.ndim, np.int64))
            body("Add", nothing, data.astype(np.float32), output=output)
        except Unsupported as error:
            self.rows.append((output, "Constant", error.message, error.hint))

    def cut(self) -> list[str]:
        """The tensors that can be converted and that a node which cannot, or one after it, reads: outputs instead.

        Integers and truth are no outputs, so the nodes before them are left to the host, too.
        """
        refused = {row[0] for row in self.rows}
        computed = {name for node in self.nodes for name in node.output if not self.to.is_const(name)}
        lost: set[str] = {
            name for name in computed if self.to.grid_of(name) is not None and self._is_read_by(name, refused)
        }
        while True:
            read: list[str] = []
            for node in self.nodes:
                if refused.intersection(_names(node)) or lost.intersection((*reads(node), *node.output)):
                    lost.update(node.output)
                    read += reads(node)
            ends = [name for name in dict.fromkeys((*read, *self.outputs)) if name in computed and name not in lost]
            truths = [name for name in ends if self._is_truth(name)]
            if not truths:
                return with_whole_tensors(ends, self.nodes, self.to.is_const, self._ends)
            lost.update(truths)

    def _is_truth(self, name: str) -> bool:
        """Says that a tensor of the model's inside is of booleans."""
        return name not in self._ends and self.to.tensor(name).element == onnx.TensorProto.BOOL

    def _is_read_by(self, name: str, nodes: Collection[str]) -> bool:
        return any(name in node.input and _name(node) in nodes for node in self.nodes)

    def _live(self, inputs: Sequence[str], initializers: Mapping[str, object]) -> tuple[list[onnx.NodeProto], set[str]]:
        """The nodes that the outputs depend on, in the file's order, and the names of all tensors that are read."""
        known = {*inputs, *initializers}
        for node in self.model.graph.node:
            missing = [name for name in node.input if name and name not in known]
            if missing:
                raise InputError(f"{label(node)} reads '{missing[0]}', which nothing makes", where=self.path)
            doubled = [name for name in node.output if name and name in known]
            if doubled:
                raise InputError(f"{label(node)} makes '{doubled[0]}' a second time", where=self.path)
            known.update(node.output)
        for name in self.outputs:
            if name not in known or not name:
                close = difflib.get_close_matches(name, sorted(known), n=5, cutoff=0.5)
                own = ", ".join(value.name for value in self.model.graph.output)
                hint = f"close to it: {', '.join(close)}" if close else f"the model's outputs: {own}"
                raise UsageError(f"the model has no tensor '{name}'", where="--outputs", hint=hint)
        needed, live = set(self.outputs), []
        for node in reversed(self.model.graph.node):
            if needed.intersection(node.output):
                live.append(node)
                needed.update(reads(node))
        return live[::-1], needed

    def _array(self, tensor: onnx.TensorProto) -> np.ndarray:
        if any(size < 0 for size in tensor.dims):
            raise InputError(f"tensor '{tensor.name}' has the shape {list(tensor.dims)}", where=self.path)
        try:
            return numpy_helper.to_array(tensor)
        except Exception as error:  # ValueError, TypeError, KeyError: whatever does not fit the declared shape or type
            raise InputError(f"the data of tensor '{tensor.name}' is damaged: {error}", where=self.path) from error

    def _check_form(self, node: onnx.NodeProto) -> None:
        """Checks the form of all nodes that count, before some become one."""
        try:
            check_form(node, self.opset)
        except Invalid as error:
            self.invalid.append((_name(node), node.op_type, error.message, error.hint))
            self.refused.update(node.output)

    def _node(self, proto: onnx.NodeProto) -> None:
        """Check, fold, lower or report one node."""
        if self.refused.intersection(proto.output):
            return self.to.assume(proto, {})
        opset = self.opset
        if proto.domain == "com.microsoft" and proto.op_type in _CONTRIB:
            proto.domain, opset = "", OPSET_MAX
        kind = _kind(proto)
        types: Mapping[str, TensorType] = {}
        try:
            types = self._checked(proto, opset)
            if kind == "If" and self.to.is_const(proto.input[0]):
                return self._branch(proto)
            if kind == "If" and self._is_cheap(proto):
                return self._both(proto)
            if kind in ("Loop", "Scan"):
                return self._unroller.run(proto, self.opset)
            self._step(proto, types, self.opset)
            extra = [name for name in proto.output if name in self.read and not self.to.knows(name)]
            if extra:
                raise Unsupported(f"its output '{extra[0]}' is used", hint="only the first output")
        except FollowsError:
            pass  # what it follows is in the list already
        except Unsupported as error:
            bound = self._bound(error.tensor) if isinstance(error, Computed) else ""
            self.rows.append((_name(proto), kind, error.message, bound or error.hint))
        except Invalid as error:
            self.invalid.append((_name(proto), kind, error.message, error.hint))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # attributes or shapes make no sense
            self.invalid.append((_name(proto), kind, f"it is malformed: {error}", ""))
        self.to.assume(proto, types)

    def _checked(self, proto: onnx.NodeProto, opset: int) -> dict[str, TensorType]:
        """Checks a node by ONNX's rules, and returns the types of its outputs."""
        inputs = {name: self.to.tensor(name) for name in proto.input if name}
        types = check(proto, inputs, self.to.constants, opset)
        check_size(types)
        return types

    def _step(self, proto: onnx.NodeProto, types: Mapping[str, TensorType], opset: int) -> None:
        """Fold, expand or lower one node."""
        kind = _kind(proto)
        if (custom := custom_name(proto)) is not None:
            return self.to.lower(replace(OnnxNode.of(proto, opset), op_type=custom), OPS[Custom.name])
        if self.to.try_fold(proto, types, opset):
            return
        node = OnnxNode.of(proto, opset)
        if (expansion := expansion_of(kind, node, self.to)) is not None:
            expansion(node, Body(node, self.to, self._written))
        elif (op := OP_OF_ONNX.get(kind)) is not None:
            self.to.lower(node, op)
        else:
            why, hint = NOT_FIXED.get(kind) or unknown(proto)
            raise Unsupported(why, hint=(kind == "If" and self._bound(proto.input[0])) or hint)

    def _is_cheap(self, proto: onnx.NodeProto) -> bool:
        """Says that computing all branches of an If is at most BOTH_MAX times the work, and that data decide."""
        total, most = of_branches(proto, self.to.tensor)
        return self.opset >= 9 and total <= BOTH_MAX * max(most, 1) and not self._deciding(proto.input[0])

    def _both(self, proto: onnx.NodeProto) -> None:
        """An If on data: both branches are computed, and Where chooses."""
        if prod(self.to[proto.input[0]].shape) != 1:
            raise Unsupported(f"its condition has the shape {list(self.to[proto.input[0]].shape)}", hint="one element")
        graphs = {attribute.name: attribute.g for attribute in proto.attribute}
        sides = [self._inlined(graphs[name], proto) for name in ("then_branch", "else_branch")]
        for then, other, output in zip(*sides, proto.output, strict=True):
            shapes = [self.to.tensor(name).shape for name in (then, other)]
            if None not in shapes and shapes[0] != shapes[1]:
                first, second = (list(shape or ()) for shape in shapes)
                raise Unsupported(f"its branches make {first} and {second}", hint="one shape")
            self._node(helper.make_node("Where", [proto.input[0], then, other], [output], _name(proto)))

    def _inlined(
        self, graph: onnx.GraphProto, outer: onnx.NodeProto, bindings: Mapping[str, str] | None = None
    ) -> list[str]:
        """Converts the nodes of a graph inside of a node, under new names, and returns those of its outputs. bindings:
        tensors that its inputs are, by the inputs' names."""
        inner = [tensor.name for tensor in graph.initializer] + [name for node in graph.node for name in node.output]
        names = {name: self.to.new_name(f"{_name(outer)}.{name}") for name in inner if name} | dict(bindings or {})
        self.to.define({names[tensor.name]: self._array(tensor) for tensor in graph.initializer})
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
        for node in nodes:
            node.name = _name(node)
            rename(node, names)
        self.to.note_readers(nodes)
        for node in nodes:
            self._node(node)
        return [names.get(value.name, value.name) for value in graph.output]

    def _deciding(self, name: str) -> list[str]:
        """The inputs of one element that a tensor depends on; none where it depends on others, too."""
        makers = {output: node for node in self.nodes for output in node.output}
        names = [name]
        for tensor in names:
            names += [x for x in reads(makers[tensor]) if x not in names] if tensor in makers else []
        inputs = [tensor for tensor in names if tensor in self.to.input_shapes]
        return inputs if all(prod(self.to.input_shapes[tensor]) == 1 for tensor in inputs) else []

    def _bound(self, name: str) -> str:
        """A hint to bind the inputs of one element that a tensor depends on; "" where it depends on others, too."""
        flags = " ".join(f"{FLAG} {deciding}=NUMBER" for deciding in self._deciding(name))
        return f"where it is the same in every run: {flags}" if flags else ""

    def _written(self, proto: onnx.NodeProto) -> None:
        """One node of an expansion."""
        try:
            types = self._checked(proto, OPSET_MAX)
        except Invalid as error:  # the user's node is valid; what it is written as does not take its types
            raise Unsupported(error.message, hint=error.hint) from error
        try:
            self._step(proto, types, OPSET_MAX)
        finally:
            self.to.assume(proto, types)

    def _branch(self, proto: onnx.NodeProto) -> None:
        """An If on a constant is the branch that it takes."""
        taken = "then_branch" if self.to.array(proto.input[0], "condition").all() else "else_branch"
        [graph] = [attribute.g for attribute in proto.attribute if attribute.name == taken]
        inner = [tensor.name for tensor in graph.initializer] + [name for node in graph.node for name in node.output]
        results = [value.name for value in graph.output]
        if any(name and self.to.knows(name) for name in inner):  # an earlier step of a loop has them
            results = self._inlined(graph, proto)
        else:
            self.to.define({tensor.name: self._array(tensor) for tensor in graph.initializer})
            for node in graph.node:
                self._node(node)
        for name, output in zip(results, proto.output, strict=True):
            self.to.alias(output, name)


def _kind(node: onnx.NodeProto) -> str:
    return str(node.op_type if node.domain in DEFAULT_DOMAINS else f"{node.domain}.{node.op_type}")


def _name(node: onnx.NodeProto) -> str:
    return str(node.name or next(filter(None, node.output), ""))


def _names(node: onnx.NodeProto) -> list[str]:
    """Its own, and those of the nodes in its subgraphs."""
    return [_name(node), *(name for graph in subgraphs(node) for sub in graph.node for name in _names(sub))]


def _type_name(value: onnx.ValueInfoProto) -> str:
    return type_name(value.type.tensor_type.elem_type)
