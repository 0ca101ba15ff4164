"""Names of files that are not UTF-8, as archives of old systems bring them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import nmpconv
from nmpconv.base.files import toml_of
from nmpconv.exporters import browser
from nmpconv.file import reader

NAME = os.fsdecode(b"gr\xfcn")  # in Latin-1
SHOWN = r"gr\udcfcn"
SOME_SYSTEMS = pytest.mark.skipif(sys.platform != "linux", reason="names are text there")


@SOME_SYSTEMS
def test_a_model_and_an_image(cli: Any, here: Path) -> None:
    Path("model.onnx").rename(f"{NAME}.onnx")
    next(Path("images").iterdir()).rename(f"images/{NAME}.png")
    made = cli("convert", f"{NAME}.onnx", "--data", "images", "-o", f"{NAME}.nmp", "--report", "made.html")
    assert made.code == 0, made.err
    model = reader.read(Path(f"{NAME}.nmp").read_bytes())
    assert (model.name, model.metadata["source"]) == (SHOWN, f"{SHOWN}.onnx")
    assert SHOWN in Path("made.html").read_text(encoding="utf-8")
    told = cli("report", f"{NAME}.nmp", "--data", "images", "--reference", f"{NAME}.onnx", "-o", "told.html")
    assert told.code == 0, told.err
    assert f"{SHOWN}.png" in Path("told.html").read_text(encoding="utf-8")


@SOME_SYSTEMS
def test_a_page(cli: Any, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "wasm", lambda: b"")
    Path("model.nmp").rename(f"{NAME}.nmp")
    assert cli("page", f"{NAME}.nmp", "-o", "page.html").code == 0
    assert SHOWN in Path("page.html").read_text(encoding="utf-8")


@SOME_SYSTEMS
def test_a_project_of_such_a_model(cli: Any, here: Path) -> None:
    """No project file can name it; one of any text is named as it is, which TOML reads back."""
    Path("model.onnx").rename(f"{NAME}.onnx")
    ran = cli("init", f"{NAME}.onnx")
    assert (ran.code, Path("nmpconv.toml").exists()) == (3, False)
    assert "a name that is not UTF-8" in ran.err and "hint: rename it" in ran.err
    for name in ("grün.onnx", '\U0001f600 "a\\b\x7f.onnx'):
        Path(name).hardlink_to(f"{NAME}.onnx")
        assert toml_of(nmpconv.init(name), "project", "")["model"] == name
    assert "grün" in nmpconv.init("grün.onnx")


def test_a_list_in_another_encoding(cli: Any, here: Path) -> None:
    Path("list.csv").write_bytes(b"gr\x81n.png,1\n")
    ran = cli("eval", "model.nmp", "--data", "list.csv")
    assert ran.code == 3
    assert "byte 2 is not UTF-8 text" in ran.err and "hint: save it as UTF-8" in ran.err
