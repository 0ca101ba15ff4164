"""Published files, built as `make wheels` does it and installed where there is no compiler.

Of the wheels, that for x86-64 and this Python is built.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

LITTLE_ENDIAN_64, X86_64 = b"\x7fELF\x02\x01", 62
RUNTIME_BYTES = 3_000_000
BOARD = "mps2-an386"
# pytest and what it needs.
TOOLS = ("pytest", "iniconfig", "pluggy", "packaging", "pygments", "exceptiongroup", "tomli", "typing-extensions")
QUICK = ("file/test_files.py", "api/test_keywords.py", "graph/test_text.py")  # tests that run from the wheel


def run(*command: object, **options: Any) -> str:
    """Returns what it prints; its messages are shown where it fails."""
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    return ran.stdout


@pytest.fixture(scope="module")
def dist(root: Path, work: Path) -> Path:
    """The folder of wheels and sources, built from the checkout; or $NMP_DIST, where they were built already."""
    if given := os.environ.get("NMP_DIST"):
        return Path(given)
    command = [sys.executable, root / "packaging" / "wheels.py", "--arch", "x86_64", "--board", BOARD]
    run(*command, "--work", work, "--output", work.parent / "dist")
    return work.parent / "dist"


def wheel(dist: Path, name: str) -> Path:
    [found] = dist.glob(f"{name}-*x86_64.whl")
    return found


class Place:
    """A virtual environment with one wheel in it. Its commands find no compiler: PATH is its own folder.

    locks: what is installed before, by hashes. The wheel needs nothing else: no index is asked for it.
    """

    def __init__(self, folder: Path, wheel: Path, *locks: Path) -> None:
        venv.create(folder, with_pip=True)
        self.bin = folder / "bin"
        for lock in locks:
            self.install("--require-hashes", "--no-build-isolation", "-r", lock)
        self.install("--no-index", wheel)

    def install(self, *words: object) -> None:
        pip = (self.bin / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
        run(*pip, *words)

    def run(self, program: str, *arguments: object, cwd: Path) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return run(self.bin / program, *arguments, cwd=cwd, env={**kept, "PATH": str(self.bin)})


@pytest.fixture(scope="module")
def locks(root: Path) -> Path:
    return root / "packaging" / "locks"


@pytest.fixture(scope="module")
def installed(dist: Path, locks: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    given = (locks / "build.lock", locks / "run.lock")
    place = Place(tmp_path_factory.mktemp("empty") / "venv", wheel(dist, "nmpconv"), *given)
    place.install("--require-hashes", "-r", only(locks / "test.lock", TOOLS, place.bin.parent / "tools.lock"))
    return place


def only(lock: Path, names: Sequence[str], path: Path) -> Path:
    """Writes a lock of these of its packages."""
    packages = re.split(r"^(?=\w)", lock.read_text(), flags=re.MULTILINE)
    path.write_text("".join(text for text in packages if text.startswith(tuple(f"{name}==" for name in names))))
    return path


def test_the_wheel_is_for_old_systems_and_whole(dist: Path, root: Path) -> None:
    path = wheel(dist, "nmpconv")
    assert "manylinux_2_17_x86_64" in path.name  # auditwheel has looked at its symbols
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        [extension] = [name for name in names if name.startswith("nmpconv/_nmp.") and name.endswith(".so")]
        head = archive.read(extension)[:20]
    assert (head[:6], int.from_bytes(head[18:20], "little")) == (LITTLE_ENDIAN_64, X86_64)
    for folder in ("include", "src", "firmware", "wasm"):
        here = {p.relative_to(root).as_posix() for p in (root / "interpreter" / folder).rglob("*") if p.is_file()}
        assert {f"nmpconv/{name}" for name in here} <= set(names)
    assert "nmpconv/nmp.wasm" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.startswith(("tests", "samples", "bench")) for name in names)


def bill(path: Path) -> dict[str, set[str]]:
    """Sources compiled into a wheel, as it says: places by name."""
    with zipfile.ZipFile(path) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/sboms/nmpconv.cdx.json")]
        parts = json.loads(archive.read(name))["components"]
        assert all(part["version"] for part in parts)
        return {part["name"]: {at["location"] for at in part["evidence"]["occurrences"]} for part in parts}


def test_the_bill_of_materials_names_what_is_inside(dist: Path) -> None:
    inside = {name: {"nmpconv/_nmp.*"} for name in ("nanobind", "robin-map", "ziglang")}
    assert bill(wheel(dist, "nmpconv_runtime")) == inside
    found = bill(wheel(dist, "nmpconv"))
    firmware = f"nmpconv/firmware/{BOARD}.elf"
    assert {name for name, places in found.items() if firmware in places} == {
        "gcc-arm-none-eabi",
        "libnewlib-arm-none-eabi",
    }
    assert inside.items() <= found.items()


def test_the_commands_run_without_a_compiler(
    installed: Place, samples: Path, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    """On a simulated board, too, as its firmware is inside."""
    shapes = samples / "shapes"
    look = ("--mean", "123.675,116.28,103.53", "--std", "58.395,57.12,57.375", "--rounding", "nearest")
    told = installed.run(
        "nmpconv", "convert", shapes / "model.onnx", "--data", shapes / "calib", *look, "-o", "m.nmp", cwd=tmp_path
    )
    assert "quantized 12/12 nodes" in told
    assert "conv2d" in installed.run("nmpconv", "inspect", "m.nmp", cwd=tmp_path)
    assert "median" in installed.run("nmpconv", "bench", "m.nmp", "--runs", 3, cwd=tmp_path)
    assert (tmp_path / "m.nmp").stat().st_size > 10_000
    assert "CMakeLists.txt" in installed.run("nmpconv", "bundle", "m.nmp", "-o", "c", "--json", cwd=tmp_path)
    assert "m-page.html" in installed.run("nmpconv", "page", "m.nmp", cwd=tmp_path)
    need_tool("arm-none-eabi-gcc")  # with which the wheel was made
    (installed.bin / "qemu-system-arm").symlink_to(need_tool("qemu-system-arm"))
    told = installed.run("nmpconv", "bench", "m.nmp", "--device", f"sim:{BOARD}", "--runs", 1, cwd=tmp_path)
    assert "the same bytes as here" in told


def test_quick_tests_pass_from_the_wheel(installed: Place, root: Path, tmp_path: Path) -> None:
    place = installed.run("python", "-c", "import nmpconv; print(nmpconv.__file__)", cwd=tmp_path)
    assert not Path(place).is_relative_to(root)
    files = [root / "tests" / name for name in QUICK]
    options = ("-q", "-p", "no:cacheprovider", "-m", "not slow")
    assert " passed" in installed.run("python", "-m", "pytest", *options, *files, cwd=tmp_path)


def test_the_runtime_is_small_and_needs_numpy_alone(
    dist: Path, installed: Place, locks: Path, root: Path, tmp_path: Path
) -> None:
    path = wheel(dist, "nmpconv_runtime")
    assert path.stat().st_size < RUNTIME_BYTES
    place = Place(tmp_path / "venv", path, only(locks / "run.lock", ["numpy"], tmp_path / "numpy.lock"))
    packages = place.run("python", "-m", "pip", "list", "--format", "freeze", cwd=tmp_path).split()
    names = {package.partition("==")[0] for package in packages} - {"pip", "setuptools"}
    assert names == {"numpy", "nmpconv-runtime"}
    sys.path.insert(0, str(root / "tests" / "cli"))
    import cli_files

    (tmp_path / "m.nmp").write_bytes(cli_files.nmp_bytes())
    code = "import nmpconv, numpy; net = nmpconv.load('m.nmp'); x = numpy.arange(192, dtype=numpy.uint8)\n"
    code += "print([y.tolist() for y in net.run(x.reshape(1, 8, 8, 3))])"
    assert place.run("python", "-c", code, cwd=tmp_path) == installed.run("python", "-c", code, cwd=tmp_path)
    assert "no convert" in place.run(
        "python", "-c", "try:\n import nmpconv; nmpconv.convert\nexcept ImportError as e: print(e)", cwd=tmp_path
    )


def test_the_same_sources_give_the_same_bytes(dist: Path, root: Path, tmp_path: Path) -> None:
    """Files of the sources and the runtime; those of a whole wheel take another compilation."""
    code = "import sys; from pathlib import Path; from runtime import runtime; runtime(*map(Path, sys.argv[1:]))"
    run(sys.executable, "-c", code, wheel(dist, "nmpconv"), tmp_path, cwd=root / "packaging")
    again = wheel(tmp_path, "nmpconv_runtime")
    assert again.read_bytes() == wheel(dist, "nmpconv_runtime").read_bytes()
    if os.environ.get("NMP_DIST"):
        pytest.skip("what builds the sources is with the wheels that the test makes itself")
    [tools] = dist.parent.glob("work/python*/bin/python")
    epoch = {**os.environ, "SOURCE_DATE_EPOCH": "1735689600"}
    run(tools, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, root, env=epoch)
    [first], [second] = dist.glob("*.tar.gz"), tmp_path.glob("*.tar.gz")
    assert first.read_bytes() == second.read_bytes()
