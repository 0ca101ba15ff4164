"""The npm package, packed, installed into a new folder and used there under node, as its README says."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from c_core import Once

import nmpconv
from nmpconv.base.compilers import zig

pytestmark = pytest.mark.slow
TYPESCRIPT = "typescript@5.9.3"
USE = """
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import { Net, load, run } from "nmp-runtime";

const bytes = await readFile("model.nmp"), response = Promise.resolve(new Response(bytes));
const sources = ["model.nmp", pathToFileURL("model.nmp"), bytes, new Blob([bytes]), response];
const lists = (outputs) => Object.values(outputs).map((one) => Array.from(one));
const numbers = JSON.parse(await readFile("numbers.json", "utf8"));
const found = [];
for (const source of sources) {
  const net = await load(source);
  found.push({ isNet: net instanceof Net, cpu: net.cpu, outputs: lists(net.run(numbers)) });
}
found.push({ outputs: lists(await run("model.nmp", Float32Array.from(numbers))) });
const refused = async (task) => task().then(() => "", (error) => `${error.name}: ${error.message}`);
const messages = [() => run("model.nmp", {}), () => run("model.nmp", [1]), () => run("model.nmp", { other: numbers }),
  () => load({}), () => load("none.nmp"), () => load(new Uint8Array(64))];
console.log(JSON.stringify({ found, refused: await Promise.all(messages.map(refused)) }));
"""
TYPED = """
import { load, run, levels, quantized, dequantized, Net, type Input, type Port } from "nmp-runtime";

const net: Net = await load(new Uint8Array(8), { cpu: (await levels())[0] });
const numbers: Float32Array = net.run([1, 2])["logits"]!;
const input: Input | undefined = net.inputs.find((port: Port) => port.bits === 8);
if (input) net.write(input.name, quantized(input, numbers));
net.runRaw();
const again: Float32Array = dequantized(net.outputs[0]!, net.read());
const named: Record<string, Float32Array> = await run(fetch("model.nmp"), { left: again, right: [0] });
// @ts-expect-error: a net is loaded, not made
new Net();
// @ts-expect-error: numbers are no text
net.run("picture");
console.log(named);
"""
COMPILER = {
    "strict": True,
    "noUncheckedIndexedAccess": True,
    "noEmit": True,
    "target": "es2022",
    "module": "nodenext",
    "lib": ["es2022", "dom"],
    "types": [],
}


class Installed(NamedTuple):
    """A folder with the package in it, and what npm says that it holds."""

    folder: Path
    files: list[str]
    npm: str


@pytest.fixture(scope="module")
def installed(
    root: Path, once: Once, need_tool: Callable[..., str], need_package: Callable[..., None]
) -> Callable[[Path], Installed]:
    need_package("ziglang")
    npm, make = need_tool("npm"), need_tool("make")

    def built(out: Path) -> None:
        command = [make, "-s", "-C", root / "interpreter" / "wasm", "npm", f"ZIG={zig()}", f"OUT={out}"]
        subprocess.run(command, check=True, capture_output=True)

    def install(folder: Path) -> Installed:
        [tarball] = once("npm", built).glob("*.tgz")
        assert tarball.name == f"nmp-runtime-{nmpconv.__version__}.tgz"
        folder.mkdir()
        (folder / "package.json").write_text('{"type": "module", "private": true}')
        install = [npm, "install", "--offline", "--no-audit", "--no-fund", tarball]
        subprocess.run(install, cwd=folder, check=True, capture_output=True)
        package = folder / "node_modules" / "nmp-runtime"
        files = sorted(path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file())
        return Installed(folder, files, npm)

    return install


def test_a_package_that_is_installed_runs(
    installed: Callable[[Path], Installed],
    root: Path,
    samples: Path,
    tmp_path: Path,
    need_tool: Callable[..., str],
) -> None:
    folder, files, _ = installed(tmp_path / "app")
    assert files == ["LICENSE", "README.md", "nmp.wasm", "nmp_runtime.d.mts", "nmp_runtime.mjs", "package.json"]
    loader = folder / "node_modules" / "nmp-runtime" / "nmp_runtime.mjs"
    assert loader.read_bytes() == (root / "interpreter" / "wasm" / "nmp_runtime.mjs").read_bytes()  # the page's
    random = np.random.default_rng(1).normal(size=(4, 3, 32, 32)).astype(np.float32)
    made = nmpconv.convert(samples / "shapes" / "model.onnx", random, rounding="nearest", equalize="none")
    step = 2.0 ** nmpconv.load(made.data).inputs[0].exponent
    random[0] = np.round(1.5 * random[0] / step) * step + step / 2  # halves, some beyond the range
    (folder / "model.nmp").write_bytes(made.data)
    (folder / "numbers.json").write_text(json.dumps(random[0].ravel().tolist()))
    (folder / "use.mjs").write_text(USE)
    node = [need_tool("node", "nodejs"), "--no-warnings", "use.mjs"]
    said = json.loads(subprocess.run(node, cwd=folder, check=True, capture_output=True, text=True).stdout)
    wanted = [np.asarray(one).ravel().tolist() for one in nmpconv.load(made.data).run_float(random[0])]
    assert [one["outputs"] for one in said["found"]] == [wanted] * 6
    assert {(one["isNet"], one["cpu"]) for one in said["found"][:-1]} == {(True, "simd128")}
    name = nmpconv.load(made.data).inputs[0].name
    patterns = [
        f"RangeError: no numbers for {name}",
        f"RangeError: {name} has 3072 numbers, given are 1",
        f"RangeError: no numbers for {name}",
        "TypeError: allowed are bytes, .* a URL or a path",
        "Error: .*none.nmp",
        "Error: this is no model that can be run: .*",
    ]
    for pattern, message in zip(patterns, said["refused"], strict=True):
        assert re.match(pattern, message), message


def test_types(installed: Callable[[Path], Installed], tmp_path: Path, need_tool: Callable[..., str]) -> None:
    """The declarations are TypeScript, say what the script exports, and refuse wrong uses."""
    folder, _, npm = installed(tmp_path / "app")
    node = need_tool("node", "nodejs")
    exports = "import('nmp-runtime').then((module) => console.log(JSON.stringify(Object.keys(module).sort())))"
    names = json.loads(subprocess.run([node, "-e", exports], cwd=folder, check=True, capture_output=True).stdout)
    declared = (folder / "node_modules" / "nmp-runtime" / "nmp_runtime.d.mts").read_text()
    assert names == sorted(re.findall(r"^export (?:class|function) (\w+)", declared, re.MULTILINE))
    got = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", "--fetch-retries=1", TYPESCRIPT], cwd=folder, capture_output=True
    )
    if got.returncode:
        pytest.skip(f"{TYPESCRIPT} cannot be had from the registry of npm")
    (folder / "typed.mts").write_text(TYPED)
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": COMPILER, "files": ["typed.mts"]}))
    checked = subprocess.run([node, "node_modules/typescript/bin/tsc"], cwd=folder, capture_output=True, text=True)
    assert (checked.returncode, checked.stdout) == (0, "")
