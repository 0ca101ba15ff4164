"""Decoding, resizing and normalizing images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL
import pytest
from PIL import Image

from nmpconv.data import images
from nmpconv.errors import InputError, UsageError
from nmpconv.ir import Preprocess

RNG = np.random.default_rng(1)
RGB = RNG.integers(0, 256, (8, 10, 3), dtype=np.uint8)
NONE = Preprocess(resize="none")


def written(folder: Path, image: Image.Image, name: str = "x.png") -> Path:
    image.save(folder / name)
    return folder / name


def test_an_image_of_the_right_size_is_not_touched(tmp_path: Path) -> None:
    path = written(tmp_path, Image.fromarray(RGB))
    for resize in Preprocess.CHOICES["resize"]:
        assert (images.load(path, (8, 10, 3), Preprocess(resize=resize)) == RGB).all()
    assert (images.load(path, (8, 10, 3), Preprocess(resize="shorter", crop=0.5)) == RGB).all()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "I"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_becomes_what_the_model_needs(tmp_path: Path, mode: str, channels: int) -> None:
    if mode in ("I;16", "I"):
        levels = np.arange(80).reshape(8, 10) * 800
        image, name = Image.fromarray(levels.astype(np.uint16 if mode == "I;16" else np.int32)), "x.tiff"
    else:
        image, name = Image.fromarray(RGB).convert(mode), "x.tiff" if mode in ("CMYK", "YCbCr") else "x.png"
    path = written(tmp_path, image, name)
    if mode == "YCbCr" and PIL.__version__ == "12.3.0":  # the newest for Python 3.10
        with pytest.raises(OSError, match="truncated"):
            Image.open(path).load()
        pytest.skip("Pillow cannot read such a file that it wrote")
    got = images.load(path, (8, 10, channels), NONE)
    assert got.shape == (8, 10, channels)
    assert got.dtype == np.uint8
    if mode.startswith("I"):
        assert (got == np.rint(levels / 257).astype(np.uint8)[..., None]).all()
    elif mode in ("1", "L", "LA", "RGB", "RGBA"):
        wanted = np.asarray(image.convert("L" if channels == 1 else "RGB")).reshape(8, 10, channels)
        assert (got == wanted).all()


def test_orientation_is_applied(tmp_path: Path) -> None:
    image = Image.fromarray(RGB)
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(tmp_path / "x.png", exif=exif)
    assert (images.load(tmp_path / "x.png", (10, 8, 3), NONE) == np.rot90(RGB, -1)).all()


@pytest.mark.parametrize(("name", "content"), [("a.png", b""), ("b.jpg", b"\xff\xd8\xff\xe0 no"), ("c.png", b"text")])
def test_unreadable_files_are_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name}: not a readable image"):
        images.load(tmp_path / name, (8, 10, 3), NONE)


def test_truncated_and_float_images_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, Image.fromarray(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)))
    path.write_bytes(path.read_bytes()[:4000])
    with pytest.raises(InputError, match="not a readable image"):
        images.load(path, (64, 64, 3), NONE)
    path = written(tmp_path, Image.fromarray(np.zeros((8, 10), np.float32)), "f.tiff")
    with pytest.raises(InputError, match="float pixels"):
        images.load(path, (8, 10, 1), NONE)


def fitted(resize: str, width: int, height: int, size: tuple[int, int], crop: float = 1.0) -> np.ndarray:
    """A horizontal ramp of width x height, fitted to size (height, width)."""
    ramp = np.tile(np.linspace(0, 255, width).astype(np.uint8), (height, 1))
    return images.fit(Image.fromarray(ramp), (*size, 1), Preprocess(resize=resize, crop=crop))[..., 0]


def test_none_wants_the_size() -> None:
    with pytest.raises(InputError, match="an image of 100x50 where the model needs 20x10"):
        fitted("none", 100, 50, (10, 20))


def test_squash_keeps_everything() -> None:
    got = fitted("squash", 100, 50, (10, 10))
    assert got[0, 0] < 16
    assert got[0, -1] > 239


def test_shorter_keeps_the_aspect_and_takes_the_centre() -> None:
    got = fitted("shorter", 200, 50, (50, 50))
    ramp = np.linspace(0, 255, 200).astype(np.uint8)
    assert (got == ramp[75:125]).all()


def test_crop_keeps_the_middle_of_the_shorter_side() -> None:
    image = Image.fromarray(RNG.integers(0, 256, (40, 64), dtype=np.uint8))
    got = images.fit(image, (35, 35, 1), Preprocess(resize="shorter", crop=0.875))[..., 0]
    assert (got == np.asarray(image)[2:37, 14:49]).all()
    squashed = images.fit(image, (32, 56, 1), Preprocess(resize="squash", crop=0.875))[..., 0]
    resized = image.resize((64, 37), Image.Resampling.BILINEAR)
    assert (squashed == np.asarray(resized)[2:34, 4:60]).all()


@pytest.mark.parametrize(("width", "height", "inner"), [(100, 50, (5, 10)), (50, 100, (10, 5)), (40, 41, (10, 9))])
def test_letterbox_is_at_the_top_left(width: int, height: int, inner: tuple[int, int]) -> None:
    white = Image.new("RGB", (width, height), (255, 255, 255))
    got = images.fit(white, (10, 10, 3), Preprocess(resize="letterbox", pad=7))
    wanted = np.full((10, 10, 3), 7)
    wanted[: inner[0], : inner[1]] = 255
    assert (got == wanted).all()


def test_normalize_is_in_the_models_channel_order() -> None:
    pre = Preprocess(mean=(1.0, 2.0, 3.0), std=(1.0, 2.0, 4.0), layout="nchw", channel_order="bgr")
    got = images.normalize(RGB, pre)
    assert got.shape == (1, 3, 8, 10)
    assert got.dtype == np.float32
    assert np.allclose(got[0, 0], RGB[..., 2] - 1.0)
    assert np.allclose(got[0, 2], (RGB[..., 0] - 3.0) / 4)


@pytest.mark.parametrize(("bounds", "ends"), [((0.0, 255.0), (0, 255)), ((0.0, 1.0), (0, 1)), ((-1.0, 1.0), (-1, 1))])
def test_range_is_what_mean_and_std_refer_to(bounds: tuple[float, float], ends: tuple[float, float]) -> None:
    pixels = np.array([[[0], [255]]], np.uint8)
    got = images.normalize(pixels, Preprocess(range=bounds, layout="nhwc"))
    assert got.shape == (1, 1, 2, 1)
    assert np.allclose(got.ravel(), ends)


@pytest.mark.parametrize(
    ("pre", "message"),
    [
        (Preprocess(mean=(1.0, 2.0)), "--mean: 2 values"),
        (Preprocess(std=(0.0,)), "--std: .* above 0"),
        (Preprocess(std=(float("nan"),)), "--std: .* above 0"),
        (Preprocess(resize="stretch"), "'stretch' is not allowed; allowed: none, shorter"),
        (Preprocess(crop=1.5), "--crop: 1.5"),
        (Preprocess(crop=0.5, resize="letterbox"), "--resize shorter or squash"),
        (Preprocess(channel_order="gray"), "gray for an input of 3"),
    ],
)
def test_impossible_preprocessing_is_a_usage_error(pre: Preprocess, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        images.image_shape((1, 3, 8, 10), pre)


@pytest.mark.parametrize("shape", [(1, 640), (1, 4, 8, 8), (1, 8, 8, 3)])
def test_inputs_that_are_no_images_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=f"shape {'x'.join(map(str, shape))} with layout nchw"):
        images.image_shape(shape, Preprocess(layout="nchw"))


def test_more_pixels_than_pillow_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow has a limit for all of the process, which is there again afterwards."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    Image.new("RGB", (30, 30), "red").save(tmp_path / "large.png")
    got = images.load(tmp_path / "large.png", (30, 30, 3), Preprocess(), max_pixels=900)
    assert got.shape == (30, 30, 3)
    assert Image.MAX_IMAGE_PIXELS == 100
    with pytest.raises(InputError, match="30x30"):
        images.load(tmp_path / "large.png", (30, 30, 3), Preprocess(), max_pixels=899)
    with pytest.raises(InputError, match="900 pixels; 50 are allowed"):
        images.load(tmp_path / "large.png", (30, 30, 3), Preprocess(), max_pixels=50)
