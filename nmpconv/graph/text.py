"""The graph as text: one line a node or value, in order; it reads, diffs and parses back to an equal graph.

    graph resnet8
    input x : int8[1,32,32,3] bits=8 exp=[0] lo=-128 hi=127 pixels=true
    const w : int8[16,3,3,3] bits=8 exp=[-7,-8,...] lo=-128 hi=127 axis=0 = @1f0c5d3a99b0e127
    const b : int16[16] bits=16 exp=[-4] lo=-32768 hi=32767 = [3,-120,...]
    conv1 = conv2d(x, w, b) stride_h=2 stride_w=2
      y : int8[1,16,16,16] clamp=[0.0,Infinity] observed=[0.0,5.9,"mse"] bits=8 exp=[-4] lo=0 hi=127 offset=3072
    output y
    given t scale=0.0235 zero_point=0 dtype="uint8"
    fast bytes=4096 rooms={"conv1":[3072,512]}
    label "cat"

Names are bare, or JSON strings where they hold anything unusual. Attributes are key=JSON and left out where they have
their default. Constants of up to 64 elements stand in the text, larger ones by a digest of dtype, shape and bytes. A
line that starts with # is a comment.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from nmpconv.errors import InputError
from nmpconv.ir import Given, Graph, Node, Observed, Preprocess, Quant, Shifts, State, Value
from nmpconv.ops import OPS

INLINE = 64  # most elements of a constant that stands in the text
_BARE = re.compile(r"[\w./:;~+-]+(?<!:)")
_TYPE = re.compile(r"(\w+)\[([\d,]*)\]")
_PORT_KEYS = {"pixels", "source", "preprocess", "state", "start"}


def to_text(graph: Graph) -> str:
    lines = [f"graph {_quote(graph.name)}"]
    lines += [f"input {_value(graph[name])}{_attributes(_of_port(graph, name))}" for name in graph.inputs]
    lines += [f"const {_value(value)}" for value in graph.values.values() if value.is_const]
    for node in graph.nodes:
        lines.append(f"{_quote(node.name)} = {node.op}({', '.join(map(_quote, node.inputs))}){_params(node)}")
        lines += [f"  {_value(value)}" for value in graph.outs(node)]
    for name in graph.outputs:
        lines.append(f"output {_quote(name)}{_attributes(_of_port(graph, name))}")
    for name, grid in graph.given.items():
        known = {field: value for field, value in asdict(grid).items() if value not in (None, "")}
        lines.append(f"given {_quote(name)}{_attributes(known)}")
    if graph.fast_bytes:
        about = {"bytes": graph.fast_bytes, "rooms": graph.rooms, "least_slow": graph.least_slow or None}
        lines.append(f"fast{_attributes(about)}")
    lines += [f"label {json.dumps(label)}" for label in graph.labels]
    return "\n".join(lines) + "\n"


def parse(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph of a text. constants: the arrays that the text names by digest only, by value name.

    InputError names the line that is not understood, or the constant that is missing or another.
    """
    parser = _Parser(constants or {})
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            try:
                parser.line(line)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise InputError(f"cannot read '{line.strip()[:80]}': {error}", where=f"line {number}") from error
    return parser.graph()


def graph_hash(graph: Graph) -> str:
    """sha256 over everything that the graph is, constants included."""
    return hashlib.sha256(to_text(graph).encode()).hexdigest()


# -- writing ----------------------------------------------------------------------------------------------------------


