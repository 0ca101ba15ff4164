"""What tests run from wheels with: the wheel of a Python, and programs without compilers among them."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def suite(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(root / "packaging")
    return importlib.import_module("suite")


def test_the_wheel_of_a_python(suite: ModuleType, tmp_path: Path) -> None:
    tags = (
        "cp310-cp310-manylinux_2_17_x86_64",
        "cp312-abi3-manylinux_2_17_x86_64",
        "cp311-cp311-manylinux_2_17_aarch64",
    )
    for tag in tags:
        (tmp_path / f"nmpconv-0.2.0-{tag}.whl").touch()
        (tmp_path / f"nmpconv_runtime-0.2.0-{tag}.whl").touch()
    found = {number: suite.wheel(tmp_path, number, "x86_64").name for number in ("3.10", "3.12", "3.14")}
    expected = {"3.10": tags[0], "3.12": tags[1], "3.14": tags[1]}
    assert found == {number: f"nmpconv-0.2.0-{tag}.whl" for number, tag in expected.items()}
    assert suite.wheel(tmp_path, "3.11", "aarch64").name == f"nmpconv-0.2.0-{tags[2]}.whl"
    with pytest.raises(SystemExit, match=r"no wheel for Python 3\.11 on x86_64: make wheels"):
        suite.wheel(tmp_path, "3.11", "x86_64")


def test_programs_without_compilers(suite: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compilers = ("cc", "gcc", "g++", "gcc-12", "arm-none-eabi-gcc", "riscv64-linux-gnu-gcc-12", "c99", "clang-16", "ld")
    others = ("make", "qemu-system-arm", "bash", "flatc", "gccgo-tool", "clang-format")
    for name in (*compilers, *others, "python3"):
        (tmp_path / "bin" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "bin" / name).touch()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for _ in range(2):  # the second time the links are there
        left = suite.programs(tmp_path / "links")
        assert {path.name for path in left.iterdir()} == set(others)
