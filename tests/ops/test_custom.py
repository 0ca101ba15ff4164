"""Ops of users: found by entry point, run as their reference or as their C, refused by name where they are missing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import nets
import numpy as np
import onnx
import onnxruntime
import pytest
from gate import Gate
from onnx import helper, numpy_helper
from op_cases import BY_OP
from verified import TABLE, in_c, in_python

import nmpconv
from nmpconv import _nmp
from nmpconv.base.sqnr import sqnr_db
from nmpconv.device import firmware, simulator
from nmpconv.errors import InputError, ModelError, NmpError, Status, UnsupportedModel
from nmpconv.file import flatbuffer, reader, writer
from nmpconv.graph import reference
from nmpconv.ops import Case
from nmpconv.ops.custom_op import CustomOp, c_source, custom_ops
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import interpreter

TWICE = '''
"""y = 2 x + w, on the grid of x."""
import numpy as np
from nmpconv.base.fixed_point import rsh
from nmpconv.ops.custom_op import CustomOp

class Twice(CustomOp):
    name = "tests.twice::Twice"
    elementwise = True

    def infer(self, attributes, inputs):
        return np.broadcast_shapes(*(x.shape for x in inputs))

    def export(self, attributes, inputs, output, to):
        doubled = to.node("Add", [inputs[0], inputs[0]])
        to.node("Add", [doubled, inputs[1]], output)

    def reference(self, attributes, inputs, output):
        x, w = (i.q * 2.0**i.quant.exponent for i in inputs)
        y = np.floor((2 * x + w) * 2.0**-output.quant.exponent + 0.5)
        return np.clip(y, output.quant.lo, output.quant.hi).astype(np.int64)

class Same(Twice):
    name = "tests.twice::Same"

    def export(self, attributes, inputs, output, to):
        to.node("Identity", inputs, output)

    def reference(self, attributes, inputs, output):
        y = rsh(inputs[0].q, output.quant.exponent - inputs[0].quant.exponent)
        return np.clip(y, output.quant.lo, output.quant.hi)

class Ranged(Twice):
    name = "tests.twice::Ranged"

    def reference(self, attributes, inputs, output):
        x, w = inputs
        y = x.q + w.q + w.quant.hi
        return np.clip(y, output.quant.lo, output.quant.hi).astype(np.int64)

class Broken(Twice):
    name = "tests.twice::Broken"

    def reference(self, attributes, inputs, output):
        raise ZeroDivisionError("of the user's")

class Nameless(Twice):
    name = "Twice"
'''
GATES = BY_OP["custom"]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs classes of TWICE: a module and a dist-info on sys.path."""

    def install(*points: str) -> None:
        (tmp_path / "twice_of_a_test.py").write_text(TWICE)
        info = tmp_path / "twice-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: twice\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[nmpconv.ops]\n" + "\n".join(points) + "\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        custom_ops.cache_clear()

    yield install
    custom_ops.cache_clear()


def written(case: Case) -> bytes:
    return writer.to_bytes(plan_memory.run(case.graph), {})


def model_of(kind: str, path: Path) -> Path:
    """A Conv, a node of the domain tests.twice, and an Add that keeps both from being the model's end."""
    random = np.random.default_rng(0)
    weights = random.normal(size=(4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node(kind, ["c", "w"], ["t"], name="mine", domain="tests.twice"),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    constants = {"k": weights, "w": random.normal(size=(1, 4, 1, 1)).astype(np.float32)}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 6, 5])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(data, name) for name, data in constants.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("tests.twice", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), path)
    return path


def samples(path: Path) -> Path:
    np.save(path, np.random.default_rng(1).normal(size=(12, 3, 6, 5)).astype(np.float32))
    return path


def test_from_an_entry_point_to_integers(installed, tmp_path: Path) -> None:
    """With a constant input, in the layout of the model."""
    installed("twice = twice_of_a_test:Twice")
    converted = nmpconv.convert(model_of("Twice", tmp_path / "m.onnx"), samples(tmp_path / "x.npy"), bits=8)
    model = reader.read(converted.data)
    [op] = [op for op in model.ops if op.kind == "custom"]
    assert op.params == {"op": "tests.twice::Twice", "attributes": (), "scratch": 0}
    weights = model.tensors[op.inputs[1]]
    assert weights.dtype == "int16"
    net = converted.load()
    x = np.random.default_rng(2).normal(size=(1, 3, 6, 5)).astype(np.float32)
    (got,) = net(x)
    plain = onnx.load(tmp_path / "m.onnx")
    plain.graph.node[1].CopyFrom(helper.make_node("Sum", ["c", "c", "w"], ["t"]))
    session = onnxruntime.InferenceSession(plain.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x})[0]
    assert sqnr_db(wanted, got) > 30