def _quote(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _attributes(attributes: Mapping[str, Any]) -> str:
    pairs = [(key, value) for key, value in attributes.items() if value is not None]
    return "".join(f" {key}={json.dumps(value, separators=(',', ':'))}" for key, value in pairs)


def _value(value: Value) -> str:
    shape = ",".join(map(str, value.shape))
    text = f"{_quote(value.name)} : {value.dtype}[{shape}]"
    seen, quant = value.observed, value.quant
    text += _attributes({"origin": value.origin or None, "clamp": value.clamp})
    if value.shifts is not None:
        text += _attributes({"shifts": value.shifts.bits, "shift_axis": value.shifts.axis})
        more = {"shift_offsets": value.shifts.offsets or None, "shift_mantissas": value.shifts.mantissas or None}
        text += _attributes(more)
    text += _attributes({"observed": None if seen is None else (seen.min, seen.max, seen.method)})
    if quant is not None:
        text += _attributes(
            {"bits": quant.bits, "exp": quant.exponents, "lo": quant.lo, "hi": quant.hi, "axis": quant.axis}
        )
    text += _attributes({"offset": value.offset})
    if value.data is not None:
        text += f" = {_inline(value.data) if value.size <= INLINE else '@' + _digest(value.data)}"
    return text


def _inline(data: np.ndarray) -> str:
    # The shortest decimal that reads back as the same float32, written alike by all versions of numpy.
    items = [float(str(item)) if data.dtype == np.float32 else item.item() for item in data.ravel()]
    return json.dumps(items, separators=(",", ":"))


def _digest(data: np.ndarray) -> str:
    little = np.ascontiguousarray(data, dtype=data.dtype.newbyteorder("<"))
    head = f"{data.dtype.name}{list(data.shape)}".encode()
    return hashlib.sha256(head + little.tobytes()).hexdigest()[:16]


def _params(node: Node) -> str:
    plain = {f.name: f.default for f in fields(node.params)}
    return _attributes({key: value for key, value in asdict(node.params).items() if value != plain[key]})


def _of_port(graph: Graph, name: str) -> dict[str, Any]:
    how, state = graph.preprocess.get(name), graph.states.get(name)
    return {
        "pixels": True if name in graph.pixels else None,
        "source": graph.source_shapes.get(name),
        "preprocess": None if how is None else asdict(how),
        "state": None if state is None else state.output,
        "start": None if state is None else state.start or None,
    }


# -- reading ----------------------------------------------------------------------------------------------------------


class _Line:
    """A line that is consumed from the left."""

    def __init__(self, text: str) -> None:
        self.rest = text.strip()

    def take(self, token: str) -> None:
        if not self.rest.startswith(token):
            raise ValueError(f"expected '{token}' before '{self.rest[:20]}'")
        self.rest = self.rest[len(token) :].lstrip()

    def json(self) -> Any:
        value, end = json.JSONDecoder().raw_decode(self.rest)
        self.rest = self.rest[end:].lstrip()
        return value

    def name(self) -> str:
        if self.rest.startswith('"'):
            return str(self.json())
        return self.match(_BARE)[0]

    def match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self.rest)
        if match is None:
            raise ValueError(f"unexpected '{self.rest[:20]}'")
        self.rest = self.rest[match.end() :].lstrip()
        return match

    def attributes(self) -> dict[str, Any]:
        values = {}
        while self.rest and not self.rest.startswith("="):
            key = self.match(re.compile(r"(\w+)="))[1]
            values[key] = _tuples(self.json())
        return values


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


