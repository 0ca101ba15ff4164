"""nmpconv bisect, and the levers of a conversion, as a command line shows them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from nmpconv.errors import ExitCode

CONVERT = ("convert", "model.onnx", "--data", "images", "-o", "c.nmp")
BISECT = ("bisect", "model.onnx", "c.nmp", "--data", "images")


def test_what_is_shown_and_written(cli) -> None:
    assert cli(*CONVERT).code == 0
    ran = cli(*BISECT)
    assert ran.code == 0, ran.err
    assert "Gain when this alone is float" in ran.out
    assert {Path(name).parent.name for name in ran.left} == {"c.bisect"}
    assert {"recipe.toml"} <= {Path(name).name for name in ran.left}
    again = cli(*BISECT)
    assert (again.code, again.left) == (ExitCode.OUTPUT, [])
    assert "is there already" in again.err
    found = cli(*BISECT, "-o", "other", "--json").json
    assert found["files"] == sorted(path.name for path in Path("other").iterdir())
    assert found["simulated_db"] == pytest.approx(found["sqnr_db"], abs=0.1)
    gains = [row["db"] for row in found["tensors"]]
    assert gains == sorted(gains, reverse=True)
    for name in found["files"]:
        assert Path("other", name).read_bytes() == Path("c.bisect", name).read_bytes()


def test_nothing_is_left_by_what_fails(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli(*CONVERT).code == 0
    Path("here").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
        ran = cli(*BISECT, "-o", "here/c")
    assert (ran.code, ran.left) == (ExitCode.OUTPUT, [])
    assert "cannot be written to" in ran.err and "rank" not in ran.err
    ran = cli("bisect", "model.onnx", "model.nmp", "--data", "images")
    assert (ran.code, ran.left) == (ExitCode.INPUT, [])
    assert "made of another model" in ran.err
    np.save("arrays.npy", np.zeros((8, 3, 8, 8), np.float32))
    ran = cli(*BISECT[:-1], "arrays.npy")
    assert (ran.code, ran.left) == (ExitCode.INPUT, [])
    assert "arrays, but input 'x' was converted from images" in ran.err
    ran = cli(*BISECT, "--metric", "nothing")
    assert (ran.code, ran.left) == (ExitCode.USAGE, [])


@pytest.mark.slow
def test_levers_of_a_conversion(cli) -> None:
    plain = cli(*CONVERT, "--json").json
    before = Path("c.nmp").read_bytes()
    assert plain["levers"] == []
    ran = cli(*CONVERT, "--report", "r.html", "--json")
    assert Path("c.nmp").read_bytes() == before
    levers = ran.json["levers"]
    assert levers
    assert all(one["said"] == {"bits": 16} for one in levers)
    assert all(one["target"] == "cortex-m4" and 0 <= one["instructions"] < 1 for one in levers)
    page = Path("r.html").read_text()
    shown = cli(*CONVERT, "--levers").out
    assert [one["helps"] for one in levers] == [one["db"] > one["db_margin"] for one in levers]
    folded = "What was tried, and gains no more than chance"
    begins = {True: "What would help most: each", False: f"<summary>{folded}</summary>.*?<caption>Each"}
    for heading, helps in (("What would help most", True), (folded, False)):
        rows = [one for one in levers if one["helps"] is helps]
        pattern = f"{begins[helps]} alone, converted and measured on 3 samples"
        assert (re.search(pattern, page, re.DOTALL) is not None) is bool(rows)
        assert (f"{heading}, each alone, on 3 samples" in shown) is bool(rows)
        assert all(f"{one['db']:+.2f} dB ± {one['db_margin']:.2f}" in page for one in rows)
    assert cli(*CONVERT, "--report", "s.html", "--no-levers").code == 0
    assert "alone, converted and measured" not in Path("s.html").read_text()


@pytest.mark.slow
def test_a_lever_that_does_not_fit(cli) -> None:
    """The model does, in the least RAM that it can do with."""
    ran = cli(*CONVERT, "--json")
    least = ran.json["arena_bytes"]
    while (found := cli(*CONVERT, "--max-ram", least * 3 // 4, "--json")).code == 0:
        least = found.json["arena_bytes"]
    ran = cli(*CONVERT, "--max-ram", least, "--report", "r.html", "--json")
    assert (ran.code, ran.left) == (0, ["r.html"])
    assert all(one["ram"] <= 0 for one in ran.json["levers"])
