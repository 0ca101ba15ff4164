"""Verifies the meaning of a file's tables before anything of it is used: the second opinion beside the interpreter's.

The twin of interpreter/src/core/model.c, states.c and plan_check.c: the same rules in the same order, each with the
status of nmp.h, as FORMAT.md says under Verification. What an op has to be is said by itself (`ops.rules`).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NoReturn

import numpy as np

from nmpconv.base import sound
from nmpconv.base.files import BYTES_MAX
from nmpconv.base.fixed_point import EXPONENT_MAX, EXPONENT_MIN, INT_MAX, INT_MIN, RANK_MAX
from nmpconv.base.sound import SoundFront
from nmpconv.errors import ModelError
from nmpconv.file._schema import ENUMS
from nmpconv.file.flatbuffer import DATA_ALIGN, KINDS, Table
from nmpconv.ir import ARENA_ALIGN, INT_OF_BITS, Graph, Node, Quant, Value
from nmpconv.ops import OPS
from nmpconv.ops.common.rules import broken
from nmpconv.ops.op import quant_of

TENSOR, OP, PLAN, ORDER, LIMIT, UNKNOWN, CUSTOM = (
    f"NMP_E_{name}" for name in ("TENSOR", "OP", "PLAN", "ORDER", "LIMIT", "UNKNOWN_OP", "CUSTOM")
)
WORK_MAX = 1 << 40  # steps of a run
STEPS_OF_BYTE, STEPS_BESIDE, STEPS_OF_OVERLAP = 4, 4096, 128  # of verification

Rules = Iterator[tuple[str, str, bool]]
"""The status of a rule, what is told where it does not hold, and whether it holds. Each may rely on those before it."""


def verify(root: Table, file: bytes | memoryview, *, unknown: bool = False) -> None:
    """Verifies a file whose structure is right (`flat.unpack`). Raises ModelError with the status of the first broken
    rule.

    unknown: ops of a later version, and custom ops that are not installed, are taken as they are, for somebody to look
    at, and may not be run.
    """
    _Check(root, file, unknown).run()


def _fail(status: str, rule: str) -> NoReturn:
    raise ModelError(rule, status=status)


class _Check:
    """values: all tensors, called by their numbers. steps: that verification may still take."""

    def __init__(self, root: Table, file: bytes | memoryview, unknown: bool) -> None:
        self.root, self.unknown = root, unknown
        self.tensors: list[Table] = root["tensors"]
        self.ops: list[Table] = root["ops"]
        self.steps = STEPS_BESIDE + STEPS_OF_BYTE * len(file)
        self.start = _address(np.frombuffer(file, np.uint8))
        self.arena: int = root["arena_bytes"]
        self.fast: int = root["fast_bytes"]
        self.values: list[Value] = []
        self.nodes: list[Node | None] = []
        self.graph = Graph("", (), (), (), {})

    def run(self) -> None:
        if self.arena > BYTES_MAX:
            _fail(LIMIT, f"an arena of {self.arena} bytes, {BYTES_MAX} are allowed")
        for table in self.tensors:
            self.tensor(table)
        self.graph = Graph("", (), (), (), {value.name: value for value in self.values})
        self.inputs, self.outputs = ([self.port(port) for port in self.root[side]] for side in ("inputs", "outputs"))
        self.require("states", self.states())
        self.require("sound", self.sounds())
        self.work = 0
        for table in self.ops:
            self.op(table)
        self.plan()

    def require(self, about: str, rules: Rules) -> None:
        for status, rule, holds in rules:
            if not holds:
                _fail(status, f"{about}: {rule}")

    def spend(self, steps: int) -> bool:
        """Takes so many of the steps that are left; False where there were fewer."""
        enough = steps <= self.steps
        self.steps = self.steps - steps if enough else 0
        return enough

    # -- tensors and ports --------------------------------------------------------------------------------------------

    def tensor(self, table: Table) -> None:
        """Its value is made of what the rules have looked at."""
        shape, data = tuple(table["shape"].tolist()), table["data"]
        self.require(f"tensor {table['name']!r}", self.tensor_rules(table, shape, data))
        bits, axis = 8 << table["dtype"], table["axis"]
        exponents = tuple(table["exponents"].tolist())
        quant = Quant(bits, exponents, table["clip_min"], table["clip_max"], None if axis < 0 else axis)
        if data is not None:
            data = data.view(f"<i{bits // 8}").reshape(shape)
        name = str(len(self.values))
        self.values.append(Value(name, shape, INT_OF_BITS[bits], data, quant=quant, offset=table["offset"]))

    def tensor_rules(self, table: Table, shape: tuple[int, ...], data: np.ndarray | None) -> Rules:
        dtype, axis, exponents, floats = (table[key] for key in ("dtype", "axis", "exponents", "float_exponents"))
        shifted, scaled = table["float_offsets"], table["float_mantissas"]
        more = sum(len(values) for values in (floats, shifted, scaled) if values is not None)
        self.spend(8 + len(exponents) + more)  # the walk counts more for its parts: there are enough
        yield TENSOR, f"rank {len(shape)}", len(shape) <= RANK_MAX
        yield TENSOR, f"dtype {dtype}", 0 <= dtype < len(ENUMS["DType"]) - (data is None)
        yield TENSOR, f"shape {list(shape)}", min(shape, default=1) >= 1
        bits = 8 << dtype
        nbytes = prod(shape) * bits // 8
        yield LIMIT, f"{nbytes} bytes", nbytes <= BYTES_MAX
        yield TENSOR, f"exponents along axis {axis}", axis == -1 or data is not None
        yield from _exponents(exponents, axis, shape)
        if floats is not None or table["float_axis"] != -1:
            yield TENSOR, "float exponents of a constant, or none", floats is not None and data is None
            yield from _exponents(floats, table["float_axis"], shape)
        count = 0 if floats is None else len(floats)
        if shifted is not None:
            yield TENSOR, f"{len(shifted)} float offsets for {count} float exponents", len(shifted) == count
            yield TENSOR, "a float offset that is not finite", bool(np.isfinite(shifted).all())
        if scaled is not None:
            yield TENSOR, f"{len(scaled)} float mantissas for {count} float exponents", len(scaled) == count
            yield TENSOR, "a float mantissa that is not in [1, 2)", bool(((scaled >= 1) & (scaled < 2)).all())
        if data is not None:
            yield TENSOR, f"{len(data)} bytes of data, its shape needs {nbytes}", len(data) == nbytes
            yield TENSOR, "its data is not aligned", (_address(data) - self.start) % DATA_ALIGN == 0
        low, high = table["clip_min"], table["clip_max"]
        yield TENSOR, f"a clip range of [{low}, {high}]", INT_MIN[bits] <= low <= high <= INT_MAX[bits]

    def port(self, port: Table) -> int:
        """The number of its tensor."""
        tensor: int = port["tensor"]
        if not (0 <= tensor < len(self.values) and not self.values[tensor].is_const):
            _fail(TENSOR, f"port {port['name']!r} refers to tensor {tensor}, which is no activation")
        return tensor

    def states(self) -> Rules:
        for port in self.root["outputs"]:
            yield (
                TENSOR,
                f"output {port['name']!r} has state {port['state']}; only inputs have one",
                port["state"] == -1,
            )
        for port, tensor in zip(self.root["inputs"], self.inputs, strict=True):
            name, state = port["name"], port["state"]
            if state != -1:
                there = len(self.outputs)
                yield TENSOR, f"{name!r} takes over output {state}, there are {there}", 0 <= state < there
                to, of = self.values[tensor], self.values[self.outputs[state]]
                yield TENSOR, f"{name!r} has the shape {to.shape}, its output {of.shape}", to.shape == of.shape
                yield TENSOR, f"{name!r} has the dtype {to.dtype}, its output {of.dtype}", to.dtype == of.dtype
                own, other = quant_of(to).exponents, quant_of(of).exponents
                yield TENSOR, f"{name!r} has the exponents {own}, its output {other}", own == other
                lo, hi = quant_of(to).lo, quant_of(to).hi
                yield TENSOR, f"{name!r} starts at {port['start']}, not in [{lo}, {hi}]", lo <= port["start"] <= hi

    def sounds(self) -> Rules:
        for port in self.root["outputs"]:
            yield TENSOR, f"output {port['name']!r} is fed with sound", port["sound"] is None
        for port, tensor in zip(self.root["inputs"], self.inputs, strict=True):
            if port["sound"] is not None:
                name, front = port["name"], SoundFront.of(port["sound"])
                self.spend(sum(len(value) for value in port["sound"].values() if isinstance(value, np.ndarray)))
                yield TENSOR, f"the state {name!r} is fed with sound", port["state"] == -1
                for rule, holds in sound.rules(front):
                    yield TENSOR, f"{name!r} has {rule}", holds
                size = self.values[tensor].size
                yield TENSOR, f"{name!r} has frames of {front.width} in {size} elements", size % front.width == 0

    # -- ops ----------------------------------------------------------------------------------------------------------

    def op(self, table: Table) -> None:
        """Adds its node, None for an op of a later version or of somebody else."""
        member, fields = table["params"]
        about = f"op {table['name']!r} ({KINDS.get(member, member)})"
        if member not in KINDS and not self.unknown:
            _fail(UNKNOWN, f"{about}: an op that this version does not know")
        wrong = self.indices(table)
        if self.steps == 0:
            _fail(LIMIT, f"{about}: too much to verify")
        if wrong:
            _fail(OP, f"{about}: {wrong}")
        node = None
        if member in KINDS:
            node = self.node(table, KINDS[member], fields)
            if missing := OPS[node.op].missing(node.params):
                if not self.unknown:
                    _fail(CUSTOM, f"{about}: the custom op {missing!r} is not installed")
                node = None
            else:
                self.require(about, self.op_rules(node))
        self.nodes.append(node)

    def indices(self, table: Table) -> str:
        """Describes what is wrong with the tensors that it names."""
        outputs = table["outputs"].tolist()
        for tensor in table["inputs"].tolist():
            if not 0 <= tensor < len(self.values):
                return f"it reads tensor {tensor} of {len(self.values)}"
            value = self.values[tensor]
            self.spend(4 + len(quant_of(value).exponents) + (value.size if value.dtype == INT_OF_BITS[32] else 0))
        if len(outputs) != 1 or not 0 <= outputs[0] < len(self.values) or self.values[outputs[0]].is_const:
            return f"its outputs are {outputs}, not one activation"
        return ""

    def node(self, table: Table, kind: str, fields: Table) -> Node:
        inputs, outputs = (tuple(map(str, table[side].tolist())) for side in ("inputs", "outputs"))
        params = {key: _plain(value) for key, value in fields.items()}
        return Node(kind, table["name"], inputs, outputs, OPS[kind].Params(**params))

    def op_rules(self, node: Node) -> Rules:
        op = OPS[node.op]
        wrong = broken(op, node, self.graph)
        yield OP, wrong, not wrong
        self.work += op.work(node.params, self.graph.ins(node), self.graph[node.outputs[0]])
        yield LIMIT, f"a run takes {self.work} steps, {WORK_MAX} are allowed", self.work <= WORK_MAX

    # -- the memory plan ----------------------------------------------------------------------------------------------

    def plan(self) -> None:
        """A read is right when, going back from it, the tensor's producer (an input: the start) comes before any op
        whose output touches the tensor's bytes.
        """
        self.require("fast memory", self.fast_memory())
        for i, value in enumerate(self.values):
            if not value.is_const:
                self.require(f"tensor {self.tensors[i]['name']!r}", self.place(value))
        self.extents = [(_offset(value), _offset(value) + value.nbytes) for value in self.values]
        results = [int(table["outputs"][0]) for table in self.ops]
        self.results = np.array([self.extents[i] for i in results], np.int64).reshape(-1, 2)
        self.live_ends = np.array([table["live_end"] or self.arena for table in self.ops], np.int64)
        self.made: dict[int, int] = {}  # by which op
        self.require("inputs", self.inputs_apart())
        last = self.inputs[-1] if self.inputs else -1
        for i, (table, result) in enumerate(zip(self.ops, results, strict=True)):
            if result <= last:
                _fail(ORDER, f"op {table['name']!r}: its output is tensor {result}, after {last}")
            for tensor in table["inputs"].tolist():
                if not self.values[tensor].is_const:
                    self.read(i, tensor)
            self.require(f"op {table['name']!r}", self.result(i, result))
            last = result
            self.made[result] = i
        for tensor in self.outputs:
            self.read(len(self.ops), tensor)
        self.require("states", self.states_apart())

    def fast_memory(self) -> Rules:
        self.rooms = np.array([(op["scratch_at"], op["scratch_room"]) for op in self.ops], np.int64).reshape(-1, 2)
        self.rooms[:, 1] += self.rooms[:, 0]
        yield PLAN, f"fast_bytes {self.fast}", self.fast % ARENA_ALIGN == 0 and self.fast <= self.arena
        for op, (start, end) in zip(self.ops, self.rooms.tolist(), strict=True):
            about = f"scratch of {op['name']!r} at {start} to {end} of {self.fast}"
            yield PLAN, about, start % ARENA_ALIGN == 0 and end <= self.fast

    def place(self, value: Value) -> Rules:
        start = _offset(value)
        yield PLAN, f"offset {start} is no multiple of {ARENA_ALIGN}", start % ARENA_ALIGN == 0
        yield PLAN, f"it ends at {start + value.nbytes}, the arena at {self.arena}", start + value.nbytes <= self.arena
        yield PLAN, f"the fast memory ends in it, at {self.fast}", not start < self.fast < start + value.nbytes

    def inputs_apart(self) -> Rules:
        for i, tensor in enumerate(self.inputs[1:], 1):
            yield LIMIT, "too much to verify", self.spend(i)
            yield ORDER, f"tensor {tensor} comes after {self.inputs[i - 1]}", tensor > self.inputs[i - 1]
            for other in self.inputs[:i]:
                yield PLAN, f"tensors {tensor} and {other} overlap", not self.overlap(tensor, other)

    def overlap(self, a: int, b: int) -> bool:
        (start, end), (first, last) = self.extents[a], self.extents[b]
        return start < last and first < end

    def read(self, reader: int, tensor: int) -> None:
        """By an op, or by the caller after the last one."""
        name, (start, end) = self.tensors[tensor]["name"], self.extents[tensor]
        if reader < len(self.ops) and end > self.live_ends[reader]:
            _fail(PLAN, f"tensor {name!r} ends at {end}, behind the live_end of the op that reads it")
        maker = self.made.get(tensor)
        if reader < len(self.ops) and bool(self.in_rooms(slice(reader, reader + 1), start, end)):
            _fail(PLAN, f"tensor {name!r} lies in the scratch of the op that reads it")
        between = slice(0 if maker is None else maker + 1, reader)
        results = self.results[between]
        gone = (results[:, 0] < end) & (start < results[:, 1]) | (end > self.live_ends[between])
        gone |= self.in_rooms(between, start, end)
        looked_at = int(np.argmax(gone[::-1])) + 1 if gone.any() else len(gone) + (maker is not None)
        if not self.spend(looked_at):
            _fail(LIMIT, f"tensor {name!r}: too much to verify")
        if gone.any():
            _fail(PLAN, f"tensor {name!r} is overwritten, or not apart from scratch, before its last use")
        if maker is None and tensor not in self.inputs:
            _fail(ORDER, f"tensor {name!r} is read before it is produced")

    def in_rooms(self, ops: slice, start: int, end: int) -> np.ndarray:
        """Tells of each of these ops whether an extent touches its scratch in the fast memory."""
        first, last = self.rooms[ops].T
        return (first < last) & (first < end) & (start < last)

    def result(self, i: int, result: int) -> Rules:
        """It touches an input only where the op may work so. Scratch lies behind it."""
        in_place = False
        for k, tensor in enumerate(self.ops[i]["inputs"].tolist()):
            if not self.values[tensor].is_const and self.overlap(tensor, result):
                in_place |= k == 0
                legal = self.may_touch(self.nodes[i], k, tensor, result, in_place)
                yield PLAN, f"its output overlaps its input {k}", legal
        live_end = int(self.live_ends[i])
        yield PLAN, f"a live_end of {live_end}", live_end % ARENA_ALIGN == 0 and live_end <= self.arena
        yield PLAN, f"its output ends behind {live_end}", self.extents[result][1] <= live_end
        yield PLAN, "its output lies in its scratch", not self.in_rooms(slice(i, i + 1), *self.extents[result]).any()

    def may_touch(self, node: Node | None, k: int, tensor: int, result: int, in_place: bool) -> bool:
        """Exactly, where the op works in place; where the op would put this input; or line by line."""
        if node is None:
            return True
        op, x, y = OPS[node.op], self.values[tensor], self.values[result]
        if op.in_place and in_place and (x.offset, x.nbytes, x.size) == (y.offset, y.nbytes, y.size):
            return True
        if self.spend(k):
            place = op.placed_inputs(node.params, self.graph.ins(node), y)[k]
            if place is not None and _offset(x) == _offset(y) + place * (y.nbytes // y.size):
                return True
        if k > 0 or not self.spend(STEPS_OF_OVERLAP):
            return False
        lines = op.lines(node.params, self.graph.ins(node), y)
        return lines is not None and lines.bands(_offset(y) - _offset(x)) is not None

    def states_apart(self) -> Rules:
        """After the last op a state takes over its output: it touches none but, at the very same bytes, its own."""
        for port, tensor in zip(self.root["inputs"], self.inputs, strict=True):
            if port["state"] != -1:
                yield LIMIT, "too much to verify", self.spend(len(self.outputs))
                for output in self.outputs:
                    own = output == self.outputs[port["state"]] and self.extents[output] == self.extents[tensor]
                    apart = own or not self.overlap(tensor, output)
                    yield PLAN, f"{port['name']!r} overlaps tensor {output}", apart


def _offset(value: Value) -> int:
    assert value.offset is not None
    return value.offset


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _plain(value: Any) -> Any:
    """A parameter: lists as tuples of ints."""
    return () if value is None else tuple(value.tolist()) if isinstance(value, np.ndarray) else value


def _exponents(exponents: np.ndarray, axis: int, shape: tuple[int, ...]) -> Rules:
    """axis: -1 where there is one for all."""
    yield TENSOR, f"exponents along axis {axis}", -1 <= axis < len(shape)
    wanted = 1 if axis < 0 else shape[axis]
    yield TENSOR, f"{len(exponents)} exponents, not {wanted}", len(exponents) == wanted
    low, high = int(exponents.min()), int(exponents.max())
    yield TENSOR, f"exponents in [{low}, {high}]", low >= EXPONENT_MIN and high <= EXPONENT_MAX
