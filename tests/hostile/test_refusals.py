"""Files that are refused: one sentence a case, the status and the rule that must be named, in C and in Python.

A case changes the unpacked tables of a good file, which is packed again with a right checksum; so what is tested is the
verifier of meaning. Cases of bytes come after.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nets
import numpy as np
import pytest
from verified import Status, aligned, difference, in_python, inspected, verified

from nmpconv import _nmp
from nmpconv.errors import ModelError
from nmpconv.file import flatbuffer, reader
from nmpconv.file.writer import to_bytes
from nmpconv.runtime import interpreter

Tables = dict[str, Any]

X, W, B, C, K, A, M, F, V, D, Y = range(11)  # tensors of the small net
CONV, ADD, POOL, RESHAPE, FC = range(5)  # its ops


@pytest.fixture(scope="module")
def good() -> bytes:
    return to_bytes(nets.small_net(), {"producer": "test"})


def refusal(data: bytes) -> tuple[Status, str]:
    """The status and the rule of a file that must be refused, by C and by Python."""
    found = verified(data)
    assert found[0] != Status.OK
    return found


def tensor(i: int, **fields: Any) -> Callable[[Tables], None]:
    return lambda root: root["tensors"][i].update(fields)


def op(i: int, **fields: Any) -> Callable[[Tables], None]:
    return lambda root: root["ops"][i].update(fields)


def params(i: int, **fields: Any) -> Callable[[Tables], None]:
    return lambda root: root["ops"][i]["params"][1].update(fields)


def model(**fields: Any) -> Callable[[Tables], None]:
    return lambda root: root.update(fields)


def port(side: str, **fields: Any) -> Callable[[Tables], None]:
    return lambda root: root[side][0].update(fields)


def both(*changes: Callable[[Tables], None]) -> Callable[[Tables], None]:
    def change(root: Tables) -> None:
        for one in changes:
            one(root)

    return change


def swap_ops(root: Tables) -> None:
    root["ops"][ADD], root["ops"][CONV] = root["ops"][CONV], root["ops"][ADD]


def second_input(root: Tables) -> None:
    """C becomes an input that nobody reads, on half of X's bytes."""
    root["inputs"].append({**root["inputs"][0], "tensor": C})
    root["tensors"][C]["offset"] = 16
    root["ops"][CONV]["outputs"] = [A]
    del root["ops"][ADD]


