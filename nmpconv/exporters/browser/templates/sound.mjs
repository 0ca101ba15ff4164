// Sound as nmpconv/data/audio.py reads it: samples of a WAV file, and the front end that makes frames of them.

const PCM = 1;

/** Samples of a WAV file of whole numbers: { rate, samples }, from -1 to 1, channels averaged; null for other files, which
 * a browser may decode. Throws where a part of the file claims more bytes than there are. */
export function wav(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const name = (at) => String.fromCharCode(...bytes.subarray(at, at + 4));
  if (bytes.length < 12 || name(0) !== "RIFF" || name(8) !== "WAVE") return null;
  let format;
  for (let at = 12; at + 8 <= bytes.length;) {
    const kind = name(at), length = view.getUint32(at + 4, true), start = at + 8;
    if (length > bytes.length - start) throw new Error(`its part ${kind} claims ${length} bytes, and has ${bytes.length - start}`);
    if (kind === "fmt ") {
      const [code, channels, , width] = [0, 2, 12, 14].map((field) => view.getUint16(start + field, true));
      format = { code, channels, bytes: width / 8, rate: view.getUint32(start + 4, true) };
    }
    if (kind === "data") return format?.code === PCM && [1, 2, 3, 4].includes(format.bytes) ? pcm(view, start, length, format) : null;
    at = start + length + (length % 2);
  }
  return null;
}

const pcm = (view, start, length, { channels, bytes, rate }) => {
  const whole = { 1: (at) => view.getUint8(at) - 128, 2: (at) => view.getInt16(at, true),
    3: (at) => view.getUint16(at, true) + 65536 * view.getInt8(at + 2), 4: (at) => view.getInt32(at, true) }[bytes];
  const samples = Float32Array.from({ length: Math.floor(length / (channels * bytes)) }, (_, i) => {
    let sum = 0;
    for (let c = 0; c < channels; c++) sum += whole(start + (i * channels + c) * bytes) / 2 ** (8 * bytes - 1);
    return sum / channels;
  });
  return { rate, samples };
};

// In place: the discrete Fourier transform of n numbers at distance step, halved while that goes without a rest.
const transformed = (real, imaginary) => {
  const n = real.length;
  if (n === 1) return [real, imaginary];
  const parts = n % 2 ? n : 2, size = n / parts;
  const pieces = Array.from({ length: parts }, (_, p) => {
    const pick = (from) => Float64Array.from({ length: size }, (_, i) => from[i * parts + p]);
    return size === 1 ? [pick(real), pick(imaginary)] : transformed(pick(real), pick(imaginary));
  });
  const [re, im] = [new Float64Array(n), new Float64Array(n)];
  for (let k = 0; k < n; k++) {
    for (let p = 0; p < parts; p++) {
      const turn = (-2 * Math.PI * ((k * p) % n)) / n, [c, s] = [Math.cos(turn), Math.sin(turn)];
      const [a, b] = [pieces[p][0][k % size], pieces[p][1][k % size]];
      re[k] += a * c - b * s;
      im[k] += a * s + b * c;
    }
  }
  return [re, im];
};

