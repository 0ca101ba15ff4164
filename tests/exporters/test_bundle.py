"""nmpconv bundle: sources that build without a warning and run, here and on simulated microcontrollers."""

from __future__ import annotations

import posixpath
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from c_core import built
from onnx_text import build
from zoo_quick import converted

import nmpconv
from nmpconv.cli import main
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.exporters.c_sources import bundle
from nmpconv.file.reader import read
from nmpconv.runtime import interpreter, targets

STRICT = [
    "-std=c99",
    "-Os",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffunction-sections",
    "-fdata-sections",
    "-Wl,--gc-sections",
]
QUICK = ["-std=c99", "-O0"]  # what differs from a bundle that is built with the flags above is not the interpreter
HERE = Path(__file__).parent
RAN = "the outputs are those of the test vector\n"


def unpack(model: Path, folder: Path) -> Path:
    assert main(["bundle", str(model), "--name", "model", "-o", str(folder)]) == 0
    return folder


def sources(folder: Path, example: str = "test_vector") -> list[str]:
    return [str(path) for path in sorted([*folder.glob("src/**/*.c"), folder / f"examples/{example}.c"])]


@pytest.fixture
def gcc(need_tool: Callable[..., str]) -> str:
    """The compiler, without which, as in tests of a wheel, there is nothing to build with."""
    return need_tool("gcc")


def output(command: list[str]) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr  # QEMU's semihosting prints on the latter


def on_host(folder: Path, compiler: str, flags: Sequence[str] = STRICT, example: str = "test_vector") -> str:
    program = built([compiler, *flags, f"-I{folder}/src", *sources(folder, example)], folder / "host")
    return output([str(program)])


def on_cortex_m(
    folder: Path, tool: Callable[..., str], cpu: str, board: str, ram: int, example: str = "test_vector"
) -> str:
    flags = [*STRICT, f"-I{folder}/src", f"-DSTACK={ram + 0x100000}u", f"-Wl,--defsym=DATA={ram}"]
    files = [f"-T{HERE / 'cortex_m.ld'}", str(HERE / "cortex_m.c"), *sources(folder, example)]
    compiler = [tool("arm-none-eabi-gcc"), f"-mcpu={cpu}", "-mthumb", "--specs=rdimon.specs"]
    program = built([*compiler, *flags, *files], folder / f"{board}.elf")
    quiet = ["-nographic", "-monitor", "none", "-serial", "none", "-semihosting"]
    return output([tool("qemu-system-arm"), "-M", board, *quiet, "-kernel", str(program)])


def on_rv32(folder: Path, tool: Callable[..., str], example: str = "test_vector") -> str:
    places = ["__flash=0x80000000", "__flash_size=0x400000", "__ram=0x80400000", "__ram_size=0x400000"]
    library = ["--specs=picolibc.specs", "--oslib=semihost", "--crt0=semihost"]
    compiler = [tool("riscv64-unknown-elf-gcc"), "-march=rv32imac", "-mabi=ilp32", *library]
    flags = [*STRICT, *(f"-Wl,--defsym={place}" for place in places), f"-I{folder}/src"]
    program = built([*compiler, *flags, *sources(folder, example)], folder / "rv32.elf")
    quiet = ["-bios", "none", "-nographic", "-monitor", "none", "-serial", "none", "-semihosting"]
    return output([tool("qemu-system-riscv32"), "-M", "virt", *quiet, "-kernel", str(program)])


# Of `everywhere`; compiled for soft floats, a Cortex-M55 has no vectors and runs the kernels of an M4.
MACHINES = (f"portable-{sys.maxsize.bit_length() + 1}", "cortex-m4", "cortex-m4", "rv32")


