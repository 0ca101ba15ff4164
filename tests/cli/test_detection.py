"""eval --metric ap, of a detector that finds a white half of an image."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build
from PIL import Image

from nmpconv.errors import ExitCode

SIDE = 8
LEFT, RIGHT = (1, 1, 3, 7), (5, 1, 7, 7)  # left, top, right, bottom
EVAL = ("eval", "d.nmp", "--data", "d.csv", "--json", "--metric", "ap")
DECODED = (*EVAL, "--decoder", "ultraface")


def detector() -> onnx.ModelProto:
    """UltraFace's outputs: the mean of a half is the probability of the box in it."""
    mean = np.full((3, SIDE, SIDE // 2), 1 / (3 * SIDE * SIDE / 2))
    arrays = {
        "halves": np.stack([-mean, mean]),
        "halves_bias": np.array([1.0, 0.0]),
        "corners": np.zeros((8, 3, SIDE, SIDE)) + 1e-9,
        "corners_bias": np.array([*LEFT, *RIGHT]) / SIDE,
    }
    return build(
        f"""(float[1,3,{SIDE},{SIDE}] x) => (float[1,2,2] scores, float[1,2,4] boxes)
            <int64[3] two = {{1,2,2}}, int64[3] four = {{1,2,4}}> {{
            [halves] c = Conv<strides=[{SIDE},{SIDE // 2}]>(x, halves, halves_bias)
            [turned] t = Transpose<perm=[0,2,3,1]>(c)
            [scores] scores = Reshape(t, two)
            [corners] b = Conv(x, corners, corners_bias)
            [boxes] boxes = Reshape(b, four)
        }}""",
        13,
        arrays=arrays,
        name="detector",
    )


@pytest.fixture
def made(cli):
    """Three images: left half white, right half white, and both, of which only the left is labelled."""
    onnx.save(detector(), "d.onnx")
    rows, images, annotations = [], [], []
    for i, (halves, box) in enumerate([("L", LEFT), ("R", RIGHT), ("LR", LEFT)]):
        pixels = np.zeros((SIDE, SIDE, 3), np.uint8)
        pixels[:, : SIDE // 2] = 230 if "L" in halves else 10
        pixels[:, SIDE // 2 :] = 250 if "R" in halves else 10
        Image.fromarray(pixels).save(f"{i}.png")
        images.append({"id": i, "file_name": f"{i}.png", "width": SIDE, "height": SIDE})
        left, top, right, bottom = box
        annotations.append({"image_id": i, "category_id": 1, "bbox": [left, top, right - left, bottom - top]})
        rows.append(f"{i}.png")
    Path("d.csv").write_text("\n".join(["file", *rows]))
    Path("d.json").write_text(json.dumps({"images": images, "annotations": annotations, "categories": [{"id": 1}]}))
    assert cli("convert", "d.onnx", "--data", "d.csv", "--std", "255", "-o", "d.nmp").code == 0
    return cli


def test_ap_against_labels(made) -> None:
    """By score: right (.98), wrong (.98), left (.90) twice, then the dark halves. Precision is 1 to a recall of 1/3,
    then 3/4: the best at recalls of 2/3 and 1."""
    found = made(*DECODED, "--boxes", "d.json").json["metrics"]
    assert found["ap50"] == pytest.approx(100 * (34 * 1 + 67 * 3 / 4) / 101)
    assert 50 < found["ap"] <= found["ap50"]
    assert set(found) == {"ap", "ap50"}


def test_the_verdict_is_of_boxes(made) -> None:
    whole = made(*DECODED, "--boxes", "d.json", "--reference", "d.onnx").json["verdict"]
    assert (whole["word"], whole["basis"], whole["n"]) == ("too few to tell", "ap50", 3)
    assert whole["ap50"] == whole["float_ap50"]
    floats = made(*DECODED, "--reference", "d.onnx").json["verdict"]
    assert (floats["ap50"], floats["ap50_agreement"]) == (None, 100)


@pytest.mark.parametrize("bits", ["8", "16"])
def test_a_conversion_measures_boxes(made, bits: str) -> None:
    """Boxes of the third of nine images on which the recipe was not fitted."""
    rows = ["file"]
    about = json.loads(Path("d.json").read_text())
    images, annotations = about["images"], about["annotations"]
    for i in range(9):
        Image.open(f"{i % 3}.png").save(f"more{i}.png")
        rows.append(f"more{i}.png")
        images.append({**images[i % 3], "id": 10 + i, "file_name": f"more{i}.png"})
        annotations.append({**annotations[i % 3], "image_id": 10 + i})
    Path("more.csv").write_text("\n".join(rows))
    Path("more.json").write_text(json.dumps(about))
    convert = ("convert", "d.onnx", "--data", "more.csv", "--std", "255", "--bits", bits, "--json")
    found = made(*convert, "--decoder", "ultraface", "--boxes", "more.json").json["verdict"]
    assert (found["basis"], found["n"]) == ("ap50", 3)
    assert found["ap50"] == found["float_ap50"] > 50
    assert "finds boxes with AP50" in found["sentence"]
    alone = made(*convert, "--decoder", "ultraface").json["verdict"]
    assert (alone["ap50"], alone["ap50_agreement"]) == (None, 100)
    assert "boxes need a decoder" in made(*convert, "--boxes", "more.json").err


def test_ap_beside_the_float_models(made) -> None:
    found = made(*DECODED, "--boxes", "d.json", "--reference", "d.onnx").json["metrics"]
    assert found["float ap50"] == found["ap50"]
    assert found["agreement ap50"] == 100
    alone = made(*DECODED, "--reference", "d.onnx").json["metrics"]
    assert alone == {name: value for name, value in found.items() if "agreement" in name}


@pytest.mark.parametrize(
    ("flags", "code", "expected"),
    [
        (EVAL, ExitCode.USAGE, "ap needs a decoder"),
        ((*EVAL, "--decoder", "yolo"), ExitCode.USAGE, "--decoder: 'yolo' is not allowed; allowed: nanodet, "),
        (DECODED, ExitCode.USAGE, "ap needs to know which boxes are right"),
        ((*EVAL, "--decoder", "yolox", "--boxes", "d.json"), ExitCode.INPUT, "yolox takes [1, points, 5 + classes]"),
        ((*DECODED, "--boxes", "gone.json"), ExitCode.INPUT, "gone.json: cannot be read"),
        ((*DECODED, "--boxes", "d.csv"), ExitCode.INPUT, "a row without `file` or `labels`"),
    ],
)
def test_what_ap_needs(made, flags: tuple[str, ...], code: ExitCode, expected: str) -> None:
    ran = made(*flags)
    assert (ran.code, ran.json["error"]["exit_code"]) == (code, code)
    assert expected in ran.err


def test_a_goal_of_boxes(made) -> None:
    """A goal that 8 bits reach already needs nothing wider."""
    for i in range(9):
        Image.open(f"{i % 3}.png").rotate(90 * (i // 3)).save(f"more{i}.png")
    Path("more.csv").write_text("\n".join(["file", *(f"more{i}.png" for i in range(9))]))
    convert = ("convert", "d.onnx", "--data", "more.csv", "--std", "255")
    assert made(*convert, "-o", "8.nmp").code == 0
    auto = (*convert, "--bits", "auto", "--goal", "ap50=90", "-o", "auto.nmp")
    ran = made(*auto, "--decoder", "ultraface", "--json")
    assert ran.code == 0
    assert not any("goal" in warning for warning in ran.json["warnings"])
    assert Path("8.nmp").read_bytes() == Path("auto.nmp").read_bytes()
    assert "ap needs a decoder" in made(*auto).err
