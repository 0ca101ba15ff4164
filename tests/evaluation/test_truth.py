"""Boxes that people wrote down, in pixels of the model's input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nmpconv.data import box_labels, images
from nmpconv.errors import InputError
from nmpconv.ir import Preprocess

WIDTH, HEIGHT = 160, 90
BOX = (40, 20, 120, 60)  # left, top, right, bottom


def coco(**changes: object) -> dict:
    left, top, right, bottom = BOX
    one = {"image_id": 7, "category_id": 30, "bbox": [left, top, right - left, bottom - top]}
    return {
        "images": [{"id": 7, "file_name": "val/a.png", "width": WIDTH, "height": HEIGHT}],
        "annotations": [one, {**one, "category_id": 4, "iscrowd": 1}],
        "categories": [{"id": 30}, {"id": 4}],
    } | changes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An image with a white box on black, and what COCO and YOLO say of it."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[BOX[1] : BOX[3], BOX[0] : BOX[2]] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (tmp_path / "coco.json").write_text(json.dumps(coco()))
    left, top, right, bottom = BOX
    middle = f"{(left + right) / 2 / WIDTH} {(top + bottom) / 2 / HEIGHT}"
    (tmp_path / "a.txt").write_text(f"1 {middle} {(right - left) / WIDTH} {(bottom - top) / HEIGHT}\n\n")
    (tmp_path / "yolo.csv").write_text("file,labels\na.png,a.txt\n")
    return tmp_path


@pytest.mark.parametrize("resize", ["squash", "letterbox", "shorter"])
@pytest.mark.parametrize("size", [(64, 64), (320, 96), (WIDTH, HEIGHT)])
def test_a_box_is_where_the_image_has_it(folder: Path, resize: str, size: tuple[int, int]) -> None:
    """To a pixel of the resized image."""
    pre = Preprocess(resize=resize, pad=0, crop=0.9 if resize == "shorter" else 1.0)
    seen = images.load(folder / "a.png", (size[1], size[0], 3), pre)[..., 0] > 127
    (rows,) = box_labels.read(folder / "coco.json", [str(folder / "a.png")], size, pre)
    corners = np.clip(rows[0, :4], 0, [size[0], size[1]] * 2)
    y, x = np.nonzero(seen)
    np.testing.assert_allclose(corners, [x.min(), y.min(), x.max() + 1, y.max() + 1], atol=1.01)
    assert rows[:, 4:].tolist() == [[1, 0], [0, 1]]  # the classes are places of sorted ids; the second is a crowd
    for source in ("yolo.csv", ""):  # a list, a folder of texts
        (same,) = box_labels.read(folder / source, [str(folder / "a.png")], size, pre)
        np.testing.assert_allclose(same, rows[:1], atol=1e-9)


def test_a_folder_of_texts_may_lack_those_of_empty_images(folder: Path) -> None:
    (folder / "b.png").write_bytes((folder / "a.png").read_bytes())
    images_of = [str(folder / name) for name in ("b.png", "a.png")]
    assert list(map(len, box_labels.read(folder, images_of, (64, 64), Preprocess()))) == [0, 1]
    (above,) = box_labels.read(folder.parent, images_of[1:], (64, 64), Preprocess())  # labels/ for images/val
    assert len(above) == 1
    with pytest.raises(InputError, match=r"no file in it is named like b\.png"):
        box_labels.read(folder, images_of[:1], (64, 64), Preprocess())
    (folder / "windows.csv").write_text("file,labels\n.\\a.png,.\\a.txt\n")
    assert len(box_labels.read(folder / "windows.csv", images_of[1:], (64, 64), Preprocess())[0]) == 1


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("x.json", "[", "no boxes in COCO's form"),
        ("x.json", "[]", "no boxes in COCO's form"),
        ("x.json", json.dumps(coco(categories=[{"id": 4}])), "no boxes in COCO's form: 30 is missing"),
        ("x.json", json.dumps(coco(images=[])), "no boxes in COCO's form: 7 is missing"),
        ("x.json", json.dumps(coco(annotations=[], images=[])), "it does not name the image a.png"),
        ("x.json", json.dumps(coco(annotations=[{"image_id": 7, "category_id": 4, "bbox": [1, 2]}])), "COCO's form"),
        ("x.json", json.dumps(coco()).replace("40", "NaN"), "a box holds NaN or infinity"),
        ("x.json", json.dumps(coco()).replace("160", "0"), "an image of 0 x 90 pixels"),
        ("x.json", json.dumps(coco()).replace("160", "1e400"), "an image of inf x 90 pixels"),
        ("x.json", json.dumps(coco()).replace("160", "9" * 400), "an image of 9999"),
        ("x.json", json.dumps(coco()).replace("40", "9" * 400), "no boxes in COCO's form"),
        ("x.json", json.dumps(coco(images=2 * coco()["images"])), "two images of one name"),
        ("x.csv", "file,labels\na\0.png,bad.txt\n", "NUL"),
        ("x.csv", "file,label\na.png,3\n", "a row without `file` or `labels`"),
        ("x.csv", "file,labels\na.png,gone.txt\n", "gone.txt: cannot be read"),
        ("x.csv", "file,labels\na.png,bad.txt\n", "bad.txt:1: 3 0.5 0.5: a class, a centre"),
        ("x.csv", "file,labels\n", "it does not name the image"),
    ],
)
def test_what_is_no_list_of_boxes(folder: Path, name: str, text: str, expected: str) -> None:
    (folder / name).write_text(text)
    (folder / "bad.txt").write_text("3 0.5 0.5\n")
    with pytest.raises(InputError) as raised:
        box_labels.read(folder / name, [str(folder / "a.png")], (64, 64), Preprocess())
    assert expected in str(raised.value)
