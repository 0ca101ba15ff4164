// Runs .nmp files by nmp.wasm, with the bytes of every other machine.

const UTF8 = new TextDecoder();

class Instance {
  constructor(module) {
    this.exports = new WebAssembly.Instance(module, {}).exports;
  }

  bytes(at, length) {
    return new Uint8Array(this.exports.memory.buffer, at, length);
  }

  text(at) {
    if (!at) return "";
    const all = new Uint8Array(this.exports.memory.buffer);
    return UTF8.decode(all.slice(at, all.indexOf(0, at)));
  }

  put(bytes) {
    const at = this.exports.take(bytes.length);
    if (!at && bytes.length) throw new RangeError(`no memory for ${bytes.length} bytes`);
    this.bytes(at, bytes.length).set(bytes);
    return at;
  }
}

const inNode = Boolean(globalThis.process?.versions?.node);

const fetched = async (address) => {
  if (inNode && !/^(https?|data|blob):/.test(address)) {
    const { readFile } = await import(/* webpackIgnore: true */ /* @vite-ignore */ "node:fs/promises");
    return readFile(/^file:/.test(address) ? new URL(address) : address);
  }
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address} cannot be read: ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
};

// source: bytes, a Blob, a Response, or an address: a URL, or a path where there are files.
const bytesOf = async (source) => {
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (typeof source === "string" || source instanceof URL) return fetched(source);
  const given = await source;
  if (typeof given?.arrayBuffer !== "function") throw new TypeError("allowed are bytes, a Blob, a Response, a URL or a path");
  return new Uint8Array(await given.arrayBuffer());
};

let own;
const compiled = async (given) => {
  if (given instanceof WebAssembly.Module) return given;
  if (given !== undefined) return WebAssembly.compile(await bytesOf(given));
  own ??= bytesOf(new URL("nmp.wasm", import.meta.url)).then((bytes) => WebAssembly.compile(bytes));
  return own.catch((error) => {
    own = undefined;
    throw error;
  });
};

/** Names of the CPU levels of a module, the plainest first. */
export async function levels(module) {
  const instance = new Instance(await compiled(module));
  const found = [];
  for (let i = 0, at; (at = instance.exports.cpu_level(i)); i++) found.push(instance.text(at));
  return found;
}

/** A net of a .nmp file. module: nmp.wasm or what it is compiled to, default the one beside this script. cpu: a level,
 * default the best. */
export async function load(file, { module, cpu } = {}) {
  const [code, bytes] = await Promise.all([compiled(module), bytesOf(file)]);
  return new Net(new Instance(code), bytes, cpu);
}

/** One run of a .nmp file: `load`, then `Net.run`. */
export async function run(file, values, options) {
  return (await load(file, options)).run(values);
}

export class Net {
  #instance;
  #offsets = new Map();

