"""Commands that take an ONNX model take a TFLite file, too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tflite_nets import net, samples

import nmpconv


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a full-integer one, data, and what `convert` made of the former."""
    folder = tmp_path_factory.mktemp("tflite")
    (folder / "m.tflite").write_bytes(net("float32"))
    (folder / "i.tflite").write_bytes(net("int8"))
    np.save(folder / "x.npy", samples("float32")[:, 0])
    nmpconv.convert(folder / "m.tflite", folder / "x.npy").save(folder / "m.nmp")
    return folder


def test_convert_and_eval(cli, files, monkeypatch):
    monkeypatch.chdir(files)
    assert cli("convert", "i.tflite", "-o", "i.nmp").code == 0
    found = cli("eval", "m.nmp", "--data", "x.npy", "--reference", "m.tflite", "--json")
    assert found.code == 0
    assert json.loads(found.out)["sqnr_db"] > 25


def test_bisect(cli, files, monkeypatch):
    monkeypatch.chdir(files)
    assert cli("bisect", "m.tflite", "m.nmp", "--data", "x.npy", "-o", "b").code == 0
    assert (files / "b" / "recipe.toml").exists()


def test_a_project(cli, files, monkeypatch):
    monkeypatch.chdir(files)
    text = cli("init", "m.tflite", "-o", "-").out
    assert 'model = "m.tflite"' in text
    assert 'layout = "nhwc"' in text


def test_from_python(files):
    """A path, or bytes."""
    data = (files / "m.tflite").read_bytes()
    assert [port.name for port in nmpconv.convert(data, files / "x.npy").load().outputs] == ["y"]
