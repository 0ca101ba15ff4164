"""Pictures of a sample and of the results of both models on it: boxes, masks, curves. The same numbers give the same
bytes.

1. A detector whose decoder is known: the boxes of both over the picture.
2. An image whose first output is a map of classes: the best class of each place, of both, over the picture.
3. Sound: the curve of the file. Other arrays, of all inputs: a curve for each of at most CURVES channels, or shades of
   grey of the first input.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from nmpconv.data import audio
from nmpconv.errors import InputError
from nmpconv.evaluation.detection.boxes import CLASS, SCORE, non_maximum_suppression
from nmpconv.evaluation.detection.decoders import DECODERS, Size
from nmpconv.evaluation.task_metrics import SURE, classes_of, decoded
from nmpconv.exporters.html import charts
from nmpconv.runtime.feed import Feed

SMALL, LARGE = 112, 224  # pixels of the longer side; the large one where something is drawn over the picture
BOXES_MOST = 30  # that are drawn
PHOTO_QUALITY = 85  # of JPEG
CURVES = 8  # channels that are drawn as curves
CURVE_LEAST = 8  # values of a curve
MAPPED = 4  # places of a map, at least, along each side
HUE = 2.399963  # radians from one class to the next: the golden angle

Outputs = Sequence[np.ndarray]


@dataclass(frozen=True)
class DrawnBox:
    """Left, top, width and height in pixels of the model's input, and a text."""

    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True)
class Sight:
    """picture: an address that holds it. size: height and width of what boxes and masks are drawn over. boxes,
    float_boxes: of at least SURE, best first; None without a decoder. mask, float_mask: as picture. curves: in
    WIDE x HIGH. words: below it."""

    picture: str = ""
    size: Size = (0, 0)
    boxes: tuple[DrawnBox, ...] | None = None
    float_boxes: tuple[DrawnBox, ...] | None = None
    mask: str = ""
    float_mask: str = ""
    curves: tuple[str, ...] = ()
    words: str = ""

    @property
    def is_covered(self) -> bool:
        """Checks that something is drawn over the picture."""
        return self.boxes is not None or bool(self.mask)


def sight(
    feed: Feed, i: int, sample: Mapping[str, np.ndarray], ours: Outputs, theirs: Outputs | None, decoder: str | None
) -> Sight:
    """ours, theirs: reals of all outputs in the shapes of the ONNX model. decoder: of DECODERS. Raises InputError for
    outputs that the decoder does not take."""
    pixels = next((x for x in sample.values() if x.dtype == np.uint8 and x.ndim == 3), None)
    if pixels is None:
        shown, *others = (_array(feed, i, values) for values in sample.values())
        curves = () if feed.is_sound else tuple(curve for other in others for curve in other.curves)
        return replace(shown, curves=shown.curves + curves)
    size = (pixels.shape[0], pixels.shape[1])
    if decoder is not None:
        boxes = _boxes(decoder, ours, size, feed.classes)
        floats = None if theirs is None else _boxes(decoder, theirs, size, feed.classes)
        words = f"boxes: {len(boxes)}" + ("" if floats is None else f", float {len(floats)}")
        return Sight(_photo(pixels), size, boxes, floats, words=words)
    mapped = ours[0] if theirs is None else theirs[0]
    if not _is_map(mapped):
        return Sight(_png(pixels, SMALL), size)
    maps = [_classes(x, mapped) for x in (ours[0], *([] if theirs is None else [theirs[0]]))]
    masks = [_mask(x) for x in maps]
    words = "the best class of each place"
    if len(maps) == 2:
        words += f"; {100 * float(np.mean(maps[0] == maps[1])):.1f} % are the float model's"
    return Sight(_photo(pixels), size, mask=masks[0], float_mask=masks[1] if len(masks) > 1 else "", words=words)


def _boxes(decoder: str, outputs: Outputs, size: Size, classes: Sequence[str]) -> tuple[DrawnBox, ...]:
    detections = non_maximum_suppression(decoded(decoder, outputs, size), SURE, DECODERS[decoder].overlap)[:BOXES_MOST]
    drawn = []
    for row in detections:
        left, right = (float(np.clip(x, 0, size[1])) for x in (row[0], row[2]))
        top, bottom = (float(np.clip(y, 0, size[0])) for y in (row[1], row[3]))
        number = int(row[CLASS])
        name = classes[number] if number < len(classes) else str(number)
        box = (round(left, 1), round(top, 1), round(max(right - left, 0), 1), round(max(bottom - top, 0), 1))
        drawn.append(DrawnBox(*box, f"{name} {row[SCORE]:.2f}"))
    return tuple(drawn)


