"""export: the file it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import onnx

from nmpconv.errors import ExitCode


def test_a_file_that_other_tools_open(cli) -> None:
    ran = cli("export", "model.nmp")
    assert (ran.code, ran.left) == (0, ["model.qdq.onnx"])
    assert ran.out == f"model.qdq.onnx, {Path('model.qdq.onnx').stat().st_size / 1000:.3g} kB\n"
    onnx.checker.check_model("model.qdq.onnx", full_check=True)
    assert cli("export", "model.nmp", "-o", "m.onnx", "--to", "onnx", "--json").json == {
        "schema": 1,
        "model": "model.nmp",
        "output": "m.onnx",
        "to": "onnx",
        "bytes": Path("m.onnx").stat().st_size,
    }
    assert Path("m.onnx").read_bytes() == Path("model.qdq.onnx").read_bytes()


def test_what_it_refuses(cli) -> None:
    assert cli("export", "model.nmp", "--to", "tflite").code == ExitCode.USAGE
    assert cli("export", "model.nmp", "-o", "model.nmp").code == ExitCode.USAGE
    Path("cut.nmp").write_bytes(Path("model.nmp").read_bytes()[:-9])
    ran = cli("export", "cut.nmp")
    assert ran.code == ExitCode.MODEL
    assert not ran.left
