"""Sound as the input of a model: WAV files, and the front end that makes frames of their samples.

A front end is written down as 'rate=8000,window=512,hop=256,bands=24'; the samples are from -1 to 1, rate of them a
second. Frame i is the logarithm of the energy in each band, log(energy + floor), of ``window`` samples from i * hop on,
under a Hann window. Bands are triangles at equal distances on the mel scale 2595 * log10(1 + f / 700) (O'Shaughnessy,
1987), from ``low`` to ``high`` Hz. With a rate alone, a frame is a sample. The Fourier transform has ``fft`` points:
zeros follow a shorter window. Where that is a power of two, frames are computed in integers, as on a device (`sound`).
With ``mfcc`` a frame is the first so many numbers of the orthonormal DCT-II of these logarithms; ``htk=1`` gives number
0 the factor of the others, sqrt(2 / bands), as HTK and tf.signal do.
"""

from __future__ import annotations

import os
import struct
import wave
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from io import BufferedReader
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np

from nmpconv.base import sound
from nmpconv.base.files import open_file
from nmpconv.base.sound import SoundFront
from nmpconv.errors import InputError, UsageError

SUFFIX = ".wav"
PCM = 1  # a WAV file's number for integers
FORM = (
    "rate=8000,window=512,hop=256,bands=24, maybe low=0,high=4000,floor=0.001,fft=512,mfcc=10,htk=0,integers=1; or "
    "rate=16000 for samples"
)
NEEDED = ("rate", "window", "hop", "bands")
WHOLE = (*NEEDED, "fft", "mfcc", "htk", "integers")
WINDOW_MAX, BANDS_MAX = 1 << 16, 4096
MFCC_BANDS = 3  # least of them whose weights in a cosine transform are below 1

Ears = Callable[[Path], np.ndarray]


