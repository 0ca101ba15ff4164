"""convert --fast: one conversion where others compare several, measured on samples that it was not fitted to."""

from __future__ import annotations

import json
from pathlib import Path

import cli_files
import numpy as np
import onnx_text
import pytest

import nmpconv
from nmpconv.conversion import pipeline
from nmpconv.errors import ExitCode
from nmpconv.file.reader import read
from nmpconv.passes.quantize import rounding

CONVERT = ("convert", "means.onnx", "--data", "x.npy")
SAMPLES = 40
PART = "20 calibration samples, 8 of which biases were fitted to, are few"


@pytest.fixture
def fits(cli, monkeypatch: pytest.MonkeyPatch):
    """fits(*flags): numbers of samples that each fit of a conversion saw, and what ran."""
    onnx_text.build(cli_files.MEANS, 13, "means.onnx")
    np.save("x.npy", np.random.default_rng(0).normal(size=(SAMPLES, 3, 16, 16)).astype(np.float32))
    plain = rounding.run

    def run(*flags: str):
        seen = []

        def counted(graph, how, evidence, *others):
            if "x" in evidence.inputs:  # estimates are fitted to nothing
                seen.append(len(evidence.inputs["x"]))
            return plain(graph, how, evidence, *others)

        monkeypatch.setattr(rounding, "run", counted)
        return seen, cli(*CONVERT, *flags)

    return run


def config() -> dict[str, object]:
    return json.loads(read(Path("means.nmp")).metadata["config"])


def test_rows_are_let_go_before_the_result_is_measured(fits, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, left = pipeline.describe, []

    def described(context, calibrated, decision, quantized):
        left.append((decision.fitter._memo.of("rows"), decision.prepared.seen.results()))
        return plain(context, calibrated, decision, quantized)

    monkeypatch.setattr(pipeline, "describe", described)
    fits("--fast")
    assert left == [([], [])]


def test_it_fits_once(fits) -> None:
    many, ran = fits("--rounding", "nearest", "--json")
    assert len(many) > 4
    assert "fast" not in config()
    slow = ran.json
    few, ran = fits("--fast", "--json")
    assert few == [8]
    assert config()["fast"] is True
    found = ran.json
    assert found["recipe"] == "equalize scalar, nearest rounding"
    assert not any("on held-out images" in note for note in found["notes"])
    assert found["held_out"]["images"] == 8
    assert not any("are few" in warning for warning in found["warnings"])
    assert 30 < found["held_out"]["db"] < slow["held_out"]["db"]


def test_statistics_are_of_all_samples(fits) -> None:
    fits("--fast", "--save-profile", "fast.txt")
    fits("--strict", "--equalize", "none", "--rounding", "nearest", "--save-profile", "slow.txt")
    assert Path("fast.txt").read_text() == Path("slow.txt").read_text()


def test_the_report_has_the_command_and_no_levers(fits) -> None:
    few, ran = fits("--fast", "--report", "r.html")
    assert (ran.code, few) == (0, [8])
    assert "nmpconv convert means.onnx --data x.npy --fast" in Path("r.html").read_text()


@pytest.mark.parametrize(
    ("flags", "recipe"),
    [
        (("--rounding", "gptq"), "equalize scalar, gptq rounding"),
        (("--equalize", "none"), "equalize none, nearest rounding"),
        (("--bits", "16"), "equalize scalar, nearest rounding"),
        (("--precise",), "equalize scalar, nearest rounding"),
        (("--strict", "--no-zero-points"), "equalize scalar, nearest rounding, no zero points"),
    ],
)
def test_what_is_said_otherwise_holds(fits, flags: tuple[str, ...], recipe: str) -> None:
    few, ran = fits("--fast", "--json", *flags)
    assert (few, ran.json["recipe"]) == ([8], recipe)


@pytest.mark.parametrize("flag", ["--bits auto", "--levers"])
def test_what_needs_several_conversions_is_refused(cli, flag: str) -> None:
    ran = cli("convert", "model.onnx", "--data", "images", "--fast", *flag.split())
    assert (ran.code, ran.left) == (ExitCode.USAGE, [])
    assert f"--fast: makes one conversion, and {flag} needs several" in ran.err


@pytest.mark.parametrize(("count", "words"), [(3, "3 calibration samples are few"), (20, PART), (36, "")])
def test_a_few_samples(fits, count: int, words: str) -> None:
    few, ran = fits("--fast", "--limit", str(count), "--json")
    assert (ran.code, few) == (0, [min(count, 8)])
    warnings = [text for text in ran.json["warnings"] if "are few" in text]
    assert [text.partition(":")[0] for text in warnings] == ([words] if words else [])


def test_from_python(fits) -> None:
    fits("--fast")
    assert nmpconv.convert("means.onnx", "x.npy", fast=True).data == Path("means.nmp").read_bytes()
