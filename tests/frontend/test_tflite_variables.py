"""Variables of TFLite models are states: the file keeps them from call to call, as LiteRT's interpreter does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from tflite_files import LiteRT, Op, Tensor, constant, tflite

import nmpconv
from nmpconv.conversion import costly_widths
from nmpconv.errors import UnsupportedModel
from nmpconv.frontend.onnx import load
from nmpconv.frontend.tflite import to_onnx

STEP, ZERO = 0.05, -3
GRIDS = {"float32": {}, "int8": {"type": "int8", "scale": STEP, "zero": ZERO}}


def file(
    kind: str = "float32", *, start: float = 0.0, assigned: bool = True, once: bool = True, computed: bool = False
) -> bytes:
    """The last two of three frames of four are kept; all three make the result. A read behind an assignment gives what
    was assigned."""
    grid: Mapping[str, Any] = GRIDS[kind]
    first = np.full((1, 2, 4), start, np.float32)
    first = np.int8(np.rint(first / STEP) + ZERO) if grid else first
    weights = np.random.default_rng(3).integers(-20, 21, (2, 20))
    tensors = {
        "x": Tensor((1, 1, 4), **grid),
        "handle": Tensor((), "resource"),
        "old": Tensor((1, 2, 4), **grid),
        "all": Tensor((1, 3, 4), **grid),
        "begin": constant(np.array([0, 1, 0], np.int32)),
        "size": constant(np.array([1, 2, 4], np.int32)),
        "new": Tensor((1, 2, 4), **grid),
        "again": Tensor((1, 2, 4), **grid),
        "both": Tensor((1, 5, 4), **grid),
        "row": constant(np.array([1, 20], np.int32)),
        "flat": Tensor((1, 20), **grid),
        "w": constant(np.int8(weights), scale=0.01) if grid else constant(np.float32(weights) * np.float32(0.01)),
        "b": constant(np.zeros(2, np.int32), scale=0.01 * STEP) if grid else constant(np.zeros(2, np.float32)),
        "y": Tensor((1, 2), **grid),
        "start": constant(first, **({"scale": STEP, "zero": ZERO} if grid else {})),
    }
    handle = Op("VAR_HANDLE", (), ("handle",), "VarHandleOptions", {"shared_name": "kept"})
    axis = {"axis": 1}
    ops = [
        *([Op("CALL_ONCE", (), (), "CallOnceOptions", {"init_subgraph_index": 1})] if once else []),
        handle,
        Op("READ_VARIABLE", ("handle",), ("old",)),
        Op("CONCATENATION", ("old", "x"), ("all",), "ConcatenationOptions", axis),
        Op("SLICE", ("all", "begin", "size"), ("new",)),
        *([Op("ASSIGN_VARIABLE", ("handle", "new"), ())] if assigned else []),
        Op("READ_VARIABLE", ("handle",), ("again",)),
        Op("CONCATENATION", ("all", "again"), ("both",), "ConcatenationOptions", axis),
        Op("RESHAPE", ("both", "row"), ("flat",)),
        Op("FULLY_CONNECTED", ("flat", "w", "b"), ("y",), "FullyConnectedOptions", {}),
    ]
    begin = [handle, Op("ASSIGN_VARIABLE", ("handle", "start"), ())]
    if computed:
        tensors["negative"] = Tensor((1, 2, 4), **grid)
        begin = [handle, Op("NEG", ("start",), ("negative",)), Op("ASSIGN_VARIABLE", ("handle", "negative"), ())]
    return tflite(tensors, ops, ["x"], ["y"], begin if once else ())


def frames(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-4, 4, (count, 1, 1, 4)).astype(np.float32)


def test_frames_are_those_of_litert(need_package) -> None:
    need_package("ai_edge_litert")
    theirs, ours = LiteRT(file()), ort.InferenceSession(to_onnx(file(), "m").SerializeToString())
    kept = np.zeros((1, 2, 4), np.float32)
    for x in frames(6, 0):
        wanted = theirs.run(x)
        got, kept = ours.run(None, {"x": x, "kept": kept})
        np.testing.assert_allclose(got, wanted[0], atol=1e-6)


@pytest.mark.parametrize("kind", GRIDS)
def test_a_file_keeps_its_variables(kind: str, tmp_path: Path, need_package) -> None:
    need_package("ai_edge_litert")
    (tmp_path / "m.tflite").write_bytes(file(kind))
    graph = load(tmp_path / "m.tflite")
    assert graph.variables == {"kept": "kept.next"}

    def fed(x: np.ndarray) -> np.ndarray:
        return np.int8(np.clip(np.rint(x / STEP) + ZERO, -128, 127)) if kind == "int8" else x

    sequences = [fed(frames(20, seed))[:, 0] for seed in (1, 2, 3)]
    net = nmpconv.load(nmpconv.convert(tmp_path / "m.tflite", data=sequences, bits=16).data)
    assert [port.name for port in net.inputs] == ["x"]
    assert net.model.config["state"] == ["kept.next=kept"]  # as `eval --reference` asks for it
    theirs = LiteRT(file(kind))
    step = STEP if kind == "int8" else 1.0
    for x in frames(6, 0):
        [wanted] = theirs.run(fed(x))
        got = net.run(fed(x))[0] if kind == "int8" else net.run_float(x)[0]
        assert np.abs(got.astype(np.float64) - wanted).max() <= (1 if kind == "int8" else 0.01 * step)


def test_variables_keep_16_bits_whatever_they_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.tflite").write_bytes(file())
    monkeypatch.setattr(costly_widths, "MOST", 1.0)
    net = nmpconv.load(nmpconv.convert(tmp_path / "m.tflite", data=[frames(20, 1)[:, 0]], fast=True).data)
    assert {tensor.dtype for tensor in net.model.tensors if tensor.offset is not None} == {"int16"}


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"start": 1.0}, "begins with other numbers than 0"),
        ({"start": 1.0, "computed": True}, "begins with what is computed"),
        ({"assigned": False}, "nothing is assigned to variable.*a constant, as TFLiteConverter.from_keras_model"),
    ],
)
def test_what_is_no_state_is_refused(about: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(file(**about))
    with pytest.raises(UnsupportedModel, match=message):
        load(tmp_path / "m.tflite")
