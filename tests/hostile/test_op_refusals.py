"""Ops whose parameters a file may not have: a case changes one field of a case that is fine; C and Python refuse it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import op_cases
import pytest
from verified import inspected, verified

from nmpconv import _nmp
from nmpconv.file import flatbuffer
from nmpconv.file.writer import to_bytes
from nmpconv.ops import OPS
from nmpconv.passes.memory import plan_memory

OP = 6  # NMP_E_OP
GATE = "custom/samples.gate::Gate/int8/77/-8to-7/random"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "an index beyond the axis": ("gather/rows/int8", {"index": [0, 0, 1, 1, 2, 3]}),
    "a negative index": ("gather/rows/int8", {"index": [0, 0, 1, -1, 2, 2]}),
    "an index too few": ("gather/rows/int8", {"index": [0, 0, 1, 1, 2]}),
    "no taps": ("resize/twice/8x8/random", {"taps_h": 0}),
    "more taps than rows": ("resize/twice/8x8/random", {"taps_h": 4}),
    "taps that do not fit the weights": ("resize/twice/8x8/random", {"taps_w": 1}),
    "a row beyond the last": ("resize/twice/8x8/random", {"rows": [0, 0, 0, 1, 1, 2]}),
    "a negative column": ("resize/twice/8x8/random", {"columns": [-1, 0, 0, 1, 1, 2, 2, 2]}),
    "a row too few": ("resize/twice/8x8/random", {"rows": [0, 0, 0, 1, 1]}),
    "weights of more than 2": ("resize/twice/8x8/random", {"row_weights": [2**16, 1] * 6}),
    "weights whose sum wraps": ("resize/twice/8x8/random", {"row_weights": [-(2**31), -(2**31)] * 6}),
    "a stride of 0": ("conv_transpose/3x3/stride/int8", {"stride_h": 0}),
    "a negative stride": ("conv_transpose/3x3/stride/int8", {"stride_w": -2}),
    "a stride of 2^31 - 1": ("conv_transpose/3x3/stride/int8", {"stride_w": 2**31 - 1}),
    "a negative padding": ("conv_transpose/3x3/stride/int8", {"pad_top": -1}),
    "no groups": ("conv_transpose/3x3/stride/int8", {"groups": 0}),
    "groups that do not divide the channels": ("conv_transpose/3x3/stride/int8", {"groups": 3}),
    "more groups than there are": ("conv_transpose/groups/int8", {"groups": 4}),
    "an arg_max along another axis than the output's": ("arg_max/1x10/1/8x8/random/max", {"axis": 0}),
    "no index at all": ("arg_max/1x10/1/8x8/random/max", {"count": 0}),
    "more indices than the axis has": ("arg_max/1x10/1/8x8/random/max", {"count": 11}),
    "another count than the output's": ("arg_max/1x10/1/8x8/random/max", {"count": 2}),
    "a padding that there is not": ("grid_sample/linear/zeros/8x8x8", {"padding": 3}),
    "a negative padding of places": ("grid_sample/linear/zeros/8x8x8", {"padding": -1}),
    "indices along another axis than the output's": ("gather_elements/1x9x4/1x5x4/1/8x8", {"axis": 2}),
    "a dilation of 0": ("conv_transpose/3x3/stride/int8", {"dilation_h": 0}),
    "an axis of a group that is not there": ("normalize/2x5x7/2/8x8", {"axes": [3]}),
    "no axes": ("normalize/2x5x7/2/8x8", {"axes": []}),
    "axes twice": ("normalize/2x5x7/2/8x8", {"axes": [2, 2]}),
    "axes in another order": ("normalize/2x5x7/2/8x8", {"axes": [2, 1]}),
    "a negative axis": ("normalize/2x5x7/2/8x8", {"axes": [-1]}),
    "no epsilon": ("normalize/2x5x7/2/8x8", {"epsilon": 0}),
    "a negative epsilon": ("normalize/2x5x7/2/8x8", {"epsilon": -1}),
    "an epsilon of 2^63": ("normalize/2x5x7/2/8x8", {"epsilon_shift": 32}),
    "a group too large": ("normalize/long/int8/random", {"axes": [0, 1]}),
    "a sum of no channels": ("lrn/5of16/16x16/random", {"size": 0}),
    "a sum of 4097 channels": ("lrn/5of16/16x16/random", {"size": 4097}),
    "squares that overflow": ("lrn/5of16/16x16/random", {"shift": 28}),
    "squares shifted out of sight": ("lrn/5of16/16x16/random", {"shift": -63}),
    "an offset that int16 does not hold": ("mul_offset/constant", {"offset_a": 16385}),
    "an offset far below": ("mul_offset/constant", {"offset_a": -16385}),
    "a result's offset too large": ("mul_offset/constant", {"offset_y": 16385}),
    "a result's offset far below": ("mul_offset/constant", {"offset_y": -16385}),
    "a stride of 0 below a sum": ("conv_add/3x3/random", {"stride_h": 0}),
    "groups of a sum that do not divide the channels": ("conv_add/3x3/random", {"groups": 3}),
    "a padding of a sum that makes another shape": ("conv_add/3x3/random", {"pad_top": 2}),
    "a table from below 1": ("sum_lookup/log/True/16x16/random", {"low": -1}),
    "a table from 2^62 on": ("sum_lookup/log/True/16x16/random", {"low": 62}),
    "a table that ends beyond 2^62": ("sum_lookup/log/True/16x16/random", {"low": 61}),
    "no piece of an octave": ("sum_lookup/log/True/16x16/random", {"pieces": -1}),
    "2^9 pieces of an octave": ("sum_lookup/log/True/16x16/random", {"pieces": 9}),
    "no groups of a sum": ("sum_lookup/log/True/16x16/random", {"groups": 0}),
    "groups that do not fit the channels": ("sum_lookup/log/True/16x16/random", {"groups": 2}),
    "no attribute": (GATE, {"attributes": []}),
    "an attribute too many": (GATE, {"attributes": [1, 2]}),
    "an attribute that overflows": (GATE, {"attributes": [-(2**31)]}),
    "negative scratch": (GATE, {"scratch": -1}),
    "scratch of more than 2^30 bytes": (GATE, {"scratch": 2**30 + 1}),
    "no offset": ("lrn/5of16/16x16/random", {"offset": 0}),
    "an offset of 2^62": ("lrn/5of16/16x16/random", {"offset_shift": 31}),
}
GRAPHS = {case.id: case.graph for case in op_cases.CASES}
FIRST = {name: cases[0].id for name, cases in op_cases.BY_OP.items()}
LONG = FIRST | {"arg_max": "arg_max/1x10/1/8x16/random/max"}  # 16 bits hold the largest index
ALONG = [name for name, op in OPS.items() if "axis" in op.Params.__dataclass_fields__]  # ops along an axis


def status(data: bytes) -> int:
    """The answer of C and Python."""
    return verified(data)[0]


def tables(case: str) -> dict[str, Any]:
    return flatbuffer.unpack(to_bytes(plan_memory.run(GRAPHS[case]), {}))


def changed(case: str, changes: dict[str, Any]) -> bytes:
    root = tables(case)
    root["ops"][0]["params"][1].update(changes)
    return flatbuffer.pack(root)


def files() -> Iterator[bytes]:
    """One for each of CASES."""
    return (changed(case, changes) for case, changes in CASES.values())


@pytest.mark.parametrize("sentence", CASES)
def test_refused(sentence: str) -> None:
    case, changes = CASES[sentence]
    assert status(changed(case, {})) == 0
    assert status(changed(case, changes)) == OP


def test_weights_with_exponents_along_another_axis() -> None:
    """Weights of one element, so that there are as many exponents as FORMAT wants of it."""
    root = tables("fully_connected/1x1/8x8x8")
    weights = root["tensors"][root["ops"][0]["inputs"][1]]
    for axis, wanted in ((-1, 0), (0, 0), (1, OP)):
        weights["axis"] = axis
        assert status(flatbuffer.pack(root)) == wanted, axis


@pytest.mark.parametrize("name", ALONG)
def test_axes_that_are_not_there(name: str) -> None:
    root = tables(FIRST[name])
    assert status(flatbuffer.pack(root)) == 0
    rank = len(root["tensors"][root["ops"][0]["inputs"][0]]["shape"])
    for axis in (-1, rank, 2**31 - 1, -(2**31)):
        root["ops"][0]["params"][1]["axis"] = axis
        data = flatbuffer.pack(root)
        assert status(data) == OP, axis
        if axis == rank:
            with pytest.raises(_nmp.Fault) as caught:
                inspected(data)
            assert caught.value.args[2:5] == ("axis", axis, rank - 1)


@pytest.mark.parametrize("name", [name for name in ALONG if OPS[name].axis_max])
def test_axes_that_are_too_long(name: str) -> None:
    """As long as the axis may be is fine, one more is not."""
    root, most = tables(LONG[name]), OPS[name].axis_max
    op = root["ops"][0]
    x, y = (root["tensors"][op[role][0]] for role in ("inputs", "outputs"))
    axis, same = op["params"][1]["axis"], list(x["shape"]) == list(y["shape"])
    for length, wanted in ((most, 0), (most + 1, OP)):
        for tensor in (x, y) if same else (x,):
            tensor["shape"] = [length if i == axis else 1 for i in range(len(tensor["shape"]))]
        x["offset"], y["offset"], op["live_end"], root["arena_bytes"] = 0, 1 << 20, 0, 1 << 21
        assert status(flatbuffer.pack(root)) == wanted


@pytest.mark.parametrize(("low", "high", "wanted"), [(0, 9, 0), (-128, 8, OP), (1, 127, OP)])
def test_indices_fit_the_output(low: int, high: int, wanted: int) -> None:
    root = tables("arg_max/1x10/1/8x8/random/max")
    root["tensors"][root["ops"][0]["outputs"][0]] |= {"clip_min": low, "clip_max": high}
    assert status(flatbuffer.pack(root)) == wanted


@pytest.mark.parametrize("case", [*FIRST.values(), "arg_max/300/0/8x16/random/max40"])
def test_steps_of_a_run(case: str) -> None:
    """2^40 are allowed, so both sides have to count alike."""
    graph = GRAPHS[case]
    ops = [OPS[node.op].work(node.params, graph.ins(node), *graph.outs(node)) for node in graph.nodes]
    assert inspected(flatbuffer.pack(tables(case)))["work"] == sum(ops)


@pytest.mark.parametrize(
    ("case", "exponent"),
    [
        ("arg_max/1x10/1/8x8/random/max", 1),
        ("greater/same/int8", 1),
        ("greater/same/int8", -16),
        ("divide/same/int8", 31),
        ("divide/same/int8", -31),
    ],
)
def test_exponents_of_the_output(case: str, exponent: int) -> None:
    root = tables(case)
    assert status(flatbuffer.pack(root)) == 0
    root["tensors"][root["ops"][0]["outputs"][0]]["exponents"] = [exponent]
    assert status(flatbuffer.pack(root)) == OP


@pytest.mark.parametrize(("tensor", "exponents"), [(0, (-22, 27)), (1, (-62, 2)), (2, (-35, 14))])
def test_grids_of_grid_sample(tensor: int, exponents: tuple[int, int]) -> None:
    """The first exponents beyond the legal shifts of x, g and y are refused, those next to them are not."""
    root = tables("grid_sample/linear/zeros/8x8x8")
    changed = root["tensors"][([*root["ops"][0]["inputs"], *root["ops"][0]["outputs"]])[tensor]]
    for exponent, inward in zip(exponents, (1, -1), strict=True):
        changed["exponents"] = [exponent]
        assert status(flatbuffer.pack(root)) == OP
        changed["exponents"] = [exponent + inward]
        assert status(flatbuffer.pack(root)) == 0


@pytest.mark.parametrize(("tensor", "axis"), [(0, 0), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 3)])
def test_shapes_of_grid_sample(tensor: int, axis: int) -> None:
    """One element fewer along any axis but the plane of the image."""
    root = tables("grid_sample/linear/zeros/2x3x2x3/2x2x5x2")
    changed = root["tensors"][([*root["ops"][0]["inputs"], *root["ops"][0]["outputs"]])[tensor]]
    changed["shape"] = [n - (i == axis) for i, n in enumerate(changed["shape"])]
    assert status(flatbuffer.pack(root)) == OP


@pytest.mark.parametrize(("tensor", "axis"), [(0, 0), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (2, 1), (2, 3)])
def test_shapes_of_gather_elements(tensor: int, axis: int) -> None:
    """One element fewer along any axis but the one that is chosen from, and where one index is for all."""
    root = tables("gather_elements/2x5x3x4/2x2x3x4/1/8x8")
    changed = root["tensors"][([*root["ops"][0]["inputs"], *root["ops"][0]["outputs"]])[tensor]]
    changed["shape"] = [n - (i == axis) for i, n in enumerate(changed["shape"])]
    assert status(flatbuffer.pack(root)) == (0 if (tensor, axis) == (1, 0) else OP)


@pytest.mark.parametrize("exponent", [-1, 1])
def test_indices_are_whole(exponent: int) -> None:
    root = tables("gather_elements/1x9x4/1x5x4/1/8x8")
    root["tensors"][root["ops"][0]["inputs"][1]]["exponents"] = [exponent]
    assert status(flatbuffer.pack(root)) == OP


@pytest.mark.parametrize("end", [0, 1])
def test_ranks_of_gather_elements(end: int) -> None:
    """Indices of another rank."""
    root = tables("gather_elements/1x50/1x20/1/8x8")
    changed = root["tensors"][root["ops"][0]["inputs"][end]]
    changed["shape"] = [*changed["shape"], 1]
    assert status(flatbuffer.pack(root)) == OP


@pytest.mark.parametrize(("tensor", "exponent"), [(1, 40), (1, -64), (2, 3)])
def test_grids_of_normalize(tensor: int, exponent: int) -> None:
    """A shift out of range, and a bias that is not below the output's grid."""
    root = tables("normalize/2x5x7/2/8x8")
    root["tensors"][root["ops"][0]["inputs"][tensor]]["exponents"] = [exponent]
    assert status(flatbuffer.pack(root)) == OP


