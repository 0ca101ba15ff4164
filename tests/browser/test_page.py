"""Pages of `nmpconv page` in Chromium, opened from a folder: dropped pictures have the bytes of `nmpconv.load`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_text import build
from pages import opened, pictured
from PIL import Image
from zoo_quick import HARNESS

import nmpconv
from nmpconv.data.images import load
from nmpconv.errors import InputError, UsageError
from nmpconv.evaluation.detection.boxes import CLASS, SCORE, non_maximum_suppression
from nmpconv.evaluation.detection.decoders import DECODERS
from nmpconv.evaluation.task_metrics import SURE, decoded

pytestmark = pytest.mark.slow
# A clock of whole milliseconds, as browsers that mind privacy have it.
COARSE = (
    "<script>{ const now = performance.now.bind(performance); performance.now = () => Math.floor(now()); }</script>"
)
LARGE: dict[str, Any] = {"mobilenetv2_100_224_ptqdeq": None, "yolox_nano_416": "yolox"}  # with decoders


def png(path: Path, pixels: np.ndarray) -> Path:
    Image.fromarray(pixels).save(path)
    return path


@pytest.mark.parametrize("resize", ["squash", "letterbox", "shorter"])
def test_pictures_have_the_bytes_of_every_machine(
    resize: str, samples: Path, tmp_path: Path, need_tool: Callable[..., str], need_package: Callable[..., None]
) -> None:
    """Pictures of the model's size, and larger and smaller ones, which the page's filter resizes: first along rows, as
    Pillow does but for tall pictures."""
    need_package("ziglang")
    chromium, sample, random = need_tool("chromium", "chromium-browser"), samples / "shapes", np.random.default_rng(1)
    made = nmpconv.convert(
        sample / "model.onnx",
        sample / "calib",
        mean=(123.675, 116.28, 103.53),
        std=(58.395, 57.12, 57.375),
        resize=resize,
        crop=1 if resize == "letterbox" else 0.875,
        labels=sample / "labels.txt",
        limit=4,
        rounding="nearest",
        equalize="none",
    )
    sizes = [(32, 32), (48, 75), (20, 27)]
    pictures = [
        png(tmp_path / f"{i}.png", random.integers(0, 256, (*size, 3), dtype=np.uint8)) for i, size in enumerate(sizes)
    ]
    net = nmpconv.load(made.data)
    look = net.inputs[0].preprocess
    assert look is not None
    labels = (sample / "labels.txt").read_text().split()
    page = nmpconv.page(made).replace("<script", f"{COARSE}<script", 1)
    for picture, found in zip(pictures, opened(chromium, tmp_path, page, pictures, "image/png"), strict=True):
        [integers] = net.run(load(picture, (32, 32, 3), look))
        assert found["failed"] == ""
        assert " ms " in found["time"] and int(found["time"].split()[-2]) > 1  # not the first run alone
        assert not found["time"].startswith("0.00 ")
        assert found["digests"] == [hashlib.sha256(np.ascontiguousarray(integers).tobytes()).hexdigest()]
        assert found["rows"][0][0] == labels[int(np.argmax(integers))]


def test_the_picture_of_the_docs(
    samples: Path, tmp_path: Path, need_tool: Callable[..., str], need_package: Callable[..., None]
) -> None:
    """The folder that NMP_PICTURES names has docs/page.png as it is now: with the heart and a score for it."""
    need_package("ziglang")
    sample = samples / "shapes"
    made = nmpconv.convert(
        *(sample / "model.onnx", sample / "calib"),
        **{"mean": (123.675, 116.28, 103.53), "std": (58.395, 57.12, 57.375), "labels": sample / "labels.txt"},
    )
    made.save(tmp_path / "shapes.nmp")
    heart, size = sorted((sample / "test").glob("*heart.png"))[0], (900, 770)
    chromium = need_tool("chromium", "chromium-browser")
    picture = pictured(chromium, tmp_path, nmpconv.page(tmp_path / "shapes.nmp"), heart, "image/png", size)
    with Image.open(picture) as image, Image.open(samples.parent / "docs" / "page.png") as shown:
        assert image.size == shown.size == size
        rgb = np.asarray(image.convert("RGB"), np.float32)
        assert rgb[200:500, 60:400].std((0, 1)).max() > 20  # the picture
        assert rgb[190:360, 450:880].std() > 10  # the classes
        image.convert("RGB").save(Path(os.environ.get("NMP_PICTURES", tmp_path)) / "page.png", optimize=True)


def test_boxes_are_those_of_eval(
    samples: Path, tmp_path: Path, need_tool: Callable[..., str], need_package: Callable[..., None]
) -> None:
    need_package("ziglang")
    chromium, sample = need_tool("chromium", "chromium-browser"), samples / "boxes"
    made = nmpconv.convert(
        sample / "model.onnx", sample / "calib", std=255, limit=4, rounding="nearest", equalize="none"
    )
    net, pictures = nmpconv.load(made.data), sorted((sample / "test").glob("*.png"))[:3]
    page = nmpconv.page(made, decoder="yolox")
    for picture, found in zip(pictures, opened(chromium, tmp_path, page, pictures, "image/png"), strict=True):
        assert found["failed"] == ""
        outputs = net(np.asarray(Image.open(picture).convert("RGB")))
        wanted = non_maximum_suppression(decoded("yolox", list(outputs), (64, 64)), SURE, DECODERS["yolox"].overlap)
        assert len(found["rows"]) == len(wanted) > 0
        for (name, score, corners), box in zip(found["rows"], wanted, strict=True):
            assert name == f"class {int(box[CLASS])}"
            assert float(score) == pytest.approx(box[SCORE], rel=1e-3)
            np.testing.assert_allclose([float(x) for x in corners.split(", ")], box[:4], atol=0.51)


@pytest.mark.parametrize("layout", ["[0,1,2,3]", "[0,2,3,1]"])
def test_masks_have_classes_first_or_last(
    layout: str, tmp_path: Path, need_tool: Callable[..., str], need_package: Callable[..., None]
) -> None:
    """The left half of the picture is of class 1, the right one of class 0, which is left clear."""
    need_package("ziglang")
    shape = "1,3,8,16" if layout == "[0,1,2,3]" else "1,8,16,3"
    model = f"""(float[1,3,8,16] x) => (float[{shape}] y) <float[3,3,1,1] w = {{0.5,0.5,0.5,1,0,0,0,1,0}}> {{
      c = Conv(x, w)  y = Transpose<perm={layout}>(c)
    }}"""
    build(model, 13, tmp_path / "m.onnx")
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8, 0] = pixels[:, 8:, 2] = 255
    page = nmpconv.page(nmpconv.convert(tmp_path / "m.onnx", [pixels] * 4, std=255, fast=True))
    chromium, picture = need_tool("chromium", "chromium-browser"), png(tmp_path / "0.png", pixels)
    [found] = opened(chromium, tmp_path, page, [picture], "image/png")
    assert (found["failed"], found["rows"]) == ("", [["y", shape.replace(",", "x")]])
    colour = 128 + 127 * np.cos(2.399963 + np.array([0, 2.0944, 4.1888]))
    np.testing.assert_allclose(found["colours"][0], (np.array([255, 0, 0]) + colour) / 2, atol=3)
    assert found["colours"][1] == [0, 0, 255]


@pytest.mark.zoo
@pytest.mark.parametrize("name", LARGE)
def test_large_nets(
    name: str, zoo: Path, tmp_path: Path, need_tool: Callable[..., str], need_package: Callable[..., None]
) -> None:
    need_package("ziglang")
    about = json.loads((zoo / "zoo.json").read_text())[name]
    data = HARNESS.split(zoo, name, about, tmp_path)
    look = {key: getattr(data.preprocess, key) for key in ("mean", "std", "channel_order", "resize", "crop")}
    options = {"limit": 8, "rounding": "nearest", "equalize": "none", "levers": False, **look}
    net = nmpconv.convert(zoo / "models" / f"{name}.onnx", data.calib, **options).load()
    _, *size, channels = net.inputs[0].shape
    picture = png(tmp_path / "0.png", np.random.default_rng(1).integers(0, 256, (*size, channels), dtype=np.uint8))
    page = nmpconv.page(net, decoder=LARGE[name])
    [found] = opened(need_tool("chromium", "chromium-browser"), tmp_path, page, [picture], "image/png")
    assert found["failed"] == ""
    assert net.inputs[0].preprocess is not None
    outputs = net.run(load(picture, (*size, channels), net.inputs[0].preprocess))
    assert found["digests"] == [hashlib.sha256(np.ascontiguousarray(y).tobytes()).hexdigest() for y in outputs]


def test_a_decoder_of_other_outputs_is_refused(samples: Path) -> None:
    made = nmpconv.convert(samples / "shapes" / "model.onnx", samples / "shapes" / "calib", limit=2)
    with pytest.raises(InputError, match="yolox takes"):
        nmpconv.page(made, decoder="yolox")
    with pytest.raises(UsageError, match="yolov8"):
        nmpconv.page(made, decoder="yolo")  # type: ignore[arg-type]


def test_what_is_no_picture_is_refused(tmp_path: Path, samples: Path) -> None:
    made = nmpconv.convert(samples / "shapes" / "model.onnx", np.zeros((2, 3, 32, 32), np.float32), limit=2)
    with pytest.raises(UsageError, match="allowed is one image"):
        nmpconv.page(made)
