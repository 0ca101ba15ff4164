"""A subgraph of a TFLite model as plain data: tensors, operators, constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from nmpconv.errors import InputError
from nmpconv.frontend.local_functions import NODES_MAX
from nmpconv.frontend.tflite import sparse
from nmpconv.frontend.tflite.flat_tables import File, FlatTable
from nmpconv.frontend.tflite.tflite_schema import CUSTOM, OPERATORS, OPTIONS, OPTIONS_2, TYPES

RANK_MAX = 8  # of LiteRT's kernels
TENSORS_MAX = 10 * NODES_MAX
_NUMPY = {"float32", "float16", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "bool"}
ABSENT = -1  # number of an optional input that is left out


@dataclass(frozen=True, eq=False)
class Grid:
    """Integers q mean (q - zero) * scale. scales, zeros: one, or one per index of ``axis``."""

    scales: np.ndarray
    zeros: np.ndarray
    axis: int

    def reals(self, integers: np.ndarray) -> np.ndarray:
        """float32, of the same shape."""
        scales, zeros = self.scales, self.zeros
        if scales.size > 1:
            sides = [-1 if axis == self.axis else 1 for axis in range(integers.ndim)]
            scales, zeros = (a.reshape(sides) if a.size > 1 else a for a in (scales, zeros))
        numbers = (integers.astype(np.float64) - zeros) * scales
        return numbers.astype(np.float32).reshape(integers.shape)


@dataclass(frozen=True, eq=False)
class Tensor:
    """shape: -1 for a size that is not fixed. type: of `schema.TYPES`. data: of a constant, in its own type, None for
    others."""

    name: str
    shape: tuple[int, ...]
    type: str
    grid: Grid | None
    data: np.ndarray | None


@dataclass(frozen=True, eq=False)
class Operator:
    """kind: name of the builtin operator, or of a custom one. inputs, outputs: numbers of tensors, ABSENT for an input
    that is left out. options: by name; of operators whose options are not read, the "bytes" of custom ones."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class TfliteModel:
    name: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]

    def operands(self) -> list[int]:
        """The tensor of each of its ports, and of each of its operators'."""
        ports = (*self.inputs, *self.outputs)
        return [*ports, *(n for op in self.operators for n in (*op.inputs, *op.outputs) if n != ABSENT)]