S = Status
CASES: dict[str, tuple[Callable[[Tables], None], Status, str]] = {
    "a newer major version": (model(major=2), S.VERSION, "major version"),
    "version 0": (model(major=0), S.VERSION, "major version"),
    # Tensors.
    "rank 7": (tensor(C, shape=[1] * 7), S.TENSOR, "rank"),
    "a dimension of zero": (tensor(C, shape=[1, 0, 4, 2]), S.TENSOR, "dimension"),
    "a negative dimension": (tensor(C, shape=[1, -4, -4, 2]), S.TENSOR, "dimension"),
    "dimensions whose product wraps 32 bits to 32": (
        tensor(C, shape=[65536, 65536, 1, 32]),
        S.LIMIT,
        "bytes of a tensor",
    ),
    "dimensions whose product wraps 64 bits": (tensor(C, shape=[2**31 - 1] * 6), S.LIMIT, "bytes of a tensor"),
    "int16 elements that take 2^31 bytes": (tensor(Y, shape=[1, 2**30]), S.LIMIT, "bytes of a tensor"),
    "a dtype that does not exist": (tensor(C, dtype=3), S.TENSOR, "dtype"),
    "a negative dtype": (tensor(C, dtype=-1), S.TENSOR, "dtype"),
    "an activation of int32": (tensor(C, dtype=2), S.TENSOR, "dtype"),
    "an exponent below -64": (tensor(C, exponents=[-65]), S.TENSOR, "exponent"),
    "an exponent above 63": (tensor(V, exponents=[64]), S.TENSOR, "exponent"),
    "no exponent": (tensor(C, exponents=[]), S.TENSOR, "number of exponents"),
    "two exponents for three channels": (tensor(V, exponents=[-7, -7], axis=0), S.TENSOR, "number of exponents"),
    "exponents along an axis that is not there": (tensor(W, axis=4), S.TENSOR, "axis"),
    "an axis of -2": (tensor(W, axis=-2), S.TENSOR, "axis"),
    "an activation with an exponent per channel": (
        tensor(A, axis=3, exponents=[-4, -4]),
        S.TENSOR,
        "axis of an activation",
    ),
    "a float exponent below -64": (tensor(A, float_exponents=[-65]), S.TENSOR, "exponent"),
    "float exponents, but none": (tensor(A, float_exponents=[]), S.TENSOR, "number of exponents"),
    "two float exponents for one channel": (
        tensor(A, float_exponents=[-4, -4], float_axis=0),
        S.TENSOR,
        "number of exponents",
    ),
    "float exponents along an axis that is not there": (
        tensor(A, float_exponents=[-4], float_axis=4),
        S.TENSOR,
        "axis",
    ),
    "an axis of no float exponents": (tensor(A, float_axis=0), S.TENSOR, "number of float exponents"),
    "float exponents of a constant": (tensor(W, float_exponents=[-4]), S.TENSOR, "number of float exponents"),
    "a float offset without a float exponent": (tensor(A, float_offsets=[1.0]), S.TENSOR, "number of float offsets"),
    "two float offsets for one float exponent": (
        tensor(A, float_exponents=[-4], float_offsets=[1.0, 2.0]),
        S.TENSOR,
        "number of float offsets",
    ),
    "float offsets, but none": (
        tensor(A, float_exponents=[-4], float_offsets=[]),
        S.TENSOR,
        "number of float offsets",
    ),
    "a float offset that is no number": (
        tensor(A, float_exponents=[-4], float_offsets=[np.nan]),
        S.TENSOR,
        "bits of a float offset",
    ),
    "a float mantissa without a float exponent": (
        tensor(A, float_mantissas=[1.5]),
        S.TENSOR,
        "number of float mantissas",
    ),
    "two float mantissas for one float exponent": (
        tensor(A, float_exponents=[-4], float_mantissas=[1.0, 1.5]),
        S.TENSOR,
        "number of float mantissas",
    ),
    "a float mantissa below 1": (
        tensor(A, float_exponents=[-4], float_mantissas=[np.nextafter(np.float32(1), np.float32(0))]),
        S.TENSOR,
        "bits of a float mantissa",
    ),
    "a float mantissa of 2": (
        tensor(A, float_exponents=[-4], float_mantissas=[2.0]),
        S.TENSOR,
        "bits of a float mantissa",
    ),
    "a float mantissa below 0": (
        tensor(A, float_exponents=[-4], float_mantissas=[-1.5]),
        S.TENSOR,
        "bits of a float mantissa",
    ),
    "a float mantissa that is no number": (
        tensor(A, float_exponents=[-4], float_mantissas=[np.nan]),
        S.TENSOR,
        "bits of a float mantissa",
    ),
    "float offsets of a constant": (
        tensor(W, float_exponents=[-4], float_offsets=[1.0]),
        S.TENSOR,
        "number of float exponents",
    ),
    "a clip range that is empty": (tensor(C, clip_min=5, clip_max=4), S.TENSOR, "clip_min"),
    "a clip range below int8": (tensor(C, clip_min=-129), S.TENSOR, "clip_min"),
    "a clip range above int8": (tensor(C, clip_max=128), S.TENSOR, "clip_max"),
    "weights one byte short": (tensor(W, data=np.zeros(35, np.uint8)), S.TENSOR, "bytes of data"),
    "weights one byte long": (tensor(W, data=np.zeros(37, np.uint8)), S.TENSOR, "bytes of data"),
    "a constant without bytes": (tensor(W, data=[]), S.TENSOR, "bytes of data"),
    # Ops.
    "an input that is not there": (op(CONV, inputs=[X, W, 11]), S.OP, "input"),
    "a negative input": (op(CONV, inputs=[X, W, -1]), S.OP, "input"),
    "an output that is not there": (op(FC, outputs=[11]), S.OP, "output"),
    "an op without output": (op(FC, outputs=[]), S.OP, "number of outputs"),
    "an op with two outputs": (op(FC, outputs=[Y, Y]), S.OP, "number of outputs"),
    "an output that is a constant": (op(FC, outputs=[D]), S.OP, "output is a constant"),
    "an op without inputs": (op(POOL, inputs=[]), S.OP, ""),
    "a convolution without bias": (op(CONV, inputs=[X, W]), S.OP, ""),
    "a convolution whose weights are an activation": (op(CONV, inputs=[X, X, B]), S.OP, ""),
    "a convolution with five inputs": (op(CONV, inputs=[X, W, B, B, B]), S.OP, ""),
    "a convolution's output of another shape": (tensor(C, shape=[1, 4, 2, 4]), S.OP, ""),
    "a convolution's output of another rank": (tensor(C, shape=[1, 16, 2]), S.OP, ""),
    "a stride of zero": (params(CONV, stride_w=0), S.OP, ""),
    "a negative dilation": (params(CONV, dilation_h=-1), S.OP, ""),
    "a negative padding": (params(CONV, pad_top=-1, pad_bottom=3), S.OP, ""),
    "a padding whose sum with the height wraps": (params(CONV, pad_top=2**31 - 1, pad_bottom=2**31 - 1), S.OP, ""),
    "a dilation whose product with the kernel wraps": (params(CONV, dilation_h=2**31 - 1, pad_top=2**31 - 1), S.OP, ""),
    "no groups": (params(CONV, groups=0), S.OP, ""),
    "groups that do not divide the channels": (params(CONV, groups=3), S.OP, ""),
    "a shift above the limit": (tensor(W, exponents=[-60, -10]), S.OP, ""),
    "a shift below the limit": (tensor(W, exponents=[-11, 20]), S.OP, ""),
    "a bias on another exponent than the result": (tensor(B, exponents=[-5]), S.OP, ""),
    "a bias for three channels of two": (tensor(B, shape=[3], data=np.zeros(3, np.uint8)), S.OP, ""),
    "an add whose operands do not broadcast": (tensor(K, shape=[2, 1, 1, 1]), S.OP, ""),
    "an add whose operands lie 31 bits apart": (tensor(K, exponents=[-36]), S.OP, ""),
    "a pool that changes the exponent": (tensor(M, exponents=[-3]), S.OP, ""),
    "a pool of 0 x 2": (params(POOL, kernel_h=0), S.OP, ""),
    "a pool with a kernel of 2^31 - 1": (params(POOL, kernel_h=2**31 - 1), S.OP, ""),
    "a pool whose padding is as large as its kernel": (params(POOL, pad_top=2, stride_h=4), S.OP, ""),
    "a reshape to another number of elements": (both(tensor(F, shape=[1, 9]), params(RESHAPE, shape=[1, 9])), S.OP, ""),
    "a fully connected layer with a shorter row": (tensor(V, shape=[6, 4]), S.OP, ""),
    # Ports.
    "an output port to a tensor that is not there": (
        port("outputs", tensor=11),
        S.TENSOR,
        "tensor of an input or output",
    ),
    "an input port to a negative tensor": (port("inputs", tensor=-1), S.TENSOR, "tensor of an input or output"),
    "an input port to a constant": (port("inputs", tensor=W), S.TENSOR, "input or output is a constant"),
    "an output port to a constant": (port("outputs", tensor=V), S.TENSOR, "input or output is a constant"),
    # The plan.
    "an arena one byte short": (model(arena_bytes=71), S.PLAN, "end in the arena"),
    "an arena of 2^40 bytes": (model(arena_bytes=2**40), S.LIMIT, "arena_bytes"),
    "an arena of 2^64 - 1 bytes": (model(arena_bytes=2**64 - 1), S.LIMIT, "arena_bytes"),
    "an offset behind the arena": (tensor(M, offset=80), S.PLAN, "end in the arena"),
    "an offset so large that its end wraps": (tensor(M, offset=2**32 - 16), S.PLAN, "end in the arena"),
    "an offset off the grid of 16": (tensor(M, offset=65), S.PLAN, "alignment of the offset"),
    "an output that lies on the input of an op that cannot": (tensor(C, offset=0), S.PLAN, "output overlaps input"),
    "an output that starts within its input": (tensor(A, offset=48), S.PLAN, "output overlaps input"),
    "a tensor overwritten before its last use": (op(ADD, inputs=[X, C]), S.PLAN, "output overlaps input"),
    "an input overwritten before its last use": (
        both(tensor(X, exponents=[-4]), tensor(A, offset=0), op(POOL, inputs=[X])),
        S.PLAN,
        "overwritten before its last use",
    ),
    "an op whose scratch would lie on its input": (op(ADD, live_end=16), S.PLAN, "live_end of the op"),
    "an op whose scratch would lie on its output": (op(CONV, live_end=48), S.PLAN, "live_end of the op"),
    "an op whose scratch would lie on what is read later": (
        both(
            tensor(X, exponents=[-4], offset=32),
            tensor(C, offset=0),
            tensor(A, offset=0),
            op(POOL, inputs=[X]),
            op(ADD, live_end=32),
        ),
        S.PLAN,
        "live_end of the op",
    ),
    "an op whose scratch is misaligned": (op(ADD, live_end=72), S.PLAN, "live_end of the op"),
    "an op whose scratch starts behind the arena": (op(ADD, live_end=1 << 20), S.PLAN, "live_end of the op"),
    "an output overwritten at the end": (port("outputs", tensor=C), S.PLAN, "overwritten before its last use"),
    "two inputs on the same bytes": (second_input, S.PLAN, "inputs overlap"),
    # The order.
    "an op that reads its own output": (op(CONV, inputs=[C, W, B]), S.ORDER, "read before it is produced"),
    "an op that reads what a later op produces": (op(CONV, inputs=[A, W, B]), S.ORDER, "read before it is produced"),
    "ops in the wrong order": (swap_ops, S.ORDER, ""),
    "a tensor that two ops write": (op(ADD, outputs=[C]), S.ORDER, "outputs are not in order"),
    "an op that writes a graph input": (op(ADD, outputs=[X]), S.ORDER, "outputs are not in order"),
    "an output that nothing produces": (model(ops=[]), S.ORDER, "read before it is produced"),
    "the same input twice": (lambda root: root["inputs"].append(root["inputs"][0]), S.ORDER, "inputs are not in order"),
    "more work than a run may take": (
        both(
            tensor(X, shape=[1, 16384, 16384, 2]),
            tensor(W, shape=[2, 127, 127, 2], data=np.zeros(64516, np.uint8)),
            params(CONV, **{f"pad_{side}": 63 for side in ("top", "left", "bottom", "right")}),
            tensor(C, shape=[1, 16384, 16384, 2]),
        ),
        S.LIMIT,
        "steps of a run",
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_refused(good: bytes, sentence: str) -> None:
    change, status, rule = CASES[sentence]
    root = flatbuffer.unpack(good)
    change(root)
    found = refusal(flatbuffer.pack(root))
    assert found[0] == status, found
    assert rule in found[1]


@pytest.mark.parametrize(
    ("sentence", "rule", "told", "allowed"),
    [
        ("more work than a run may take", "steps of a run", 2 * 16384**2 * 2 * 127**2, 2**40),
        ("an arena of 2^40 bytes", "arena_bytes", 2**40, 2**31 - 1),
        ("an arena of 2^64 - 1 bytes", "arena_bytes", 2**63 - 1, 2**31 - 1),
    ],
)
def test_large_numbers_are_told(good: bytes, sentence: str, rule: str, told: int, allowed: int) -> None:
    """As they are, and those beyond 63 bits as the largest one of these."""
    root = flatbuffer.unpack(good)
    CASES[sentence][0](root)
    with pytest.raises(_nmp.Fault) as caught:
        inspected(flatbuffer.pack(root))
    assert caught.value.args[2:5] == (rule, told, allowed)
    assert rule != "arena_bytes" or caught.value.args[5:] == (-1, -1)  # no op's and no tensor's


def test_the_unchanged_file_is_fine(good: bytes) -> None:
    assert _nmp.inspect(aligned(good))["version"] == (1, 0)


def test_unknown_op(good: bytes) -> None:
    """An op that a later version appended to the union; Python can still show the rest."""
    root = flatbuffer.unpack(good)
    numbered = bytes([flatbuffer.MEMBERS.index("MaxPool") + 1])
    data = bytearray(flatbuffer.pack(root))
    place = op_type_place(bytes(data), POOL)
    assert data[place : place + 1] == numbered
    data[place] = 200
    later = flatbuffer.seal(bytes(data))
    assert refusal(later) == (Status.UNKNOWN_OP, "op number")
    assert reader.read(later).ops[POOL].kind == "op number 200"
    with pytest.raises(ModelError, match=r"an op that this version does not know: op 'n_m' \(op number 200\)"):
        interpreter.load(later)


def op_type_place(data: bytes, i: int) -> int:
    """The place of the number of op i's union member."""
    walk = flatbuffer._Walk(memoryview(data))
    root = walk.frame("Model", walk.follow(0))
    slot = next(f.slot for f in flatbuffer.TABLES["Model"] if f.name == "ops")
    element = walk.follow(root[slot]) + 4 + 4 * i
    return walk.frame("Op", walk.follow(element))[1]


DAMAGES: dict[str, Callable[[int, int], tuple[int, bytes]]] = {
    "its vtable is 2^31 bytes further away": lambda table, vtable: (table + 3, b"\x80"),
    "it ends before its fields": lambda table, vtable: (vtable + 2, b"\4\0"),
    "a field lies in its first word": lambda table, vtable: (vtable + 4, b"\2\0"),
    "a field is not aligned": lambda table, vtable: (vtable + 4, b"\7\0"),
}


@pytest.mark.parametrize("sentence", DAMAGES)
def test_a_tensor_of_which(good: bytes, sentence: str) -> None:
    walk = flatbuffer._Walk(memoryview(good))
    slot = next(f.slot for f in flatbuffer.TABLES["Model"] if f.name == "tensors")
    table = walk.follow(walk.follow(walk.frame("Model", walk.follow(0))[slot]) + 4)
    at, damage = DAMAGES[sentence](table, (table - walk.u32(table)) % 2**32)
    data = flatbuffer.seal(good[:at] + damage + good[at + len(damage) :])
    assert refusal(data)[0] == Status.STRUCTURE
    with pytest.raises(_nmp.Fault) as caught:
        inspected(data)
    assert caught.value.args[5:] == (-1, -1)  # no op's and no tensor's


@pytest.mark.parametrize(
    ("exponent", "status"), [(-65, Status.TENSOR), (-64, Status.OK), (63, Status.OK), (64, Status.TENSOR)]
)
def test_the_ends_of_exponents(exponent: int, status: Status) -> None:
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 4)
    net.op("add", "x x", "y")
    root = flatbuffer.unpack(to_bytes(nets.placed(net.graph("y")), {}))
    for tensor in root["tensors"]:
        tensor["exponents"] = [exponent]
    assert verified(flatbuffer.pack(root))[0] == status


@pytest.mark.parametrize(("vtable", "status"), [(b"\4\0\4\0", Status.OK), (b"\4\0", Status.STRUCTURE)])
def test_a_vtable_at_the_end_of_the_file(good: bytes, vtable: bytes, status: Status) -> None:
    """Covers a table without fields, the parameters of a sum."""
    walk = flatbuffer._Walk(memoryview(good))
    slot = next(f.slot for f in flatbuffer.TABLES["Model"] if f.name == "ops")
    op = walk.frame("Op", walk.follow(walk.follow(walk.frame("Model", walk.follow(0))[slot]) + 4 + 4 * ADD))
    table = walk.follow(op[2])
    distance = (table - len(good)) % 2**32
    data = good[:table] + distance.to_bytes(4, "little") + good[table + 4 :] + vtable
    assert verified(flatbuffer.seal(data))[0] == status


def test_truncated_anywhere(good: bytes) -> None:
    for length in range(len(good)):
        status, _ = refusal(good[:length])
        assert status in (Status.NOT_NMP, Status.STRUCTURE, Status.CHECKSUM), length


def test_a_flipped_bit_anywhere(good: bytes) -> None:
    for i in range(len(good)):
        flipped = good[:i] + bytes([good[i] ^ 1 << i % 8]) + good[i + 1 :]
        assert refusal(flipped)[0] in (Status.NOT_NMP, Status.VERSION, Status.CHECKSUM, Status.STRUCTURE), i


def test_other_files() -> None:
    for data in (b"", b"\0" * 7, b"\0" * 8, b"NMP1NMP1", b"\x89PNG\r\n\x1a\n" * 100, b"\x08\0\0\0NMP2" + bytes(100)):
        assert refusal(data)[0] in (Status.NOT_NMP, Status.STRUCTURE)


def test_both_verifiers_agree(good: bytes) -> None:
    """On 1,500 files with damaged structure and a right checksum, C and Python say the same."""
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(1_500):
        data = bytearray(good)
        for _ in range(rng.integers(1, 3)):
            at = int(rng.integers(0, len(data) // 4)) * 4
            word = int.from_bytes(data[at : at + 4], "little")
            choices = [
                word ^ 1 << int(rng.integers(0, 32)),
                word + int(rng.integers(-9, 9)),
                int(rng.integers(0, 2**32)),
            ]
            data[at : at + 4] = (choices[rng.integers(0, 3)] % 2**32).to_bytes(4, "little")
        try:
            mutant = flatbuffer.seal(bytes(data))
        except (ModelError, KeyError):
            mutant = bytes(data)
        refused += Status.OK < in_python(mutant) <= Status.STRUCTURE
        assert not difference(mutant)
    assert 150 < refused < 1_350


def test_statuses_have_the_names_of_c(root: Path) -> None:
    header = (root / "interpreter" / "include" / "nmp.h").read_text()
    assert re.findall(r"^  (NMP_\w+) = (\d+)", header, re.M) == [(s.in_c, str(int(s))) for s in Status]


def test_more_outputs_than_verification_has_steps_for() -> None:
    """No op is named, for the caller reads them, after the last one."""
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 2)
    for i in range(400):
        net.op("add", "x x", f"y{i}")
    root = flatbuffer.unpack(to_bytes(nets.placed(net.graph("y0")), {}))
    root["outputs"] *= 2000
    data = flatbuffer.pack(root)
    assert refusal(data) == (Status.LIMIT, "steps of verification")
    with pytest.raises(ModelError, match=r"too much work: tensor 'y0': steps of verification") as caught:
        interpreter.load(data)
    assert caught.value.to_json()["status"] == "NMP_E_LIMIT"


def test_messages_name_the_place(good: bytes, tmp_path: Path) -> None:
    root = flatbuffer.unpack(good)
    root["tensors"][M]["offset"] = 80
    path = tmp_path / "m.nmp"
    path.write_bytes(flatbuffer.pack(root))
    with pytest.raises(ModelError) as caught:
        interpreter.load(path)
    wanted = "the memory plan is illegal: tensor 'm': end in the arena (found 88, allowed 80; status 7)"
    assert str(caught.value) == f"{path}: {wanted}"
