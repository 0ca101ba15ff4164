"""Classes of images in a JSON file.

1. An object: {"a.png": class, ...}.
2. A list of objects with a name and maybe a class, by the columns of a list: [{"file": "a.png", "label": class}, ...].
3. COCO's form: `images` with id and file_name, `annotations` with image_id and category_id, `categories` with id and
   name. Where each image has annotations of one category, that is its class: by its name where the model has all the
   names, else its place among the sorted ids, as for boxes. Otherwise images have no labels.

A class is a number, or a name of the model's classes. Files are relative to the JSON's folder, or to one of
`image_folders`, where the first of them is there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmpconv.base.files import LINES_MAX, read_text
from nmpconv.data.columns import FILES, OF_LISTS, class_number, place_of
from nmpconv.errors import InputError

ALLOWED = '{"a.png": class, ...}, [{"file": "a.png", "label": class}, ...], or COCO\'s images, annotations, categories'

BESIDE = ", or to a folder `images` in or beside it, or to one that is named like the end of the list's name"


def image_folders(path: Path) -> list[str]:
    """Folders that names may be relative to, seen from the JSON's, in their order: annotations/instances_val2017.json
    has its images in annotations, images or val2017, beside or in the JSON's folder, or in images/val2017."""
    split = path.stem.rpartition("_")[2]
    return [f"{above}{name}" for above in ("", "../") for name in (".", "images", split, f"images/{split}")]


def parsed(path: Path, classes: Sequence[str]) -> tuple[list[tuple[int, str]], list[int] | None]:
    """The names of files, with their places from 1 on, and the labels; None where there are none. Raises InputError."""
    try:
        content = json.loads(read_text(path, "list of files"))
        if isinstance(content, list):
            pairs = [_of_row(row) for row in content]
        elif "images" in content and "annotations" in content:
            pairs = _coco(content, classes)
        else:
            pairs = [(name, _text(kind)) for name, kind in content.items()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"no list of files: {reason:.100}", where=str(path), hint=ALLOWED) from None
    if len(pairs) > LINES_MAX:
        raise InputError(f"{len(pairs)} files; at most {LINES_MAX} are allowed", where=str(path))
    unlabelled = [name for name, kind in pairs if kind is None]
    if unlabelled and len(unlabelled) < len(pairs):
        raise InputError(f"no label of {unlabelled[0]!r}, where others have one", where=str(path))
    entries = [(i, name) for i, (name, _) in enumerate(pairs, 1)]
    return entries, [class_number(kind, classes, str(path)) for _, kind in pairs if kind is not None] or None


def _of_row(row: Mapping[str, Any]) -> tuple[str, str | None]:
    header, values = list(row), list(row.values())
    file_at, label_at = place_of(header, FILES), place_of(header, OF_LISTS)
    if file_at is None or not isinstance(values[file_at], str):
        raise ValueError("a row without `file`")
    return values[file_at], None if label_at is None else _text(values[label_at])


def _text(kind: Any) -> str:
    if isinstance(kind, bool) or not isinstance(kind, int | str):
        raise ValueError(f"{kind!s:.40} is no class")
    return str(kind)


def _coco(content: Mapping[str, Any], classes: Sequence[str]) -> list[tuple[str, str | None]]:
    categories = sorted(content["categories"], key=lambda row: row["id"])
    names = [str(row.get("name", "")) for row in categories]
    known = bool(classes) and set(names) <= set(classes)
    kinds = {row["id"]: names[i] if known else str(i) for i, row in enumerate(categories)}
    of_image: dict[Any, set[str]] = {image["id"]: set() for image in content["images"]}
    for annotation in content["annotations"]:
        of_image[annotation["image_id"]].add(kinds[annotation["category_id"]])
    single = all(len(kind) == 1 for kind in of_image.values())
    return [
        (str(image["file_name"]), next(iter(of_image[image["id"]])) if single else None) for image in content["images"]
    ]
