"""The examples of docstrings run, in a folder with the files that they name."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

import cli_files
import numpy as np
import onnx
import pytest

import nmpconv

FUNCTIONS = [name for name in nmpconv.__all__ if inspect.isfunction(getattr(nmpconv, name))]


def example(name: str) -> str:
    text = inspect.getdoc(getattr(nmpconv, name)) or ""
    _, found, code = text.partition("For example:\n\n")
    assert found, f"{name} has no example"
    return textwrap.dedent(code)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need_package, need_tool) -> None:
    if name == "page":
        need_tool("make")
        need_package("ziglang")
    monkeypatch.chdir(tmp_path)
    onnx.save(cli_files.onnx_model(), "model.onnx")
    cli_files.images(Path("images"))
    Path("model.nmp").write_bytes(nmpconv.convert("model.onnx", "images", mean=127.5, std=127.5, fast=True).data)
    project = nmpconv.init("model.onnx").replace("calib/", "images").replace("min_", "# min_")
    Path("nmpconv.toml").write_text(re.sub(r"# (?=(mean|std) )", "", project))
    exec(example(name), {"nmpconv": nmpconv, "np": np, "Path": Path})