def test_a_weight_of_normalize_that_overflows() -> None:
    root = tables("normalize/2x5x7/2/8x8")
    tensor = root["tensors"][root["ops"][0]["inputs"][1]]
    for value, wanted in (((1 << 23) - 1, 0), (1 << 23, OP), (1 - (1 << 23), 0), (-(1 << 23), OP)):
        tensor.update(data=np.full(7, value, "<i4").view(np.uint8), clip_min=-(2**31), clip_max=2**31 - 1)
        assert status(flatbuffer.pack(root)) == wanted, value


@pytest.mark.parametrize(("entry", "value"), [(0, -1), (256, (1 << 30) + 1), (257, -1), (319, 63), (380, -1)])
def test_entries_of_lrn(entry: int, value: int) -> None:
    root = tables("lrn/5of16/16x16/random")
    (table,) = (tensor for tensor in root["tensors"] if tensor["dtype"] == 2)
    assert status(flatbuffer.pack(root)) == 0
    data = np.array(table["data"]).view("<i4")
    data[entry] = value
    table["data"] = data.view(np.uint8)
    assert status(flatbuffer.pack(root)) == OP


def test_shifts_of_lrn() -> None:
    """Five squares of int16 have 33 bits, and all but 61 are there for their fraction."""
    root = tables("lrn/5of16/16x16/random")
    for shift, wanted in ((27, 0), (28, OP)):
        root["ops"][0]["params"][1]["shift"] = shift
        assert status(flatbuffer.pack(root)) == wanted
    with pytest.raises(_nmp.Fault) as caught:
        inspected(flatbuffer.pack(root))
    assert caught.value.args[2:5] == ("shift of the sum", 28, 27)


