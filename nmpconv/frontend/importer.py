"""Importer that the ops' `lower` work with: ONNX names, shapes and constants on one side, the graph on the other."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from nmpconv.base.fixed_point import RANK_MAX
from nmpconv.errors import Computed, InputError, Invalid, Unsupported
from nmpconv.frontend.bind import INTEGERS
from nmpconv.frontend.budget import Budget, can_fold
from nmpconv.frontend.finish import finished
from nmpconv.frontend.fold import fold
from nmpconv.frontend.integer_operators import MOVES
from nmpconv.frontend.node_check import TensorType, check_size
from nmpconv.frontend.read import DEFAULT_DOMAINS
from nmpconv.frontend.to_float32 import single_array
from nmpconv.frontend.toposort import reads
from nmpconv.ir import Given, Graph, Node, Value
from nmpconv.ops import OPS, Op
from nmpconv.ops.builders import GraphBuilder
from nmpconv.ops.common.traits import ANY, Bounds, within_clamp
from nmpconv.ops.onnx_node import OnnxNode
from nmpconv.ops.reshape import ReshapeParams
from nmpconv.ops.transpose import TransposeParams

OPS_MAX = 30_000  # after lowering; NODES_MAX is before
INT32 = 2**31  # sizes and parameters are int32 in the file
_TO_NHWC, _TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


class FollowsError(Exception):
    """A node is like it is because of a refused one: of its input not even the shape is known, or no op is left."""


class Importer(GraphBuilder):
    """The graph under construction.

    An ONNX tensor is a constant (any dtype, in numpy), or stands for a value of the graph, or is unknown because it
    comes after an unsupported node.
    """

    def __init__(
        self,
        input_shapes: Mapping[str, tuple[int, ...]],
        elements: Mapping[str, int],
        constants: dict[str, np.ndarray],
        activations: Sequence[str],
        path: str,
    ) -> None:
        self.input_shapes = input_shapes
        self.constants = constants
        self.sequences: dict[str, list[str]] = {}  # ONNX sequences, of names of ONNX tensors
        self.windows: dict[str, tuple[tuple[int, ...], ...]] = {}  # ONNX indices: kernel, size (`unpooling`)
        self._path = path
        self._readers: dict[str, list[tuple[str, tuple[str, ...]]]] = {}  # of an ONNX tensor: (op type, outputs)
        self._values = {name: Value(name, shape) for name, shape in input_shapes.items()}
        self._value_of: dict[str, str | None] = {name: name for name in input_shapes}
        self._nodes: list[Node] = []
        self._full = False  # there is no room for the ops of all nodes
        self._node_names: set[str] = set()
        self._numbers: dict[tuple[str, str], int] = {}
        self._reserved = {*activations, *input_shapes}
        self._ends: set[str] = set()  # outputs of the model, whose names no constant takes that a node reads
        self._wide: dict[str, tuple[int, ...]] = {}  # shape of an ONNX tensor whose value lacks its axes of size 1
        self._nhwc: dict[str, str] = {}  # value -> the same elements in NHWC
        self._given: dict[str, Given] = {}  # value -> its grid in the model
        self._names: dict[str, list[str]] = {}  # value -> ONNX tensors that it is, before any rounding
        self._elements = dict(elements)  # ONNX tensor -> its type in the model
        self._integers: dict[str, Given] = {}  # ONNX tensor of integers -> the grid of what it stands for
        self._bounds: dict[str, Bounds] = {}  # value -> what it lies between
        self._whole: set[str] = set()  # values of whole numbers
        self._current: tuple[OnnxNode, Op] | None = None
        self._budget = Budget(sum(array.size for array in constants.values()))

    # -- driven by the walk -------------------------------------------------------------------------------------------

    def knows(self, name: str) -> bool:
        return name in self.constants or name in self._value_of

    def tensor(self, name: str) -> TensorType:
        """Returns the type of an ONNX tensor as far as it is known."""
        if name in self.constants:
            constant = TensorType.of(self.constants[name])
            return constant._replace(element=self._elements.get(name) or constant.element)
        value = self._value_of.get(name)
        shape = self._wide.get(name) or (self._values[value].shape if value else None)
        return TensorType(self._elements.get(name, 0), shape)

    def assume(self, node: onnx.NodeProto, types: Mapping[str, TensorType]) -> None:
        """Note the types of the outputs, and let those that could not be computed stand for themselves, so that the
        nodes after them can be checked.

        An output that was computed, and of which ONNX says nothing, has the type that its expansion gave it, or that
        of the first input; one that was not has a type that is not known.
        """
        like = next((self.tensor(name).element for name in node.input if name), 0)
        for name in node.output:
            tensor = types.get(name, TensorType(self._elements.get(name, like) if self.knows(name) else 0, None))
            self._elements[name] = tensor.element
            if name and not self.knows(name):
                whole = tensor.shape is not None and all(size > 0 for size in tensor.shape)
                self._value_of[name] = name if whole else None
                if whole:
                    self._values[name] = Value(name, tensor.shape or ())

    def try_fold(self, node: onnx.NodeProto, types: Mapping[str, TensorType], opset: int) -> bool:
        """Compute the node now if everything that it depends on is known; a Shape depends on a shape only, and a slice
        without elements, which a Concat leaves out, on nothing."""
        if node.domain not in DEFAULT_DOMAINS:
            return False
        if node.op_type == "Slice" and self.only_read_by(node.output[0], "Concat"):
            element, shape = types.get(node.output[0], TensorType(0, None))
            if element and shape is not None and 0 in shape:
                self.define({node.output[0]: np.zeros(shape, helper.tensor_dtype_to_np_dtype(element))}, element)
                return True
        if node.op_type in ("Shape", "Size") and node.input[0] not in self.constants:
            shape = self[node.input[0]].shape
            inputs = {node.input[0]: np.broadcast_to(np.float32(0), shape)}
        elif all(name in self.constants for name in node.input if name) and can_fold(node):
            inputs = self.constants
        else:
            return False
        self._budget.take(
            OnnxNode.of(node, opset), {name: TensorType.of(inputs[name]) for name in node.input if name}, types
        )
        results = fold(node, inputs, opset)
        self.constants.update(results)
        self._elements.update({name: types[name].element for name in results if name in types and types[name].element})
        self._reserved.difference_update(results)
        return True

    def define(self, constants: Mapping[str, np.ndarray], element: int | None = None) -> None:
        self.constants.update(constants)
        if element is not None:
            self._elements.update(dict.fromkeys(constants, element))

    def new_name(self, wish: str) -> str:
        """A name that no ONNX tensor and no value has."""
        name = self._unique("tensor", wish, self._values, self._reserved, self.constants)
        self._reserved.add(name)
        return name

    def release(self, name: str) -> np.ndarray:
        """The array of a constant, whose name is free from here on."""
        self._reserved.add(name)
        return self.constants.pop(name)

    def alias(self, output: str, name: str) -> None:
        """Let the ONNX tensor ``output`` be the one called ``name``, whatever that is."""
        if name in self.constants:
            self.constants[output] = self.constants[name]
            self._reserved.discard(output)
        else:
            self._value_of[output] = self._value_of.get(name)

    def lower(self, node: OnnxNode, op: Op) -> None:
        self._current = (node, op)
        integers = [name for name in node.inputs if name in self._integers]
        if not integers or node.op_type == "DequantizeLinear":
            return op.lower(node, self)
        grids = {self._integers[name] for name in integers}
        beside = node.op_type == "Concat" and any(name in self.constants for name in node.inputs)
        if node.op_type not in (*MOVES, "Clip") or len(grids) > 1 or beside:
            raise Unsupported(f"it computes with the integers '{integers[0]}'", hint="a DequantizeLinear before it")
        op.lower(node, self)
        grid = grids.pop()
        for name in filter(None, node.outputs):
            self._integers.setdefault(name, grid)
        return None

    def graph(self, name: str, outputs: Sequence[str]) -> Graph:
        """The finished graph without dead nodes; outputs have their ONNX names."""
        renames: dict[str, str] = {}
        for output in outputs:
            if output in self.constants:
                raise InputError(f"output '{output}' does not depend on the input", where=self._path)
            value = self._value_of[output]
            assert value is not None
            if output in (value, renames.get(value)):
                continue
            if value in self.input_shapes or value in outputs or value in renames:
                shape = self._values[value].shape
                self._append(Node("reshape", output, (value,), (output,), ReshapeParams(shape)), Value(output, shape))
            else:
                renames[value] = output
        for output in outputs:
            if output in self._integers:
                why = f"output '{output}' is of integers"
                raise InputError(why, where=self._path, hint="cut after DequantizeLinear")
        graph = finished(name, tuple(self.input_shapes), tuple(outputs), self._nodes, self._values, renames)
        return replace(graph, given={renames.get(value, value): grid for value, grid in self._given.items()})

    # -- used by the ops ----------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Value:
        return self._values[self.value(name)]

    def reach(self, value: str) -> Bounds:
        data = self._values[value].data
        return self._bounds.get(value, ANY) if data is None else (float(data.min()), float(data.max()))

    def is_whole(self, value: str) -> bool:
        return value in self._whole

    def beyond(self, value: str, low: float, high: float) -> str | None:
        left = [value] if value in self._whole else []
        for name in left:
            ends, maker = self.reach(name), self.maker(name)
            if ends[0] < low or ends[1] > high:
                return name
            left += [x for x in (maker.inputs if maker else ()) if x in self._whole and x not in left]
        return None

    def maker(self, value: str) -> Node | None:
        return next((node for node in reversed(self._nodes) if value in node.outputs), None)

    def is_const(self, name: str) -> bool:
        return name in self.constants

    def is_integer(self, name: str) -> bool:
        return self.tensor(name).element in INTEGERS

    def note_readers(self, nodes: Iterable[onnx.NodeProto], outputs: Iterable[str] = ()) -> None:
        """Notes the readers of each ONNX tensor: these nodes, and the world what is an output."""
        for node in nodes:
            for name in reads(node):
                self._readers.setdefault(name, []).append((node.op_type, tuple(node.output)))
        for name in outputs:
            self._readers.setdefault(name, []).append(("", ()))
            self._ends.add(name)

    def only_read_by(self, name: str, kind: str, through: Collection[str] = ()) -> bool:
        readers = self._readers.get(name, ())
        return bool(readers) and all(
            reader_kind == kind
            or (reader_kind in through and all(self.only_read_by(out, kind, through) for out in outputs))
            for reader_kind, outputs in readers
        )

    def only_reader(self, name: str, kind: str) -> str:
        """The result of the only node that reads a tensor, if that is of this kind; "" otherwise."""
        return self._readers[name][0][1][0] if [of for of, _ in self._readers.get(name, ())] == [kind] else ""

    def is_only_rounded(self, value: str) -> bool:
        names = [*self._names.get(value, ())]
        while names:
            readers = self._readers.get(names.pop(), ())
            names += [name for kind, outputs in readers if kind == "Identity" for name in outputs]
            if not all(kind in ("QuantizeLinear", "Identity", "Shape", "Size") for kind, _ in readers):
                return False
        return True

    def feeds_last(self, name: str, kind: str, through: Collection[str]) -> bool:
        """Checks for such an op whose result is an output of the model: what it reads is measured in place of it."""
        return any(
            any(reader == "" for reader, _ in self._readers.get(out, ()))
            if reader_kind == kind
            else reader_kind in through and self.feeds_last(out, kind, through)
            for reader_kind, outputs in self._readers.get(name, ())
            for out in outputs
        )

    def array(self, name: str, role: str) -> np.ndarray:
        if name in self.constants:
            return single_array(self.constants[name])
        self[name]  # after an unsupported node: no complaint of its own
        raise Computed(role, name)

    def integers(self, name: str, role: str) -> tuple[int, ...]:
        array = self.array(name, role)
        if array.ndim > 1:
            raise Invalid(f"its {role} '{name}' has the shape {list(array.shape)}", hint="one dimension")
        return tuple(int(i) for i in array.ravel())

    def value(self, name: str) -> str:
        if name in self.constants:
            return self.const(self.constants[name], name)
        value = self._value_of.get(name, name)
        if name in self._wide:
            raise Unsupported(f"its input has {len(self._wide[name])} dimensions", hint=f"at most {RANK_MAX}")
        if value is None:
            raise FollowsError(name)
        if not value:
            raise Unsupported("an input is missing")
        return value

    def const(self, data: np.ndarray, name: str) -> str:
        if data.dtype.kind == "c":
            raise Invalid(f"its input '{name}' is {data.dtype}", hint="real numbers")
        data = np.asarray(data, dtype=np.float32, order="C")
        if np.isnan(data).any():
            hint = "check the training or the export"
            raise InputError(f"tensor '{name}' holds NaN", where=self._path, hint=hint)
        if np.isinf(data).any():
            raise Unsupported(f"tensor '{name}' holds infinity", hint="a finite number, as -1e4 in a mask")
        name = self._fresh(name or f"{self._here()}.const")
        self._values[name] = Value(name, data.shape, data=data)
        return name

    def emit(
        self,
        op: str,
        inputs: Sequence[str],
        params: Any,
        output: str = "",
        *,
        clamp: tuple[float, float] | None = None,
    ) -> str:
        if self._full:
            raise FollowsError(op)
        if len(self._nodes) == OPS_MAX:
            self._full = True
            raise Unsupported(f"it would be one of more than {OPS_MAX} ops", hint="fewer, or shorter recurrent nodes")
        ins = [self._values[name] for name in inputs]
        shape = tuple(int(size) for size in OPS[op].infer(params, ins)[0])
        if len(shape) > RANK_MAX:
            raise Unsupported(f"it needs a tensor of {len(shape)} dimensions", hint=f"at most {RANK_MAX}")
        check_size({output: TensorType(0, shape)})
        if any(abs(number) >= INT32 for number in _numbers(params)):
            raise Unsupported("its parameters are too large", hint="numbers below 2^31")
        if any(size < 1 for size in shape):
            raise Unsupported(f"its result would be empty, with shape {list(shape)}")
        onnx_node, main = self._main()
        name = self._here() if op == main.name else f"{self._here()}.{op}"
        value = output or self._fresh(f"{onnx_node.outputs[0]}.{op}")
        self._append(Node(op, name, tuple(inputs), (value,), params), Value(value, shape, clamp=clamp))
        if output:
            self.rename(output, value)
        return value

    def rename(self, output: str, value: str) -> None:
        self._value_of[output] = value
        if self._main()[0].op_type not in ("QuantizeLinear", "DequantizeLinear"):
            self._names.setdefault(value, []).append(output)

    def annotate(self, value: str, grid: Given) -> None:
        self._given.setdefault(value, grid)

    def given(self, value: str) -> Given | None:
        return self._given.get(value)

    def rename_integers(self, output: str, value: str, grid: Given) -> None:
        self._integers[output] = grid
        self.rename(output, value)

    def grid_of(self, name: str) -> Given | None:
        return self._integers.get(name)

    def shaped(self, name: str) -> tuple[str, tuple[int, ...]]:
        value = (name in self._wide and self._value_of[name]) or self.value(name)
        return value, self._wide.get(name) or self._values[value].shape

    def shape_as(self, value: str, shape: tuple[int, ...], output: str) -> None:
        if len(shape) > RANK_MAX and ("", ()) not in self._readers.get(output, ()):
            self._wide[output], shape = shape, tuple(size for size in shape if size > 1)
        self.reshape(value, shape, output)

    def reshape(self, value: str, shape: Sequence[int], output: str = "") -> str:
        if self._values[value].shape == tuple(shape):
            if output:
                self.rename(output, value)
            return value
        return self.emit("reshape", (value,), ReshapeParams(tuple(shape)), output)

    def transpose(self, value: str, perm: Sequence[int], output: str = "") -> str:
        return self.emit("transpose", (value,), TransposeParams(tuple(perm)), output)

    def aligned(self, a: str, b: str) -> tuple[str, str]:
        rank = max(len(self._values[a].shape), len(self._values[b].shape))
        return self.with_rank(a, rank), self.with_rank(b, rank)

    def with_rank(self, value: str, rank: int) -> str:
        operand = self._values[value]
        shape = (*(1,) * (rank - len(operand.shape)), *operand.shape)
        if operand.data is None:
            return self.reshape(value, shape)
        self._values[value] = replace(operand, shape=shape, data=operand.data.reshape(shape))
        return value

    def nhwc(self, name: str) -> str:
        value = self.value(name)
        if value not in self._nhwc:
            shape = self._values[value].shape
            if len(shape) == 3:
                n, c, w = shape
                self._nhwc[value] = self.reshape(self.transpose(value, (0, 2, 1)), (n, 1, w, c))
            elif len(shape) == 4:
                self._nhwc[value] = self.transpose(value, _TO_NHWC)
            else:
                raise Unsupported(f"its input has {len(shape)} dimensions", hint="[N,C,H,W] or [N,C,W]")
        return self._nhwc[value]

    def nchw(self, value: str, output: str, like: str) -> None:
        if len(self[like].shape) == 3:
            n, _, w, c = self._values[value].shape
            result = self.transpose(self.reshape(value, (n, w, c)), (0, 2, 1), output)
        else:
            result = self.transpose(value, _TO_NCHW, output)
        self._nhwc[result] = value

    # -- names --------------------------------------------------------------------------------------------------------

    def _main(self) -> tuple[OnnxNode, Op]:
        assert self._current is not None
        return self._current

    def _here(self) -> str:
        """A name for the current ONNX node: its own, or that of its first output."""
        node, op = self._main()
        return node.name or next(filter(None, node.outputs), op.name)

    def _fresh(self, name: str) -> str:
        """name, or name_1, name_2, ... if it is taken or will be."""
        return self._unique("value", name, self._values, self._reserved, self._ends)

    def _unique(self, role: str, name: str, *taken: Container[str]) -> str:
        """role: of what has a name. The numbers below the last one found are taken."""
        candidate, n = name, self._numbers.get((role, name), 0)
        while any(candidate in names for names in taken):
            n += 1
            candidate = f"{name}_{n}"
            self._numbers[role, name] = n - 1
        return candidate

    def _append(self, node: Node, value: Value) -> None:
        name = self._unique("node", node.name, self._node_names)
        self._node_names.add(name)
        self._nodes.append(replace(node, name=name))
        ins = [self._values[x] for x in node.inputs]
        interval = OPS[node.op].reach(node, ins, [self.reach(x) for x in node.inputs])
        self._bounds[value.name] = within_clamp(interval, value.clamp)
        if OPS[node.op].is_whole(node, ins, value, self._whole):
            self._whole.add(value.name)
        self._values[value.name] = value


def _numbers(params: Any) -> Iterator[int]:
    """The integers in an op's parameters."""
    for field in fields(params):
        value = getattr(params, field.name)
        if isinstance(value, int):
            yield value
        elif isinstance(value, tuple):
            yield from value
