"""Samples of `bench/trained.py`: photographs, drawn words, chords, syllables, files."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from PIL import Image, ImageDraw, ImageFont

Sample = dict[str, np.ndarray]
RATE = 16000


def photographs(
    width: int, height: int, low: float, high: float, *, bgr: bool = False
) -> Callable[[onnx.ModelProto], list[Sample]]:
    """Returns what reads the zoo's photographs of faces, RGB or BGR from low to high, in the model's layout."""

    def make(model: onnx.ModelProto) -> list[Sample]:
        zoo = Path(os.environ.get("NMP_ZOO") or Path(__file__).resolve().parents[2] / "shared" / "zoo")
        files = sorted(path for path in (zoo / "data" / "faces").iterdir() if path.suffix in (".jpg", ".png"))
        images = (Image.open(file).convert("RGB").resize((width, height)) for file in files)
        pixels = [low + np.asarray(image, np.float32) / 255 * (high - low) for image in images]
        channels = slice(None, None, -1 if bgr else 1)
        shape = [size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim]
        axes = (0, 1, 2) if shape[3] == 3 else (2, 0, 1)
        return [{model.graph.input[0].name: x[..., channels].transpose(axes)[None].copy()} for x in pixels]

    return make


def crops(
    width: int, height: int, low: float, high: float, *, folder: str = "faces", least: float = 0.35, most: float = 1.0
) -> Callable[[onnx.ModelProto], list[Sample]]:
    """Returns what cuts 60 squares of a folder's photographs, RGB from low to high, from least to most of the shorter
    side."""

    def make(model: onnx.ModelProto) -> list[Sample]:
        zoo = Path(os.environ.get("NMP_ZOO") or Path(__file__).resolve().parents[2] / "shared" / "zoo")
        files = sorted(path for path in (zoo / "data" / folder).rglob("*") if path.suffix in (".jpg", ".png"))
        dice, samples = np.random.default_rng(3), []
        shape = [size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim]
        axes = (0, 1, 2) if shape[3] == 3 else (2, 0, 1)
        for i in range(60):
            image = Image.open(files[i % len(files)]).convert("RGB")
            side = min(image.size) * dice.uniform(least, most)
            x, y = (dice.uniform(0, size - side) for size in image.size)
            square = image.resize((width, height), Image.Resampling.BILINEAR, (x, y, x + side, y + side))
            pixels = low + np.asarray(square, np.float32) / 255 * (high - low)
            samples.append({model.graph.input[0].name: pixels.transpose(axes)[None].copy()})
        return samples

    return make


def _drawn(size: tuple[int, int], lines: int, dice: np.random.Generator) -> np.ndarray:
    """Words in black or white on noise, [1, 3, H, W] from -1 to 1. size: width and height."""
    dark = bool(dice.integers(2))
    noise = dice.integers(0, 70, (size[1], size[0], 3)) + (0 if dark else 180)
    image = Image.fromarray(noise.astype(np.uint8))
    draw, height = ImageDraw.Draw(image), size[1] // lines
    for i in range(lines):
        letters = dice.choice(
            list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 "), 8 + 4 * (lines > 1)
        )
        font = ImageFont.load_default(int(height * dice.uniform(0.45, 0.7)))
        draw.text((6, i * height + height * 0.12), "".join(letters), (230,) * 3 if dark else (20,) * 3, font)
    return (np.asarray(image, np.float32) / 127.5 - 1).transpose(2, 0, 1)[None]


def words(
    width: int, height: int, lines: int = 1, *, turn: int = 0, low: float = -1, high: float = 1, grey: bool = False
) -> Callable[[onnx.ModelProto], list[Sample]]:
    """Returns what draws 36 pictures from low to high. turn: by so many quarters, more with each three of them."""

    def make(model: onnx.ModelProto) -> list[Sample]:
        dice = np.random.default_rng(5)
        drawn = [np.rot90(_drawn((width, height), lines, dice), i // 3 * turn % 4, (2, 3)) for i in range(36)]
        planes = [x.mean(1, keepdims=True) if grey else x for x in drawn]
        scaled = (low + (x + 1) / 2 * (high - low) for x in planes)
        return [{model.graph.input[0].name: np.ascontiguousarray(x, np.float32)} for x in scaled]

    return make


def _chords(count: int, length: int, rate: int) -> Iterator[np.ndarray]:
    """Notes with harmonics that fade, and a little noise, [length]."""
    dice, time = np.random.default_rng(6), np.arange(length) / rate
    for _ in range(count):
        wave = dice.normal(0, 0.003, length)
        for _ in range(dice.integers(1, 5)):
            pitch, start = 440 * 2 ** (dice.integers(-24, 24) / 12), dice.uniform(0, time[-1] / 2)
            fade = np.exp(-3 * np.maximum(time - start, 0)) * (time > start)
            wave += sum(0.12 / k * np.sin(2 * np.pi * k * pitch * time) for k in range(1, 6)) * fade
        yield wave.astype(np.float32)


def music(model: onnx.ModelProto) -> list[Sample]:
    return [{model.graph.input[0].name: wave[None, :, None]} for wave in _chords(24, 43844, 22050)]


def speech(model: onnx.ModelProto) -> list[Sample]:
    """Windows of 576 at 16 kHz one behind the other, each with the state that the float model has then."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    samples, state = [], np.zeros((2, 1, 128), np.float32)
    for wave in _chords(4, 576 * 24, RATE):
        for part in wave.reshape(-1, 1, 576):
            samples.append({"input": part, "state": state})
            state = session.run(None, samples[-1])[1]
    return samples


