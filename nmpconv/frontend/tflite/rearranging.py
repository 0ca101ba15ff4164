"""Operators that move elements: shapes, slices, pads, joins; and those that tell shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.frontend.tflite.onnx_writer import Operand, OperatorCall
from nmpconv.frontend.tflite.rows import Write, same

END = 2**31 - 1  # of a slice: whatever the size is
_SYMMETRIC = 1  # of MIRROR_PAD, whose other mode is REFLECT


def _int64(numbers: Iterable[int]) -> np.ndarray:
    return np.array(list(numbers), np.int64)


def _axes(call: OperatorCall, axes: list[int], rank: int) -> list[int]:
    """The axes; of complex numbers, which have one more behind theirs, counted from the first one on."""
    if not call.is_complex(0):
        return axes
    if wrong := [axis for axis in axes if not -rank <= axis < rank]:
        raise ValueError(f"axis {wrong[0]} of {rank}")
    return [axis % rank for axis in axes]


def reshape(call: OperatorCall) -> str:
    if call.block:
        return _without_axis(call)
    shape = call.indices(1) if call.has(1) else call.constant(_int64(call.options["new_shape"]))
    if call.is_complex(0):
        shape = call("Concat", shape, _int64([2]), axis=0)
    return call("Reshape", call.input(0), shape)


def _without_axis(call: OperatorCall) -> str:
    """A reshape of images that are cut into blocks: they lose an axis of size 1 that is whole."""
    before, after = call.shape(0)[1:], call.output().shape[1:]
    for axis, size in enumerate(call.block):
        if size == before[axis] == 1 and (*before[:axis], *before[axis + 1 :]) == after:
            call.block = (*call.block[:axis], *call.block[axis + 1 :])
            return call("Squeeze", call.input(0), _int64([axis + 1]))
    raise Unsupported("its images are cut into blocks", hint="BATCH_TO_SPACE_ND before it")


def squeeze(call: OperatorCall) -> str:
    axes = _axes(call, [int(axis) for axis in call.options.get("squeeze_dims", ())], len(call.shape(0)))
    if call.block:
        whole = [axis % len(call.shape(0)) for axis in axes]
        call.block = tuple(size for axis, size in enumerate(call.block, 1) if axis not in whole)
    return call("Squeeze", call.input(0), *([_int64(axes)] if axes else []))


def expand_dims(call: OperatorCall) -> str:
    [axis] = _axes(call, call.integers(1, "axis"), len(call.shape(0)) + 1)
    if call.block:
        place = axis % (len(call.shape(0)) + 1) - 1
        call.block = (*call.block[:place], 1, *call.block[place:])
    return call("Unsqueeze", call.input(0), _int64([axis]))


def concatenation(call: OperatorCall) -> str:
    [axis] = _axes(call, [int(call.options.get("axis", 0))], len(call.shape(0)))
    return call("Concat", *call.inputs(), axis=axis)


def pack(call: OperatorCall) -> str:
    axis = int(call.options.get("axis", 0))
    return call("Concat", *(call("Unsqueeze", x, _int64([axis])) for x in call.inputs()), axis=axis)


def unpack(call: OperatorCall) -> list[str]:
    axis, count = int(call.options.get("axis", 0)), len(call.operator.outputs)
    parts = call.several("Split", (call.input(0),), count, axis=axis, num_outputs=count)
    return [call("Squeeze", part, _int64([axis])) for part in parts]


def split(call: OperatorCall) -> list[str]:
    """The axis comes first."""
    [axis], count = call.integers(0, "axis"), len(call.operator.outputs)
    return call.several("Split", (call.input(1),), count, axis=axis, num_outputs=count)


def split_v(call: OperatorCall) -> list[str]:
    """One of the sizes may be -1, for what is left."""
    sizes, [axis] = call.integers(1, "sizes"), call.integers(2, "axis")
    if -1 in sizes:
        whole = call.shape(0)[axis]
        if whole < 1:
            raise Unsupported("a size of -1 on an axis whose size is not fixed", hint="all sizes")
        sizes[sizes.index(-1)] = whole - sum(sizes) - 1
    return call.several("Split", (call.input(0), _int64(sizes)), len(call.operator.outputs), axis=axis)


def transpose(call: OperatorCall) -> str:
    order = _axes(call, call.integers(1, "order"), len(call.shape(0)))
    return call("Transpose", call.input(0), perm=[*order, len(order)] if call.is_complex(0) else order)


def pad(call: OperatorCall) -> str:
    """Pairs of widths, one for each axis; PADV2 has the number as well."""
    value = [float(call.array(2, "padding").item())] if call.has(2) else []
    if not call.is_const(1):
        ends = call("Transpose", call("Reshape", call.indices(1), _int64([-1, 2])), perm=[1, 0])
        return call("Pad", call.input(0), call("Reshape", ends, _int64([-1])), *value)
    before, after = zip(*call.array(1, "widths").reshape(-1, 2).tolist(), strict=True)
    return call("Pad", call.input(0), _int64([*before, *after]), *value)


def mirror_pad(call: OperatorCall) -> str:
    """SYMMETRIC repeats the edge, which ONNX's Pad has no mode for: indices do."""
    widths = call.array(1, "widths").reshape(-1, 2).tolist()
    if call.options.get("mode", 0) != _SYMMETRIC:
        before, after = zip(*widths, strict=True)
        return call("Pad", call.input(0), _int64([*before, *after]), mode="reflect")
    name = call.input(0)
    for axis, (size, (before, after)) in enumerate(zip(call.shape(0), widths, strict=True)):
        if before or after:
            if not 0 <= max(before, after) <= size:
                raise Unsupported(f"widths {before} and {after} of an axis of {size}", hint="at most its size")
            indices = np.pad(np.arange(size), (before, after), mode="symmetric")
            name = call("Gather", name, _int64(indices.tolist()), axis=axis)
    return name


