"""Image files to uint8 arrays of the model's size, and pixels to the model's float input.

Decoding: a picture is turned as its EXIF orientation says, an alpha channel is dropped, 16-bit levels become the
nearest 8-bit ones (v / 257), palette, CMYK and gray files become what the model's channel count needs (1: gray,
3: RGB). Resizing is Pillow's bilinear with its support scaled when it shrinks. An image that has the model's size
already is taken as it is.
"""

from __future__ import annotations

import io
import re
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from nmpconv.base.files import read_file
from nmpconv.errors import InputError, UsageError, refusal
from nmpconv.ir import Preprocess

if TYPE_CHECKING:
    from PIL import Image  # loaded where there is an image to read: arrays need none of it

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
CHANNELS = (1, 3)
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # what is inside of a file, whatever its name says
ORIENTATION = 0x0112  # the tag of EXIF
TURNS = {
    **{2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM"},
    **{5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90"},
}  # PIL.Image.Transpose that makes a picture upright, by its orientation
SIDEWAYS = 5  # orientations from here on swap width and height
ALPHA = ("RGBA", "LA", "PA", "RGBa", "La")  # modes with transparency
PIXELS_MAX = 2**26  # of an image, decoded or resized
_LIMIT = Lock()  # of Pillow, which is one for all threads


def is_picture(value: Any) -> TypeGuard[Image.Image]:
    """Checks for an image of Pillow, without loading Pillow: nothing is one before somebody has."""
    kind = getattr(sys.modules.get("PIL.Image"), "Image", None)  # a thread may be half through the import
    return kind is not None and isinstance(value, kind)


def guess_layout(shape: tuple[int, ...]) -> str | None:
    """ "nchw" or "nhwc" when the ONNX input ``shape`` [1,C,H,W] or [1,H,W,C] can be an image's, else None."""
    if len(shape) != 4:
        return None
    return "nchw" if shape[1] in CHANNELS else "nhwc" if shape[3] in CHANNELS else None


def with_layout(preprocess: Preprocess, shape: tuple[int, ...]) -> Preprocess:
    """The same with layout "auto" replaced by what the ONNX input ``shape`` looks like."""
    return replace(preprocess, layout=guess_layout(shape) or "nchw") if preprocess.layout == "auto" else preprocess


def image_shape(shape: tuple[int, ...], preprocess: Preprocess, *, where: str = "") -> tuple[int, int, int]:
    """(H, W, C) of an ONNX image input; InputError when it is none, UsageError when the preprocessing cannot fit it."""
    channels = 0 if len(shape) != 4 else shape[1] if preprocess.layout == "nchw" else shape[3]
    if channels not in CHANNELS:
        raise InputError(
            f"images cannot feed a model input of shape {'x'.join(map(str, shape))} with layout {preprocess.layout}: "
            "it needs 4 dimensions and 1 or 3 channels",
            where=where,
            hint="give .npy or .npz arrays, or the other --layout",
        )
    _check(preprocess, channels)
    height, width = shape[2:] if preprocess.layout == "nchw" else shape[1:3]
    return height, width, channels


def _check(pre: Preprocess, channels: int) -> None:
    for flag, values in (("--mean", pre.mean), ("--std", pre.std)):
        if len(values) not in (1, channels):
            raise UsageError(
                f"{len(values)} values for an input of {channels} channel(s); give 1 or one each", where=flag
            )
    if not all(value > 0 for value in pre.std):
        raise UsageError(f"{list(pre.std)}: every value must be above 0", where="--std")
    if pre.resize not in (resizes := Preprocess.CHOICES["resize"]):
        raise refusal(pre.resize, ", ".join(resizes), "--resize")
    if not 0 < pre.crop <= 1:
        raise UsageError(f"{pre.crop} is not in (0, 1]", where="--crop")
    if pre.crop != 1 and pre.resize not in ("shorter", "squash"):
        raise UsageError(f"a crop of {pre.crop} needs --resize shorter or squash, not {pre.resize}", where="--crop")
    if pre.channel_order == "gray" and channels != 1:
        raise UsageError(f"gray for an input of {channels} channels", where="--channel-order")


def load(
    source: Path | bytes | Image.Image,
    size: tuple[int, int, int],
    preprocess: Preprocess,
    max_pixels: int | None = None,
    *,
    where: str = "",
) -> np.ndarray:
    """A file, or what is in it, or a picture of Pillow, as uint8 [H,W,C] of ``size`` (H, W, C), RGB or gray.

    max_pixels: how many it may have, PIXELS_MAX by default. where: names it in messages; default: the file's path.
    InputError for what is no such image.
    """
    from PIL import Image, UnidentifiedImageError

    most, where = max_pixels or PIXELS_MAX, where or str(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a decoder, about what it can read all the same
            with _open(source, most) if isinstance(source, Path | bytes) else nullcontext(source) as image:
                _check_pixels(image.width, image.height, most, where)
                image.load()
                decoded = _decode(upright(image), "L" if size[2] == 1 else "RGB")
    except UnidentifiedImageError:
        problem = f"not a readable image: none of {', '.join(FORMATS)}"
        raise InputError(problem, where=where, hint="replace or remove the file") from None
    except (InputError, MemoryError):
        raise
    except Image.DecompressionBombError as error:  # more than Pillow opens, before its size is known here
        pixels = next(iter(re.findall(r"\d+", str(error))), "too many")
        problem, hint = f"an image of {pixels} pixels; {most} are allowed", "shrink it, or give --max-pixels"
        raise InputError(problem, where=where, hint=hint) from None
    except Exception as error:  # whatever a decoder trips over
        raise InputError(f"not a readable image: {error}", where=where, hint="replace or remove the file") from None
    return fit(decoded, size, preprocess, where=where, max_pixels=most)


def _open(source: Path | bytes, most: int = PIXELS_MAX) -> Image.Image:
    """From memory: a decoder that asks for as many bytes as a chunk claims gets those that are there.

    Pillow's own limit, one for the process, is lifted for as long as it reads the size, where ``most`` is more.
    """
    from PIL import Image

    data = io.BytesIO(source if isinstance(source, bytes) else read_file(source))
    limit = Image.MAX_IMAGE_PIXELS
    if limit is None or most <= limit:
        return Image.open(data, formats=FORMATS)
    with _LIMIT:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return Image.open(data, formats=FORMATS)
        finally:
            Image.MAX_IMAGE_PIXELS = limit


def orientation(image: Image.Image) -> int:
    """EXIF's orientation, 1 to 8; 1 is upright, and so is what is none of them."""
    value = image.getexif().get(ORIENTATION, 1)
    return value if value in TURNS else 1


def upright(image: Image.Image) -> Image.Image:
    """The picture as people look at it."""
    from PIL import Image

    turn = TURNS.get(orientation(image))
    return image if turn is None else image.transpose(Image.Transpose[turn])


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Width and height of the picture as people look at it, from its header."""
    width, height = image.size
    return (height, width) if orientation(image) >= SIDEWAYS else (width, height)


def remarks(pictures: Sequence[Path | bytes | Image.Image]) -> tuple[str, ...]:
    """Remarks on pictures that are turned, on those with transparency, and on animated ones, by their headers."""
    turned = transparent = animated = 0
    for source in pictures:
        try:
            with _open(source) if isinstance(source, Path | bytes) else nullcontext(source) as image:
                turned += orientation(image) > 1
                transparent += image.mode in ALPHA or "transparency" in image.info
                animated += getattr(image, "is_animated", False) and image.format != "MPO"  # a phone's second picture
        except Exception:  # whatever is wrong with it is told where it is decoded
            continue
    texts = []
    if turned:
        texts.append(f"{turned} of {len(pictures)} images are turned as their EXIF orientation says")
    if transparent:
        texts.append(
            f"{transparent} of {len(pictures)} images have an alpha channel, which is dropped: "
            "what is transparent has the colour that lies under it"
        )
    if animated:
        texts.append(f"{animated} of {len(pictures)} images have several frames, of which the first is taken")
    return tuple(texts)


def _check_pixels(width: int, height: int, most: int, where: str) -> None:
    if width * height > most:
        raise InputError(
            f"an image of {width}x{height}, {width * height} pixels; {most} are allowed",
            where=where,
            hint="shrink it, or give --max-pixels",
        )


def picture(pixels: np.ndarray) -> Image.Image:
    """uint8 [H,W] or [H,W,3] as an image of Pillow."""
    from PIL import Image

    return Image.fromarray(pixels)


def _decode(image: Image.Image, mode: str) -> Image.Image:
    if image.mode.startswith("I"):
        levels = np.asarray(image).astype(np.int32)
        if levels.min() < 0 or levels.max() > 65535:
            raise ValueError(f"levels {levels.min()} to {levels.max()}; 0 to 65535 are allowed")
        image = picture(((levels + 128) // 257).astype(np.uint8))
    elif image.mode == "F":
        raise ValueError("float pixels; 8- and 16-bit integers are allowed")
    elif image.mode in ("RGBa", "La"):
        image = image.convert(image.mode[:-1] + "A")
    return image if image.mode == mode else image.convert(mode)


def fit(
    image: Image.Image,
    size: tuple[int, int, int],
    preprocess: Preprocess,
    *,
    where: str = "",
    max_pixels: int = PIXELS_MAX,
) -> np.ndarray:
    """An L or RGB image resized and cropped to uint8 [H,W,C].

    none:      must have the size. squash: both sides to size / crop, then the centre.
    shorter:   aspect kept, just covering size / crop, then the centre.
    letterbox: aspect kept, just inside the size, at the top left; the rest is ``preprocess.pad``.
    """
    from PIL import Image

    height, width, channels = size
    if image.size != (width, height):
        if preprocess.resize == "none":
            raise InputError(
                f"an image of {image.width}x{image.height} where the model needs {width}x{height} (width x height)",
                where=where,
                hint="use --resize shorter, squash or letterbox",
            )
        place = placed(image.size, (width, height), preprocess)
        if preprocess.resize == "shorter":
            _check_pixels(place.width, place.height, max(max_pixels, width * height), where)
        canvas = Image.new(image.mode, (width, height), preprocess.pad if image.mode == "L" else (preprocess.pad,) * 3)
        canvas.paste(_resize(image, place.width, place.height), (place.left, place.top))
        image = canvas
    return np.asarray(image, dtype=np.uint8).reshape(height, width, channels)


@dataclass(frozen=True)
class Place:
    """Place of an image in the model's input: its size there, and its top left corner, all in pixels."""

    width: int
    height: int
    left: int
    top: int


def placed(image: tuple[int, int], size: tuple[int, int], preprocess: Preprocess) -> Place:
    """The place that `fit` gives an image of this width and height in an input of ``size``, (width, height)."""
    (w, h), (width, height) = image, size
    if image == size or preprocess.resize == "none":
        return Place(w, h, 0, 0)
    if preprocess.resize == "letterbox":
        wide = w * height >= h * width
        return Place(width, max(h * width // w, 1), 0, 0) if wide else Place(max(w * height // h, 1), height, 0, 0)
    inner_w, inner_h = round(width / preprocess.crop), round(height / preprocess.crop)
    if preprocess.resize == "shorter":
        scale = max(inner_w / w, inner_h / h)
        inner_w, inner_h = max(round(w * scale), width), max(round(h * scale), height)
    return Place(inner_w, inner_h, -((inner_w - width) // 2), -((inner_h - height) // 2))


def _resize(image: Image.Image, width: int, height: int) -> Image.Image:
    from PIL.Image import Resampling

    return image if image.size == (width, height) else image.resize((width, height), Resampling.BILINEAR)


def normalize(pixels: np.ndarray, preprocess: Preprocess) -> np.ndarray:
    """uint8 [H,W,C] (RGB or gray) to the ONNX input, float32 [1,C,H,W] or [1,H,W,C].

    Channels are put into the model's order first: ``mean`` and ``std`` are in the model's order. Then
    x = (lo + pixel * (hi - lo) / 255 - mean) / std, with (lo, hi) = ``range``.
    """
    x = preprocess.to_model(pixels)
    x = x.transpose(2, 0, 1) if preprocess.layout == "nchw" else x
    return np.ascontiguousarray(x[np.newaxis], dtype=np.float32)