@dataclass(frozen=True)
class FrontEnd:
    """window, hop: samples; 0 where a frame is a sample. low, high: Hz. fft: points of the Fourier transform. mfcc:
    numbers of the cosine transform; 0 for none. htk: 1 for a number 0 as large as the others. integers: 1 for frames in
    integers, by ``tables`` of a file or those that the numbers mean."""

    rate: int
    window: int = 0
    hop: int = 0
    bands: int = 0
    low: float = 0.0
    high: float = 0.0
    floor: float = 1e-3
    fft: int = 0
    mfcc: int = 0
    htk: int = 0
    integers: int = 0
    tables: SoundFront | None = field(default=None, repr=False)

    @property
    def width(self) -> int:
        """Numbers of a frame."""
        return self.mfcc or self.bands or 1

    def frames(self, samples: np.ndarray) -> np.ndarray:
        """float32 [frames, width] of samples [n], in integers float64, which holds all of them; samples at the end that
        fill no window are left out."""
        if not self.bands:
            return np.asarray(samples, np.float32)[:, None]
        if self.integers:
            return np.ldexp(sound.features(self.whole, to_pcm(samples)), sound.EXPONENT)  # MFCC may pass 2^24
        count = max(0, (len(samples) - self.window) // self.hop + 1)
        cut = np.lib.stride_tricks.sliding_window_view(samples, self.window)[:: self.hop] if count else samples[:0]
        hann, filters, cosines = np.hanning(self.window), self._filters(), self._cosines()
        frames = np.empty((count, self.width), np.float32)
        for i in range(count):
            energy = (np.abs(np.fft.rfft(cut[i] * hann, self.fft)) ** 2) @ filters
            logarithms = np.log(energy + self.floor)
            frames[i] = logarithms @ cosines if self.mfcc else logarithms
        return frames

    def _filters(self) -> np.ndarray:
        """[fft / 2 + 1, bands]: the triangles."""
        low, high = (2595 * np.log10(1 + f / 700) for f in (self.low, self.high))
        edges = 700 * (10 ** (np.linspace(low, high, self.bands + 2) / 2595) - 1)
        hertz = np.fft.rfftfreq(self.fft, 1 / self.rate)[:, None]
        rise = (hertz - edges[:-2]) / (edges[1:-1] - edges[:-2])
        fall = (edges[2:] - hertz) / (edges[2:] - edges[1:-1])
        return np.maximum(0, np.minimum(rise, fall))

    def _cosines(self) -> np.ndarray:
        """[bands, mfcc]: weights of the bands in the numbers of the cosine transform."""
        angles = np.outer(2 * np.arange(self.bands) + 1, np.arange(self.mfcc)) * (np.pi / (2 * self.bands))
        factors = np.full(self.mfcc, np.sqrt(2 / self.bands))
        factors[:1] *= 1 if self.htk else np.sqrt(0.5)
        return np.cos(angles) * factors

    @cached_property
    def whole(self) -> SoundFront:
        """The same in integers, before those of an input."""
        if self.tables is not None:
            return self.tables
        filters = np.rint(self._filters() * sound.WEIGHT_ONE).astype(int).T
        used = [np.flatnonzero(row) for row in filters]
        spans = [(int(at[0]), int(at[-1]) + 1) if len(at) else (0, 0) for at in used]
        quarter = np.arange(self.fft // 4 + 1) / self.fft
        return SoundFront(
            self.rate,
            self.hop,
            self.fft,
            tuple(np.rint(np.hanning(self.window) * sound.WEIGHT_ONE).astype(int).tolist()),
            tuple(np.rint(np.sin(2 * np.pi * quarter) * sound.TURN_ONE).astype(int).tolist()),
            tuple(start for start, _ in spans),
            tuple(end - start for start, end in spans),
            tuple(int(w) for row, (start, end) in zip(filters, spans, strict=True) for w in row[start:end]),
            self._whole_floor,
            cepstrum=tuple(np.rint(self._cosines().T * (1 << sound.CEPSTRUM_BITS)).astype(int).ravel().tolist()),
        )

    @property
    def _whole_floor(self) -> int:
        floor = self.floor * 2.0 ** (65 - 2 * self.fft.bit_length())
        return round(floor) if isfinite(floor) else 0  # out of range

    @property
    def why_floats(self) -> str:
        """Reason why frames cannot be computed in integers; '' where they can."""
        if not self.bands:
            return "a frame is a sample"
        if not sound.POINTS_MIN <= self.fft <= sound.POINTS_MAX or self.fft & (self.fft - 1):
            return (
                f"a transform of {self.fft} points; powers of two from {sound.POINTS_MIN} to {sound.POINTS_MAX} can be"
            )
        if self.rate > sound.RATE_MAX:
            return f"{self.rate} samples a second; up to {sound.RATE_MAX} can be"
        if not self.hop <= sound.HOP_MAX:
            return f"a hop of {self.hop}; up to {sound.HOP_MAX} can be"
        if self.mfcc and not MFCC_BANDS <= self.bands <= self.fft:
            return f"MFCC of {self.bands} bands; {MFCC_BANDS} to the {self.fft} points of the transform can be"
        return "" if 1 <= self._whole_floor <= sound.FLOOR_MAX else f"a floor of {self.floor:g} is out of their range"


KEYS = {key.name for key in fields(FrontEnd)} - {"tables"}


def of_file(tables: SoundFront) -> FrontEnd:
    """The front end in integers that a file has."""
    size, bands = len(tables.window), tables.bands
    mfcc = tables.width if tables.cepstrum else 0
    return FrontEnd(tables.rate, size, tables.hop, bands, fft=tables.points, mfcc=mfcc, integers=1, tables=tables)


def to_pcm(samples: np.ndarray) -> np.ndarray:
    """int16 [n] of samples from -1 to 1, rounded and saturated."""
    return np.clip(np.floor(np.asarray(samples, np.float64) * 32768 + 0.5), -32768, 32767).astype(np.int16)


def parse(text: str) -> FrontEnd:
    """Raises UsageError for a text that is no front end."""
    pairs = [part.partition("=") for part in text.split(",")]
    texts = {key.strip().lower(): value for key, _, value in pairs}
    wrong = UsageError(f"{text!r} is no front end", where="--audio", hint=FORM, found=text, allowed=FORM)
    if len(texts) != len(pairs) or "rate" not in texts or not set(texts) <= KEYS:
        raise wrong
    try:
        numbers = {key: int(value) if key in WHOLE else float(value) for key, value in texts.items()}
    except ValueError:
        raise wrong from None
    defaults = {"high": numbers["rate"] / 2, "fft": numbers.get("window", 0)}
    front = FrontEnd(**{**defaults, **numbers})  # type: ignore[arg-type]
    whole_keys = set(NEEDED) & set(texts)
    framed = 2 <= front.window <= WINDOW_MAX and front.hop >= 1 and 1 <= front.bands <= BANDS_MAX and front.floor > 0
    framed = framed and front.window <= front.fft <= WINDOW_MAX and {front.htk, front.integers} <= {0, 1}
    framed = framed and 0 <= front.mfcc <= front.bands and front.htk <= front.mfcc
    if front.rate < 1 or not (set(texts) == {"rate"} or (whole_keys == set(NEEDED) and framed)):
        raise wrong
    if not 0 <= front.low < front.high <= front.rate / 2:
        raise UsageError(f"bands from {front.low:g} to {front.high:g} Hz", where="--audio", hint="low < high <= rate/2")
    if front.integers and front.why_floats:
        hint = "fft=512 lets zeros follow a window of 480; integers=0 computes in floats"
        raise UsageError(f"no front end in integers: {front.why_floats}", where="--audio", hint=hint)
    return front if "integers" in texts else replace(front, integers=int(not front.why_floats))


def read_wav(path: Path, rate: int) -> np.ndarray:
    """float32 [n] from -1 to 1: the samples of a WAV file, channels averaged.

    PCM of 8 to 32 bits; with the extra "audio" all that libsndfile reads, such as floats and WAVE_FORMAT_EXTENSIBLE.
    InputError for another file, one that claims more samples than it has, or another rate than ``rate`` (samples a
    second).
    """
    library = None
    try:
        with open_file(path) as (file, size):
            library = None if _format(file, size) == PCM else _libsndfile()
            file.seek(0)
            samples, own_rate = _pcm(file) if library is None else library.read(file, dtype="float64", always_2d=True)
    except (wave.Error, EOFError, RuntimeError, struct.error) as error:  # RuntimeError: of libsndfile, too
        reason = "it ends early" if isinstance(error, struct.error) else str(error).rstrip(".") or "it ends early"
        hint = "PCM of 8 to 32 bits" + ("" if _libsndfile() else "; pip install 'nmpconv[audio]' reads more")
        raise InputError(f"not a readable .wav file: {reason}", where=str(path), hint=hint) from None
    if own_rate != rate:
        raise InputError(
            f"{own_rate} samples a second; the model takes {rate}",
            where=str(path),
            hint="resample it with a sound editor",
        )
    if len(wrong := np.flatnonzero(~np.isfinite(samples).all(1))):
        raise InputError(f"sample {wrong[0]} is infinite or no number", where=str(path), hint="export it again")
    return np.asarray(samples.mean(1), np.float32)


def _format(file: BufferedReader, size: int) -> int:
    """The number of a WAV file's format. Raises wave.Error, also where a part of it, up to its samples, goes beyond the
    end of the file's ``size`` bytes: half a file, or one that was written to a pipe."""
    kind, _, form = struct.unpack("<4sI4s", file.read(12))
    if (kind, form) != (b"RIFF", b"WAVE"):
        raise wave.Error("it does not begin with RIFF and WAVE")
    code = 0
    while True:
        name, length = struct.unpack("<4sI", file.read(8))
        if length > (left := size - file.tell()):
            raise wave.Error(f"its part {str(name)[1:]} claims {length} bytes, and has {left}")
        if name == b"data":
            return code
        if name == b"fmt ":
            code = struct.unpack("<H", file.read(2))[0]
            length -= 2
        file.seek(length + length % 2, os.SEEK_CUR)


def _pcm(file: BufferedReader) -> tuple[np.ndarray, int]:
    """float64 [n, channels] and the rate."""
    with wave.open(file) as sound:
        channels, width, rate = sound.getnchannels(), sound.getsampwidth(), sound.getframerate()
        data = sound.readframes(sound.getnframes())
    if not 1 <= width <= 4:
        raise wave.Error(f"samples of {8 * width} bits")
    data = data[: len(data) // (channels * width) * channels * width]
    if width == 1:
        whole = np.frombuffer(data, np.uint8).astype(np.float64) - 128
    else:  # the highest bytes of 32 bits
        wide = np.zeros((len(data) // width, 4), np.uint8)
        wide[:, 4 - width :] = np.frombuffer(data, np.uint8).reshape(-1, width)
        whole = wide.view("<i4")[:, 0] / 2.0 ** (32 - 8 * width)
    return whole.reshape(-1, channels) / 2 ** (8 * width - 1), rate


def _libsndfile() -> Any:
    """The module soundfile; None where it is not installed."""
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: without the library in C
        return None
    return soundfile


def ears(front: FrontEnd | None, shape: Sequence[int], axis: int | None, *, is_whole: bool = False) -> Ears:
    """Returns the front end that makes an input of a WAV file: of ``shape`` (batch 1), but with all frames of the file
    along time.

    axis: the one of time; None: the last one that leaves a frame's numbers to the others. is_whole: a file has to have
    as many frames as ``shape``, or is an InputError.
    """
    return deaf if front is None else lambda path: _along(front, path, tuple(shape), axis, is_whole)


def deaf(path: Path) -> np.ndarray:
    """The ears of a model whose file has no front end: InputError."""
    raise InputError(
        "the model does not say how sound becomes its input",
        where=str(path),
        hint="convert it with --audio rate=HZ where samples are the input, with --audio "
        "rate=...,window=...,hop=...,bands=... where frames are, or give a .npy of these",
    )


def time_axis(front: FrontEnd, shape: Sequence[int], axis: int | None) -> int:
    """The axis of time of an input. Raises UsageError where the front end does not fit."""
    rests = [[size for other, size in enumerate(shape) if other != i] for i in range(len(shape))]
    fits = [i for i, rest in enumerate(rests) if max(rest, default=1) == prod(rest) == front.width]
    if (axis is None and not fits) or (axis is not None and axis not in fits):
        raise UsageError(
            f"frames of {front.width} number{'s' * (front.width > 1)} do not fit an input of {list(shape)}",
            where="--audio",
            hint="one axis is time, one has the bands, or the MFCC",
        )
    return fits[-1] if axis is None else axis


def _along(front: FrontEnd, path: Path, shape: tuple[int, ...], axis: int | None, is_whole: bool) -> np.ndarray:
    frames, axis = front.frames(read_wav(path, front.rate)), time_axis(front, shape, axis)
    if not len(frames):
        raise InputError(f"it is shorter than a window of {front.window} samples", where=str(path))
    if is_whole and len(frames) != shape[axis]:
        needed = front.window + (shape[axis] - 1) * (front.hop or 1) + (not front.window)
        raise InputError(
            f"{len(frames)} {'frames' if front.window else 'samples'}; the model's input takes {shape[axis]}, "
            f"{needed / front.rate:.4g} s of sound",
            where=str(path),
            hint="cut it, or let silence follow, as in training; with --stream, a model takes any length",
        )
    whole = (*shape[:axis], len(frames), *shape[axis + 1 :])
    return (frames.T if bands_first(shape, axis) else frames).reshape(whole)


def bands_first(shape: Sequence[int], axis: int) -> bool:
    """Checks that the bands of an input stand before ``axis``, that of time."""
    return next((i for i, size in enumerate(shape) if size > 1 and i != axis), axis) < axis