/** The front end in integers of nmpconv/base/sound.py, with the same numbers; powers and energies have 64 bits. */
const inIntegers = ({ hop, points, window, turns, first, counts, weights, floor, cepstrum }) => {
  const fourth = points / 4, m = points / 2, bits = Math.log2(points), least = BigInt(floor);
  const starts = counts.map((_, band) => counts.slice(0, band).reduce((sum, count) => sum + count, 0));
  const factors = weights.map(BigInt);
  const logarithm = Array.from({ length: 65 }, (_, i) => Math.round(65536 * Math.log2(1 + i / 64)));
  const order = Array.from({ length: m }, (_, i) => parseInt([...i.toString(2).padStart(bits - 1, "0")].reverse().join(""), 2));
  // A quarter of a product of 31 bits each, rounded down: the turn in two parts.
  const hi = (a, t) => Math.floor((a * Math.floor(t / 65536) + Math.floor((a * (t - 65536 * Math.floor(t / 65536))) / 65536)) / 65536);
  const turn = (k) => {
    const part = Math.floor(k / fourth), sine = turns[k % fourth], cosine = turns[fourth - (k % fourth)];
    return [[cosine, sine], [-sine, cosine], [-cosine, -sine]][part];
  };
  const turned = (re, im, [c, s]) => [hi(re, c) + hi(im, s), hi(im, c) - hi(re, s)];
  const transform = (re, im) => {
    let length = 1;
    if (bits % 2 === 0) {
      for (let i = 0; i < m; i += 2) {
        for (const part of [re, im]) {
          const [a, b] = [part[i] >> 1, part[i + 1] >> 1];
          [part[i], part[i + 1]] = [a + b, a - b];
        }
      }
      length = 2;
    }
    for (; length < m; length *= 4) {
      for (let j = 0; j < length; j++) {
        const step = (j * fourth) / length, [w1, w2, w3] = [1, 2, 3].map((n) => turn(n * step));
        for (let a = j; a < m; a += 4 * length) {
          const b = a + length, c = b + length, d = c + length;
          const [br, bi] = turned(re[b], im[b], w2), [cr, ci] = turned(re[c], im[c], w1), [dr, di] = turned(re[d], im[d], w3);
          const ar = re[a] >> 2, ai = im[a] >> 2;
          [re[a], im[a], re[c], im[c]] = [ar + br + cr + dr, ai + bi + ci + di, ar + br - cr - dr, ai + bi - ci - di];
          [re[b], im[b], re[d], im[d]] = [ar - br + ci - di, ai - bi - cr + dr, ar - br - ci + di, ai - bi + cr - dr];
        }
      }
    }
  };
  const powers = (re, im) => {
    const found = Array(m + 1), square = (x) => BigInt(x) * BigInt(x);
    for (let k = 0; k <= m / 2; k++) {
      const other = (m - k) % m, [zr, zi, yr, yi] = [re[k], im[k], re[other], im[other]].map((x) => x >> 1);
      const er = (zr + yr) >> 2, ei = (zi - yi) >> 2, [tr, ti] = turned(zi + yi, yr - zr, turn(k));
      found[m - k] = (square(er - tr) + square(ei - ti)) >> 10n;
      found[k] = (square(er + tr) + square(ei + ti)) >> 10n;
    }
    return found;
  };
  const ln = (energy) => {
    const top = energy.toString(2).length - 1, u = Number((energy << BigInt(63 - top)) >> 32n);
    const i = Math.floor(u / 2 ** 25) % 64, f = Math.floor(u / 512) % 65536;
    const log2 = (top - 63 + 2 * bits) * 65536 + logarithm[i] + Math.floor(((logarithm[i + 1] - logarithm[i]) * f) / 65536);
    return Math.floor((log2 * 45426 + 32768) / 65536);
  };
  const frame = (pcm, at) => {
    const weighted = (i) => (i < window.length ? pcm[at + i] * window[i] : 0);
    const [re, im] = [0, 1].map((odd) => Int32Array.from(order, (i) => weighted(2 * i + odd)));
    transform(re, im);
    const power = powers(re, im);
    const logarithms = first.map((start, band) => {
      let energy = least;
      for (let i = 0; i < counts[band]; i++) energy += factors[starts[band] + i] * power[start + i];
      return ln(energy);
    });
    const coefficient = (k) => logarithms.reduce((sum, x, band) => sum + x * cepstrum[k * first.length + band], 0);
    const numbers = Array.from({ length: cepstrum.length / first.length }, (_, k) => Math.floor((coefficient(k) + 16384) / 32768));
    return Float64Array.from(cepstrum.length ? numbers : logarithms, (x) => x / 65536);
  };
  return (samples) => {
    const pcm = Int16Array.from(samples, (x) => Math.min(Math.max(Math.floor(x * 32768 + 0.5), -32768), 32767));
    const count = Math.max(0, Math.floor((pcm.length - window.length) / hop) + 1);
    return Array.from({ length: count }, (_, i) => frame(pcm, i * hop));
  };
};

/** A function of samples that returns frames: an array of Float32Array of `mfcc` or `bands` numbers, in integers of
 * Float64Array; with a rate alone of one. Samples at the end that fill no window are left out. */
export function frontEnd({ rate, window, hop, bands, low, high, floor, fft, mfcc, htk, tables }) {
  if (tables) return inIntegers(tables);
  if (!bands) return (samples) => Array.from(samples, (x) => Float32Array.of(x));
  const hann = Float64Array.from({ length: window }, (_, i) => 0.5 + 0.5 * Math.cos((Math.PI * (2 * i + 1 - window)) / (window - 1)));
  const mel = (f) => 2595 * Math.log10(1 + f / 700), [from, to] = [mel(low), mel(high)];
  const edges = Array.from({ length: bands + 2 }, (_, i) => 700 * (10 ** ((from + i * ((to - from) / (bands + 1))) / 2595) - 1));
  // Of each band the triangle's weights at the frequencies that are not 0 there.
  const filters = Array.from({ length: bands }, (_, b) => {
    const [left, middle, right] = edges.slice(b, b + 3);
    return Array.from({ length: Math.floor(fft / 2) + 1 }, (_, k) => {
      const hertz = (k * rate) / fft;
      return [k, Math.max(0, Math.min((hertz - left) / (middle - left), (right - hertz) / (right - middle)))];
    }).filter(([, weight]) => weight);
  });
  const frame = (samples, at) => {
    const padded = Float64Array.from({ length: fft }, (_, i) => (i < window ? hann[i] * samples[at + i] : 0));
    const [re, im] = transformed(padded, new Float64Array(fft));
    const logarithms = filters.map((some) => Math.log(some.reduce((sum, [k, weight]) => sum + weight * (re[k] ** 2 + im[k] ** 2), 0) + floor));
    const factor = (k) => Math.sqrt((k || htk ? 2 : 1) / bands), angle = (k, band) => (Math.PI * k * (2 * band + 1)) / (2 * bands);
    const coefficient = (_, k) => logarithms.reduce((sum, x, band) => sum + x * Math.cos(angle(k, band)) * factor(k), 0);
    return Float32Array.from(mfcc ? Array.from({ length: mfcc }, coefficient) : logarithms);
  };
  return (samples) => {
    const count = Math.max(0, Math.floor((samples.length - window) / hop) + 1);
    return Array.from({ length: count }, (_, i) => frame(samples, i * hop));
  };
}
