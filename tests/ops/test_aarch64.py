"""The levels of AArch64, cross-compiled and emulated: kernels, op cases and whole models, byte for byte."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from c_core import Once, compiled, library
from op_cases import CASES, few
from zoo_quick import HARNESS, converted

from nmpconv.conversion.pipeline import Options, convert
from nmpconv.ir import Preprocess
from nmpconv.ops import Case

pytestmark = pytest.mark.slow
LEVELS = ["portable", "neon", "neondot", "i8mm"]
NEWEST = {"max": ["i8mm"], "cortex-a76": ["neondot"], "cortex-a53": ["portable", "neon"]}  # levels that older ones lack
CPUS = tuple(NEWEST)
# Minutes each: their ops are in others, too.
LARGEST = (
    "super_resolution_224",
    "deeplabv3_mnv2_dm05_513_qatdeq",
    "yolox_nano_416",
    "mobilenetv2_100_224_ptqdeq",
    "squeezenet1.1_227",
)
ONLY_INT8 = ("fastestdet_352", "fsrcnn_x2", "yunet_n_320")
MLPERF_TINY = ("mlperf_ic_resnet8_nhwc", "mlperf_vww_mobilenet025_nchw", "mlperf_kws_dscnn", "mlperf_ad_autoencoder")


@pytest.fixture(scope="module")
def build(
    root: Path, once: Once, tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[..., str]
) -> Callable[..., Path]:
    """build(program, *its other files): the program with the whole interpreter, for AArch64."""
    compiler = need_tool("aarch64-linux-gnu-gcc")
    need_tool("qemu-aarch64")
    flags = ["-std=c99", "-D_DEFAULT_SOURCE", "-O2"]
    folder = once("aarch64", lambda folder: compiled(root, folder, compiler, *flags))
    interpreter, place = library(root, folder, compiler, flags), tmp_path_factory.mktemp("aarch64")

    def link(name: str, *others: str) -> Path:
        own = [root / "interpreter" / "tests" / f"{part}.c" for part in (name, *others)]
        return interpreter.program(place / name, "-static", *own)

    return link


@pytest.fixture(scope="module")
def check_kernels(build: Callable[..., Path]) -> Path:
    return build("check_kernels", "check_conv", "memory")


@pytest.fixture(scope="module")
def on_vectors(build: Callable[..., Path]) -> Path:
    return build("test_nmp")


@pytest.fixture
def emulate(need_tool: Callable[..., str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """emulate(cpu, program, *arguments)"""
    emulator = need_tool("qemu-aarch64")

    def run(cpu: str, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([emulator, "-cpu", cpu, *command], capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(("cpu", "levels"), [("max", LEVELS), ("cortex-a53", LEVELS[:2])])
def test_every_level_is_portable(
    cpu: str, levels: Sequence[str], check_kernels: Path, emulate: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = emulate(cpu, check_kernels)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(" 0 differ\n")
    assert [line.split(",")[0] for line in done.stdout.splitlines()[:-1]] == levels


def test_a_cpu_without_dot_products_refuses_them(
    check_kernels: Path, emulate: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = emulate("cortex-a53", check_kernels, "neondot")
    assert (done.returncode, done.stderr) == (2, "there is no CPU level 'neondot' here\n")


@pytest.mark.parametrize(
    ("cpu", "levels", "cases"),
    [
        *(pytest.param(*one, few(), id=f"{one[0]}, few") for one in list(NEWEST.items())[1:]),
        *(
            pytest.param(*one, CASES, id=one[0], marks=[pytest.mark.soak] * (i > 0))
            for i, one in enumerate(NEWEST.items())
        ),
    ],
)
def test_op_cases(
    cpu: str,
    levels: Sequence[str],
    cases: list[Case],
    op_files: dict[str, Path],
    on_vectors: Path,
    emulate: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """Each level on the oldest CPU that has it: no instruction of it is a newer one's. The numbers of all cases at the
    newest; at the others `test_every_level_is_portable` has those of every kernel."""
    options = [word for level in levels for word in ("--cpu", level)]
    done = emulate(cpu, on_vectors, *options, *(op_files[case.id] for case in cases))
    assert done.stdout == f"passed: {len(cases)} file(s)\n"
    assert done.returncode == 0


def test_every_level_meets_the_op_cases() -> None:
    assert sorted(level for levels in NEWEST.values() for level in levels) == sorted(LEVELS)


@pytest.mark.parametrize("bits", ["8", "16"])
def test_samples(
    bits: str,
    samples: Path,
    on_vectors: Path,
    tmp_path: Path,
    emulate: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    file = tmp_path / "sample.nmp"
    look = Preprocess(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375), layout="auto")
    options = Options(bits=bits, preprocess=look, equalize="none", rounding="nearest", limit=4, test_vectors=3)
    sample = samples / "shapes"
    result = convert(sample / "model.onnx", {"": sample / "calib"}, options, lambda stage, done, total: None)
    file.write_bytes(result.data)
    for cpu in CPUS:
        assert emulate(cpu, on_vectors, file).stdout == "passed: 1 file(s)\n"


@pytest.mark.zoo
@pytest.mark.parametrize(
    ("name", "bits"),
    [
        *((name, "8") for name in HARNESS.FLOORS if name not in LARGEST),
        *((name, "16") for name in HARNESS.FLOORS if name not in (*LARGEST, *ONLY_INT8)),
    ],
)
def test_models_of_the_zoo(
    name: str,
    bits: str,
    zoo: Path,
    on_vectors: Path,
    tmp_path: Path,
    emulate: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    file = tmp_path / "model.nmp"
    result, _ = converted(zoo, name, bits, tmp_path, limit=1, test_vectors=2 if name in MLPERF_TINY else 1)
    file.write_bytes(result.data)
    for cpu in CPUS if name in MLPERF_TINY else CPUS[:1]:
        assert emulate(cpu, on_vectors, file).stdout == "passed: 1 file(s)\n"