def slice_(call: OperatorCall) -> str:
    """A size of -1 is what is left."""
    if not (call.is_const(1) and call.is_const(2)):
        return _computed_slice(call)
    starts, sizes = call.integers(1, "begin"), call.integers(2, "size")
    axes = _axes(call, [*range(len(starts))], len(call.shape(0)))
    ends = [END if size < 0 else start + size for start, size in zip(starts, sizes, strict=True)]
    return call("Slice", call.input(0), _int64(starts), _int64(ends), _int64(axes))


def _computed_slice(call: OperatorCall) -> str:
    """A slice at computed places, as those are where a loop writes a row of a list: each step tells them."""
    starts, sizes = call.indices(1), call.indices(2)
    ends = call("Where", call("Less", sizes, _int64([0])), _int64([END]), call("Add", starts, sizes))
    return call("Slice", call.input(0), starts, ends, _int64(range(len(call.shape(0)))))


def strided_slice(call: OperatorCall) -> str:
    """Each place of begin, end and strides is a slice of an axis, one index of it, a new axis, or all axes that the
    others leave: bits of the masks say which."""
    strides = call.integers(3, "strides")
    places = list(zip(*(_each(call, i, len(strides)) for i in (1, 2)), strides, strict=True))
    bits = {name: [bool(call.options.get(f"{name}_mask", 0) >> i & 1) for i in range(len(places))] for name in _MASKS}
    taken = sum(not (bits["ellipsis"][i] or bits["new_axis"][i]) for i in range(len(places)))
    left = len(call.shape(0)) - taken
    rows: list[tuple[int, _Index, _Index, int]] = []  # axis, start, end, step
    dropped: list[int] = []
    added: list[int] = []
    axis = place = 0  # place: in the result, before axes are dropped
    for i, (start, end, step) in enumerate(places):
        if bits["ellipsis"][i]:
            axis, place = axis + left, place + left
            continue
        if bits["new_axis"][i]:
            added.append(place - len(dropped))
            place += 1
            continue
        if bits["shrink_axis"][i]:
            rows.append((axis, start, _behind(call, start), 1))
            dropped.append(axis)
        else:
            first, last = (0, END) if step > 0 else (END, -END)
            end = _sum(call, start, end) if call.options.get("offset") else end
            rows.append((axis, first if bits["begin"][i] else start, last if bits["end"][i] else end, step))
        axis, place = axis + 1, place + 1
    name = call.input(0)
    if rows:
        starts, ends = (_joined(call, [row[i] for row in rows]) for i in (1, 2))
        axes = _axes(call, [row[0] for row in rows], len(call.shape(0)))
        name = call("Slice", name, starts, ends, _int64(axes), _int64(row[3] for row in rows))
    if dropped:
        name = call("Squeeze", name, _int64(dropped))
    return call("Unsqueeze", name, _int64(added)) if added else name


_Index = int | str  # a constant, or the name of a computed one [1]


