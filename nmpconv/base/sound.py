"""Frames of sound in integers: the specification of interpreter/include/nmp_sound.h.

schema/FORMAT.md has the formulas ("Sound"). C returns the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmpconv.base.fixed_point import SHIFT_MAX, SHIFT_MIN, rsh, sat

POINTS_MIN, POINTS_MAX = 16, 4096  # of a transform
HOP_MAX = (1 << 16) - 1  # samples
RATE_MAX = (1 << 32) - 1  # samples a second
AT_ONCE = 1 << 20  # numbers that are transformed together
WEIGHT_ONE, TURN_ONE = 1 << 15, 1 << 30
TURN_SLACK = 1 << 31  # of sin^2 + cos^2, for rounding
FLOOR_MAX, OFFSET_MAX = 1 << 62, 1 << 30
CEPSTRUM_BITS, CEPSTRUM_MAX = 15, 1 << 23  # of its weights; of the sum of their magnitudes in a coefficient
EXPONENT = -16  # of features
LN2 = 45426  # * 2^-16
PIECES = 64  # of the logarithm's table
LOG2 = np.rint(np.log2(1 + np.arange(PIECES + 1) / PIECES) * 65536).astype(np.int64)
PAST_BITS = 10  # of powers, left out

Rules = Iterator[tuple[str, bool]]


@dataclass(frozen=True)
class SoundFront:
    """Front end of an input in integers, kept in the file: see "Sound" in FORMAT.md, which has the units.

    rate: samples a second. hop: samples from a frame to the next. points: of the Fourier transform. window: weights of
    a frame's samples. turns: a quarter of a sine. first, counts: of each band, its first frequency and how many it has,
    whose weights follow each other in ``weights``. floor: added to energies. shifts, offsets: to the input's grid, one
    or one a number of a frame. turned: the input's integers of a band follow each other, else those of a frame.
    cepstrum: of each coefficient that stands for the bands, the weights of all bands; () leaves the bands.
    """

    rate: int
    hop: int
    points: int
    window: tuple[int, ...]
    turns: tuple[int, ...]
    first: tuple[int, ...]
    counts: tuple[int, ...]
    weights: tuple[int, ...]
    floor: int
    shifts: tuple[int, ...] = (0,)
    offsets: tuple[int, ...] = (0,)
    turned: bool = False
    cepstrum: tuple[int, ...] = ()

    @property
    def bands(self) -> int:
        return len(self.counts)

    @property
    def width(self) -> int:
        """Numbers of a frame."""
        return len(self.cepstrum) // self.bands if self.cepstrum else self.bands

    @property
    def memory(self) -> int:
        """Bytes that nmp_sound_create takes: NMP_SOUND_BYTES of nmp_sound.h."""
        return 64 + (len(self.window) * 2 + 7) // 8 * 8 + self.points * 4 + 8

    @staticmethod
    def of(table: Mapping[str, Any]) -> SoundFront:
        """The front end of a file's table, whose vectors are arrays."""
        fields: dict[str, Any] = {
            key: tuple(value.tolist()) if isinstance(value, np.ndarray) else value for key, value in table.items()
        }
        fields["cepstrum"] = fields["cepstrum"] or ()
        return SoundFront(**fields)


