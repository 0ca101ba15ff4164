"""Boxes that a page reads from outputs are those of `nmpconv eval`: by every decoder, from each form that it takes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nmpconv.evaluation.detection.boxes import non_maximum_suppression
from nmpconv.evaluation.detection.decoders import DECODERS

SIZE = (64, 96)  # height, width
CLASSES, SCORE, OVERLAP = 3, 0.3, 0.1  # an overlap that boxes by chance have
GRIDS = {stride: (-(-SIZE[0] // stride), -(-SIZE[1] // stride)) for stride in (8, 16, 32, 64)}
POINTS = sum(rows * columns for stride, (rows, columns) in GRIDS.items() if stride < 64)
MORE = sum(rows * columns for rows, columns in GRIDS.values())
HEADS = [GRIDS[stride] for stride in (8, 16, 32)]
FORMS: dict[str, list[list[tuple[int, ...]]]] = {
    "nanodet": [
        [(1, POINTS, CLASSES + 32)],
        [(1, MORE, CLASSES + 32)],
        [(1, r * c, n) for n in (32, CLASSES) for r, c in reversed(HEADS)],
    ],
    "ultraface": [[(1, 50, 2), (1, 50, 4)], [(1, 50, 4), (1, 50, 2)]],
    "yolov5": [
        [(1, 50, 5 + CLASSES)],
        [(1, 3 * (5 + CLASSES), *grid) for grid in HEADS],
        [(1, 3, *grid, 5 + CLASSES) for grid in HEADS],
    ],
    "yolov8": [[(1, 4 + CLASSES, 50)], [(1, 64 + CLASSES, *grid) for grid in HEADS]],
    "yolox": [[(1, POINTS, 5 + CLASSES)], [(1, MORE, 6)]],
    "yunet": [[(1, r * c, n) for n in (1, 1, 4, 10) for r, c in HEADS]],
}
ASK = """
const { boxes } = await import(process.argv[1]);
const { decoder, outputs, size, score, overlap } = JSON.parse(require("fs").readFileSync(0));
const given = outputs.map(({ shape, values }) => ({ shape, values: Float64Array.from(values) }));
console.log(JSON.stringify(boxes(decoder, given, size, score, overlap)));
"""


@pytest.fixture
def asked(root: Path, need_tool: Callable[..., str]) -> Callable[[str, list[np.ndarray]], np.ndarray]:
    """asked(decoder, outputs): the boxes that the page's script keeps."""
    script = root / "nmpconv" / "exporters" / "browser" / "templates" / "detection.mjs"
    node = need_tool("node", "nodejs")

    def run(decoder: str, outputs: list[np.ndarray]) -> np.ndarray:
        told = {
            "decoder": decoder,
            "outputs": [{"shape": x.shape, "values": x.ravel().tolist()} for x in outputs],
            "size": SIZE,
            "score": SCORE,
            "overlap": OVERLAP,
        }
        command = [node, "-e", f"(async () => {{{ASK}}})()", script]
        done = subprocess.run(command, input=json.dumps(told), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return np.array(json.loads(done.stdout)).reshape(-1, 6)

    return run


def test_every_decoder_is_tried() -> None:
    assert FORMS.keys() == DECODERS.keys()


@pytest.mark.parametrize(
    ("decoder", "shapes"), [(decoder, shapes) for decoder, forms in FORMS.items() for shapes in forms]
)
def test_boxes_of_the_page(
    decoder: str, shapes: list[tuple[int, ...]], asked: Callable[[str, list[np.ndarray]], np.ndarray]
) -> None:
    random = np.random.default_rng(len(shapes))
    suppressed = 0
    for spread in (0.5, 2.0):
        outputs = [spread * random.normal(size=shape) for shape in shapes]
        if decoder == "ultraface":
            outputs = [np.sort(x, axis=2) for x in outputs]  # left and top before right and bottom
        every = DECODERS[decoder].boxes(outputs, SIZE)
        wanted = non_maximum_suppression(every, SCORE, OVERLAP)
        assert len(wanted) > 0
        suppressed += int((every[:, 4] >= SCORE).sum()) - len(wanted)
        np.testing.assert_allclose(asked(decoder, outputs), wanted, rtol=1e-9, atol=1e-9)
    assert suppressed > 0