def _mel(wave: np.ndarray, window: int, bands: int, ends: tuple[float, float]) -> np.ndarray:
    """Decibels of frames 10 ms apart, [frames, bands], at most 80 below the loudest. ends: of the bands, in Hz."""
    low, high = (1127 * np.log(1 + end / 700) for end in ends)
    centres = 700 * (np.exp(np.linspace(low, high, bands + 2) / 1127) - 1)
    bins = np.fft.rfftfreq(512, 1 / RATE)
    ramps = (
        (bins - centres[:-2, None]) / np.diff(centres)[:-1, None],
        (centres[2:, None] - bins) / np.diff(centres)[1:, None],
    )
    bank = np.clip(np.minimum(*ramps), 0, None)
    frames = np.lib.stride_tricks.sliding_window_view(wave, window)[::160] * np.hanning(window)
    power = np.abs(np.fft.rfft(frames * 32768, 512)) ** 2 @ bank.T
    decibels = 10 * np.log10(np.maximum(power, 1e-10))
    return np.asarray(np.maximum(decibels, decibels.max() - 80), np.float32)


def mel_frames(model: onnx.ModelProto) -> list[Sample]:
    """76 frames of 32 mel bands, decibels over 10, and 2."""
    waves = _chords(60, 75 * 160 + 400, RATE)
    frames = (_mel(wave, 400, 32, (16.97, 2882.2)) / 10 + 2 for wave in waves)
    return [{model.graph.input[0].name: mel[None, :, :, None]} for mel in frames]


def noisy_mel(model: onnx.ModelProto) -> list[Sample]:
    """900 frames of 120 mel bands of chords under noise of several levels, from -1 to 1."""
    dice, samples = np.random.default_rng(7), []
    for wave in _chords(36, 899 * 160 + 320, RATE):
        mel = _mel(wave + dice.normal(0, 10 ** dice.uniform(-3, -0.5), len(wave)), 320, 120, (20.0, 8000.0))
        samples.append({model.graph.input[0].name: ((mel - mel.max() + 40) / 40)[None]})
    return samples


def _voices(count: int, length: int, noise: tuple[float, float] = (-3.0, -1.3), seed: int = 11) -> Iterator[np.ndarray]:
    """Syllables of pulses, or of noise, through three formants, with pauses, [length]. noise: logarithms of its least
    and largest level."""
    dice = np.random.default_rng(seed)
    for _ in range(count):
        wave, start = np.zeros(length), 0
        while start < length:
            size = int(dice.uniform(0.08, 0.3) * RATE)
            part = wave[start : start + size]
            start += size
            if dice.random() >= 0.75:
                continue
            pitch = dice.uniform(90, 240) * np.linspace(1, dice.uniform(0.8, 1.25), size)
            pulses = np.diff(np.floor(np.cumsum(pitch / RATE)), prepend=0)
            pulses = pulses if dice.random() < 0.85 else dice.normal(0, 0.05, size)
            formants = ((dice.uniform(250, 800), 60), (dice.uniform(800, 2300), 90), (dice.uniform(2300, 3400), 150))
            gain = sum(1 / (1 + ((np.fft.rfftfreq(size, 1 / RATE) - f) / width) ** 2) for f, width in formants)
            spoken = np.fft.irfft(np.fft.rfft(pulses) * gain, size) * np.hanning(size)
            part += (spoken * dice.uniform(0.05, 0.5) / max(1e-6, np.abs(spoken).max()))[: len(part)]
        yield wave + dice.normal(0, 10 ** dice.uniform(*noise), length)


