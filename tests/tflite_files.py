"""TFLite files of a test's own, and LiteRT's interpreter, which they are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import flatbuffers
import numpy as np

from nmpconv.frontend.tflite.tflite_schema import CUSTOM, IDENTIFIER, OPERATORS, OPTIONS, OPTIONS_2, TABLES, TYPES

_VERSIONS = {"BROADCAST_TO": 2}  # that LiteRT has
_WRITE = {
    **{"bool": "Bool", "byte": "Int8", "ubyte": "Uint8", "short": "Int16", "ushort": "Uint16", "int": "Int32"},
    **{"uint": "Uint32", "long": "Int64", "ulong": "Uint64", "float": "Float32"},
}


@dataclass(frozen=True)
class Tensor:
    """type: of `TYPES`. data: of a constant. scale, zero: of integers, several along ``axis``. signature: shape with -1
    for sizes that are not fixed."""

    shape: Sequence[int]
    type: str = "float32"
    data: np.ndarray | None = None
    scale: float | Sequence[float] | None = None
    zero: int = 0
    axis: int = 0
    signature: Sequence[int] = ()
    more: Mapping[str, Any] | None = None  # fields of the table


class Part(NamedTuple):
    """A subgraph. Its tensors are those of the file."""

    ops: Sequence[Op]
    inputs: Sequence[str]
    outputs: Sequence[str]


class Op(NamedTuple):
    """kind: of `OPERATORS`, or a custom one. options: of the table of options of this name. custom: of a custom one."""

    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    table: str = ""
    options: Mapping[str, Any] = {}
    custom: np.ndarray | None = None


def constant(data: Any, type: str | None = None, **grid: Any) -> Tensor:
    array = np.asarray(data, type if type and type in np.sctypeDict else None)
    return Tensor(array.shape, type or array.dtype.name, array, **grid)


def tflite(
    tensors: Mapping[str, Tensor],
    ops: Sequence[Op],
    inputs: Sequence[str],
    outputs: Sequence[str],
    once: Sequence[Op] = (),
    parts: Sequence[Part] = (),
) -> bytes:
    """The file. "" among an operator's inputs is one that is left out. once: operators of a second subgraph, with the
    same tensors. parts: further subgraphs."""
    places = {name: i for i, name in enumerate(tensors)}
    buffers: list[dict[str, Any]] = [{}]
    contents: dict[int, np.ndarray] = {}  # arrays that tensors share are in the file once
    rows = []
    for name, tensor in tensors.items():
        if tensor.data is not None:
            content = np.frombuffer(np.ascontiguousarray(tensor.data).tobytes(), np.uint8)
            buffers.append({"data": contents.setdefault(id(tensor.data), content)})
        row: dict[str, Any] = {"name": name, "shape": list(tensor.shape), "type": TYPES.index(tensor.type)}
        row["buffer"] = len(buffers) - 1 if tensor.data is not None else 0
        if tensor.scale is not None:
            scales = np.atleast_1d(np.float32(tensor.scale))
            zeros = np.full(len(scales), tensor.zero, np.int64)
            row["quantization"] = {"scale": scales, "zero_point": zeros, "quantized_dimension": tensor.axis}
        if tensor.signature:
            row["shape_signature"] = list(tensor.signature)
        rows.append(row | dict(tensor.more or {}))
    parts = [Part(ops, inputs, outputs), *([Part(once, (), ())] if once else []), *parts]
    kinds = list(dict.fromkeys(op.kind for part in parts for op in part.ops))
    graphs = [
        {
            "tensors": rows,
            "inputs": [places[name] for name in part.inputs],
            "outputs": [places[name] for name in part.outputs],
            "operators": [_operator(op, kinds, places) for op in part.ops],
            "name": f"part{i}" if i else "main",
        }
        for i, part in enumerate(parts)
    ]
    model = {"version": 3, "operator_codes": [_code(kind) for kind in kinds], "subgraphs": graphs, "buffers": buffers}
    builder = _Builder()
    builder.Finish(_table(builder, "Model", model), IDENTIFIER)
    return bytes(builder.Output())


def _operator(op: Op, kinds: Sequence[str], places: Mapping[str, int]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for union, field in ((OPTIONS, "builtin_options"), (OPTIONS_2, "builtin_options_2")):
        numbers = {name: number for number, name in union.items()}
        if op.table in numbers:
            options = {f"{field}_type": numbers[op.table], field: (op.table, op.options)}
    if op.custom is not None:
        options["custom_options"] = op.custom.view(np.uint8)
    return {
        "opcode_index": kinds.index(op.kind),
        "inputs": [places[name] if name else -1 for name in op.inputs],
        "outputs": [places[name] for name in op.outputs],
        **options,
    }


def _code(kind: str) -> dict[str, Any]:
    if kind not in OPERATORS:
        return {"deprecated_builtin_code": CUSTOM, "builtin_code": CUSTOM, "custom_code": kind, "version": 1}
    number = OPERATORS.index(kind)
    return {"deprecated_builtin_code": min(number, 127), "builtin_code": number, "version": _VERSIONS.get(kind, 1)}


class _Builder(flatbuffers.Builder):
    def __init__(self) -> None:
        super().__init__(1024)
        self.written: dict[int, int] = {}  # places of vectors, by what they were made of


def _table(builder: _Builder, kind: str, values: Mapping[str, Any]) -> int:
    fields = TABLES[kind]
    references = {
        name: _reference(builder, fields[name], value) for name, value in values.items() if _refers(fields[name])
    }
    builder.StartObject(1 + max((field.slot for field in fields.values()), default=-1))
    for name, value in values.items():
        field = fields[name]
        if name in references:
            builder.PrependUOffsetTRelativeSlot(field.slot, references[name], 0)
        else:
            getattr(builder, f"Prepend{_WRITE[field.type]}Slot")(field.slot, value, None)
    return builder.EndObject()


def _refers(field: Any) -> bool:
    return field.is_vector or field.type not in _WRITE


def _reference(builder: _Builder, field: Any, value: Any) -> int:
    if field.type == "string":
        return builder.CreateString(value)
    if not field.is_vector:
        return _table(builder, *value) if isinstance(value, tuple) else _table(builder, field.type, value)
    if field.type in _WRITE:
        kinds = {"float": "<f4", "int": "<i4", "uint": "<u4", "long": "<i8", "ubyte": "u1", "ushort": "<u2"}
        dtype = kinds[field.type]
        if id(value) not in builder.written:
            builder.written[id(value)] = builder.CreateNumpyVector(np.asarray(value, dtype))
        return builder.written[id(value)]
    offsets = [_table(builder, field.type, item) for item in value]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()


class LiteRT:
    """LiteRT's interpreter with its portable kernels, or with those that explain these."""

    def __init__(self, data: bytes, *, by_reference: bool = False) -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        kernels = OpResolverType.BUILTIN_REF if by_reference else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        self._net = Interpreter(model_content=data, experimental_op_resolver_type=kernels)
        self._net.allocate_tensors()

    def run(self, *inputs: np.ndarray) -> list[np.ndarray]:
        for port, array in zip(self._net.get_input_details(), inputs, strict=True):
            self._net.set_tensor(port["index"], array)
        self._net.invoke()
        return [self._net.get_tensor(port["index"]) for port in self._net.get_output_details()]
