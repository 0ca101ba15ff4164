"""Programs of torch.export, and files of torch that are none."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nmpconv
from nmpconv.api import models
from nmpconv.errors import InputError, UsageError

X = np.random.default_rng(3).standard_normal((8, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def program() -> Any:
    torch = pytest.importorskip("torch", reason="hundreds of MB that no lock has")
    pytest.importorskip("onnxscript", reason="of torch's exporter")
    torch.manual_seed(0)
    nn = torch.nn
    layers = nn.Conv2d(3, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    module = nn.Sequential(*layers, nn.Linear(6, 4)).eval()
    return torch.export.export(module, (torch.from_numpy(X[:1]),))


@pytest.mark.slow
def test_a_saved_program_is_the_program(program: Any, tmp_path: Path) -> None:
    import torch

    path = tmp_path / "net.pt2"
    torch.export.save(program, path)
    saved, given = nmpconv.convert(path, X), nmpconv.convert(program, X)
    net = saved.load()
    with torch.no_grad():
        wanted = program.module()(torch.from_numpy(X[:1])).numpy()
    (got,) = net.run_float(X[0])
    assert np.abs(got.reshape(-1) - wanted.reshape(-1)).max() < 0.05 * np.abs(wanted).max()
    assert np.array_equal(given.load().run_float(X[0])[0], got)
    assert nmpconv.load(saved.data).model.metadata["source"] == "net.pt2"


QUANTIZED = """
import sys
import torch
import torch.ao.quantization.fx._decomposed
class Net(torch.nn.Module):
    def forward(self, x):
        ops, grid = torch.ops.quantized_decomposed, (0.03, 0, -128, 127, torch.int8)
        return torch.relu(ops.dequantize_per_tensor(ops.quantize_per_tensor(x, *grid), *grid))
torch.export.save(torch.export.export(Net(), (torch.zeros(1, 3, 8, 8),)), sys.argv[1])
"""


@pytest.mark.slow
def test_a_program_of_quantization_by_pt2e(program: Any, tmp_path: Path) -> None:
    """Operators that torch knows once a module is imported."""
    made, convert = [sys.executable, "-W", "ignore", "-c", QUANTIZED], "import nmpconv, numpy as np, sys\n"
    convert += "print(nmpconv.convert(sys.argv[1], np.zeros((4, 3, 8, 8), np.float32)).load().inputs[0].shape)"
    for command in (made, [sys.executable, "-c", convert]):
        ran = subprocess.run([*command, tmp_path / "net.pt2"], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "(1, 3, 8, 8)\n"


def test_a_damaged_program(program: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(InputError, match=r"torch cannot read or export the program") as caught:
        nmpconv.convert(path, X)
    assert caught.value.where == str(path)


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(b"PK\x03\x04")
    for missing in ("torch", "onnxscript"):
        there = {"torch", "onnxscript"} - {missing}
        monkeypatch.setattr(models, "find_spec", lambda name, there=there: name if name in there else None)
        with pytest.raises(UsageError, match=f"needs {missing}, which is not installed") as caught:
            nmpconv.convert(path, X)
        assert "nmpconv[torch]" in str(caught.value.hint)
    with pytest.raises(InputError, match="cannot be read"):
        nmpconv.convert(tmp_path / "none.pt2", X)


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ("net/data.pkl", "parameters, or a module, and no graph"),
        ("net/code/__torch__/net.py", "TorchScript"),
        ("net/archive_format", r"only `nmpconv convert` reads it"),
        ("config.json", "ZIP file"),
    ],
)
def test_other_files_of_torch_are_refused_unopened(member: str, words: str, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(member, "cos\nsystem\n(S'exit 1'\ntR.")
    path = tmp_path / "net.pt"
    path.write_bytes(packed.getvalue())
    with pytest.raises(InputError, match="not an ONNX model") as caught:
        nmpconv.convert(path, X)
    assert re.search(words, str(caught.value.hint))


@pytest.mark.parametrize("member", ["net/data.pkl", "data.pkl", "net/data/weights/0"])
def test_pickles_that_call_themselves_programs(
    member: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Files of torch.save are refused before torch is asked for; those that may be programs are not."""
    path = tmp_path / "net.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, b"\x80\x04.")
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    if member == "net/data.pkl":
        with pytest.raises(InputError, match=r"not a program of torch\.export") as caught:
            nmpconv.convert(path, X)
        assert "no graph" in str(caught.value.hint) and caught.value.where == str(path)
    else:
        with pytest.raises(UsageError, match="needs torch"):
            nmpconv.convert(path, X)
    assert capfd.readouterr() == ("", "")


def test_torch_is_silent_of_a_damaged_program(program: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import torch

    path = tmp_path / "net.pt2"
    torch.export.save(program, path)
    path.write_bytes(path.read_bytes()[:-200])
    capfd.readouterr()
    with pytest.raises(InputError, match="torch cannot read"):
        nmpconv.convert(path, X)
    assert capfd.readouterr().err == ""