def _power(wave: np.ndarray, window: np.ndarray, hop: int, size: int) -> np.ndarray:
    """Power of each bin, [frames, bins]."""
    frames = np.lib.stride_tricks.sliding_window_view(wave, len(window))[::hop] * window
    return np.asarray(np.abs(np.fft.rfft(frames, size)) ** 2)


def noisy_speech(model: onnx.ModelProto) -> list[Sample]:
    """20 frames of 161 bins, logarithms of power."""
    window = np.sqrt(np.hanning(160))
    powers = (_power(wave, window, 160, 320) for wave in _voices(36, 20 * 160))
    return [{"input": np.log10(np.maximum(power, 1e-12))[None].astype(np.float32)} for power in powers]


def lost_packets(model: onnx.ModelProto) -> list[Sample]:
    """100 frames of 257 bins of speech with gaps, and a rater."""
    dice, samples = np.random.default_rng(3), []
    for wave in _voices(36, 99 * 256 + 512):
        for _ in range(dice.integers(0, 12)):
            gap = dice.integers(0, len(wave) - 640)
            wave[gap : gap + int(dice.integers(160, 640))] = 0
        power = _power(wave, np.hamming(513)[:-1], 256, 512)
        silent = power == 0
        decibels = np.log(np.where(silent, power[~silent].min(), power)) / 20
        decibels[silent] -= 120 / 200 / np.log10(np.e)
        rater = dice.normal(size=(1, 64)).astype(np.float32)
        samples.append({"degraded_audio": decibels[None, None].astype(np.float32), "rater_embed": rater})
    return samples


def echoes(model: onnx.ModelProto) -> list[Sample]:
    """96 frames of 160 mel bands, from -1 to 1: of the far end, the microphone and what is left after cancelling."""
    dice, samples, length = np.random.default_rng(4), [], 95 * 160 + 512
    for far, near in zip(_voices(36, length, (-4, -2)), _voices(36, length, (-4, -2), 12), strict=True):
        echo, left = dice.uniform(0, 0.6) * np.roll(far, dice.integers(100, 2000)), dice.uniform(0, 0.3)
        mels = [_mel(wave, 512, 160, (20.0, 8000.0)) for wave in (far, near + echo, near + left * echo)]
        bands = np.stack([(mel - mel.max() + 40) / 40 for mel in mels])
        samples.append({"input": bands[None], "h0": np.zeros((4, 1, 64), np.float32)})
    return samples


def speech_frames(model: onnx.ModelProto) -> list[Sample]:
    """Ten frames of five times 80 mel bands one behind the other, each with the state that the float model has then."""
    session, samples = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]), []
    for wave in _voices(4, 124 * 160 + 400):
        mel = _mel(wave, 400, 80, (20.0, 8000.0)) / 10 * np.log(10)
        rows = (np.concatenate([mel[i : len(mel) - 4 + i] for i in range(5)], 1) - 14) / 4
        state = {f"in_cache{i}": np.zeros((1, 128, 19, 1), np.float32) for i in range(4)}
        for first in range(0, len(rows) - 10, 10):
            samples.append({"speech": rows[None, first : first + 10].astype(np.float32), **state})
            state = dict(zip(state, session.run(None, samples[-1])[1:], strict=True))
    return samples


def files(model: onnx.ModelProto) -> list[Sample]:
    """The first and last 1,024 bytes of files, 256 where there are none."""
    every = sorted(path for path in Path(sysconfig.get_path("stdlib")).glob("*/*") if path.is_file())
    by_kind: dict[str, list[Path]] = {}
    for path in every:
        if path.stat().st_size > 200:
            by_kind.setdefault(path.suffix, []).append(path)
    chosen = [path for kind in sorted(by_kind) for path in by_kind[kind][:: max(1, len(by_kind[kind]) // 6)][:6]]
    samples = []
    for path in chosen[:: max(1, len(chosen) // 120)]:
        data = path.read_bytes().strip()
        ends = np.full(2048, 256, np.int32)
        first, last = data[:1024], data[-1024:]
        ends[: len(first)] = list(first)
        ends[2048 - len(last) :] = list(last)
        samples.append({model.graph.input[0].name: ends[None]})
    return samples