def test_its_reference_may_fail(installed, tmp_path: Path) -> None:
    installed("broken = twice_of_a_test:Broken")
    net = nets.Net(grid=nets.grid(8, -4))
    net.input("x", 1, 4)
    net.input("w", 1, 4)
    net.op("custom", "x w", "y", op="tests.twice::Broken")
    loaded = nmpconv.load(writer.to_bytes(plan_memory.run(net.graph("y")), {}))
    zeros = np.zeros((1, 4), np.int8)
    for _ in range(2):
        with pytest.raises(InputError, match=r"of tests.twice::Broken raised ZeroDivisionError: of the user's"):
            loaded.run(zeros, zeros)


@pytest.mark.parametrize(
    ("point", "why"),
    [
        ("twice = twice_of_a_test:Nameless", "its name is 'Twice', not 'domain::Type'"),
        ("twice = twice_of_a_test:np", "it is no subclass of CustomOp"),
        ("twice = no_such_module:Twice", "it cannot be imported: ModuleNotFoundError"),
        ("a = twice_of_a_test:Twice\nb = twice_of_a_test:Twice", "'tests.twice::Twice' is there already, by Twice"),
    ],
)
def test_entry_points_that_cannot_be_used(installed, tmp_path: Path, point: str, why: str) -> None:
    installed(point)
    with pytest.raises(InputError, match=why):
        nmpconv.convert(model_of("Twice", tmp_path / "m.onnx"), samples(tmp_path / "x.npy"))


def test_nodes_of_nobody(tmp_path: Path) -> None:
    """A domain that no package has: as before, the node is named."""
    with pytest.raises(UnsupportedModel, match=r"(?s)mine.*tests.twice.Twice"):
        nmpconv.convert(model_of("Twice", tmp_path / "m.onnx"), samples(tmp_path / "x.npy"))


def test_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """By C without a table, by both verifiers, by `load`; a person may still look into the file."""
    data = written(GATES[0])
    assert in_c(data) == (Status.OK, "")
    with pytest.raises(_nmp.Fault) as fault:
        _nmp.inspect(interpreter._in_memory(data))
    assert fault.value.args[:3] == (43, "a custom op that this program does not have", "samples.gate::Gate")
    monkeypatch.setattr("nmpconv.ops.custom.custom_ops", dict)
    monkeypatch.setattr("nmpconv.runtime.custom_table.custom_ops", dict)
    assert in_python(data) == Status.CUSTOM
    with pytest.raises(ModelError, match=r"custom op.*samples\.gate::Gate, of op 'node'") as refused:
        nmpconv.load(data)
    assert (refused.value.status, refused.value.node) == ("NMP_E_CUSTOM", "node")
    assert reader.read(data).ops[0].params["op"] == "samples.gate::Gate"


def test_other_machines_do_not_look_for_it() -> None:
    """The table is the program's; RAM is the file's affair."""
    data = written(GATES[0])
    assert interpreter.needs_of_target(data, "cortex-m4").scratch_bytes == (32,)


@pytest.fixture(scope="module")
def compiled(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gate") / "gate.so"
    flags = ["-shared", "-fPIC", "-O2", "-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic"]
    assert Gate.source is not None
    subprocess.run(["cc", *flags, "-I", root / "interpreter" / "include", Gate.source, "-o", path], check=True)
    return path


def test_a_shared_object_is_the_reference(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gate, "shared_object", compiled)
    for case in GATES:
        wanted = reference.run(case.graph, dict(zip(case.graph.inputs, case.feeds, strict=True)))
        net = nmpconv.load(written(case))
        assert net._custom is not None and net._custom.loaded
        (got,) = net.run(*case.feeds)
        np.testing.assert_array_equal(got, wanted[case.graph.outputs[0]], err_msg=case.id)


def test_no_row_in_a_shared_object(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gate, "shared_object", compiled)
    monkeypatch.setattr(Gate, "row", "gates_op")
    with pytest.raises(InputError, match=r"no row 'gates_op' of samples.gate::Gate"):
        nmpconv.load(written(GATES[0]))


@pytest.mark.slow
def test_the_sample_installs_its_c(samples: Path, tmp_path: Path) -> None:
    """`pip install .`, as its README has it."""
    folder = shutil.copytree(samples / "gate", tmp_path / "gate")
    wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, folder]
    subprocess.run(wheel, check=True, capture_output=True)
    (built,) = tmp_path.glob("*.whl")
    assert {"nmpconv_gate/gate.c", "nmpconv_gate/gate.py"} <= set(zipfile.ZipFile(built).namelist())


@pytest.fixture(scope="module")
def gated(samples: Path) -> bytes:
    """The sample's model, converted."""
    digits = samples / "digits" / "calib"
    return nmpconv.convert(samples / "gate" / "model.onnx", digits, calib_limit=16, std=(255.0,), bits=8).data


