"""Pictures of the worst samples: boxes and masks of both models, curves of sounds and sensors."""

from __future__ import annotations

import base64
import io
import re
import wave
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx_text import build
from PIL import Image

import nmpconv
from nmpconv.exporters.html import charts, sample_pictures

POINTS = 21  # of an input of 32x32: 4x4, 2x2 and 1 cells
SVG = re.compile(r"<svg viewBox=\"0 0 32 32\" role=\"img\" aria-label=\"(.*?)\">(.*?)</svg>", re.DOTALL)


def photos(folder: Path, count: int = 4) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(5)
    for i in range(count):
        Image.fromarray(rng.integers(0, 256, (32, 32, 3)).astype(np.uint8)).save(folder / f"{i}.png")
    return folder


def detector() -> onnx.ModelProto:
    """YOLOX's output with one sure box, of class 1 around (12, 4), 16 wide and 8 high, whatever the picture."""
    bias = np.zeros((POINTS, 7))
    bias[1] = [0.5, 0.5, np.log(2), 0, 0.9, 0.1, 0.95]
    rng = np.random.default_rng(1)
    arrays = {"w": rng.normal(0, 1e-3, (POINTS * 7, 3)), "b": bias.ravel(), "s": np.array([1, POINTS, 7])}
    text = f"""(float[1,3,32,32] x) => (float[1,{POINTS},7] y) {{
        g = GlobalAveragePool(x)
        f = Flatten(g)
        z = Gemm<transB=1>(f, w, b)
        y = Reshape(z, s)
    }}"""
    return build(text, 13, arrays=arrays, name="detector")


def segmenter() -> onnx.ModelProto:
    """The channel that is brightest, as scores of four classes."""
    arrays = {"w": np.concatenate([np.zeros((1, 3)), np.eye(3)])[:, :, None, None], "b": np.array([0.2, 0, 0, 0])}
    return build("(float[1,3,32,32] x) => (float[1,4,32,32] y) { y = Conv(x, w, b) }", 13, arrays=arrays, name="seg")


def test_boxes_of_both_models(tmp_path: Path) -> None:
    data, model = photos(tmp_path / "photos"), detector()
    file = nmpconv.convert(model, data, mean=127.5, std=64, bits=16)
    page = nmpconv.html_report(file.data, data=data, reference=model, decoder="yolox")
    pictures = SVG.findall(page)
    assert len(pictures) == 8  # four samples, two models
    for name, drawn in pictures:
        kind, text = name.split(": ")
        assert kind in ("quantized", "float") and text.startswith("1 0.8")
        [box] = re.findall('<rect class="box".*?>', drawn)
        numbers = [float(found) for found in re.findall(r'(?:x|y|width|height)="([\d.]+)"', box)]
        assert numbers == pytest.approx([4, 0, 16, 8], abs=0.2)
        assert f'<g class="{kind}">' in drawn
    assert "Boxes: 1, float 1." in page
    [verdict] = page.verdicts
    assert verdict.quality.basis == "ap50" and "keeps 100 % of the boxes" in verdict.sentence
    assert 'class="box"' not in nmpconv.html_report(file, data=data, reference=model)
    with pytest.raises(nmpconv.errors.InputError, match="yolov8 takes"):
        nmpconv.html_report(file, data=data, decoder="yolov8")