class TfliteFile:
    """The subgraphs of a file, each read once. Raises InputError for what is no whole model."""

    def __init__(self, data: bytes, where: str) -> None:
        self._file = File(data, where)
        root = self._file.root("Model")
        self._buffers: list[FlatTable] = root["buffers"]
        self._kinds = [_kind(code) for code in root["operator_codes"]]
        self._graphs: list[FlatTable] = root["subgraphs"]
        self._models: dict[int, TfliteModel] = {}
        self._arrays: dict[tuple[int, str, tuple[int, ...]], np.ndarray] = {}
        self._dense = sparse.DENSE_MAX + sparse.DENSE_OF_BYTE * len(data)  # elements that sparse tensors may have
        self._room = self._dense

    def subgraph(self, number: int = 0) -> TfliteModel:
        if not 0 <= number < len(self._graphs):
            raise self._error(f"it has no subgraph {number}" if self._graphs else "it has no subgraph")
        if number not in self._models:
            self._models[number] = self._read(self._graphs[number], is_main=number == 0)
        return self._models[number]

    def _read(self, graph: FlatTable, is_main: bool) -> TfliteModel:
        tables, operators = graph["tensors"], graph["operators"]
        for kind, rows, most in (("operators", operators, NODES_MAX), ("tensors", tables, TENSORS_MAX)):
            if len(rows) > most:
                hint = "a part of the model"
                raise InputError(
                    f"has {len(rows)} {kind}; at most {most} can be read", where=self._file.where, hint=hint
                )
        tensors = tuple(self._tensor(i, table) for i, table in enumerate(tables))
        inputs, outputs = (
            self._numbers(graph[side], len(tensors), f"the subgraph's {side}") for side in ("inputs", "outputs")
        )
        if not outputs and is_main:
            raise self._error("it has no outputs")
        nodes = tuple(self._operator(i, table, len(tensors)) for i, table in enumerate(operators))
        return TfliteModel(graph["name"] or "main", tensors, inputs, outputs, nodes)

    def _error(self, problem: str, hint: str = "download or export it again") -> InputError:
        return InputError(f"a damaged TFLite file: {problem}", where=self._file.where, hint=hint)

    def _numbers(self, numbers: np.ndarray, count: int, owner: str, least: int = 0) -> tuple[int, ...]:
        """Numbers of tensors, of which there are ``count``."""
        indices = tuple(int(number) for number in numbers)
        if wrong := [number for number in indices if not least <= number < count]:
            raise self._error(f"{owner} name tensor {wrong[0]} of {count}")
        return indices

    def _operator(self, place: int, table: FlatTable, tensors: int) -> Operator:
        code = table["opcode_index"]
        if code >= len(self._kinds):
            raise self._error(f"operator {place} has code {code} of {len(self._kinds)}")
        label = f"operator {place} ({self._kinds[code]})"
        options, later = OPTIONS.get(table["builtin_options_type"]), OPTIONS_2.get(table["builtin_options_2_type"])
        settings = table.as_table("builtin_options", options) if options else None
        if later:
            settings = table.as_table("builtin_options_2", later)
        return Operator(
            self._kinds[code],
            self._numbers(table["inputs"], tensors, f"inputs of {label}", ABSENT),
            self._numbers(table["outputs"], tensors, f"outputs of {label}"),
            settings.options() if settings else {"bytes": table["custom_options"]},
        )

    def _tensor(self, place: int, table: FlatTable) -> Tensor:
        name, number = table["name"] or f"tensor_{place}", table["type"]
        if not 0 <= number < len(TYPES):
            raise self._error(f"tensor '{name}' has type {number}", hint="an export for an older runtime")
        sizes = table["shape"]
        signature = table["shape_signature"]
        shape = tuple(int(size) for size in (signature if len(signature) == len(sizes) else sizes)[: RANK_MAX + 1])
        if len(shape) > RANK_MAX:
            raise self._error(f"tensor '{name}' has {len(sizes)} dimensions", hint=f"at most {RANK_MAX}")
        if wrong := [size for size in shape if size < -1]:
            raise self._error(f"tensor '{name}' has size {wrong[0]}")
        data = self._data(name, TYPES[number], tuple(int(size) for size in sizes), table)
        return Tensor(name, shape, TYPES[number], self._grid(name, table["quantization"], shape, data), data)

    def _grid(self, name: str, table: FlatTable | None, shape: tuple[int, ...], data: np.ndarray | None) -> Grid | None:
        """data: of a constant, whose scale is 0 where TensorFlow had nothing but zeros."""
        if table is None or not len(table["scale"]):
            return None
        scales, zeros, axis = table["scale"].astype(np.float64), table["zero_point"], int(table["quantized_dimension"])
        zeros = zeros.astype(np.float64) if len(zeros) else np.zeros(1)
        if not np.all((scales > 0 if data is None else scales >= 0) & np.isfinite(scales)):
            raise self._error(f"tensor '{name}' has scale {scales.min():g}")
        for numbers in (scales, zeros):
            if len(numbers) > 1 and not (0 <= axis < len(shape) and len(numbers) == shape[axis]):
                raise self._error(f"tensor '{name}' of shape {list(shape)} has {len(numbers)} scales on axis {axis}")
        return Grid(scales, zeros, axis)

    def _data(self, name: str, kind: str, shape: tuple[int, ...], table: FlatTable) -> np.ndarray | None:
        number = table["buffer"]
        if not number or table["is_variable"]:
            return None
        if number >= len(self._buffers):
            raise self._error(f"tensor '{name}' has buffer {number} of {len(self._buffers)}")
        sparsity = table["sparsity"]
        if sparsity is not None:  # each, also of the same buffer, is a constant of its own
            self._make_room(name, shape)
        key = (number, kind, shape)
        if key not in self._arrays:
            content = self._bytes(self._buffers[number])
            if not len(content) and 0 not in shape:
                return None
            read = self._array if sparsity is None else partial(self._sparse, sparsity)
            self._arrays[key] = read(name, kind, shape, content)
        return self._arrays[key]

    def _bytes(self, buffer: FlatTable) -> np.ndarray:
        """In the table, or, in files of more than 2 GB, behind all tables."""
        start, size = buffer["offset"], buffer["size"]
        if start > 1:
            self._file.take(start, size, "a buffer")
            return np.frombuffer(self._file.data, np.uint8, size, start)
        data: np.ndarray = buffer["data"]
        return data

    def _make_room(self, name: str, shape: tuple[int, ...]) -> None:
        if min(shape, default=0) < 0:
            raise self._error(f"tensor '{name}' has shape {list(shape)}")
        self._room -= prod(shape)
        if self._room < 0:
            problem = f"its sparse tensors, '{name}' the last, have more than {self._dense} elements"
            raise InputError(problem, where=self._file.where, hint="an export without sparse tensors")

    def _sparse(
        self, sparsity: FlatTable, name: str, kind: str, shape: tuple[int, ...], content: np.ndarray
    ) -> np.ndarray:
        most = min(prod(shape), 2 * len(self._file.data))  # values have half a byte or more
        try:
            places = sparse.dense_places(sparsity, shape, most)
        except ValueError as error:
            raise self._error(f"tensor '{name}' is sparse, {error}") from error
        values = self._array(name, kind, (len(places),), content)
        if len(values) != len(places):
            raise self._error(f"tensor '{name}' is sparse and of type {kind}")
        dense = np.zeros(prod(shape), values.dtype)
        dense[places] = values
        return dense.reshape(shape)

    def _array(self, name: str, kind: str, shape: tuple[int, ...], content: np.ndarray) -> np.ndarray:
        count = prod(shape)
        if kind == "int4":  # two in a byte, the first in its low bits
            needed = (count + 1) // 2
        elif kind == "bfloat16":
            needed = 2 * count
        elif kind in _NUMPY:
            needed = count * np.dtype(kind).itemsize
        else:
            return content  # no operator that is read has constants of this type
        if len(content) != needed or min(shape, default=1) < 0:
            raise self._error(f"tensor '{name}', {kind} {list(shape)}, has {len(content)} bytes and needs {needed}")
        if kind == "int4":
            halves = np.stack([content << 4, content], axis=1).reshape(-1)[:count].view(np.int8)
            return np.asarray(halves >> 4, np.int8).reshape(shape)
        if kind == "bfloat16":
            wide = content.view("<u2").astype(np.uint32) << 16
            return wide.view(np.float32).reshape(shape)
        return content.view(np.dtype(kind).newbyteorder("<")).reshape(shape)


def _kind(code: FlatTable) -> str:
    """The number has outgrown the byte that older files have it in."""
    number = max(code["deprecated_builtin_code"], code["builtin_code"])
    if number == CUSTOM:
        return code["custom_code"] or "CUSTOM"
    return OPERATORS[number] if 0 <= number < len(OPERATORS) else f"operator {number}"
