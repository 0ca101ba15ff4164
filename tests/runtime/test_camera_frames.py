"""Frames of a camera: nmp_image.c returns numpy's bytes, here and on a board, and is as near as one level to Pillow."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from board_programs import output
from c_core import C99, SANITIZE, WARNINGS, includes, sources
from PIL import Image

from nmpconv.base.fixed_point import INT_MAX, INT_MIN, quantize
from nmpconv.data import camera
from nmpconv.device.simulator import MACHINES
from nmpconv.errors import InputError, UsageError
from nmpconv.ir import Preprocess

FINE, ARGUMENT = 0, 20
OWN = "image_cases.c"


def noise(seed: int, count: int) -> np.ndarray:
    """Bytes of the generator in image_cases.c."""
    found = np.empty(count, np.uint8)
    for i in range(count):
        seed = (seed * 1664525 + 1013904223) % 2**32
        found[i] = seed >> 24
    return found


def checksum(data: bytes) -> int:
    found = 2166136261
    for byte in data:
        found = (found ^ byte) * 16777619 % 2**32
    return found


def cover(size: tuple[int, int], to: camera.ImageInput) -> tuple[int, int, int, int]:
    """Left, top, width and height of the largest part of a frame in its middle that has the input's proportions."""
    width, height = size
    taken = (max(height * to.width // to.height, 1), height)
    if width * to.height <= height * to.width:
        taken = (width, max(width * to.height // to.width, 1))
    return (width - taken[0]) // 2, (height - taken[1]) // 2, *taken


def random_input(rng: np.random.Generator) -> camera.ImageInput:
    channels, bits = int(rng.choice([1, 3])), int(rng.choice([8, 16]))
    size = (int(rng.integers(1, 20)), int(rng.integers(1, 20)), channels)
    if bits == 8 and rng.random() < 0.5:
        return camera.pixel_input(size, bool(rng.random() < 0.5))
    order = str(rng.choice(["rgb", "bgr"])) if channels == 3 else "gray"
    mean, std = rng.uniform(0, 255, channels), rng.uniform(20, 100, channels)
    preprocess = Preprocess(tuple(mean), tuple(std), channel_order=order)
    grid = (bits, INT_MIN[bits] + int(rng.integers(0, 30)), INT_MAX[bits])
    steps = np.exp2(rng.uniform(-6 - (bits - 8), -3, channels))
    return camera.scaled_input(size, preprocess, grid, tuple(steps), tuple(rng.normal(0, 0.3, channels)))


def numbers(values: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def c_input(to: camera.ImageInput) -> str:
    sizes = f"{to.width}, {to.height}, {to.channels}, {to.bgr:d}, {to.bits}, {to.shift}, {to.clip_min}, {to.clip_max}"
    return f"{{{sizes}, {numbers(to.factor)}, {numbers(to.bias)}}}"


def a_case(rng: np.random.Generator, seed: int) -> tuple[str, int, int, int]:
    """A line of image_cases.h, and elements of its buffers."""
    to, kind = random_input(rng), str(rng.choice(list(camera.FORMATS)))
    covers, filter_ = bool(rng.random() < 0.3), str(rng.choice(camera.FILTERS))
    left, top, width, height = (int(rng.integers(*ends)) for ends in ((0, 5), (0, 5), (1, 60), (1, 60)))
    return a_line(seed, to, (kind, filter_), covers, (left, top, width, height), int(rng.integers(0, 4)))


def at_the_ends(seed: int) -> tuple[str, int, int, int]:
    """As far to the right, as wide and with as large numbers as may be."""
    to = camera.ImageInput(4096, 1, 1, False, 16, 24, INT_MIN[16], INT_MAX[16], (1 << 21,) * 3, (1 << 30,) * 3)
    return a_line(seed, to, ("gray", "bilinear"), False, (4096, 0, 2, 1), 0)


def a_line(
    seed: int, to: camera.ImageInput, how: tuple[str, str], covers: bool, place: tuple[int, int, int, int], slack: int
) -> tuple[str, int, int, int]:
    """how: format and filter. slack: bytes between rows."""
    (kind, filter_), (left, top, width, height) = how, place
    row = -(-(left + width) // 2) * 4 if kind == "yuyv" else (left + width) * camera.FORMATS[kind]
    stride = row + slack
    rows = noise(seed, stride * (top + height)).reshape(-1, stride)
    whole = camera.decoded(rows, kind, left + width, to.channels)
    part = (0, 0, width, height) if not covers else cover((width, height), to)
    x, y = left + part[0], top + part[1]
    found = camera.integers(whole[y : y + part[3], x : x + part[2]], to, filter_).tobytes()
    sizes = f"{left}, {top}, {width}, {height}"
    frame = f"{{0, {rows.size}, {stride}, (nmp_image_format){list(camera.FORMATS).index(kind)}, {sizes}}}"
    chosen = f"(nmp_image_filter){camera.FILTERS.index(filter_)}"
    line = f"{{{seed}u, {covers:d}, {frame}, {c_input(to)}, {chosen}, NMP_OK, {checksum(found)}u}},"
    return line, rows.size, width * to.channels, len(found)


def refused(rng: np.random.Generator) -> list[str]:
    """Lines of image_cases.h whose sizes do not fit."""
    to = replace(random_input(rng), width=4, height=4)
    good = {"bytes": 64, "stride": 8, "format": 0, "left": 0, "top": 0, "width": 8, "height": 8}
    wrong = [
        {"bytes": 63},
        {"stride": 7},
        {"format": 5},
        {"left": 1},
        {"top": 1},
        {"left": 2**32 - 1},
        {"top": 2**32 - 1},
        {"width": 0},
        {"height": 0},
        {"height": 2**31},
        {"width": 257, "stride": 257, "bytes": 257 * 8},  # shrinks by more than 64
        {"format": 4},
    ]
    inputs = [to] * len(wrong)
    wrong += [{}] * 6
    inputs += [
        replace(to, channels=2),
        replace(to, bits=12),
        replace(to, shift=25),
        replace(to, clip_min=to.clip_max + 1),
        replace(to, factor=(2**21 + 1, 0, 0)),
        replace(to, width=4097),
    ]
    lines = []
    for change, one in zip(wrong, inputs, strict=True):
        n = good | change
        place = f"{n['left']}u, {n['top']}u, {n['width']}u, {n['height']}u"
        frame = f"{{0, {n['bytes']}, {n['stride']}, (nmp_image_format){n['format']}, {place}}}"
        lines.append(f"{{1u, 0, {frame}, {c_input(one)}, (nmp_image_filter)0, NMP_E_ARGUMENT, 0u}},")
    return lines


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of image_cases.h."""
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(3)
    made = [*(a_case(rng, seed) for seed in range(120)), at_the_ends(120)]
    lines = [line for line, *_ in made] + refused(rng)
    pixels, scratch, integers = (max(one[i] for one in made) for i in (1, 2, 3))
    sizes = f"#define PIXELS_MAX {pixels}\n#define SCRATCH_MAX {scratch}\n#define INTEGERS_MAX {integers}\n"
    rows = "\n".join(lines)
    (folder / "image_cases.h").write_text(f"{sizes}static const image_case cases[] = {{\n{rows}\n}};\n")
    return folder


def test_numpy_and_c_here(cases: Path, root: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    program = tmp_path / "images"
    files = [*(root / "interpreter" / "tests" / name for name in (OWN, "memory.c")), *sources(root, "image")]
    compile_ = [need_tool("gcc", "clang"), *C99, *WARNINGS, *SANITIZE, *includes(root), f"-I{cases}"]
    subprocess.run([*compile_, *files, "-o", program], check=True)
    said = subprocess.run([program], capture_output=True, text=True)
    assert said.stdout == "139 frames, 0 differ\n", said.stdout + said.stderr


@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2-an386", "rv32"])
def test_numpy_and_c_on_a_board(
    board: str, cases: Path, root: Path, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    need_tool("riscv64-unknown-elf-gcc" if board == "rv32" else "arm-none-eabi-gcc")
    need_tool(MACHINES[board].program)
    make = ["make", "-s", "-C", root / "interpreter" / "firmware", f"BOARD={board}", f"OUT={tmp_path}"]
    make += [f"NAME={board}", f"DEFINES=-I{cases}", f"MAIN=../tests/{OWN} ../tests/memory.c"]
    subprocess.run(make, check=True, capture_output=True)
    assert output(board, tmp_path / f"{board}.elf") == "139 frames, 0 differ\n"


SIZES = [((120, 160), (32, 48)), ((97, 131), (64, 61)), ((480, 640), (96, 96)), ((240, 320), (7, 9))]


@pytest.mark.parametrize("size", [*SIZES, ((24, 20), (96, 96))])
def test_bilinear_is_near_pillow(size: tuple[tuple[int, int], tuple[int, int]]) -> None:
    """Noise, shrunk and enlarged: the worst case."""
    (height, width), (rows, columns) = size
    pixels = np.random.default_rng(1).integers(0, 256, (height, width, 3)).astype(np.uint8)
    wanted = np.asarray(Image.fromarray(pixels).resize((columns, rows), Image.Resampling.BILINEAR)).astype(int)
    apart = np.abs(camera.resized(pixels, rows, columns, "bilinear").astype(int) - wanted)
    assert apart.max() <= 1
    assert apart.mean() < 0.2


@pytest.mark.parametrize("size", SIZES)
def test_area_is_the_mean(size: tuple[tuple[int, int], tuple[int, int]]) -> None:
    """Each pixel counts with the part of it that the output pixel covers."""
    (height, width), (rows, columns) = size
    pixels = np.random.default_rng(2).integers(0, 256, (height, width, 1)).astype(np.uint8)

    def covered(size: int, out: int) -> np.ndarray:
        """Parts of each output pixel that a pixel covers, [out, size]."""
        ends = np.arange(size + 1) * out
        low, high = (np.arange(out)[:, None] + i for i in (0, 1))
        return (np.minimum(ends[1:], high * size) - np.maximum(ends[:-1], low * size)).clip(0) / size

    mean = covered(height, rows) @ pixels[..., 0] @ covered(width, columns).T
    assert np.abs(camera.resized(pixels, rows, columns, "area")[..., 0] - mean).max() < 1


def test_formats() -> None:
    red = np.array([[0x00, 0xF8]], np.uint8)
    assert camera.decoded(red, "rgb565", 1, 3).tolist() == [[[255, 0, 0]]]
    assert camera.decoded(red[:, ::-1], "rgb565_be", 1, 3).tolist() == [[[255, 0, 0]]]
    assert camera.decoded(red, "rgb565", 1, 1).tolist() == [[[76]]]
    assert camera.decoded(np.array([[90, 128, 200, 128]], np.uint8), "yuyv", 2, 3).tolist() == [[[90] * 3, [200] * 3]]
    blue = camera.decoded(np.array([[29, 255, 29, 107]], np.uint8), "yuyv", 1, 3)[0, 0]
    assert blue.tolist() == [0, 0, 254]


def test_the_grid_is_that_of_the_file() -> None:
    """The integers of the float model's numbers, but for halves that fixed-point factors tip."""
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    preprocess = Preprocess((0.45,), (0.22,), range=(0.0, 1.0), channel_order="gray")
    to = camera.scaled_input((16, 16, 1), preprocess, (8, -128, 127), (0.029,), (0.1,))
    wanted = quantize((preprocess.to_model(levels) - 0.1) / 0.029, 0, -128, 127)
    apart = np.abs(camera.integers(levels, to).astype(int) - wanted)
    assert apart.max() <= 1
    assert apart.mean() < 0.01


def test_what_cannot_be() -> None:
    with pytest.raises(InputError, match="allowed: sides of 1 to 4096"):
        camera.resized(np.zeros((300, 8, 1), np.uint8), 4, 4, "bilinear")
    with pytest.raises(UsageError, match="nv12"):
        camera.decoded(np.zeros((1, 8), np.uint8), "nv12", 2, 3)
    with pytest.raises(InputError, match="4 pixels of rgb565 take 8 bytes"):
        camera.decoded(np.zeros((1, 7), np.uint8), "rgb565", 4, 3)
    with pytest.raises(InputError, match="steps of the input"):
        camera.scaled_input((1, 1, 1), Preprocess(std=(1e-9,)), (8, -128, 127), (1.0,), (0.0,))


def test_numbers_have_as_many_bits_as_fit() -> None:
    to = camera.scaled_input((1, 1, 1), Preprocess((0.0,), (1.0,)), (16, -9, 9), (256.0,), (0.0,))
    assert (to.shift, to.factor) == (24, (1 << 16, 0, 0))