def rules(front: SoundFront) -> Rules:
    """Rules: text where one does not hold, and whether it holds; each may rely on those before it."""
    points, bands, numbers = front.points, front.bands, len(front.cepstrum)
    yield f"{front.rate} samples a second", front.rate >= 1
    fits = POINTS_MIN <= points <= POINTS_MAX and points & (points - 1) == 0
    yield f"a transform of {points} points", fits
    yield f"a hop of {front.hop} samples", 1 <= front.hop <= HOP_MAX
    yield f"a window of {len(front.window)} samples", 2 <= len(front.window) <= points
    yield "a weight of a sample beyond 1", max(front.window) <= WEIGHT_ONE
    yield f"{len(front.turns)} turns", len(front.turns) == points // 4 + 1
    turns = np.array(front.turns, np.int64)
    yield "a turn that is not from 0 to 1", bool((turns >= 0).all() and (turns <= TURN_ONE).all())
    yield f"turns from {turns[0]} to {turns[-1]}", turns[0] == 0 and turns[-1] == TURN_ONE
    yield "turns that enlarge", bool((turns**2 + turns[::-1] ** 2 <= (1 << 60) + TURN_SLACK).all())
    yield f"{bands} bands, {len(front.first)} of them begin", bands >= 1 and len(front.first) == bands
    ends = [first + count for first, count in zip(front.first, front.counts, strict=True)]
    yield f"a band beyond frequency {points // 2}", max(ends) <= points // 2 + 1
    yield f"{len(front.weights)} weights of {sum(front.counts)}", len(front.weights) == sum(front.counts)
    yield "a weight of a band beyond 1", max(front.weights, default=0) <= WEIGHT_ONE
    yield f"a floor of {front.floor}", 1 <= front.floor <= FLOOR_MAX
    yield f"{numbers} weights of a cepstrum of {bands} bands", numbers % bands == 0
    yield f"{front.width} coefficients", front.width <= min(bands, points) or not numbers
    magnitudes = np.abs(np.array(front.cepstrum, np.int64)).reshape(-1, bands).sum(axis=1)
    yield "a coefficient that enlarges", bool((magnitudes <= CEPSTRUM_MAX).all())
    yield f"{len(front.shifts)} shifts for {front.width} numbers", len(front.shifts) in (1, front.width)
    yield f"{len(front.offsets)} offsets for {len(front.shifts)} shifts", len(front.offsets) == len(front.shifts)
    yield "a shift out of range", min(front.shifts) >= SHIFT_MIN and max(front.shifts) <= SHIFT_MAX
    yield "an offset out of range", max(map(abs, front.offsets)) <= OFFSET_MAX


