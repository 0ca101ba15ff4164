"""Checks of single nodes by ONNX's own rules: whether it is valid, and of what types and shapes its outputs are.

onnxruntime asks the same questions when it loads a model. What both leave open until the node runs (indices, sums of
sizes) is for the ops' `lower`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.defs import OpSchema

from nmpconv.errors import Invalid, Unsupported
from nmpconv.frontend.bind import type_name
from nmpconv.frontend.read import DEFAULT_DOMAINS
from nmpconv.frontend.toposort import subgraphs

DATA_MAX = 4096  # elements of a constant that may be a shape, sizes or axes
SIZE_MAX = 2**28  # elements of an input or a result
_SHOWN = 8  # numbers of an attribute in a message


class TensorType(NamedTuple):
    """element: of onnx.TensorProto.DataType, 0 if unknown. shape: None if unknown."""

    element: int
    shape: tuple[int, ...] | None

    @classmethod
    def of(cls, array: np.ndarray) -> TensorType:
        return cls(int(helper.np_dtype_to_tensor_dtype(array.dtype)), array.shape)

    def __str__(self) -> str:
        name = type_name(self.element)
        return name if self.shape is None else f"{name} {list(self.shape)}"


def check(
    node: onnx.NodeProto, inputs: Mapping[str, TensorType], constants: Mapping[str, np.ndarray], opset: int
) -> dict[str, TensorType]:
    """Checks a node, and returns the types of its outputs. inputs: of all inputs' names; constants: of those that are
    known.

    Raises Invalid. Nothing is found of nodes outside of ONNX's own domain; of those that hold other nodes, the types
    that their graphs declare.
    """
    schema = check_form(node, opset)
    if schema is None:
        return _declared(node)
    _check_types(schema, node, inputs)
    if any(not inputs[name].element for name in node.input if name):
        return {}
    types = {name: helper.make_tensor_type_proto(*inputs[name]) for name in node.input if name}
    small = {name: constants[name] for name in types if name in constants and constants[name].size <= DATA_MAX}
    data = {name: numpy_helper.from_array(array, name) for name, array in small.items()}
    if node.op_type == "Einsum":  # onnx does not end on a single dot
        equation = next((a.s.decode(errors="replace") for a in node.attribute if a.name == "equation"), "")
        if "." in equation.replace("...", ""):
            raise Invalid(f"equation {equation!r}", hint="letters and ellipses of three dots")
    try:
        outputs = onnx.shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=[helper.make_opsetid("", opset)]
        )
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise Invalid(_reason(error), hint=_seen(node, inputs)) from error
    return {name: _tensor(kind.tensor_type) for name, kind in outputs.items()}


def check_form(node: onnx.NodeProto, opset: int) -> OpSchema | None:
    """Checks a node as far as that needs no inputs: how many there are, and the attributes. Raises Invalid.

    None where nothing more is known of the node.
    """
    known = onnx.defs.has(node.op_type) and node.op_type != "Constant"  # which stands for its value alone
    if node.domain not in DEFAULT_DOMAINS or subgraphs(node) or not known:
        return None
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
        if schema.deprecated:  # what it was is known here, but no longer to onnx
            if not schema.min_input <= len(node.input) <= schema.max_input:
                raise Invalid(f"has {len(node.input)} inputs", hint=f"{schema.min_input} to {schema.max_input}")
            if not schema.min_output <= len(node.output) <= schema.max_output:
                raise Invalid(f"has {len(node.output)} outputs", hint=f"{schema.min_output} to {schema.max_output}")
            if bogus := [a.name for a in node.attribute if a.name not in schema.attributes]:
                raise Invalid(f"attribute '{bogus[0]}'", hint=", ".join(sorted(schema.attributes)))
            return None
        context = onnx.checker.C.CheckerContext()
        context.ir_version, context.opset_imports = onnx.IR_VERSION, {"": opset}
        onnx.checker.check_node(node, context)
    except onnx.defs.SchemaError as error:
        raise Invalid(f"opset {opset} has no such op", hint="an export with a newer opset") from error
    except onnx.checker.ValidationError as error:
        raise Invalid(_reason(error)) from error
    for attribute in node.attribute:
        # onnx's inference makes a list of that length.
        if attribute.name == "num_outputs" and attribute.i > len(node.output):
            raise Invalid(f"num_outputs = {attribute.i}", hint=f"{len(node.output)}, which it has")
    return schema


def check_size(outputs: Mapping[str, TensorType]) -> None:
    """Unsupported where computing these, or only indices along an axis, would take more memory than there is."""
    for tensor in outputs.values():
        if tensor.shape is not None and prod(tensor.shape) > SIZE_MAX:
            raise Unsupported(f"its result of shape {list(tensor.shape)} is too large", hint=f"{SIZE_MAX} elements")


def _declared(node: onnx.NodeProto) -> dict[str, TensorType]:
    """Types of the outputs of If, Loop and Scan: those of the last outputs of the graph inside, if it has them.

    A Loop's first inputs are a count and a condition, so its inputs tell nothing.
    """
    graphs = subgraphs(node)
    if not graphs:
        return {}
    inner = [value.type.tensor_type.elem_type for value in graphs[0].output][-len(node.output) :]
    return {name: TensorType(element, None) for name, element in zip(node.output, inner, strict=False)}


def _check_types(schema: OpSchema, node: onnx.NodeProto, inputs: Mapping[str, TensorType]) -> None:
    """Inputs of one type variable have one type, which the op allows."""
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    bound: dict[str, tuple[str, int]] = {}
    for i, name in enumerate(node.input):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        element = inputs[name].element if name else 0
        if not element:
            continue
        kinds = [kind[len("tensor(") : -1] for kind in allowed.get(formal.type_str, (formal.type_str,))]
        kind = type_name(element)
        if kind not in kinds:
            raise Invalid(f"its input '{name}' ({formal.name}) is {kind}", hint=", ".join(sorted(kinds)))
        first, other = bound.setdefault(formal.type_str, (name, element)) if formal.is_homogeneous else (name, element)
        if other != element:
            others = type_name(other)
            raise Invalid(f"its inputs '{first}' and '{name}' are {others} and {kind}", hint="the same type")


def _reason(error: Exception) -> str:
    """ONNX's words without what it puts around them."""
    line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    for mark in ("InferenceError] ", ") has "):
        if mark in line:
            line = ("has " if mark == ") has " else "") + line.split(mark, 1)[1]
    return line.strip().rstrip(".")


def _seen(node: onnx.NodeProto, inputs: Mapping[str, TensorType]) -> str:
    tensors = [f"{name}: {inputs[name]}" for name in node.input if name]
    return "; ".join(["found " + ", ".join(tensors), *map(_attribute, node.attribute)])


def _attribute(attribute: AttributeProto) -> str:
    value: Any = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        return f"{attribute.name} = a tensor"
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    elif not isinstance(value, (int, float)):
        value = [*value[:_SHOWN], *(["..."] if len(value) > _SHOWN else [])]
    return f"{attribute.name} = {value}"


def _tensor(kind: onnx.TypeProto.Tensor) -> TensorType:
    sizes = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim]
    known = kind.HasField("shape") and all(size >= 0 for size in sizes)
    return TensorType(kind.elem_type, tuple(sizes) if known else None)
