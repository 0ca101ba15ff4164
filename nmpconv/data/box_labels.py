"""Boxes of the objects in images, as people label them: COCO's JSON, or YOLO's text files by way of a list.

COCO JSON: `images` with id, file_name, width and height, `annotations` with image_id, category_id, bbox (left, top,
width, height in pixels) and maybe iscrowd, `categories` with id. Images are found by the last part of file_name; a
class is the place of its category among the sorted ids.

CSV: a column `file` with images and a column `labels` with text files, both relative to the CSV. A text file has a line
for each object: class, and centre and sides in parts of the image.

Folder: text files of that form, each named like its image; an image without one has no objects.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nmpconv.base.files import read_lines, read_text
from nmpconv.data.images import placed, upright_size
from nmpconv.data.lists import located
from nmpconv.errors import InputError
from nmpconv.ir import Preprocess

ALLOWED = "COCO JSON, a CSV with the columns file,labels, or a folder of YOLO's text files, named like the images"
SIDE_MOST = 2**20  # pixels
MOST_PARTS = 4.0  # of an image: boxes in pixels are more
Size = tuple[int, int]  # width and height in pixels
Found = dict[str, tuple[Size | None, np.ndarray]]  # by the path or name of an image; None: rows are in parts of it


def read(path: Path, images: Sequence[str], size: Size, preprocess: Preprocess) -> list[np.ndarray]:
    """The boxes of each image, float64 [n, 6]: left, top, right, bottom in pixels of an input of ``size``, class, and 1
    for a crowd, else 0. InputError for what is no such file, and for an image that it does not have."""
    whole = path.suffix.lower() == ".json"
    by_image = _coco(path) if whole else _folder(path, images) if path.is_dir() else _list(path)
    boxes = []
    for image in images:
        key = Path(image).name if whole else str(Path(image).resolve())
        if key not in by_image:
            raise InputError(f"it does not name the image {key}", where=str(path), hint=ALLOWED)
        of, rows = by_image[key]
        boxes.append(_in_input(rows, of or _size(image), of is None, size, preprocess))
    return boxes


def _in_input(rows: np.ndarray, of: Size, parts: bool, size: Size, preprocess: Preprocess) -> np.ndarray:
    """rows: left, top, right, bottom, class, crowd. parts: whether in parts of the image, which is ``of`` pixels."""
    place = placed(of, size, preprocess)
    width, height = (1, 1) if parts else of
    scale = np.array([place.width / width, place.height / height] * 2)
    shift = np.array([place.left, place.top] * 2)
    return np.concatenate([rows[:, :4] * scale + shift, rows[:, 4:]], axis=1)


def _coco(path: Path) -> Found:
    try:
        about = json.loads(read_text(path, "list of boxes"))
        classes = {number: i for i, number in enumerate(sorted(row["id"] for row in about["categories"]))}
        rows: dict[Any, list[list[float]]] = {image["id"]: [] for image in about["images"]}
        for annotation in about["annotations"]:
            left, top, width, height = map(float, annotation["bbox"])
            corners = [left, top, left + width, top + height]
            rows[annotation["image_id"]].append(
                [*corners, classes[annotation["category_id"]], float(bool(annotation.get("iscrowd", 0)))]
            )
        by_image: Found = {}
        for image in about["images"]:
            by_image[Path(image["file_name"]).name] = (_pixels(image), _table(rows[image["id"]]))
        if len(by_image) < len(about["images"]) or len(classes) < len(about["categories"]):
            raise ValueError("two images of one name, or two categories with one id")
        return by_image
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"no boxes in COCO's form: {reason:.100}", where=str(path), hint=ALLOWED) from None


def _pixels(image: Mapping[str, Any]) -> Size:
    width, height = image["width"], image["height"]
    if not all(type(side) is int and 1 <= side <= SIDE_MOST for side in (width, height)):
        raise ValueError(f"an image of {width!s:.20} x {height!s:.20} pixels")
    return width, height


def _list(path: Path) -> Found:
    try:
        rows = list(csv.DictReader(read_lines(path, "list of boxes"), skipinitialspace=True))
    except csv.Error as error:
        raise InputError(f"not a readable .csv file: {error}", where=str(path), hint=ALLOWED) from None
    if any(not row.get("file") or not row.get("labels") for row in rows):
        raise InputError("a row without `file` or `labels`", where=str(path), hint=ALLOWED)
    if any("\0" in name for row in rows for name in (row["file"], row["labels"])):
        raise InputError("no file can have a name with a NUL", where=str(path))
    return {
        str(located(path.parent, row["file"]).resolve()): (None, _yolo(located(path.parent, row["labels"])))
        for row in rows
    }


def _folder(path: Path, images: Sequence[str]) -> Found:
    """The boxes of images in text files that are named like them."""
    texts = [_text(path, Path(image)) for image in images]
    if not any(texts):
        raise InputError(f"no file in it is named like {Path(images[0]).name}", where=str(path), hint=ALLOWED)
    rows = (_yolo(text) if text else _table([]) for text in texts)
    return {str(Path(image).resolve()): (None, boxes) for image, boxes in zip(images, rows, strict=True)}


def _text(path: Path, image: Path) -> Path | None:
    """labels/a.txt, or labels/val/a.txt for images/val/a.png."""
    texts = (folder / f"{image.stem}.txt" for folder in (path, path / image.parent.name))
    return next((text for text in texts if text.is_file()), None)


def _yolo(path: Path) -> np.ndarray:
    rows = []
    for number, line in enumerate(read_lines(path, "list of boxes"), 1):
        if not line.strip():
            continue
        try:
            kind, x, y, width, height = map(float, line.split())
        except ValueError:
            message = f"{line.strip():.60}: a class, a centre (x, y), a width and a height are allowed"
            raise InputError(message, where=f"{path}:{number}") from None
        if not (kind >= 0 and kind == int(kind) and max(map(abs, (x, y, width, height))) <= MOST_PARTS):
            message = f"{line.strip():.60}: a class is 0 or more, the rest are parts of the image"
            raise InputError(message, where=f"{path}:{number}")
        rows.append([x - width / 2, y - height / 2, x + width / 2, y + height / 2, kind, 0.0])
    return _table(rows)


def _table(rows: list[list[float]]) -> np.ndarray:
    table = np.array(rows, np.float64).reshape(-1, 6)
    if not np.isfinite(table).all():
        raise InputError("a box holds NaN or infinity", where="--boxes")
    return table


def _size(image: str) -> Size:
    from PIL import Image

    try:
        with Image.open(image) as opened:
            return upright_size(opened)
    except OSError as error:
        raise InputError(f"not a readable image: {error}", where=image) from None