def features(front: SoundFront, pcm: np.ndarray) -> np.ndarray:
    """int32 [frames, width] in units of 2^EXPONENT, of samples int16 [n]; those that fill no window are left out."""
    size = len(front.window)
    count = max(0, (len(pcm) - size) // front.hop + 1)
    step = max(1, AT_ONCE // front.points)
    if count > step:
        parts = (pcm[i * front.hop : (min(i + step, count) - 1) * front.hop + size] for i in range(0, count, step))
        return np.concatenate([features(front, part) for part in parts])
    cut = np.lib.stride_tricks.sliding_window_view(pcm, size)[:: front.hop] if count else np.zeros((0, size), np.int16)
    z = np.zeros((count, front.points), np.int64)
    z[:, :size] = cut[:count].astype(np.int64) * np.array(front.window, np.int64)
    powers = _powers(front, *_transformed(front, z[:, ::2], z[:, 1::2]))
    weights, energies = np.array(front.weights, np.uint64), np.empty((count, front.bands), np.uint64)
    done = 0
    for band, (first, used) in enumerate(zip(front.first, front.counts, strict=True)):
        energies[:, band] = powers[:, first : first + used] @ weights[done : done + used]
        done += used
    logarithms = _logarithms(energies + np.uint64(front.floor), front.points.bit_length() - 1)
    if front.cepstrum:
        cosines = np.array(front.cepstrum, np.int64).reshape(-1, front.bands)
        logarithms = rsh(logarithms @ cosines.T, CEPSTRUM_BITS)
    return logarithms.astype(np.int32)


def integers(front: SoundFront, values: np.ndarray, low: int, high: int) -> np.ndarray:
    """Integers of the input, int64 [frames, width], of features [frames, width]. low, high: the input's clip range."""
    return sat(rsh(values - np.array(front.offsets, np.int64), np.array(front.shifts, np.int64)), low, high)


def _hi(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """floor(a * b / 2^32): a quarter of the product with a turn."""
    return (a * b) >> 32


def _turns(front: SoundFront, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of 2 pi k / points, 0 <= k < 3/4 points, times 2^30."""
    quarter, table = front.points // 4, np.array(front.turns, np.int64)
    part, rest = k // quarter, k % quarter
    sine, cosine = table[rest], table[quarter - rest]
    return np.choose(part, [cosine, -sine, -cosine]), np.choose(part, [sine, cosine, -sine])


def _turned(front: SoundFront, k: np.ndarray, real: np.ndarray, imaginary: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A quarter of (real + i imaginary) * exp(-2 pi i k / points)."""
    c, s = _turns(front, k)
    return _hi(real, c) + _hi(imaginary, s), _hi(imaginary, c) - _hi(real, s)


def _transformed(front: SoundFront, real: np.ndarray, imaginary: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The Fourier transform of complex numbers [frames, m] divided by m, a power of two."""
    count, m = real.shape
    bits = m.bit_length() - 1
    order = np.array([int(f"{i:0{bits}b}"[::-1], 2) for i in range(m)])
    re, im = real[:, order], imaginary[:, order]
    length = 1
    if bits % 2:
        halves = [x.reshape(count, -1, 2) >> 1 for x in (re, im)]
        re, im = (np.stack([x[..., 0] + x[..., 1], x[..., 0] - x[..., 1]], 2).reshape(count, m) for x in halves)
        length = 2
    while length < m:
        j = np.arange(length) * (front.points // (4 * length))
        a_re, b_re, c_re, d_re = np.moveaxis(re.reshape(count, -1, 4, length), 2, 0)
        a_im, b_im, c_im, d_im = np.moveaxis(im.reshape(count, -1, 4, length), 2, 0)
        (b_re, b_im), (c_re, c_im) = _turned(front, 2 * j, b_re, b_im), _turned(front, j, c_re, c_im)
        d_re, d_im = _turned(front, 3 * j, d_re, d_im)
        p_re, p_im, q_re, q_im = (a_re >> 2) + b_re, (a_im >> 2) + b_im, (a_re >> 2) - b_re, (a_im >> 2) - b_im
        r_re, r_im, s_re, s_im = c_re + d_re, c_im + d_im, c_re - d_re, c_im - d_im
        re = np.stack([p_re + r_re, q_re + s_im, p_re - r_re, q_re - s_im], 2).reshape(count, m)
        im = np.stack([p_im + r_im, q_im - s_re, p_im - r_im, q_im + s_re], 2).reshape(count, m)
        length *= 4
    return re, im


def _powers(front: SoundFront, re: np.ndarray, im: np.ndarray) -> np.ndarray:
    """Squared magnitudes uint64 [frames, points / 2 + 1] of the spectrum of real samples.

    re, im: the transform of complex numbers whose real parts are the even samples, and imaginary parts the odd ones.
    """
    m = front.points // 2
    k = np.arange(m // 2 + 1)
    zr, zi, yr, yi = re[:, k], im[:, k], re[:, -k % m], im[:, -k % m]
    even = (zr >> 1) + (yr >> 1), (zi >> 1) - (yi >> 1)
    odd = (zi >> 1) + (yi >> 1), (yr >> 1) - (zr >> 1)
    tr, ti = _turned(front, k, *odd)
    squares = np.empty((len(re), m + 1), np.uint64)
    for places, sign in ((m - k, -1), (k, 1)):
        x, y = (even[0] >> 2) + sign * tr, (even[1] >> 2) + sign * ti
        squares[:, places] = (x * x + y * y) >> PAST_BITS
    return squares


def _logarithms(v: np.ndarray, bits: int) -> np.ndarray:
    """Natural logarithms, in units of 2^EXPONENT, of energies uint64 >= 1 in units of 2^(2 * bits - 63)."""
    top, rest = np.zeros(v.shape, np.int64), v.copy()
    for step in (32, 16, 8, 4, 2, 1):
        large = rest >> np.uint64(step) > 0
        top += step * large
        rest = np.where(large, rest >> np.uint64(step), rest)
    u = ((v << (63 - top).astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
    i, f = u >> 25 & (PIECES - 1), u >> 9 & 0xFFFF
    log2 = (top << 16) + LOG2[i] + ((LOG2[i + 1] - LOG2[i]) * f >> 16)
    return rsh((log2 - ((63 - 2 * bits) << 16)) * LN2, 16)