def _each(call: OperatorCall, place: int, count: int) -> list[_Index]:
    """The elements of a list of ``count`` indices."""
    if call.is_const(place):
        return [*call.integers(place, "indices")]
    whole = call.indices(place)
    return [call("Slice", whole, _int64([i]), _int64([i + 1])) for i in range(count)]


def _joined(call: OperatorCall, indices: Sequence[_Index]) -> Operand:
    constants = [index for index in indices if isinstance(index, int)]
    if len(constants) == len(indices):
        return _int64(constants)
    return call("Concat", *(_operand(index) for index in indices), axis=0)


def _sum(call: OperatorCall, start: _Index, size: _Index) -> _Index:
    if isinstance(start, int) and isinstance(size, int):
        return start + size
    return call("Add", _operand(start), _operand(size))


def _behind(call: OperatorCall, index: _Index) -> _Index:
    """The end of a slice of one element."""
    if isinstance(index, int):
        return index + 1 if index != -1 else END
    return call("Where", call("Equal", index, _int64([-1])), _int64([END]), call("Add", index, _int64([1])))


def _operand(index: _Index) -> Operand:
    return index if isinstance(index, str) else _int64([index])


_MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")


def gather(call: OperatorCall) -> str:
    if call.options.get("batch_dims"):
        raise Unsupported(f"batch_dims {call.options['batch_dims']}", hint="0")
    return call("Gather", call.input(0), call.input(1), axis=int(call.options.get("axis", 0)))


def gather_nd(call: OperatorCall) -> str:
    """TFLite's positions are never negative, which computed ones do not show."""
    indices = call.indices(1)
    return call("GatherND", call.input(0), indices if call.is_const(1) else call("Max", indices, _int64([0])))


def embedding_lookup(call: OperatorCall) -> str:
    """Indices come first."""
    return call("Gather", call.input(1), call.input(0), axis=0)


def scatter_nd(call: OperatorCall) -> str:
    """Indices, what is added there, sizes of the result, which is 0 elsewhere."""
    zero = call.constant(np.zeros((), call.tensor(1).type if call.tensor(1).grid is None else np.float32))
    zeros = call("Expand", zero, call.indices(2))
    return call("ScatterND", zeros, call.indices(0), call.input(1), reduction="add")


def tile(call: OperatorCall) -> str:
    return call("Tile", call.input(0), call.indices(1))


def broadcast_to(call: OperatorCall) -> str:
    return call("Expand", call.input(0), call.indices(1))


def fill(call: OperatorCall) -> str:
    """The sizes come first."""
    return call("Expand", call.input(1), call.indices(0))


def reverse(call: OperatorCall) -> str:
    axes = call.integers(1, "axes")
    starts, ends, steps = (_int64([number] * len(axes)) for number in (END, -END, -1))
    return call("Slice", call.input(0), starts, ends, _int64(axes), steps)


def one_hot(call: OperatorCall) -> str:
    """Depth, the value at the index and that elsewhere; ONNX has the latter two in one tensor."""
    values = call("Concat", *(call("Reshape", call.input(i), _int64([1])) for i in (3, 2)), axis=0)
    return call("OneHot", call.indices(0), call.indices(1), values, axis=int(call.options.get("axis", -1)))


def shape(call: OperatorCall) -> str:
    return call.cast(call("Shape", call.input(0)), call.output().type)


def rank(call: OperatorCall) -> str:
    return call.constant(np.array(len(call.shape(0)), np.int32))


ROWS: Mapping[str, Write] = {
    "BROADCAST_TO": broadcast_to,
    "CONCATENATION": concatenation,
    "EMBEDDING_LOOKUP": embedding_lookup,
    "EXPAND_DIMS": expand_dims,
    "FILL": fill,
    "GATHER": gather,
    "GATHER_ND": gather_nd,
    "MIRROR_PAD": mirror_pad,
    "ONE_HOT": one_hot,
    "PACK": pack,
    "PAD": pad,
    "PADV2": pad,
    "RANGE": same("Range", 3),
    "RANK": rank,
    "RESHAPE": reshape,
    "REVERSE_V2": reverse,
    "SCATTER_ND": scatter_nd,
    "SHAPE": shape,
    "SLICE": slice_,
    "SPLIT": split,
    "SPLIT_V": split_v,
    "SQUEEZE": squeeze,
    "STRIDED_SLICE": strided_slice,
    "TILE": tile,
    "TRANSPOSE": transpose,
    "UNPACK": unpack,
}
