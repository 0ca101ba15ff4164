"""The interpreter as WebAssembly, built here and run by node: kernels, op cases and a model, byte for byte."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from c_core import KERNELS, Once
from op_cases import CASES

from nmpconv.base.compilers import zig
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.file import reader, writer
from nmpconv.graph import reference
from nmpconv.ir import Preprocess
from nmpconv.passes.memory import plan_memory

pytestmark = pytest.mark.slow
HERE = Path(__file__).resolve().parent
MOST_BYTES, MOST_GZIPPED = 156_000, 60_000
FILES = 300  # of a call of node: a command line has an end
# What a program of C asks of its system: to print, to be told of no arguments, to end. node:wasi crashes at its end.
WASI = """
const code = new WebAssembly.Module(require("fs").readFileSync(process.argv[1]));
const view = () => new DataView(memory.buffer);
const print = (file, parts, count, written) => {
  let all = 0;
  for (let i = 0; i < count; i++) {
    const [at, bytes] = [0, 4].map((field) => view().getUint32(parts + 8 * i + field, true));
    require("fs").writeSync(1, new Uint8Array(memory.buffer, at, bytes));
    all += bytes;
  }
  view().setUint32(written, all, true);
  return 0;
};
const none = (count, bytes) => { view().setUint32(count, 0, true); view().setUint32(bytes, 0, true); return 0; };
const known = { fd_write: print, args_sizes_get: none, proc_exit: (status) => process.exit(status) };
const asked = WebAssembly.Module.imports(code).map(({ name }) => [name, known[name] ?? (() => 0)]);
const wasi_snapshot_preview1 = Object.fromEntries(asked);
const { memory, _start } = new WebAssembly.Instance(code, { wasi_snapshot_preview1 }).exports;
_start();
"""
Make = Callable[..., Path]


@pytest.fixture(scope="module")
def make(root: Path, once: Once, need_tool: Callable[..., str], need_package: Callable[..., None]) -> Make:
    """make(name, *variables): a module of interpreter/wasm."""
    need_package("ziglang")
    tool = need_tool("make")

    def built(name: str, *variables: str) -> Path:
        def fill(folder: Path) -> None:
            command = [tool, "-s", "-C", root / "interpreter" / "wasm", f"ZIG={zig()}", f"OUT={folder}", f"NAME={name}"]
            subprocess.run([*command, *variables], check=True, capture_output=True)

        return once(f"wasm-{name}", fill) / f"{name}.wasm"

    return built


@pytest.fixture
def node(need_tool: Callable[..., str]) -> Callable[..., str]:
    """node(*arguments): what it prints, once it ended well."""
    program = need_tool("node", "nodejs")

    def run(*arguments: str | Path) -> str:
        done = subprocess.run([program, "--no-warnings", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    return run


def test_the_module_is_small_and_asks_for_nothing(make: Make, node: Callable[..., str]) -> None:
    module = make("nmp")
    assert module.stat().st_size < MOST_BYTES
    assert len(gzip.compress(module.read_bytes())) < MOST_GZIPPED
    ask = "const code = new WebAssembly.Module(require('fs').readFileSync(process.argv[1]));"
    assert node("-e", f"{ask} console.log(WebAssembly.Module.imports(code).length)", module) == "0\n"


def test_every_level_is_portable(make: Make, node: Callable[..., str]) -> None:
    own = " ".join(f"../tests/{name}.c" for name in ("check_kernels", "check_conv", "memory"))
    module = make("check_kernels", "TARGET=wasm32-wasi", f"PARTS={' '.join(KERNELS)}", f"MAIN={own}")
    *levels, counted = node("-e", WASI, module).splitlines()
    assert [level.split(",")[0] for level in levels] == ["portable", "simd128"]
    assert counted.endswith(" 0 differ")
    assert int(counted.split()[0]) > 100_000


def check(
    files: Sequence[tuple[bytes, bytes, bytes]], folder: Path, root: Path, make: Make, node: Callable[..., str]
) -> None:
    """files: each a .nmp file, the bytes of its inputs, and of its outputs."""
    paths = []
    for number, contents in enumerate(files):
        for kind, content in zip(("nmp", "given", "wanted"), contents, strict=True):
            paths.append(folder / f"{number}.{kind}")
            paths[-1].write_bytes(content)
    runtime = root / "interpreter" / "wasm" / "nmp_runtime.mjs"
    for first in range(0, len(paths), 3 * FILES):
        some = paths[first : first + 3 * FILES]
        said = node(HERE / "wasm_vectors.mjs", runtime, make("nmp"), *some)
        assert said == f"{len(some) // 3} files, levels portable, simd128\n"


def test_op_cases_in_wasm(root: Path, tmp_path: Path, make: Make, node: Callable[..., str]) -> None:
    files = []
    for case in [case for case in CASES if case.graph.nodes[0].op != "custom"][::5]:
        graph = case.graph
        wanted = reference.run(graph, dict(zip(graph.inputs, case.feeds, strict=True)))
        outputs = b"".join(wanted[graph[name].name].tobytes() for name in graph.outputs)
        given = b"".join(feed.tobytes() for feed in case.feeds)
        files.append((writer.to_bytes(plan_memory.run(graph), {}, ()), given, outputs))
    check(files, tmp_path, root, make, node)


@pytest.mark.parametrize("bits", ["8", "16"])
def test_a_sample_in_wasm(
    bits: str, samples: Path, root: Path, tmp_path: Path, make: Make, node: Callable[..., str]
) -> None:
    look = Preprocess(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375), layout="auto")
    options = Options(bits=bits, preprocess=look, equalize="none", rounding="nearest", limit=4, test_vectors=3)
    sample = samples / "shapes"
    result = convert(sample / "model.onnx", {"": sample / "calib"}, options, lambda stage, done, total: None)
    vectors = reader.read(result.data).test_vectors
    assert len(vectors) == 3
    check([(result.data, b"".join(x), b"".join(y)) for x, y in vectors], tmp_path, root, make, node)