def test_the_report_of_a_conversion_knows_the_decoder(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos")
    report = tmp_path / "report.html"
    nmpconv.convert(detector(), data, mean=127.5, std=64, decoder="yolox", report=report)
    assert len(SVG.findall(report.read_text())) == 8


def test_no_boxes_where_arrays_feed_a_detector(tmp_path: Path) -> None:
    """The verdict is of the outputs: boxes are in pixels, which arrays have none of."""
    data = np.random.default_rng(2).normal(size=(12, 3, 32, 32)).astype(np.float32)
    report = tmp_path / "report.html"
    converted = nmpconv.convert(detector(), data, decoder="yolox", report=report)
    assert converted.report.verdict.quality.basis == "sqnr"
    assert 'class="box"' not in report.read_text()


def test_masks_of_both_models(tmp_path: Path) -> None:
    data, model = photos(tmp_path / "photos"), segmenter()
    page = nmpconv.html_report(nmpconv.convert(model, data, mean=127.5, std=64), data=data, reference=model)
    pictures = SVG.findall(page)
    assert len(pictures) == 8
    _, drawn = pictures[0]
    photo, mask = (
        Image.open(io.BytesIO(base64.b64decode(found)))
        for found in re.findall(r'href="data:image/\w+;base64,(.*?)"', drawn)
    )
    assert photo.size == mask.size == (32, 32)
    assert mask.mode == "RGBA" and len(mask.getcolors() or ()) == 4
    shares = [float(found) for found in re.findall(r"([\d.]+) % are the float model", page)]
    assert len(shares) == 4 and min(shares) > 90


def test_curves_of_sensors(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    arrays = {"w": rng.normal(0, 0.3, (4, 3, 5)), "v": rng.normal(0, 0.3, (4, 2))}
    text = """(float[1,3,40] x) => (float[1,2] y) {
        c = Conv<pads=[2,2]>(x, w)
        r = Relu(c)
        p = GlobalAveragePool(r)
        f = Flatten(p)
        y = MatMul(f, v)
    }"""
    model, data = build(text, 13, arrays=arrays, name="imu"), rng.normal(0, 1, (6, 3, 40)).astype(np.float32)
    page = nmpconv.html_report(nmpconv.convert(model, data), data=data, reference=model)
    assert page.count('class="curve"') == 6 * 3
    assert "<img" not in page


def test_curves_of_sounds(tmp_path: Path) -> None:
    """The file's curve, above its bands in shades of grey."""
    (tmp_path / "sounds").mkdir()
    rng = np.random.default_rng(3)
    for i in range(6):
        with wave.open(str(tmp_path / "sounds" / f"{i}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(rng.integers(-9000, 9000, 256 + 128 * 19).astype("<i2").tobytes())
    arrays = {"w": rng.normal(0, 0.3, (4, 1, 3, 3)), "v": rng.normal(0, 0.3, (4, 2))}
    text = """(float[1,1,20,16] x) => (float[1,2] y) {
        c = Conv<pads=[1,1,1,1]>(x, w)
        p = GlobalAveragePool(c)
        f = Flatten(p)
        y = MatMul(f, v)
    }"""
    model = build(text, 13, arrays=arrays, name="sounds")
    file = nmpconv.convert(model, tmp_path / "sounds", audio="rate=8000,window=256,hop=128,bands=16")
    page = nmpconv.html_report(file, data=tmp_path / "sounds", reference=model)
    assert page.count('class="curve"') == 6
    [first, *_] = re.findall(r'<img src="data:image/png;base64,(.*?)"', page)
    assert Image.open(io.BytesIO(base64.b64decode(first))).size == (20, 16)


def test_a_curve_keeps_its_ends() -> None:
    path = charts.curve(np.sin(np.linspace(0, 60, 5000)), -1.0, 1.0)
    numbers = [float(found) for found in re.findall(r"[ V]([\d.]+)", path)]
    assert path.count("L") == charts.COLUMNS - 1
    assert min(numbers) == pytest.approx(0, abs=0.1) and max(numbers) == pytest.approx(charts.HIGH, abs=0.1)
    assert charts.curve(np.zeros(3), 0.0, 0.0)


@pytest.mark.parametrize(("classes", "name"), [((), "1"), (("ant",), "1"), (("ant", "bee"), "bee")])
def test_a_class_without_a_name_is_its_number(classes: tuple[str, ...], name: str) -> None:
    row = np.zeros((1, POINTS, 7))
    row[0, 1] = [0.5, 0.5, np.log(2), 0, 0.9, 0.1, 0.95]
    (box,) = sample_pictures._boxes("yolox", [row], (32, 32), classes)
    assert box.text.split()[0] == name


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-90.0, -20.0), (3.0, 3.0)])
def test_a_spectrum_goes_from_black_to_white(low: float, high: float) -> None:
    """Whatever its numbers are; the last row stands at the top."""
    values = np.linspace(low, high, 20 * 30).reshape(1, 20, 30)
    feed = SimpleNamespace(rate=None, is_sound=True, file=lambda i: "x.npy", time_axis=lambda shape: None)
    address = sample_pictures._array(feed, 0, values).picture  # type: ignore[arg-type]
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))))
    assert picture.shape[:2] == (20, 30)
    ends = picture.reshape(20, 30, -1)[[-1, 0], [0, -1], 0].tolist()
    assert ends == ([0, 255] if high > low else [0, 0])
