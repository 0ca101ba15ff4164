"""The suite, run from wheels: that of a Python, and programs without compilers among them."""

from __future__ import annotations

import importlib
import sys
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


def test_a_python_that_does_not_start_is_named(
    suite: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NMP_CI", raising=False)
    stand_in = tmp_path / "python3.10"
    stand_in.write_text("#!/bin/sh\necho 'pyenv: python3.10: command not found' >&2\nexit 127\n")
    stand_in.chmod(0o755)
    asked = [str(stand_in), sys.executable, str(tmp_path / "none")]
    assert suite.chosen(asked, True) == [sys.executable]
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"Left out: {stand_in} is not here: pyenv: python3.10: command not found",
        f"Left out: {tmp_path / 'none'} is not here: No such file or directory",
    ]
    with pytest.raises(SystemExit, match=r"python3\.10 is not here: pyenv"):
        suite.chosen(asked, False)
    with pytest.raises(SystemExit, match="no Python is left"):
        suite.chosen(asked[:1], True)
    monkeypatch.setenv("NMP_CI", "1")
    with pytest.raises(SystemExit, match=r"python3\.10 is not here"):
        suite.chosen(asked, True)
    assert suite.chosen(None, False) == [sys.executable]
