"""An op that a user brings, found by its name (`custom_op`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import EXPONENT_MAX, EXPONENT_MIN, INT_MAX, INT_MIN, quantize
from nmpconv.errors import NmpError, Unsupported
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops.common.case import Operand, single
from nmpconv.ops.common.constant import exponent_for
from nmpconv.ops.common.traits import Limit, Rule
from nmpconv.ops.custom_op import INPUTS_MAX, CustomOp, custom_ops
from nmpconv.ops.op import Case, Op, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode

SCRATCH_MAX = 1 << 30
CONSTANT_BITS = 16


@dataclass(frozen=True)
class CustomParams:
    """op: its name, domain::Type. attributes: what they mean is the op's affair. scratch: bytes that a run needs."""

    op: str = ""
    attributes: tuple[int, ...] = ()
    scratch: int = 0


class Custom(Op):
    name = "custom"
    Params = CustomParams
    operands = None
    source = "a user's own"
    restrictions = f"an installed op of the user's; at most {INPUTS_MAX} inputs, one output"

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        op = _op(node.op_type)
        if not 1 <= len(node.inputs) <= INPUTS_MAX:
            raise Unsupported(f"it has {len(node.inputs)} inputs", hint=f"1 to {INPUTS_MAX}")
        attributes = tuple(int(number) for number in op.attributes(node.attributes))
        anywhere = op.elementwise and len(node.inputs) == 1  # then no transpose is left around it
        turned = (op.channels_last or anywhere) and len(to[node.inputs[0]].shape) in (3, 4)
        inputs = [
            to.nhwc(x) if turned and not to.is_const(x) and len(to[x].shape) in (3, 4) else to.value(x)
            for x in node.inputs
        ]
        params = CustomParams(node.op_type, attributes)
        if turned:
            to.nchw(to.emit("custom", inputs, params), node.outputs[0], like=node.inputs[0])
        else:
            to.emit("custom", inputs, params, node.outputs[0])

    def infer(self, params: CustomParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        op = _op(params.op)
        try:
            return [tuple(int(size) for size in op.infer(params.attributes, inputs))]
        except NmpError:
            raise
        except Exception as error:  # a file may hold any attributes and shapes
            raise Unsupported(f"{params.op} does not take this: {type(error).__name__}: {error}") from error

    def rules(self, params: CustomParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        yield f"it has {len(inputs)} inputs, {INPUTS_MAX} are allowed", len(inputs) <= INPUTS_MAX
        scratch = params.scratch
        yield f"it needs {scratch} bytes of scratch, {SCRATCH_MAX} are allowed", 0 <= scratch <= SCRATCH_MAX
        self.infer(params, inputs)
        try:
            wrong = _op(params.op).check(params.attributes, inputs, output)
            needed = _op(params.op).scratch(params.attributes, inputs, output)
            if not wrong and params.scratch < needed:
                wrong = f"it has {params.scratch} bytes of scratch, {needed} are needed"
        except Exception as error:  # as above
            wrong = f"{params.op} does not take this: {type(error).__name__}: {error}"
        yield wrong, not wrong

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        x, y = quant_of(graph[node.inputs[0]]), quant_of(graph[node.outputs[0]])
        least, most = _op(node.params.op).shift
        yield Limit(y.exponent - x.exponent, least, most, below=node.outputs, above=node.inputs[:1])

    def missing(self, params: CustomParams) -> str:
        return "" if params.op in custom_ops() else params.op

    def own_exponent(self, node: Node, bits: int) -> int | None:
        params: CustomParams = node.params
        return _op(params.op).exponent(params.attributes, bits)

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """Constants get 16 bits and an exponent by their largest element; scratch is that of the widths."""
        params: CustomParams = node.params
        names, constants = list(node.inputs), []
        for i, value in enumerate(graph.ins(node)):
            if value.data is not None and value.quant is None:
                names[i] = f"{node.outputs[0]}.input{i}"
                constants.append(_integers(value, names[i]))
        known = {value.name: value for value in constants}
        inputs = [known.get(name) or graph[name] for name in names]
        scratch = _op(params.op).scratch(params.attributes, inputs, graph[node.outputs[0]])
        return replace(node, inputs=tuple(names), params=replace(params, scratch=int(scratch))), constants

    def keeps_batch(self, params: CustomParams, inputs: Sequence[Value], output: Value) -> bool:
        op = _op(params.op)
        return op.keeps_batch or op.elementwise

    def by_channel(self, params: CustomParams, inputs: Sequence[Value], output: Value) -> bool:
        return False

    def macs(self, params: CustomParams, inputs: Sequence[Value], outputs: Sequence[Value]) -> int:
        return _op(params.op).macs(params.attributes, inputs, outputs[0])

    def instructions(self, params: CustomParams, inputs: Sequence[Value], output: Value) -> int:
        """Instructions of a run on a microcontroller, as the op says; 0 where it is not installed."""
        op = custom_ops().get(params.op)
        return 0 if op is None else op.instructions(params.attributes, inputs, output)

    def reference(self, params: CustomParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """Integers of the user's own reference."""
        y = outputs[0]
        array = np.asarray(_op(params.op).reference(params.attributes, inputs, y))
        if array.shape != y.shape or array.dtype.kind not in "iu":
            raise Unsupported(
                f"{params.op}.reference made {array.dtype} {list(array.shape)}, not integers {list(y.shape)}"
            )
        return [array.astype(y.dtype)]

    def cases(self) -> Iterator[Case]:
        """Those of all ops that are installed."""
        for op in custom_ops().values():
            for case in op.cases():
                operands = [Operand(x.q, x.quant) for x in case.inputs]
                params = CustomParams(op.name, case.attributes)
                yield single(self, f"{op.name}/{case.id}", params, operands, case.output, quantize=True)

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        params: CustomParams = node.params
        _op(params.op).export(params.attributes, node.inputs, node.outputs[0], to)


def _integers(value: Value, name: str) -> Value:
    """The constant in integers, under a name of its own."""
    assert value.data is not None
    exponent = min(max(exponent_for(value.data, CONSTANT_BITS), EXPONENT_MIN), EXPONENT_MAX)
    quant = Quant(CONSTANT_BITS, (exponent,), INT_MIN[CONSTANT_BITS], INT_MAX[CONSTANT_BITS])
    data = quantize(value.data, exponent, quant.lo, quant.hi).astype(quant.dtype)
    return Value(name, value.shape, quant.dtype, data, quant=quant)


def _op(name: str) -> CustomOp:
    op = custom_ops().get(name)
    if op is None:
        raise Unsupported(f"the custom op '{name}' is not installed", hint="pip install the package that has it")
    return op