@pytest.mark.slow
def test_a_bundle_has_the_file(gated: bytes, tmp_path: Path) -> None:
    """It is built by CMake, and its test vector is right: what the user's C computes on this machine."""
    files = nmpconv.bundle({"gate": gated}, output=tmp_path / "bundle")
    assert Gate.source is not None
    assert files["src/custom/gate_op.c"].decode().endswith(Gate.source.read_text().partition("nmp_custom.h")[2])
    assert b"X(gate_op)" in files["src/base/build.h"]
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    plain = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O0")  # in less time
    for step in (["-S", "bundle", "-B", "build", *plain], ["--build", "build", "--target", "test_vector"]):
        subprocess.run(["cmake", *step], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run([tmp_path / "build" / "test_vector"], check=True, capture_output=True)


def test_a_bundle_without_custom_ops_has_none() -> None:
    files = nmpconv.bundle({"small": written(BY_OP["add"][0])})
    assert b"#define NMP_CUSTOM 0" in files["src/base/build.h"]
    assert not [path for path in files if path.startswith(("src/custom/", "src/ops/custom"))]


@pytest.mark.parametrize(
    ("source", "row"), [(None, "gate_op"), (Path("gate.c"), "gate op"), (Path("none.c"), "gate_op")]
)
def test_a_bundle_needs_the_c(gated: bytes, monkeypatch: pytest.MonkeyPatch, source: Path | None, row: str) -> None:
    monkeypatch.setattr(Gate, "source", source)
    monkeypatch.setattr(Gate, "row", row)
    with pytest.raises(InputError, match=r"custom op 'samples.gate::Gate' has no C|C file of 'samples.gate::Gate'"):
        nmpconv.bundle({"gate": gated})


@pytest.mark.slow
def test_on_a_board(
    gated: bytes, need_tool: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device has the bytes of the reference; another op it refuses by name."""
    need_tool("arm-none-eabi-gcc")
    need_tool("qemu-system-arm")
    elf = firmware.build("mps2-an386", tmp_path / "gate.elf", dict([c_source("samples.gate::Gate")]))
    monkeypatch.setattr(simulator, "firmware", lambda board: elf)
    (tmp_path / "gate.nmp").write_bytes(gated)
    measured = nmpconv.bench(tmp_path / "gate.nmp", device="sim:mps2-an386", runs=1)
    assert measured.verified == 1 and len(measured.ops) == len(reader.read(gated).ops)
    root = flatbuffer.unpack(gated)
    for op in root["ops"]:
        if op["params"][0] == "Custom":
            op["params"][1]["op"] = "somebody.else::Gate"

    class Other(Gate):
        name = "somebody.else::Gate"

    monkeypatch.setitem(custom_ops(), Other.name, Other())
    (tmp_path / "other.nmp").write_bytes(flatbuffer.pack(root))
    with pytest.raises(NmpError, match=r"somebody\.else::Gate.*status 43"):
        nmpconv.bench(tmp_path / "other.nmp", device="sim:mps2-an386", runs=1)


def test_the_page_has_the_shifts_of_ops_that_name_none(root: Path) -> None:
    [row] = re.findall(r"^\| `shift` .* \| (\S+) to (\S+) \|$", (root / "docs" / "custom-ops.md").read_text(), re.M)
    assert tuple(map(int, row)) == CustomOp.shift


def test_the_table_is_kept() -> None:
    """Copies of a net and its pickle have the op, too."""
    import pickle

    net = nmpconv.load(written(GATES[1]))
    wanted = net.run(*GATES[1].feeds)[0]
    for other in (net.copy(), pickle.loads(pickle.dumps(net))):
        np.testing.assert_array_equal(other.run(*GATES[1].feeds)[0], wanted)
    assert TABLE.address


def test_no_transpose_is_left_around_one_operand(installed, tmp_path: Path) -> None:
    """An elementwise op has no need of one."""
    installed("same = twice_of_a_test:Same")
    path = model_of("Same", tmp_path / "m.onnx")
    model = onnx.load(path)
    del model.graph.node[1].input[1], model.graph.initializer[1]
    onnx.save(model, path)
    converted = nmpconv.convert(path, samples(tmp_path / "x.npy"), bits=8)
    kinds = [op.kind for op in reader.read(converted.data).ops]
    assert kinds.index("custom") == kinds.index("conv2d") + 1
    assert kinds[kinds.index("custom") + 1] == "requantize"


def test_a_constant_has_its_clip_range(installed) -> None:
    """As in numpy: the interpreter takes it from the file."""
    installed("ranged = twice_of_a_test:Ranged")
    net = nets.Net(grid=nets.grid(8, -4))
    net.input("x", 1, 4)
    net.const("w", np.array([[10, -10, 5, 0]]), nets.grid(8, -4, lo=-20, hi=30))
    net.op("custom", "x w", "y", op="tests.twice::Ranged")
    graph = net.graph("y")
    x = np.array([[3, -7, 41, -23]], np.int8)
    [got] = nmpconv.load(writer.to_bytes(plan_memory.run(graph), {})).run(x)
    assert got.tolist() == [[43, 13, 76, 7]]
