"""Draws sounds and computes their spectrograms, which the model takes.

Usage: sounds.py FOLDER    writes calib.npy and test.npz into it
"""

import sys
from pathlib import Path

import numpy as np

KINDS = ("tone", "up", "down", "beeps", "clicks", "noise")
RATE, WINDOW, HOP, FRAMES, BANDS = 8000, 512, 256, 32, 24  # samples a second; samples; samples; of a spectrogram
SAMPLES = (FRAMES - 1) * HOP + WINDOW


def sound(kind: str, rng: np.random.Generator, samples: int = SAMPLES) -> np.ndarray:
    """float32 [samples], from -1 to 1: one of the kinds in some noise."""
    t = np.arange(samples) / RATE
    seconds, low, ratio = samples / RATE, rng.uniform(250, 900), rng.uniform(2, 4)
    if kind in ("up", "down"):
        course = t if kind == "up" else seconds - t
        pitch = low * ratio ** (course / seconds)
    else:
        pitch = np.full(samples, low * rng.uniform(1, 3))
    wave = np.sin(2 * np.pi * np.cumsum(pitch) / RATE)
    beat = (t * rng.uniform(4, 8) + rng.uniform()) % 1
    if kind == "beeps":
        wave = wave * (beat < 0.5)
    if kind == "clicks":
        wave = rng.standard_normal(samples) * np.exp(-30 * beat)
    if kind == "noise":
        wave = rng.standard_normal(samples) / 2
    wave = wave * 10 ** rng.uniform(-1, 0) + rng.standard_normal(samples) * 10 ** rng.uniform(-3, -1.7)
    return np.clip(wave, -1, 1).astype(np.float32)


def bands() -> np.ndarray:
    """[WINDOW / 2 + 1, BANDS]: triangles at equal distances on the mel scale."""
    mel = np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), BANDS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    hertz = np.linspace(0, RATE / 2, WINDOW // 2 + 1)[:, None]
    rise = (hertz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - hertz) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rise, fall))


def spectrogram(wave: np.ndarray) -> np.ndarray:
    """float32 [1, frames, BANDS]: logarithms of the energy in each band, a frame every HOP samples."""
    count = (len(wave) - WINDOW) // HOP + 1
    frames = np.stack([wave[i * HOP : i * HOP + WINDOW] for i in range(count)]) * np.hanning(WINDOW)
    energy = (np.abs(np.fft.rfft(frames)) ** 2) @ bands()
    return np.log(energy + 1e-3)[None].astype(np.float32)


def drawn(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """float32 [count, 1, FRAMES, BANDS] and labels, the kinds in turn."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % len(KINDS)
    return np.stack([spectrogram(sound(KINDS[label], rng)) for label in labels]), labels


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "calib.npy", drawn(96, seed=3)[0])
    spectrograms, labels = drawn(240, seed=4)
    np.savez(folder / "test.npz", sound=spectrograms, labels=labels)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