def everywhere(folder: Path, tool: Callable[..., str]) -> list[str]:
    return [
        on_host(folder, "gcc"),
        on_cortex_m(folder, tool, "cortex-m4", "mps2-an386", 0x20000000),
        on_cortex_m(folder, tool, "cortex-m55", "mps3-an547", 0x21000000),
        on_rv32(folder, tool),
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("gcc")
def test_runs_everywhere(model: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    folder = unpack(model, tmp_path / "bundle")
    data = model.read_bytes()
    for target, text in zip(MACHINES, everywhere(folder, need_tool), strict=True):
        assert text.endswith(RAN)
        told = interpreter.needs_of_target(data, target).arena_bytes
        assert f"arena: {told} of {targets.most(data)} bytes\n" in text


@pytest.mark.slow
def test_clang(model: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    assert on_host(unpack(model, tmp_path / "bundle"), need_tool("clang-16", "clang")).endswith(RAN)


@pytest.mark.slow
@pytest.mark.usefixtures("gcc")
def test_a_wrong_output_is_told(model: Path, tmp_path: Path) -> None:
    folder = unpack(model, tmp_path / "bundle")
    example = folder / "examples/test_vector.c"
    text = example.read_text()
    start = text.index("output_0[] = {\n") + len("output_0[] = {\n")
    example.write_text(text[:start] + "1 ^ " + text[start:].lstrip())
    program = built(["gcc", "-O0", f"-I{folder}/src", *sources(folder)], folder / "host")
    ran = subprocess.run([program], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "DIFFER" in ran.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("gcc")
def test_without_a_test_vector(tmp_path: Path, model: Path) -> None:
    """The example feeds zeros and prints."""
    other = convert(model.with_suffix(".onnx"), {"": model.parent / "x.npy"}, Options(), lambda *progress: None)
    (tmp_path / "plain.nmp").write_bytes(other.data)
    folder = unpack(tmp_path / "plain.nmp", tmp_path / "bundle")
    net = interpreter.load(other.data)
    (y,) = net.run(np.zeros(net.inputs[0].shape, net.inputs[0].dtype))
    assert on_host(folder, "gcc", QUICK).splitlines()[-1] == "y: " + " ".join(map(str, y.ravel()))


@pytest.mark.slow
@pytest.mark.usefixtures("gcc")
@pytest.mark.parametrize("vectors", [0, 1])
def test_a_step_of_a_stream(tmp_path: Path, vectors: int) -> None:
    """Its states are part of the test vector, and begin as the file says without one."""
    text = "(float[1,4,12] x) => (y) <float[4,4,3] w, float[4] b> { c = Conv(x, w, b) y = Relu(c) }"
    windows = np.random.default_rng(0).normal(size=(8, 4, 12)).astype(np.float32)
    step = nmpconv.convert(build(text, 13), windows, stream="axis=2,hop=2", test_vectors=vectors)
    (tmp_path / "step.nmp").write_bytes(step.data)
    ran = on_host(unpack(tmp_path / "step.nmp", tmp_path / "bundle"), "gcc", STRICT if vectors else QUICK)
    if vectors:
        assert ran.endswith(RAN)
    else:
        net = step.load()
        (y,) = net.run(np.zeros(net.inputs[0].shape, net.inputs[0].dtype))
        assert "y: " + " ".join(map(str, y.ravel()[:16])) in ran


@pytest.mark.slow
def test_as_a_package_and_a_subdirectory(model: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    """The example alone; the interpreter alone, installed, in another project."""
    cmake = need_tool("cmake")
    folder, build = unpack(model, tmp_path / "bundle"), tmp_path / "build"
    plain = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O0 -DNMP_FIXED_CPU=1")  # in less time
    subprocess.run([cmake, "-S", folder, "-B", build, *plain], check=True, capture_output=True)
    subprocess.run([cmake, "--build", build], check=True, capture_output=True)
    assert output([str(build / "test_vector")]).endswith(RAN)
    assert main(["bundle", "-o", str(tmp_path / "alone")]) == 0
    subprocess.run([cmake, "-S", tmp_path / "alone", "-B", tmp_path / "b", *plain], check=True, capture_output=True)
    subprocess.run([cmake, "--build", tmp_path / "b"], check=True, capture_output=True)
    subprocess.run([cmake, "--install", tmp_path / "b", "--prefix", tmp_path / "p"], check=True, capture_output=True)
    user = tmp_path / "user"
    user.mkdir()
    (user / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.14)\nproject(user C)\nfind_package(nmp 0.2 REQUIRED)\n"
        "add_executable(user user.c)\ntarget_link_libraries(user nmp::nmp)\n"
    )
    (user / "user.c").write_text(
        '#include <nmp.h>\n#include <stdio.h>\nint main(void) { puts(nmp_status_text(nmp_inspect("", 0, 0, 0, 0))); }\n'
    )
    subprocess.run([cmake, "-S", user, "-B", user / "b", f"-DCMAKE_PREFIX_PATH={tmp_path / 'p'}"], check=True)
    subprocess.run([cmake, "--build", user / "b"], check=True)
    assert output([str(user / "b" / "user")]) == "a null or misaligned pointer, or a number out of range\n"


def test_a_subdirectory_has_the_build_type_of_its_project(
    model: Path, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    """Else the project installs a package that does not know where its library lies."""
    folder = unpack(model, tmp_path / "bundle")
    text = f'cmake_minimum_required(VERSION 3.14)\nproject(all C)\nadd_subdirectory("{folder}" b)\n'
    (tmp_path / "CMakeLists.txt").write_text(text)
    build = tmp_path / "build"
    subprocess.run([need_tool("cmake"), "-S", tmp_path, "-B", build], check=True, capture_output=True)
    assert [path.name.partition("-")[2] for path in build.rglob("nmp_*Config-*.cmake")] == ["noconfig.cmake"]


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.parametrize(
    "name", ["mlperf_ad_autoencoder", "mlperf_ic_resnet8_nhwc", "mlperf_kws_dscnn", "mlperf_vww_mobilenet025_nchw"]
)
def test_mlperf_tiny(name: str, zoo: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    result, _ = converted(zoo, name, "8", tmp_path, test_vectors=1)
    (tmp_path / "net.nmp").write_bytes(result.data)
    for text in everywhere(unpack(tmp_path / "net.nmp", tmp_path / "bundle"), need_tool):
        assert text.endswith(RAN)


def test_only_the_ops_of_the_model(model: Path) -> None:
    files = bundle({"model": model.read_bytes()})
    ops = {Path(path).stem for path in files if path.startswith("src/ops/")}
    assert {"conv2d", "average_pool", "fully_connected", "reshape"} <= ops
    assert ops.isdisjoint({"softmax", "resize", "add", "lookup"})
    assert "src/ops/resize.c" in bundle({})


def test_includes_are_relative_to_the_file() -> None:
    files = bundle({})
    sources = {path for path in files if path.startswith("src/")}
    for path in sources:
        for name in re.findall(r'^#include "([^"]+)"', files[path].decode(), re.MULTILINE):
            assert posixpath.normpath(f"{posixpath.dirname(path)}/{name}") in sources, (path, name)


def test_a_folder_in_use_is_left_alone(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("keep")
    assert main(["bundle", str(model), "-o", str(tmp_path / "mine")]) == 6
    assert "the folder is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "notes"]


@pytest.mark.usefixtures("gcc")
def test_the_header_has_the_grids_of_ports(model: Path, tmp_path: Path) -> None:
    """As numbers that a C compiler reads; outputs turn into reals with them alone."""
    found = read(model)
    header = bundle({"model": model.read_bytes()})["src/model_data.h"].decode()
    macros = dict(
        line.split(None, 3)[1:3]
        for line in header.splitlines()
        if line.startswith("#define MODEL_") and len(line.split()) > 2
    )
    for role, ports in (("INPUT", found.inputs), ("OUTPUT", found.outputs)):
        for i, port in enumerate(ports):
            tensor = found.tensors[port.tensor]
            values = {key: macros[f"MODEL_{role}_{i}_{key}"].strip("()f") for key in ("SCALE", "OFFSET", "MIN", "MAX")}
            assert float(values["SCALE"]) == 2.0 ** tensor.exponents[0]
            assert float(values["OFFSET"]) == tensor.origin
            assert (int(values["MIN"]), int(values["MAX"])) == (tensor.clip_min, tensor.clip_max)
    folder = unpack(model, tmp_path / "bundle")
    (tmp_path / "user.c").write_text(
        '#include "model_data.h"\n'
        "int main(void) { return MODEL_OUTPUT_0_SCALE <= 0.0f || MODEL_OUTPUT_0_OFFSET != 0.0f; }"
    )
    program = built(["gcc", *STRICT, f"-I{folder}/src", str(tmp_path / "user.c")], tmp_path / "user")
    assert subprocess.run([program]).returncode == 0


def test_all_activations_on_request(model: Path, tmp_path: Path) -> None:
    assert main(["bundle", str(model), "--name", "model", "-o", str(tmp_path / "b"), "--tensors"]) == 0
    header = (tmp_path / "b" / "src" / "model_data.h").read_text()
    for i, tensor in enumerate(read(model).tensors):
        exponent = f"#define MODEL_TENSOR_{i}_EXPONENT ({tensor.exponents[0]})\n"
        assert (exponent in header) == (tensor.data is None)
    assert "MODEL_TENSOR" not in bundle({"model": model.read_bytes()})["src/model_data.h"].decode()


def test_names_cannot_leave_a_comment(model: Path) -> None:
    from nmpconv.file import flatbuffer

    root = flatbuffer.unpack(model.read_bytes())
    root["name"] = "evil */ int x; /* \u2028\n#error"
    header = bundle({"model": flatbuffer.pack(root)})["src/model_data.h"].decode()
    assert header.splitlines()[0] == "/* evil * / int x; / * ??#error: written by nmpconv bundle. */"


EVIL = "a</h1><img src=x onerror=alert(1)>[x](javascript:1) `*/ \\\n#define X\x1b[31m\u202e??/" + "long" * 1000


def named(model: Path, name: str) -> dict[str, bytes]:
    from nmpconv.file import flatbuffer

    root = flatbuffer.unpack(model.read_bytes())
    root["name"] = name
    for table in (*root["inputs"], *root["outputs"], *root["tensors"]):
        table["name"] = name
    return bundle({"model": flatbuffer.pack(root)}, tensors=True)


def test_names_are_shown_as_they_are(model: Path) -> None:
    """No HTML, link, control byte or line of a name gets into what people and compilers read."""
    files = named(model, EVIL)
    title = files["README.md"].decode().splitlines()[0]
    assert title.startswith(r"# a\<\/h1\>\<img src\=x onerror\=alert\(1\)\>\[x\]\(javascript:1\) \`\*\/ \\")
    for path in ("README.md", "src/model_data.h", "examples/test_vector.c"):
        lines = files[path].decode().splitlines()
        assert all(line.isprintable() and line.isascii() for line in lines), path
        assert max(map(len, lines)) < 1000
    header = files["src/model_data.h"].decode()
    assert "#define X" not in header.replace("?#define X", "")
    assert not any(text in header for text in ("\\\n", "??/", "<img src=x onerror=alert(1)>[x](javascript:1) `*/"))
    assert named(model, "net_1.0 (v2)")["README.md"].decode().splitlines()[0] == r"# net\_1.0 \(v2\)"


def test_the_licence_goes_with_the_sources(root: Path, model: Path) -> None:
    for files in (bundle({"model": model.read_bytes()}), bundle({})):
        assert files["LICENSE"] == (root / "LICENSE").read_bytes()
        ours = [path for path in files if path.endswith((".c", ".h", ".inc")) and "model_data" not in path]
        assert len(ours) > 20
        assert all(files[path].startswith(b"/* SPDX-License-Identifier: Apache-2.0 */\n") for path in ours)


ROOT = Path(__file__).resolve().parents[2]
NUMBER_FUNCTIONS = "nmpconv/exporters/c_sources/templates/number_functions.c"
ROUNDING = """#include "nmp.h"
#include <stdio.h>
{functions}
int main(void) {{
  static const float numbers[] = {{{numbers}}};
  int8_t data[{count}];
  const nmp_view to = {{.data = data, .bytes = {count}, .bits = 8, .clip_min = -100, .clip_max = 127}};
  static const float scales[] = {{0.5f, 2.0f}}, offsets[] = {{1.0f, 0.0f}};
  fill_from_numbers(&to, numbers, scales, offsets, 2, 3);
  for (size_t i = 0; i < {count}; i++) {{
    printf("%d ", data[i]);
  }}
  return 0;
}}
"""


def test_numbers_are_rounded_half_up(tmp_path: Path, gcc: str) -> None:
    """As Python and JavaScript do it: -1.5 becomes -1. Three numbers at a time are of one unit, then of the other."""
    halves = np.array([*np.arange(-230, 270) / 2, -0.499999, 0.499999, -1e9, 1e9], np.float32)
    unit = np.arange(len(halves)) // 3 % 2
    scales, offsets = np.float32([0.5, 2])[unit], np.float32([1, 0])[unit]
    numbers = halves * scales + offsets
    text = "\n".join(("#include <stdint.h>", (ROOT / NUMBER_FUNCTIONS).read_text(encoding="utf-8")))
    program = ROUNDING.format(functions=text, numbers=", ".join(f"{x!r}f" for x in numbers.tolist()), count=len(halves))
    (tmp_path / "a.c").write_text(program, encoding="utf-8")
    built([gcc, "-std=c99", *STRICT, f"-I{ROOT / 'interpreter' / 'include'}", str(tmp_path / "a.c")], tmp_path / "a")
    got = subprocess.run([tmp_path / "a"], capture_output=True, text=True, check=True).stdout.split()
    stored = (numbers - offsets) / scales
    assert [int(x) for x in got] == np.clip(np.floor(stored + 0.5), -100, 127).astype(int).tolist()
