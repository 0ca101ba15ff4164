"""Converts samples/shapes with arrays in memory, judges the result and runs one picture.

Usage: shapes.py FOLDER    the folder samples/shapes of a checkout
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

import nmpconv
from nmpconv.errors import NmpError


def pictures(folder: Path) -> Iterator[np.ndarray]:
    """uint8 [32,32,3], one by one."""
    for path in sorted(folder.glob("*.png")):
        yield np.asarray(Image.open(path).convert("RGB"))


def labelled(table: Path) -> Iterator[tuple[np.ndarray, int]]:
    """The pictures that a .csv names, with their classes."""
    for row in csv.DictReader(table.open()):
        yield np.asarray(Image.open(table.parent / row["file"]).convert("RGB")), int(row["label"])


def progress(stage: str, done: int, total: int) -> None:
    if done == total:
        print(f"{stage}: {total}", file=sys.stderr)


def main(folder: Path) -> None:
    try:
        converted = nmpconv.convert(
            folder / "model.onnx",
            pictures(folder / "calib"),
            mean=(123.675, 116.28, 103.53),
            std=(58.395, 57.12, 57.375),
            labels=folder / "labels.txt",
            progress=progress,
        )
    except NmpError as error:
        raise SystemExit(f"{error.message}; at {error.node or error.where}; {error.hint}") from error
    shares = converted.report.costliest
    print(f"{len(converted.data)} bytes; most noise is made by {next(iter(shares), 'no tensor')}")

    accuracy = nmpconv.evaluate(converted, labelled(folder / "test" / "labels.csv"), reference=folder / "model.onnx")
    print(f"top-1 {accuracy.top1:.1f} %, float {accuracy.reference_top1:.1f} %, agreement {accuracy.agreement:.1f} %")

    ram = {need.target: need.arena for need in nmpconv.inspect(converted).ram}
    print(f"RAM on a Cortex-M4: {ram['cortex-m4']} bytes")

    net = converted.load()
    (scores,) = net(np.asarray(Image.open(folder / "test" / "000_circle.png").convert("RGB")))
    print(f"000_circle.png: {net.outputs[0].labels[int(scores.argmax())]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
