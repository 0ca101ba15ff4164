"""Speaks words of two vowels, in many voices, and computes their frames, which the model takes one by one.

Usage: words.py FOLDER    writes calib.npy, test.npz and spoken.wav into it
"""

import sys
import wave
from pathlib import Path

import numpy as np

FORMANTS = {"a": (730, 1090, 2440), "i": (270, 2290, 3010), "u": (300, 870, 2240)}  # Hz; Peterson and Barney, 1952
WIDTHS = (70, 90, 140)  # Hz, of the formants
WORDS = ("ai", "ia", "au", "ua", "iu", "ui")
KINDS = (*WORDS, "nothing")
RATE, WINDOW, HOP, FRAMES, BANDS = 8000, 512, 256, 32, 20  # samples a second; samples; samples; of a clip; of a frame
SAMPLES = (FRAMES - 1) * HOP + WINDOW
FRONT = f"rate={RATE},window={WINDOW},hop={HOP},bands={BANDS}"
CALIB, TEST = 100, 350
NOISE = (-2.2, -1.2)  # of the test, as powers of 10; louder than what the model was trained with


def spoken(word: str, rng: np.random.Generator) -> np.ndarray:
    """float64 [n], from -1 to 1: harmonics of a voice under an envelope that glides from vowel to vowel."""
    samples = int(RATE * rng.uniform(0.4, 0.6))
    t = np.linspace(0, 1, samples)
    pitch = rng.uniform(90, 220) * (1 + rng.uniform(-0.15, 0.15) * t)
    glide = 1 / (1 + np.exp(-(t - rng.uniform(0.4, 0.6)) * rng.uniform(15, 40)))
    tract = rng.uniform(0.9, 1.15)  # of a longer or shorter person
    first, last = (np.array(FORMANTS[vowel])[:, None] * tract for vowel in word)
    formants = first + (last - first) * glide
    orders = np.arange(1, int(RATE / 2 / pitch.max()))[:, None]
    tones = np.sin(orders * (2 * np.pi * np.cumsum(pitch) / RATE)) / orders
    peaks = zip(formants, WIDTHS, strict=True)
    envelope = sum(1 / (1 + ((orders * pitch - formant) / width) ** 2) for formant, width in peaks)
    loud = np.minimum(1, 12 * np.minimum(t, 1 - t))
    voice = (tones * envelope).sum(0) * loud
    return voice / np.abs(voice).max()


def clip(kind: str, rng: np.random.Generator, noise: tuple[float, float] = (-3.0, -1.7)) -> np.ndarray:
    """float32 [SAMPLES]: one word somewhere in noise of 10^noise, or noise alone."""
    sound = rng.standard_normal(SAMPLES) * 10 ** rng.uniform(*noise)
    if kind != "nothing":
        word = spoken(kind, rng) * 10 ** rng.uniform(-0.8, -0.1)
        start = rng.integers(0, SAMPLES - len(word))
        sound[start : start + len(word)] += word
    return np.clip(sound, -1, 1).astype(np.float32)


def bands() -> np.ndarray:
    """[WINDOW / 2 + 1, BANDS]: triangles at equal distances on the mel scale."""
    mel = np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), BANDS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    hertz = np.linspace(0, RATE / 2, WINDOW // 2 + 1)[:, None]
    rise = (hertz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - hertz) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rise, fall))


def frames(sound: np.ndarray) -> np.ndarray:
    """float32 [frames, 1, BANDS]: logarithms of the energy in each band, a frame every HOP samples."""
    count = (len(sound) - WINDOW) // HOP + 1
    cut = np.stack([sound[i * HOP : i * HOP + WINDOW] for i in range(count)]) * np.hanning(WINDOW)
    energy = (np.abs(np.fft.rfft(cut)) ** 2) @ bands()
    return np.log(energy + 1e-3)[:, None].astype(np.float32)


def drawn(count: int, seed: int, noise: tuple[float, float] = (-3.0, -1.7)) -> tuple[np.ndarray, np.ndarray]:
    """float32 [count, FRAMES, 1, BANDS] and labels, the kinds in turn."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % len(KINDS)
    return np.stack([frames(clip(KINDS[label], rng, noise)) for label in labels]), labels


def write_wav(path: Path, sound: np.ndarray) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "calib.npy", drawn(CALIB, seed=3)[0])
    clips, labels = drawn(TEST, 4, NOISE)
    np.savez(folder / "test.npz", x=clips, labels=labels)
    rng = np.random.default_rng(5)
    write_wav(folder / "spoken.wav", clip("iu", rng))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
