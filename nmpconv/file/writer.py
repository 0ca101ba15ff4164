"""A planned graph to the bytes of a .nmp file, and bytes to a file that is there whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import numpy as np

from nmpconv.base.sound import SoundFront
from nmpconv.file._schema import ENUMS, OP_TABLES, VERSION
from nmpconv.file.flatbuffer import pack
from nmpconv.ir import ARENA_ALIGN, Graph, Node, Preprocess, Value
from nmpconv.ops import OPS

TestVector = tuple[Sequence[bytes], Sequence[bytes]]


def to_bytes(
    graph: Graph,
    metadata: Mapping[str, str],
    test_vectors: Iterable[TestVector] = (),
    sounds: Mapping[str, SoundFront] = MappingProxyType({}),
) -> bytes:
    """The file of a graph whose values have quant and offset. test_vectors: pairs of input and output bytes. sounds:
    front ends of inputs.

    The same arguments give the same bytes.
    """
    first = _first_alike(graph)
    order = [name for name in _order(graph) if first.get(name, name) == name]
    index = {name: i for i, name in enumerate(order)}
    index |= {name: index[other] for name, other in first.items()}
    activations = [graph[name] for name in order if not graph[name].is_const]
    arena = max((_end(value) for value in activations), default=0)
    arena = max(arena, graph.fast_bytes)  # scratch may be the last in the fast memory
    live_ends = _live_ends(graph)
    return pack(
        {
            "major": VERSION[0],
            "minor": VERSION[1],
            "name": graph.name,
            "tensors": [_tensor(graph[name]) for name in order],
            "ops": [_op(node, graph, index, end) for node, end in zip(graph.nodes, live_ends, strict=True)],
            "inputs": [_port(name, graph, index, sounds.get(name)) for name in graph.inputs],
            "outputs": [_port(name, graph, index) for name in graph.outputs],
            "arena_bytes": arena,
            "labels": list(graph.labels) or None,
            "metadata": [{"key": key, "value": metadata[key]} for key in sorted(metadata)] or None,
            "test_vectors": [{"inputs": _blobs(x), "outputs": _blobs(y)} for x, y in test_vectors] or None,
            "fast_bytes": graph.fast_bytes,
        }
    )


def _order(graph: Graph) -> list[str]:
    """Tensors as the format numbers them: graph inputs, then each op's new constants and its outputs."""
    names = dict.fromkeys(graph.inputs)
    for node in graph.nodes:
        names.update(dict.fromkeys(node.inputs))
        names.update(dict.fromkeys(node.outputs))
    return list(names)


def _first_alike(graph: Graph) -> dict[str, str]:
    """Constants, and the first of those that differ in the name alone: the file has one tensor for them."""
    first = dict[tuple[Any, ...], str]()
    constants = [graph[name] for name in _order(graph) if graph[name].is_const]
    alike = [(_but_name(value), np.asarray(value.data).tobytes()) for value in constants]
    return {value.name: first.setdefault(key, value.name) for value, key in zip(constants, alike, strict=True)}


_but_name = attrgetter(*(f.name for f in fields(Value) if f.name not in ("name", "data")))


def _offset(value: Value) -> int:
    assert value.offset is not None, f"{value.name} has no place in the arena"
    return value.offset


def _end(value: Value) -> int:
    return -(-(_offset(value) + value.nbytes) // ARENA_ALIGN) * ARENA_ALIGN


def _live_ends(graph: Graph) -> list[int]:
    """For each op: where the activations that are alive while it runs end in the arena."""
    ends = np.zeros(len(graph.nodes), np.int64)
    for name, (first, last) in graph.lifetimes().items():
        alive = ends[max(first, 0) : last + 1]
        np.maximum(alive, _end(graph[name]), out=alive)
    return [int(end) for end in ends]


def _tensor(value: Value) -> dict[str, Any]:
    quant, seen = value.quant, value.observed
    assert quant is not None and quant.dtype == value.dtype, f"{value.name} is not quantized"
    table: dict[str, Any] = {
        "name": value.name,
        "shape": value.shape,
        "dtype": ENUMS["DType"][value.dtype.upper()],
        "exponents": quant.exponents,
        "axis": -1 if quant.axis is None else quant.axis,
        "clip_min": quant.lo,
        "clip_max": quant.hi,
    }
    if seen is not None:
        table["observed_min"] = float(np.float32(seen.min))
        table["observed_max"] = float(np.float32(seen.max))
        table["method"] = ENUMS["Method"][seen.method.upper() or "NONE"]
    if value.data is None:
        table["offset"] = _offset(value)
        table["origin"] = float(np.float32(value.origin))
        if value.shifts is not None:
            table["float_exponents"] = [quant.exponent - bits for bits in value.shifts.bits]
            table["float_axis"] = -1 if value.shifts.axis is None else value.shifts.axis
            table["float_offsets"] = value.shifts.offsets or None
            table["float_mantissas"] = value.shifts.mantissas or None
    else:
        little = np.ascontiguousarray(value.data, np.dtype(value.dtype).newbyteorder("<"))
        table["data"] = np.frombuffer(little.tobytes(), np.uint8)
    return table


def _op(node: Node, graph: Graph, index: Mapping[str, int], live_end: int) -> dict[str, Any]:
    op = OPS[node.op]
    scratch_at, scratch_room = graph.rooms.get(node.name, (0, 0))
    params = {f.name: getattr(node.params, f.name) for f in fields(node.params) if f.name not in op.float_only}
    return {
        "name": node.name,
        "params": (OP_TABLES[node.op], params),
        "inputs": [index[name] for name in node.inputs],
        "outputs": [index[name] for name in node.outputs],
        "macs": op.macs(node.params, graph.ins(node), graph.outs(node)),
        "live_end": live_end,
        "scratch_at": scratch_at,
        "scratch_room": scratch_room,
    }


def _port(name: str, graph: Graph, index: Mapping[str, int], sound: SoundFront | None = None) -> dict[str, Any]:
    preprocess = graph.preprocess.get(name)
    state = graph.states.get(name)
    state_fields = {} if state is None else {"state": graph.outputs.index(state.output), "start": state.start}
    return {
        "name": name,
        "tensor": index[name],
        "preprocess": None if preprocess is None else _preprocess(preprocess),
        "pixels": name in graph.pixels,
        "source_shape": graph.source_shapes.get(name),
        "sound": None if sound is None else asdict(sound) | {"cepstrum": sound.cepstrum or None},
        **state_fields,
    }


def _preprocess(preprocess: Preprocess) -> dict[str, Any]:
    return {f.name: getattr(preprocess, f.name) for f in fields(preprocess)}


def _blobs(items: Sequence[bytes]) -> list[dict[str, Any]]:
    return [{"data": np.frombuffer(item, np.uint8)} for item in items]
