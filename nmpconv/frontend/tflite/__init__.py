"""TFLite models, as ONNX models that compute the same: float, with dynamic ranges, of int8 and of int16 by int8."""

from __future__ import annotations

from functools import partial

import onnx
from onnx import helper

from nmpconv.errors import InputError, Unsupported
from nmpconv.frontend.tflite import variables
from nmpconv.frontend.tflite.blocks import INSIDE
from nmpconv.frontend.tflite.complex_numbers import TAKES_COMPLEX
from nmpconv.frontend.tflite.inner_graphs import KINDS, InnerGraphs
from nmpconv.frontend.tflite.model import ABSENT, Operator, TfliteFile, TfliteModel
from nmpconv.frontend.tflite.onnx_writer import DOMAIN, OperatorCall, Writer
from nmpconv.frontend.tflite.operators import WRITERS
from nmpconv.frontend.tflite.rows import Write
from nmpconv.frontend.tflite.tflite_schema import IDENTIFIER

OPSET, OPSET_INT16 = 20, 21  # of Gelu; of QuantizeLinear to 16 bits
IR_VERSION = 9  # of opset 20


def is_tflite(data: bytes) -> bool:
    return data[4:8] == IDENTIFIER


def to_onnx(data: bytes, where: str) -> onnx.ModelProto:
    """The ONNX model of a file's first subgraph. Ports have the file's names, types and layout.

    Operators that cannot be written are in the domain `DOMAIN`, with the reason as their documentation. where: the
    file's name, for messages. Raises InputError for a file that is damaged.
    """
    file = TfliteFile(data, where)
    model = file.subgraph()
    writer = Writer(model, where)
    once = [
        operator.options.get("init_subgraph_index", 0)
        for operator in model.operators
        if operator.kind == variables.ONCE
    ]
    starts = {name: x for number in once for name, x in variables.starts(file.subgraph(number)).items()}
    memory = variables.Variables(writer, starts)

    def write_all(part: Writer, depth: int) -> None:
        for place, operator in enumerate(part.model.operators):
            try:
                _write(operator, part, None if depth else memory, partial(graphs.write, depth=depth))
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                message = f"operator {place} ({operator.kind}) is malformed: {error}"
                raise InputError(message, where=where, hint="another export of the model") from error

    graphs = InnerGraphs(file, where, write_all)
    write_all(writer, 0)
    opset = OPSET_INT16 if _has_int16(model) else OPSET
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    written = helper.make_model(writer.graph(), opset_imports=imports, ir_version=IR_VERSION + opset - OPSET)
    memory.finish(written)
    return written


def _write(operator: Operator, writer: Writer, memory: variables.Variables | None, run: Write) -> None:
    """memory: of the main graph. run: writes operators that run subgraphs."""
    try:
        if operator.kind in variables.KINDS:
            if memory is None:
                raise Unsupported("a variable in a subgraph", hint="variables of the main graph")
            return memory.write(operator)
        call, write = OperatorCall(operator, writer), run if operator.kind in KINDS else WRITERS.get(operator.kind)
        if write is None:
            raise Unsupported("nmpconv does not read this operator of TFLite")
        if call.block and operator.kind not in INSIDE:
            raise Unsupported("its images are cut into blocks", hint="BATCH_TO_SPACE_ND before it")
        numbers = [writer.model.tensors[number] for number in operator.inputs if number != ABSENT]
        if any(tensor.type == "complex64" for tensor in numbers) and operator.kind not in TAKES_COMPLEX:
            raise Unsupported("complex numbers", hint="COMPLEX_ABS, REAL or IMAG before it")
        ends = [writer.model.tensors[number] for number in operator.outputs if number in writer.model.outputs]
        if any(tensor.type == "complex64" for tensor in ends):
            raise Unsupported("complex numbers as an output", hint="COMPLEX_ABS, REAL or IMAG behind it")
        written = write(call)
        results = [written] if isinstance(written, str) else list(written)
        results[:1] = [call.activated(name) for name in results[:1]]
    except Unsupported as error:
        return writer.refuse(operator, error)
    if len(results) < len(operator.outputs):
        raise ValueError(f"{len(operator.outputs)} outputs, {len(results)} allowed")
    writer.add(operator, call.nodes, results[: len(operator.outputs)])
    writer.blocks.update(dict.fromkeys(operator.outputs, call.block) if call.block else {})
    return None


def _has_int16(model: TfliteModel) -> bool:
    return any(tensor.grid is not None and tensor.type == "int16" and tensor.data is None for tensor in model.tensors)
