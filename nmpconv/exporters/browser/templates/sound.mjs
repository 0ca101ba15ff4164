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

/** A function of samples that returns frames: an array of Float32Array of `bands` numbers; with a rate alone of one. Samples
 * at the end that fill no window are left out. */
export function frontEnd({ rate, window, hop, bands, low, high, floor }) {
  if (!bands) return (samples) => Array.from(samples, (x) => Float32Array.of(x));
  const hann = Float64Array.from({ length: window }, (_, i) => 0.5 + 0.5 * Math.cos((Math.PI * (2 * i + 1 - window)) / (window - 1)));
  const mel = (f) => 2595 * Math.log10(1 + f / 700), [from, to] = [mel(low), mel(high)];
  const edges = Array.from({ length: bands + 2 }, (_, i) => 700 * (10 ** ((from + i * ((to - from) / (bands + 1))) / 2595) - 1));
  // Of each band the triangle's weights at the frequencies that are not 0 there.
  const filters = Array.from({ length: bands }, (_, b) => {
    const [left, middle, right] = edges.slice(b, b + 3);
    return Array.from({ length: Math.floor(window / 2) + 1 }, (_, k) => {
      const hertz = (k * rate) / window;
      return [k, Math.max(0, Math.min((hertz - left) / (middle - left), (right - hertz) / (right - middle)))];
    }).filter(([, weight]) => weight);
  });
  const frame = (samples, at) => {
    const [re, im] = transformed(Float64Array.from(hann, (w, i) => w * samples[at + i]), new Float64Array(window));
    return Float32Array.from(filters, (some) => Math.log(some.reduce((sum, [k, weight]) => sum + weight * (re[k] ** 2 + im[k] ** 2), 0) + floor));
  };
  return (samples) => {
    const count = Math.max(0, Math.floor((samples.length - window) / hop) + 1);
    return Array.from({ length: count }, (_, i) => frame(samples, i * hop));
  };
}
