/** Bytes, a Blob, a Response, or an address: a URL, or a path where there are files. */
export type Source = ArrayBuffer | ArrayBufferView | Blob | Response | Promise<Blob | Response> | URL | string;

export interface Options {
  /** nmp.wasm, or what it is compiled to. Default: the one beside the script. */
  module?: Source | WebAssembly.Module;
  /** A CPU level, one of `levels()`. Default: the best. */
  cpu?: string;
}

/** An input or an output: a real number is `integer * 2 ** exponent + offset`. */
export interface Port {
  readonly name: string;
  /** As in the file, batch 1. Images are NHWC. */
  readonly shape: number[];
  readonly bits: 8 | 16 | 32;
  readonly bytes: number;
  /** The axis that has an exponent for each index; -1: one exponent for all. */
  readonly axis: number;
  readonly exponents: number[];
  /** An offset for each exponent; null: `origin` is that of all. */
  readonly offsets: number[] | null;
  readonly origin: number;
  /** The least and the greatest integer. */
  readonly clip: [number, number];
}

export interface Input extends Port {
  /** The output that this input takes over in the next run, by its index; -1: none, so the caller gives it. */
  readonly state: number;
}

export type Numbers = ArrayLike<number>;

/** A model that can be run. It has a memory of its own: several may be there. */
export class Net {
  private constructor();
  readonly cpu: string;
  readonly arenaBytes: number;
  readonly inputs: Input[];
  readonly outputs: Port[];
  /** Real numbers of the inputs by name, of an only one as they are, to real numbers of the outputs by name. Both in
   * the order of the shapes. States go on from run to run.
   * @throws RangeError: an input is missing, unknown, or has another length. */
  run(values: Numbers | Record<string, Numbers>): Record<string, Float32Array>;
  /** Writes the integers of an input: a view of `bytes` bytes. Before each run. */
  write(name: string | undefined, bytes: ArrayBufferView): void;
  /** Runs on what was written. */
  runRaw(): void;
  /** A copy of an output's integers, as bytes. */
  read(name?: string): Uint8Array;
  /** Sets states to their start. */
  reset(): void;
}

/** A net of a .nmp file.
 * @throws Error: it is no model that can be run. */
export function load(file: Source, options?: Options): Promise<Net>;

/** One run of a .nmp file: `load`, then `Net.run`. */
export function run(file: Source, values: Numbers | Record<string, Numbers>, options?: Options): Promise<Record<string, Float32Array>>;

/** Names of the CPU levels, the plainest first. */
export function levels(module?: Options["module"]): Promise<string[]>;

/** The integers that a port has for real numbers: nearest, halves up, within `clip`. Numbers beyond float32 are for a
 * Float64Array.
 * @throws RangeError: another length, or no finite number. */
export function quantized(port: Port, numbers: Numbers): Int8Array | Int16Array | Int32Array;

/** Real numbers of a port's integers, which are given as bytes. */
export function dequantized(port: Port, bytes: ArrayBufferView): Float32Array;