def _is_map(output: np.ndarray) -> bool:
    """Checks for scores of classes at places of a picture, [1, C, H, W] or [1, H, W, C], or for classes [1, H, W]."""
    sides = sorted(output.shape[1:])
    if output.dtype.kind in "iu":
        return len([side for side in sides if side >= MAPPED]) == 2 and math.prod(sides) == math.prod(sides[-2:])
    return output.ndim == 4 and sides[0] > 1 and sides[1] >= MAPPED


def _classes(output: np.ndarray, mapped: np.ndarray) -> np.ndarray:
    """[H, W] of classes."""
    classes = classes_of(output.reshape(mapped.shape), mapped)
    return classes.reshape([side for side in classes.shape if side > 1][-2:])


def _mask(classes: np.ndarray) -> str:
    """A PNG of colours by class; class 0 is left clear."""
    angles = classes[..., None] * HUE + np.array([0, 2.0944, 4.1888])
    colours = np.round(128 + 127 * np.cos(angles)).astype(np.uint8)
    alpha = np.where(classes > 0, 150, 0).astype(np.uint8)[..., None]
    image = Image.fromarray(np.concatenate([colours, alpha], axis=-1))
    if max(image.size) > LARGE:
        image = image.resize(_shrunk(image.size, LARGE), Image.Resampling.NEAREST)
    return _address(image, "PNG", optimize=True)


def _array(feed: Feed, i: int, values: np.ndarray) -> Sight:
    """Case 3."""
    curves = _heard(feed, i)
    sides = [side for side in values.shape if side > 1]
    rows = values.reshape(sides)
    if rows.ndim == 1:
        return Sight(curves=curves or ((charts.curve(rows, *_ends(rows)),) if len(rows) >= CURVE_LEAST else ()))
    if rows.ndim != 2:
        return Sight(curves=curves)
    time = feed.time_axis(values.shape)
    if rows.shape[0] > rows.shape[1] if time is None else not audio.bands_first(values.shape, time):
        rows = rows.T
    if not feed.is_sound and len(rows) <= CURVES and rows.shape[1] >= CURVE_LEAST:
        return Sight(curves=tuple(charts.curve(row, *_ends(rows)) for row in rows))
    low, high = _ends(rows)
    grey = np.round((rows[::-1] - low) / ((high - low) or 1) * 255).astype(np.uint8)
    return Sight(_png(grey[..., None], LARGE), curves=curves)


def _heard(feed: Feed, i: int) -> tuple[str, ...]:
    """The curve of a .wav file; of a call of a stream, that of the whole file."""
    rate, path = feed.rate, Path(feed.file(i))
    if rate is None or path.suffix.lower() != audio.SUFFIX:
        return ()
    try:
        samples = audio.read_wav(path, rate)
    except InputError:
        return ()
    return (charts.curve(samples, -1.0, 1.0),)


def _ends(values: np.ndarray) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _shrunk(size: Sequence[int], most: int) -> tuple[int, int]:
    shrink = min(most / max(size), 1.0)
    return max(math.ceil(size[0] * shrink), 1), max(math.ceil(size[1] * shrink), 1)


def _png(pixels: np.ndarray, most: int) -> str:
    """A picture [H,W,C] whose longer side has at most so many pixels."""
    image: Any = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    if max(image.size) > most:
        image = image.resize(_shrunk(image.size, most), Image.Resampling.BILINEAR)
    return _address(image, "PNG", optimize=True)


def _photo(pixels: np.ndarray) -> str:
    """A picture [H,W,C] to draw over. A photo in a tenth of the bytes of a PNG."""
    image: Any = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    return _address(image.resize(_shrunk(image.size, LARGE), Image.Resampling.BILINEAR), "JPEG", quality=PHOTO_QUALITY)


def _address(image: Any, form: str, **options: Any) -> str:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return f"data:image/{form.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
