"""convert --bits 8: int16 where it is nearly free. The report says where, a recipe keeps it, --strict has none."""

from __future__ import annotations

from pathlib import Path

import cli_files
import numpy as np
import onnx_text
import pytest

from nmpconv.file.reader import read


@pytest.fixture
def widths(cli):
    """widths(*flags): the widths of the small tensors, and what ran."""
    onnx_text.build(cli_files.MEANS, 13, "means.onnx")
    np.save("x.npy", np.random.default_rng(0).normal(size=(24, 3, 16, 16)).astype(np.float32))

    def run(*flags: str):
        ran = cli("convert", "means.onnx", "--data", "x.npy", "--json", *flags)
        assert ran.code == 0
        kinds = {tensor.name: tensor.dtype for tensor in read(Path("means.nmp")).tensors}
        return {kinds.get(name) for name in ("means", "small", "e")} - {None}, ran

    return run


@pytest.mark.slow
def test_widths_that_nobody_asked_for(widths) -> None:
    strict, ran = widths("--strict")
    assert strict == {"int8"}
    assert not any("16 bits for" in note for note in ran.json["notes"])
    plain, ran = widths("--save-recipe", "r.toml")
    assert "int16" in plain
    assert any(note.startswith("16 bits for") for note in ran.json["notes"])
    first = Path("means.nmp").read_bytes()
    again, _ = widths("--recipe", "r.toml")
    assert again == plain
    assert Path("means.nmp").read_bytes() == first


def test_a_budget_is_against_8_bits(widths, cli) -> None:
    widths("--strict")
    room = Path("means.nmp").stat().st_size + 192  # for the words of its options, and biases of another recipe
    ran = cli("convert", "means.onnx", "--data", "x.npy", "--bits", "auto", "--budget", f"flash={room}")
    assert ran.code == 0
    assert Path("means.nmp").stat().st_size <= room
