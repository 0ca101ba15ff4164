"""Classes of images in a JSON file: by file, in rows, and in COCO's form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nmpconv.data import lists, sources
from nmpconv.errors import InputError

IMAGES = [{"id": 7, "file_name": "a.png"}, {"id": 3, "file_name": "in/b.png"}]
CATEGORIES = [{"id": 9, "name": "dog"}, {"id": 4, "name": "cat"}]


def annotations(*pairs: tuple[int, int]) -> list[dict[str, int]]:
    return [{"image_id": image, "category_id": category} for image, category in pairs]


def coco(*pairs: tuple[int, int]) -> dict[str, Any]:
    return {"images": IMAGES, "annotations": annotations(*pairs), "categories": CATEGORIES}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for name in ("a.png", "in/b.png"):
        (tmp_path / name).touch()
    return tmp_path / "list.json"


@pytest.mark.parametrize(
    ("content", "classes", "labels"),
    [
        pytest.param({"a.png": 3, "in/b.png": "0"}, (), [3, 0], id="numbers"),
        pytest.param({"a.png": "dog", "in/b.png": "cat"}, ("cat", "dog"), [1, 0], id="names"),
        pytest.param([{"file": "a.png", "label": 3}, {"Image": "in/b.png", "class": 1}], (), [3, 1], id="rows"),
        pytest.param([{"file": "a.png"}, {"file": "in/b.png"}], (), None, id="rows without labels"),
        pytest.param(coco((3, 4), (7, 9), (7, 9)), (), [1, 0], id="COCO"),
        pytest.param(coco((3, 4), (7, 9)), ("dog", "cow", "cat"), [0, 2], id="COCO by name"),
        pytest.param(coco((3, 4), (7, 9)), ("Dog", "cat"), [1, 0], id="COCO, of other names"),
        pytest.param(coco((3, 4), (7, 9), (7, 4)), (), None, id="COCO of several objects"),
        pytest.param(coco((3, 4)), (), None, id="COCO of an empty image"),
    ],
)
def test_forms(path: Path, content: Any, classes: tuple[str, ...], labels: list[int] | None) -> None:
    path.write_text(json.dumps(content))
    files = [path.parent / "a.png", path.parent / "in/b.png"]
    assert lists.of_json(path, classes) == (files, labels)
    opened = sources.open_source(path, "x", (1, 3, 6, 5), classes=classes)
    assert (len(opened), opened.labels) == (2, labels)


@pytest.mark.parametrize(
    ("list_file", "folder"),
    [
        ("all.json", "images"),
        ("annotations/instances.json", "images"),
        ("annotations/instances_val2017.json", "val2017"),
        ("annotations/instances_train.json", "images/train"),
        ("val/_annotations.coco.json", "val"),
        ("annotations/instances.json", "."),
    ],
)
def test_images_of_other_folders(tmp_path: Path, list_file: str, folder: str) -> None:
    (tmp_path / folder / "in").mkdir(parents=True)
    for name in ("a.png", "in/b.png"):
        (tmp_path / folder / name).touch()
    path = tmp_path / list_file
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(coco((3, 4), (7, 9))))
    files, labels = lists.of_json(path)
    assert [file.resolve() for file in files] == [tmp_path / folder / name for name in ("a.png", "in/b.png")]
    assert labels == [1, 0]
    (tmp_path / folder / "in/b.png").unlink()
    with pytest.raises(InputError, match=r"1 of 2 files do not exist: entry 2: in/b.png"):
        lists.of_json(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no list of files: Expecting"),
        ("3", "no list of files: "),
        ("{}", "the list names no files"),
        ("[" * 100_000, "no list of files: "),
        ('{"a.png": 1.5}', "no list of files: 1.5 is no class"),
        ('{"a.png": true}', "no list of files: True is no class"),
        ('{"a.png": "cat"}', "the label 'cat' is not a class number"),
        ('{"a.png": 1, "c.png": 1}', "1 of 2 files do not exist: entry 2: c.png"),
        ('[{"label": 1}]', "no list of files: a row without `file`"),
        ('[{"file": "a.png", "label": 1}, {"file": "in/b.png"}]', "no label of 'in/b.png', where others have one"),
        ('{"images": [{"id": 1}], "annotations": []}', "no list of files: 'categories' is missing"),
        (json.dumps(coco((5, 4))), "no list of files: 5 is missing"),
    ],
)
def test_what_is_refused(path: Path, text: str, why: str) -> None:
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        lists.of_json(path)
    assert caught.value.message.startswith(why)
