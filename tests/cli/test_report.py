"""report, and convert --report: what they write, and what they refuse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nmpconv
from nmpconv.errors import ExitCode


def test_a_report_of_a_file(cli) -> None:
    ran = cli("report", "model.nmp")
    assert (ran.code, ran.left) == (0, ["model.html"])
    text = Path("model.html").read_text()
    assert ran.out.startswith("verdict  int8, not measured: nothing to compare with\nneeds    544 B RAM, ")
    assert ran.out.splitlines()[-1] + "\n" == f"model.html, {len(text.encode()) / 1000:.1f} kB\n"
    assert "hand-made" not in text
    assert "conv2d" in text


def test_with_data_and_a_reference(cli) -> None:
    ran = cli(
        *("report", "model.nmp", "--data", "images/labels.csv", "--limit", "3", "--time", "-o", "r.html", "--json")
    )
    assert (ran.code, ran.left) == (0, ["r.html"])
    size = Path("r.html").stat().st_size
    printed = ran.json
    [found] = printed.pop("verdicts")
    assert printed == {"schema": 1, "models": ["model.nmp"], "output": "r.html", "bytes": size}
    assert (found["n"], found["labelled"], found["basis"]) == (3, 3, None)
    text = Path("r.html").read_text()
    assert re.search(r"Of the first 3 of \d+;", text)
    assert "Time on this machine" in text
    assert 'value="time"' in text and "--time:hsl" in text and 'value="noise"' not in text


def test_of_a_conversion(cli) -> None:
    ran = cli("convert", "model.onnx", "--data", "images", "--report", "r.html")
    assert (ran.code, ran.left) == (0, ["model.nmp", "r.html"])
    assert "own dB" in Path("r.html").read_text()
    assert re.search(r"% of the noise</title>", Path("r.html").read_text())
    assert 'value="noise"' in Path("r.html").read_text() and 'value="time"' not in Path("r.html").read_text()
    assert "--report" not in Path("r.html").read_text().split("<main", 1)[1].split("Options of", 1)[0]


def test_it_is_titled_by_the_file_that_is_written(cli) -> None:
    cli("convert", "model.onnx", "--data", "images", "-o", "other.nmp", "--fast", "--report", "r.html")
    assert "<h1>other.nmp</h1>" in Path("r.html").read_text()


def test_of_two_files(cli) -> None:
    Path("other.nmp").write_bytes(Path("model.nmp").read_bytes())
    assert cli("report", "model.nmp", "other.nmp", "-o", "two.html").left == ["two.html"]
    assert "What differs" in Path("two.html").read_text()


def test_what_is_refused(cli) -> None:
    assert cli("report", "model.nmp", "-o", "model.nmp").code == ExitCode.USAGE
    assert cli("report", *["model.nmp"] * 3).code == ExitCode.USAGE
    assert cli("report", "model.onnx").code == ExitCode.MODEL
    assert cli("report", "model.nmp", "--data", "images", "--reference", "gone.onnx").code == ExitCode.INPUT
    assert cli("convert", "model.onnx", "--data", "images", "--report", "images").code == ExitCode.OUTPUT
    assert not Path("model.html").exists()


def test_figures_stay_with_their_units(cli) -> None:
    """In the verdict, as wide as a phone."""
    assert cli("report", "model.nmp", "--data", "images", "--reference", "model.onnx").code == ExitCode.OK
    verdict = re.search(r'<p class="verdict.*?</p>', Path("model.html").read_text())[0]
    assert "\xa0%" in verdict and " %" not in verdict


def test_a_report_and_a_page_have_names_of_their_own(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """One command overwrote what the other had written."""
    monkeypatch.setattr(nmpconv, "page", lambda *_, **__: "<p>page</p>")
    assert cli("report", "model.nmp").left == ["model.html"]
    ran = cli("page", "model.nmp")
    assert ran.left == ["model-page.html"]
    assert ran.out == "model-page.html, 11 B\n"
