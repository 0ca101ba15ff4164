"""Files generated from nmp.fbs are fresh, and the schema agrees with the ops and with flatc."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import nets
import numpy as np
import pytest

import nmpconv
from nmpconv.file import flatbuffer
from nmpconv.file._schema import ENUMS, MEMBERS, OP_TABLES, TABLES
from nmpconv.file.writer import to_bytes
from nmpconv.ir import Preprocess
from nmpconv.ops import OPS


def test_generated_files_are_fresh(root: Path) -> None:
    command = [sys.executable, str(root / "schema" / "generate.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("table Model { model:Model; }", "contains itself"),
        ("table Model { x:quad; }", "unknown type"),
        ("table Model { x:int = 1.5; }", "cannot read field"),
        ("table Other {}", "contains itself|Model"),
    ],
)
def test_generator_refuses_what_it_does_not_know(root: Path, line: str, complaint: str) -> None:
    sys.path.insert(0, str(root / "schema"))
    try:
        from generate import parse
    finally:
        sys.path.pop(0)
    text = (
        f'// Format version: 1.0\nfile_identifier "NMP1";\nunion Params {{ A }}\ntable A {{}}\n{line}\nroot_type Model;'
    )
    with pytest.raises((ValueError, KeyError), match=complaint):
        parse(text)


def test_ops_are_the_members_in_order() -> None:
    assert list(OPS) == list(OP_TABLES)
    assert tuple(OP_TABLES.values()) == MEMBERS


def test_ops_keep_their_numbers() -> None:
    """Files and firmware have them: a new op comes behind all others, and goes to the end of this list."""
    numbered = (
        "Conv2D FullyConnected Add Mul AveragePool MaxPool Requantize Lookup Softmax Concat Pad Slice Reshape "
        "Transpose Gather Resize Sub Minimum Maximum ConvTranspose Normalize BatchMatmul Divide Greater Equal ArgMax "
        "Lrn CumSum GridSample GatherElements MulOffset SumLookup ConvAdd Custom"
    )
    assert " ".join(MEMBERS) == numbered


@pytest.mark.parametrize("name", list(OPS))
def test_params_are_the_table(name: str) -> None:
    """Names, order and defaults of an op's dataclass are those of its table."""
    op = OPS[name]
    params = [(f.name, f.default) for f in fields(op.Params) if f.name not in op.float_only]
    table = TABLES[OP_TABLES[name]]
    assert [key for key, _ in params] == [f.name for f in table]
    for (key, default), f in zip(params, table, strict=True):
        kinds = {"vector": tuple, "string": str}
        assert default is None or isinstance(default, kinds.get(f.kind, int)), key
        of_onnx = (name, key) in (("softmax", "axis"), ("normalize", "epsilon"))  # nodes say these
        assert default in (None, f.default) or f.kind in kinds or of_onnx, key


def test_preprocess_is_the_table() -> None:
    assert [f.name for f in fields(Preprocess)] == [f.name for f in TABLES["Preprocess"]]


def test_versions_agree(root: Path) -> None:
    header = (root / "interpreter" / "include" / "nmp.h").read_text()
    assert re.findall(r'#define NMP_VERSION "(.*)"', header) == [nmpconv.__version__]
    assert re.findall(r"^## (\S+)", (root / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == nmpconv.__version__


def test_flatc_reads_our_file(root: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    flatc = need_tool("flatc")
    path = tmp_path / "small.nmp"
    path.write_bytes(to_bytes(nets.small_net(), {"producer": "test"}))
    schema = root / "schema" / "nmp.fbs"
    subprocess.run([flatc, "--json", "--strict-json", "-o", str(tmp_path), str(schema), "--", str(path)], check=True)
    found = json.loads((tmp_path / "small.json").read_text())
    ours = flatbuffer.unpack(path.read_bytes())
    assert [t["name"] for t in found["tensors"]] == [t["name"] for t in ours["tensors"]]
    assert found["tensors"][1]["data"] == ours["tensors"][1]["data"].tolist()
    assert found["ops"][0]["params_type"] == "Conv2D"
    assert found["ops"][0]["params"] == {f"pad_{side}": 1 for side in ("top", "left", "bottom", "right")}
    assert found["checksum"] == ours["checksum"]


def test_we_read_flatcs_file(root: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    flatc = need_tool("flatc")
    text = {
        "major": 1,
        "checksum": 1,
        "name": "by flatc",
        "tensors": [{"name": "t", "shape": [2, 3], "exponents": [-5], "data": [1, 2, 255, 4, 5, 6], "method": "KL"}],
        "ops": [{"name": "s", "params_type": "Softmax", "params": {"axis": 1}, "inputs": [0], "outputs": [0]}],
        "inputs": [],
        "outputs": [{"name": "y", "preprocess": {"mean": [0.5], "layout": "nhwc"}}],
        "labels": ["a", "ü"],
    }
    (tmp_path / "model.json").write_text(json.dumps(text))
    schema = root / "schema" / "nmp.fbs"
    subprocess.run([flatc, "--binary", "-o", str(tmp_path), str(schema), str(tmp_path / "model.json")], check=True)
    found = flatbuffer.unpack(flatbuffer.seal((tmp_path / "model.nmp").read_bytes()))
    assert found["name"] == "by flatc"
    assert found["labels"] == ["a", "ü"]
    tensor = found["tensors"][0]
    assert tensor["method"] == ENUMS["Method"]["KL"]
    assert tensor["axis"] == -1
    np.testing.assert_array_equal(tensor["data"], [1, 2, 255, 4, 5, 6])
    assert found["ops"][0]["params"] == ("Softmax", {"axis": 1})
    assert found["outputs"][0]["preprocess"]["layout"] == "nhwc"
    assert found["outputs"][0]["pixels"] is False