  constructor(instance, file, cpu) {
    this.#instance = instance;
    const { exports } = instance;
    const name = cpu === undefined ? 0 : instance.put(new TextEncoder().encode(`${cpu}\0`));
    const status = exports.create(instance.put(file), file.length, name);
    if (status) {
      const where = exports.fault_op() < 0 ? "" : ` (op ${exports.fault_op()})`;
      const message = `this is no model that can be run: ${instance.text(exports.status_text(status))}${where}`;
      throw Object.assign(new Error(message), { status });
    }
    this.cpu = instance.text(exports.cpu());
    this.arenaBytes = exports.arena_bytes();
    this.inputs = Array.from({ length: exports.inputs() }, (_, i) => ({ ...this.#port(0, i), state: exports.state_of(i) }));
    this.outputs = Array.from({ length: exports.outputs() }, (_, i) => this.#port(1, i));
  }

  #port(isOutput, i) {
    const { exports } = this.#instance;
    exports.look(isOutput, i);
    const copy = (Type, at, n) => Array.from(new Type(exports.memory.buffer.slice(at, at + n * Type.BYTES_PER_ELEMENT)));
    const exponents = exports.view_exponent_count();
    const offsets = exports.view_offsets(), mantissas = exports.view_mantissas();
    const port = {
      name: this.#instance.text(exports.view_name()),
      shape: copy(Int32Array, exports.view_shape(), exports.view_rank()),
      bits: exports.view_bits(),
      bytes: exports.view_bytes(),
      axis: exports.view_axis(),
      exponents: copy(Int8Array, exports.view_exponents(), exponents),
      offsets: offsets ? copy(Float32Array, offsets, exponents) : null,
      mantissas: mantissas ? copy(Float32Array, mantissas, exponents) : null,
      clip: [exports.view_clip_min(), exports.view_clip_max()],
      origin: new Float32Array(new Uint32Array([exports.view_origin()]).buffer)[0],
    };
    this.#offsets.set((isOutput ? "out " : "in ") + port.name, exports.view_data());
    return port;
  }

  #named(ports, name) {
    const port = name === undefined && ports.length === 1 ? ports[0] : ports.find((one) => one.name === name);
    if (!port) throw new RangeError(`there is no ${name}; there are ${ports.map((one) => one.name).join(", ")}`);
    return port;
  }

  /** Integers of an input, as bytes. */
  write(name, bytes) {
    const port = this.#named(this.inputs, name);
    if (bytes.byteLength !== port.bytes) throw new RangeError(`${port.name} has ${port.bytes} bytes, given are ${bytes.byteLength}`);
    const from = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#instance.bytes(this.#offsets.get(`in ${port.name}`), port.bytes).set(from);
  }

  /** Integers of an output, as bytes: a copy. */
  read(name) {
    const port = this.#named(this.outputs, name);
    return this.#instance.bytes(this.#offsets.get(`out ${port.name}`), port.bytes).slice();
  }

  /** Runs on what was written. Results may lie over inputs: write them again before the next run. */
  runRaw() {
    this.#instance.exports.run();
  }

  /** States at their start. */
  reset() {
    this.#instance.exports.reset();
  }

  /** Real numbers of inputs by name, of the only one as they are, to real numbers of outputs by name. Both in the order
   * of the file's shapes, which for images is NHWC. */
  run(values) {
    const needed = this.inputs.filter((port) => port.state < 0).map((port) => port.name);
    const isOne = ArrayBuffer.isView(values) || Array.isArray(values);
    if (isOne && needed.length !== 1) throw new RangeError(`there are inputs ${needed.join(", ")}: give { name: numbers, ... }`);
    const given = isOne ? { [needed[0]]: values } : values;
    const missing = needed.filter((name) => !(name in given));
    if (missing.length) throw new RangeError(`no numbers for ${missing.join(", ")}`);
    for (const [name, numbers] of Object.entries(given)) this.write(name, quantized(this.#named(this.inputs, name), numbers));
    this.runRaw();
    return Object.fromEntries(this.outputs.map((port) => [port.name, dequantized(port, this.read(port.name))]));
  }
}

const TYPES = { 8: Int8Array, 16: Int16Array, 32: Int32Array };

// Elements that lie together and have one exponent.
const innerOf = (port, count) => (port.axis < 0 ? count : port.shape.slice(port.axis + 1).reduce((a, b) => a * b, 1));

const offset = (port, k) => (port.offsets ? port.offsets[k] : port.origin);
const mantissa = (port, k) => (port.mantissas ? port.mantissas[k] : 1);

/** sat(round_half_up((x - offset) / (mantissa * 2^exponent))), difference and quotient in float32, of a Float64Array in
 * float64: schema/FORMAT.md, "Ports". The loop has no calls of functions that differ: engines would not compile it as
 * one. */
export function quantized(port, numbers) {
  const to = new TYPES[port.bits]((8 * port.bytes) / port.bits), [low, high] = port.clip;
  if (numbers.length !== to.length) throw new RangeError(`${port.name} has ${to.length} numbers, given are ${numbers.length}`);
  const isDouble = numbers instanceof Float64Array, inner = innerOf(port, to.length);
  for (let k = 0, i = 0; i < to.length; k = (k + 1) % port.exponents.length) {
    const o = offset(port, k), m = mantissa(port, k), factor = 2 ** -port.exponents[k];
    for (const end = i + inner; i < end; i++) {
      const from = numbers[i], x = o ? (isDouble ? from - o : Math.fround(from - o)) : from;
      if (!Number.isFinite(x)) throw new RangeError(`${port.name}: number ${i} is ${from}`);
      const steps = m === 1 ? x : isDouble ? x / m : Math.fround(x / m);
      const halves = Math.floor(2 * Math.min(Math.max(steps * factor, low), high));
      to[i] = Math.floor((halves + 1) / 2);
    }
  }
  return to;
}

export function dequantized(port, bytes) {
  const whole = new TYPES[port.bits](bytes.buffer, bytes.byteOffset, (8 * port.bytes) / port.bits);
  const reals = new Float32Array(whole.length), inner = innerOf(port, whole.length);
  for (let k = 0, i = 0; i < whole.length; k = (k + 1) % port.exponents.length) {
    const o = offset(port, k), step = mantissa(port, k) * 2 ** port.exponents[k];
    for (const end = i + inner; i < end; i++) reals[i] = whole[i] * step + o;
  }
  return reals;
}
