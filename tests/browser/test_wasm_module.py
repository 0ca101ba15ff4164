"""nmp.wasm is compiled once, and again when its sources or their compiler change."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from nmpconv.base import compilers
from nmpconv.errors import DeviceError
from nmpconv.exporters.browser import wasm_module as module


@pytest.fixture
def calls(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls of make, in a copy of a checkout whose compiler gives a module of its own each time."""
    for part in ("include", "src", "wasm"):
        shutil.copytree(root / "interpreter" / part, tmp_path / "interpreter" / part)
    found: list[str] = []

    def run_make(part: str, out: str, *variables: str, where: str) -> subprocess.CompletedProcess[str]:
        found.append(part)
        Path(out, "nmp.wasm").write_bytes(b"%d" % len(found))
        return subprocess.CompletedProcess([], 0, "", "")

    monkeypatch.setattr(module, "PACKAGE", tmp_path / "nmpconv")
    monkeypatch.setattr(module, "zig", lambda: "zig")
    monkeypatch.setattr(module, "version", lambda package: "1")
    monkeypatch.setattr(module, "run_make", run_make)
    for one in (module, compilers):
        monkeypatch.setattr(one, "interpreter", lambda: tmp_path / "interpreter")
    return found


def test_it_is_compiled_once(calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [module.wasm(), module.wasm(), calls] == [b"1", b"1", ["wasm"]]
    assert [path.parent for path in tmp_path.rglob("nmp-*.wasm")] == [tmp_path / "build"]
    source = tmp_path / "interpreter" / "wasm" / "nmp_wasm.c"
    text = source.read_text()
    source.write_text(text + "/* more */\n")
    assert module.wasm() == b"2"
    source.write_text(text)
    assert module.wasm() == b"1"
    monkeypatch.setattr(module, "version", lambda package: "2")
    assert module.wasm() == b"3"


def test_an_installed_package_keeps_it(calls: list[str], tmp_path: Path) -> None:
    """Beside its sources; that of a wheel is taken as it is."""
    (tmp_path / "__init__.py").touch()
    assert [module.wasm(), module.wasm(), calls] == [b"1", b"1", ["wasm"]]
    assert [path.parent for path in tmp_path.rglob("nmp-*.wasm")] == [tmp_path]
    (tmp_path / "nmpconv").mkdir()
    (tmp_path / "nmpconv" / "nmp.wasm").write_bytes(b"a wheel's")
    assert module.wasm() == b"a wheel's"


def test_a_package_that_cannot_be_written(calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left in the current folder, and nothing of it is taken: it may be anyone's."""
    planted = tmp_path / "here" / "build" / f"nmp-{module._key()}.wasm"
    planted.parent.mkdir(parents=True)
    planted.write_bytes(b"planted")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(compilers.os, "access", lambda path, mode: False)
    assert [module.wasm(), module.wasm()] == [b"1", b"2"]
    assert list(tmp_path.rglob("nmp-*.wasm")) == [planted]


@pytest.mark.parametrize(("missing", "hint"), [("zig", "pip install ziglang"), ("make", "apt-get install make")])
def test_a_missing_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, hint: str) -> None:
    monkeypatch.setattr(module, "home", lambda: tmp_path)
    monkeypatch.setattr(module, "zig", lambda: None if missing == "zig" else "zig")
    monkeypatch.setattr(module, "version", lambda package: "1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError, match="is missing") as raised:
        module.wasm()
    assert raised.value.hint == hint
