"""Data that calibrates nothing, is of another scale than the file's, or has other class numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build
from PIL import Image

CLASSES, COUNT = 6, 120


@pytest.fixture
def data(here: Path) -> tuple[np.ndarray, np.ndarray]:
    """m.onnx, x.npy of samples from 0 to 1, m.nmp converted with them, and the model's own answers."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(16, 32)) * 0.4, rng.normal(size=(CLASSES, 16))
    x = rng.uniform(0, 1, (COUNT, 1, 32)).astype(np.float32)
    hidden = np.maximum((x[:, 0] - 0.5) @ first.T, 0)
    bias = -(hidden @ second.T).mean(0)
    text = f"""(float[1,32] x) => (float[1,{CLASSES}] y) {{
        s = Sub(x, half) a = Gemm<transB=1>(s, w1, b1) r = Relu(a) y = Gemm<transB=1>(r, w2, b2)
    }}"""
    arrays = {"half": np.array(0.5), "w1": first, "b1": np.zeros(16), "w2": second, "b2": bias}
    onnx.save(build(text, 13, arrays=arrays), here / "m.onnx")
    np.save(here / "x.npy", x)
    return x, (hidden @ second.T + bias).argmax(1)


@pytest.fixture
def converted(cli, data: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    assert cli("convert", "m.onnx", "--data", "x.npy", "-o", "m.nmp").code == 0
    return data


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            "zeros",
            "100 of 100 calibration samples (of 120) hold one value throughout (0); ranges, biases and SQNR say no",
        ),
        (
            "copies",
            "99 of 100 calibration samples (of 120) are copies of others; ranges, biases and SQNR say nothing of ",
        ),
        ("different", None),
    ],
)
def test_samples_that_calibrate_nothing(cli, data: tuple[np.ndarray, np.ndarray], kind: str, words: str | None) -> None:
    x, _ = data
    np.save("some.npy", {"zeros": 0 * x, "copies": np.repeat(x[:1], COUNT, 0), "different": x}[kind])
    shown = cli("convert", "m.onnx", "--data", "some.npy", "-o", "some.nmp", "--report", "some.html")
    warnings = cli("convert", "m.onnx", "--data", "some.npy", "-o", "some.nmp", "--json").json["warnings"]
    assert [text[: len(words)] for text in warnings] == [words] if words else warnings == []
    assert (f"warning: {words}" in shown.out) is bool(words)
    assert ("calibration samples (of 120)" in Path("some.html").read_text()) is bool(words)


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (255, "saturated: 99.3 % of the values of input 'x': from 0.04"),
        (1 / 200, "input 'x' fills 0.25 % of its range, "),
        (1, None),
    ],
)
def test_data_of_another_scale(cli, converted: tuple[np.ndarray, np.ndarray], factor: float, words: str | None) -> None:
    x, _ = converted
    np.save("other.npy", factor * x)
    more = ("--data", "other.npy", "--reference", "m.onnx")
    judged = cli("eval", "m.nmp", *more, "--json").json
    ran = cli("run", "m.nmp", "other.npy", "--json").json
    assert judged["inputs"] == ran["inputs"]
    [port] = judged["inputs"]
    beyond = np.mean(factor * x >= 2 - 2**-15)
    assert port["saturated"] == pytest.approx(100 * beyond, abs=0.05)
    assert (port["name"], port["max"]) == ("x", pytest.approx(factor * x.max()))
    assert cli("report", "m.nmp", *more, "-o", "r.html").code == 0
    pages = [
        cli("eval", "m.nmp", *more).out,
        cli("run", "m.nmp", "other.npy").out,
        Path("r.html").read_text().replace("&#39;", "'"),
    ]
    assert ("saturated  99" in pages[0]) is (factor == 255)
    for text in (*judged["warnings"], *ran["warnings"]):
        assert words is not None and text.startswith(words)
    assert len(judged["warnings"]) == len(ran["warnings"]) == (words is not None)
    assert all("is the data prepared as the calibration data was?" in page for page in pages) is (words is not None)


def test_a_quiet_sample_is_no_mistake(cli, converted: tuple[np.ndarray, np.ndarray]) -> None:
    x, _ = converted
    np.save("quiet.npy", 0 * x[:3])
    assert cli("run", "m.nmp", "quiet.npy", "--json").json["warnings"] == []


def test_labels_that_are_off_by_one(cli, converted: tuple[np.ndarray, np.ndarray]) -> None:
    x, labels = converted
    kept = labels < CLASSES - 1
    np.savez("off.npz", x=x[kept], labels=labels[kept] + 1)
    found = cli("eval", "m.nmp", "--data", "off.npz", "--json").json
    assert found["top1"] < 20
    [warning] = found["warnings"]
    assert warning.startswith("labels look off by 1: with 1 less (--label-offset -1), ")
    assert f" of {kept.sum()} samples are right, not " in warning
    assert f"warning: {warning}" in cli("eval", "m.nmp", "--data", "off.npz").out
    right = cli("eval", "m.nmp", "--data", "off.npz", "--label-offset", "-1", "--json").json
    assert (right["warnings"], right["top1"] > 90) == ([], True)
    np.savez("out.npz", x=x, labels=labels + 1)
    out = cli("eval", "m.nmp", "--data", "out.npz")
    assert out.code != 0 and "they go from 1 to 6; --label-offset N is added to every label" in out.err


def test_a_commonest_class_is_no_offset(cli, converted: tuple[np.ndarray, np.ndarray]) -> None:
    """All labels are one class, and most answers another one: a constant would do as well."""
    x, labels = converted
    np.savez("one.npz", x=x[labels == 2], labels=np.full((labels == 2).sum(), 1))
    assert cli("eval", "m.nmp", "--data", "one.npz", "--json").json["warnings"] == []


def test_build_says_so_too(cli, converted: tuple[np.ndarray, np.ndarray]) -> None:
    x, labels = converted
    kept = labels < CLASSES - 1
    np.savez("off.npz", x=x[kept], labels=labels[kept] + 1)
    Path("nmpconv.toml").write_text('model = "m.onnx"\n[data]\ncalibration = "x.npy"\ntest = "off.npz"\n[targets.a]\n')
    for _ in range(2):  # the second time from what the first has kept
        [target] = cli("build", "--json").json["targets"]
        assert [text.split(":")[0] for text in target["warnings"]] == ["labels look off by 1"]


def test_run_says_that_alpha_is_dropped(cli, here: Path) -> None:
    Image.new("RGBA", (64, 64), (200, 10, 10, 90)).save("clear.png")
    ran = cli("run", "model.nmp", "clear.png")
    assert ran.code == 0
    assert "alpha" in ran.out