def test_weights_of_a_sum_that_overflows() -> None:
    root = tables("sum_lookup/far apart/int16")
    tensor = root["tensors"][root["ops"][0]["inputs"][1]]
    data = np.array(tensor["data"]).view("<i4").reshape(tensor["shape"])
    assert status(flatbuffer.pack(root)) == 0
    data[1, :3] = -(2**31), 2**31 - 1, 2
    tensor["data"] = data.reshape(-1).view(np.uint8)
    assert status(flatbuffer.pack(root)) == OP


@pytest.mark.parametrize("entries", [1, 256, 512, 514, 1024, 131073])
def test_tables_of_another_length(entries: int) -> None:
    data = resize_table("lookup/tanh/16to16", entries)
    with pytest.raises(_nmp.Fault) as caught:
        inspected(data)
    assert caught.value.args[2:5] == ("length of the table", entries, 513)


@pytest.mark.parametrize("case", ["lookup/tanh/8to8", "lrn/5of16/16x16/random", "softmax/1x10/1/8to8/-5/random"])
@pytest.mark.parametrize("step", [-1, 1])
def test_tables_of_a_length_next_to_theirs(case: str, step: int) -> None:
    (length,) = (
        len(tensor["data"]) // (1 << tensor["dtype"]) for tensor in tables(case)["tensors"] if has_data(tensor)
    )
    resize_table(case, length + step)


def has_data(tensor: dict[str, Any]) -> bool:
    return tensor["data"] is not None


def resize_table(case: str, entries: int) -> bytes:
    """Its numbers are legal ones: only how many there are is refused. Returns the file."""
    root = tables(case)
    (table,) = filter(has_data, root["tensors"])
    table.update(shape=[entries], data=np.resize(table["data"], entries << table["dtype"]))
    data = flatbuffer.pack(root)
    assert status(data) == OP
    return data