class _Parser:
    def __init__(self, constants: Mapping[str, np.ndarray]) -> None:
        self._constants = constants
        self._name = ""
        self._inputs: list[str] = []
        self._outputs: list[str] = []
        self._labels: list[str] = []
        self._nodes: list[Node] = []
        self._values: dict[str, Value] = {}
        self._preprocess: dict[str, Preprocess] = {}
        self._pixels: set[str] = set()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._given: dict[str, Given] = {}
        self._states: dict[str, State] = {}
        self._fast_bytes = self._least_slow = 0
        self._rooms: dict[str, tuple[int, int]] = {}

    def line(self, text: str) -> None:
        line = _Line(text)
        if text.startswith(" "):
            value = self._value(line)
            last = self._nodes.pop()
            self._nodes.append(Node(last.op, last.name, last.inputs, (*last.outputs, value), last.params))
            return
        word = line.name()
        if line.rest.startswith("="):
            self._node(word, line)
        elif word == "graph":
            self._name = line.name()
        elif word == "input":
            self._inputs.append(self._value(line))
        elif word == "const":
            self._value(line)
        elif word == "output":
            name = line.name()
            self._outputs.append(name)
            self._of_port(name, line.attributes())
        elif word == "given":
            name = line.name()
            self._given[name] = Given(**line.attributes())
        elif word == "fast":
            a = line.attributes()
            self._fast_bytes, self._least_slow = a["bytes"], a.get("least_slow", 0)
            self._rooms = {name: _tuples(room) for name, room in a["rooms"].items()}
        elif word == "label":
            self._labels.append(line.json())
        else:
            raise ValueError("a line starts with graph, input, const, output, given, fast, label or NODE =")

    def graph(self) -> Graph:
        return Graph(
            name=self._name,
            inputs=tuple(self._inputs),
            outputs=tuple(self._outputs),
            nodes=tuple(self._nodes),
            values=self._values,
            preprocess=self._preprocess,
            labels=tuple(self._labels),
            pixels=frozenset(self._pixels),
            source_shapes=self._shapes,
            given=self._given,
            states=self._states,
            fast_bytes=self._fast_bytes,
            rooms=self._rooms,
            least_slow=self._least_slow,
        )

    def _node(self, name: str, line: _Line) -> None:
        line.take("=")
        op = line.match(re.compile(r"\w+"))[0]
        if op not in OPS:
            raise ValueError(f"there is no op '{op}'")
        line.take("(")
        inputs = list(self._arguments(line))
        params = OPS[op].Params(**line.attributes())
        self._nodes.append(Node(op, name, tuple(inputs), (), params))

    def _arguments(self, line: _Line) -> Iterator[str]:
        while not line.rest.startswith(")"):
            yield line.name()
            if not line.rest.startswith(")"):
                line.take(",")
        line.take(")")

    def _value(self, line: _Line) -> str:
        name = line.name()
        line.take(":")
        dtype, dims = line.match(_TYPE).groups()
        shape = tuple(int(dim) for dim in dims.split(",") if dim)
        a = line.attributes()
        seen = Observed(*a["observed"]) if "observed" in a else None
        quant = Quant(a["bits"], a["exp"], a["lo"], a["hi"], a.get("axis")) if "bits" in a else None
        data = self._data(name, dtype, shape, line) if line.rest else None
        place, origin = a.get("offset"), a.get("origin", 0.0)
        more = a.get("shift_offsets", ()), a.get("shift_mantissas", ())
        shifts = Shifts(a["shifts"], a.get("shift_axis"), *more) if "shifts" in a else None
        self._values[name] = Value(name, shape, dtype, data, a.get("clamp"), seen, quant, place, origin, shifts)
        self._of_port(name, {key: a[key] for key in _PORT_KEYS & a.keys()})
        return name

    def _of_port(self, name: str, a: Mapping[str, Any]) -> None:
        if a.get("pixels"):
            self._pixels.add(name)
        if "source" in a:
            self._shapes[name] = a["source"]
        if "preprocess" in a:
            self._preprocess[name] = Preprocess(**{key: _tuples(value) for key, value in a["preprocess"].items()})
        if "state" in a:
            self._states[name] = State(a["state"], a.get("start", 0))

    def _data(self, name: str, dtype: str, shape: tuple[int, ...], line: _Line) -> np.ndarray:
        line.take("=")
        if not line.rest.startswith("@"):
            return np.array(line.json(), dtype=np.dtype(dtype)).reshape(shape)
        line.take("@")
        digest = line.rest
        if name not in self._constants:
            raise ValueError(f"constant '{name}' is not given")
        data = self._constants[name]
        if _digest(data) != digest or data.shape != shape:
            raise ValueError(f"constant '{name}' has other numbers or another shape than the text says")
        return data
