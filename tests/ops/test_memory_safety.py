"""Kernels, every op and whole models in buffers of exact sizes: under AddressSanitizer and UndefinedBehaviorSanitizer
at every CPU level, and under valgrind, which also knows what is not initialized, at those that it simulates.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from c_core import AMX, C99, Library, Once, compiled, emulating_amx, library, with_amx
from op_cases import CASES, VALUES, few
from zoo_quick import converted

from nmpconv.file import flatbuffer
from nmpconv.ops import OPS, Case
from nmpconv.runtime import interpreter

pytestmark = pytest.mark.slow

PROGRAMS = {"test_nmp": ("test_nmp",), "check_kernels": ("check_kernels", "check_conv", "memory")}
MODELS = {
    "mlperf_ic_resnet8_nhwc": ("8", "16"),
    "mlperf_kws_dscnn": ("8", "16"),
    "mlperf_ad_autoencoder": ("8", "16"),
    "mobilenetv1_025_224": ("8",),
}


def programs(root: Path, folder: Path, library: Library) -> dict[str, Path]:
    """test_nmp and check_kernels."""
    c = root / "interpreter" / "tests"
    return {
        name: library.program(folder / name, "-DGUARD=0", "-Wno-type-limits", *(c / f"{part}.c" for part in parts))
        for name, parts in PROGRAMS.items()
    }


@pytest.fixture(scope="module")
def sanitized_programs(
    root: Path, tmp_path_factory: pytest.TempPathFactory, sanitized: Callable[..., Library]
) -> dict[str, Path]:
    """With tiles of AMX in plain C, which take all int8 convolutions of that level."""
    folder = tmp_path_factory.mktemp("sanitized")
    return programs(root, folder, emulating_amx(root, folder, sanitized(), AMX))


@pytest.fixture(scope="module")
def plain_library(root: Path, once: Once, need_tool: Callable[..., str]) -> Library:
    compiler = need_tool("gcc", "clang")
    return library(root, once("plain", lambda folder: compiled(root, folder, compiler, *C99)), compiler, C99)


@pytest.fixture(scope="module")
def plain(root: Path, tmp_path_factory: pytest.TempPathFactory, plain_library: Library) -> dict[str, Path]:
    return programs(root, tmp_path_factory.mktemp("plain"), plain_library)


def blobs(arrays: Sequence[np.ndarray]) -> list[dict[str, np.ndarray]]:
    return [{"data": np.frombuffer(array.tobytes(), np.uint8)} for array in arrays]


def file_of_model(zoo: Path, name: str, bits: str, folder: Path) -> Path:
    """A model of the zoo with one test vector: random integers, and what the portable kernels make of them."""
    result, _ = converted(zoo, name, bits, folder)
    net, rng = interpreter.load(result.data, cpu="portable"), np.random.default_rng(5)
    inputs = [rng.integers(p.lo, p.hi + 1, p.shape).astype(p.dtype) for p in net.inputs]
    root = flatbuffer.unpack(result.data)
    root["test_vectors"] = [{"inputs": blobs(inputs), "outputs": blobs(net.run(*inputs))}]
    path = folder / f"{name}-{bits}.nmp"
    path.write_bytes(flatbuffer.pack(root))
    return path


@pytest.fixture(scope="module")
def model_files(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("model_files")
    return [file_of_model(zoo, name, bits, folder) for name, widths in MODELS.items() for bits in widths]


def run(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_kernels_sanitized(sanitized_programs: dict[str, Path], record_property: Callable[[str, object], None]) -> None:
    said = run(sanitized_programs["check_kernels"]).splitlines()
    levels = [line.split(",")[0] for line in said[:-1]]
    assert levels == with_amx(interpreter.cpus())
    assert said[-1].endswith(" 0 differ")
    record_property("summary", f"kernels under sanitizers: {', '.join(levels)}")


def test_ops_sanitized(sanitized_programs: dict[str, Path], op_files: dict[str, Path]) -> None:
    assert run(sanitized_programs["test_nmp"], *op_files.values()) == f"passed: {len(op_files)} file(s)\n"


@pytest.mark.zoo
def test_models_sanitized(sanitized_programs: dict[str, Path], model_files: list[Path]) -> None:
    assert run(sanitized_programs["test_nmp"], *model_files) == f"passed: {len(model_files)} file(s)\n"


@pytest.fixture(scope="module")
def valgrind(need_tool: Callable[..., str]) -> list[str]:
    return [need_tool("valgrind"), "-q", "--error-exitcode=9"]


def test_kernels_under_valgrind(
    plain: dict[str, Path], valgrind: list[str], record_property: Callable[[str, object], None]
) -> None:
    said = run(*valgrind, plain["check_kernels"]).splitlines()
    levels = [line.split(",")[0] for line in said[:-1]]
    assert ("avx2" in levels) == ("avx2" in interpreter.cpus())
    assert said[-1].endswith(" 0 differ")
    record_property("summary", f"kernels under valgrind: {', '.join(levels)}")


@pytest.mark.parametrize("cases", [few(), pytest.param(CASES, marks=pytest.mark.soak)], ids=["few", "all"])
def test_ops_under_valgrind(
    cases: list[Case], plain: dict[str, Path], valgrind: list[str], op_files: dict[str, Path]
) -> None:
    """The same bytes are set in many cases: no shift and no exponent changes which."""
    files = {VALUES.sub("", case.id): op_files[case.id] for case in cases}
    assert {name.split("/")[0] for name in files} == set(OPS) and len(files) > len(CASES) // 5
    assert run(*valgrind, plain["test_nmp"], *files.values()) == f"passed: {len(files)} file(s)\n"


@pytest.mark.zoo
def test_models_under_valgrind(plain: dict[str, Path], valgrind: list[str], model_files: list[Path]) -> None:
    small = [path for path in model_files if path.name.startswith("mlperf")]
    assert run(*valgrind, plain["test_nmp"], *small) == f"passed: {len(small)} file(s)\n"


@pytest.mark.zoo
@pytest.mark.skipif("avx2" not in interpreter.cpus(), reason="AMX is of x86-64")
def test_what_amx_claims(
    root: Path,
    tmp_path: Path,
    plain_library: Library,
    model_files: list[Path],
    record_property: Callable[[str, object], None],
) -> None:
    """Layers that the level takes for itself on a CPU with AMX, emulated: the same bytes."""
    emulating = emulating_amx(root, tmp_path, plain_library)
    program = emulating.program(tmp_path / "amx_counts", root / "interpreter" / "tests" / "amx_counts.c")
    said = run(program, *model_files).splitlines()
    assert all(line.endswith(" the same bytes") for line in said)
    products = {Path(line.split(":")[0]).stem: int(line.split("tdpbssd ")[1].split(",")[0]) for line in said}
    assert products["mobilenetv1_025_224-8"] > products["mlperf_ic_resnet8_nhwc-8"] > 0
    assert products["mlperf_ad_autoencoder-8"] == products["mlperf_ic_resnet8_nhwc-16"] == 0  # a pixel; int16
    record_property("summary", f"tdpbssd of a run, emulated: {products}")
