// node wasm_vectors.mjs RUNTIME.mjs MODULE.wasm FILE.nmp INPUTS OUTPUTS ...: runs files on their test vectors, by every
// level. INPUTS and OUTPUTS are files with the bytes of all inputs, and of all outputs, one behind the other.
import { readFileSync } from "node:fs";

const [, , runtime, module, ...triples] = process.argv;
const { load, levels } = await import(runtime);
const code = await WebAssembly.compile(readFileSync(module));
let files = 0;
for (let i = 0; i < triples.length; i += 3) {
  const [file, given, wanted] = triples.slice(i, i + 3).map((path) => readFileSync(path));
  for (const cpu of await levels(code)) {
    const net = await load(file, { module: code, cpu });
    let at = 0;
    for (const port of net.inputs) {
      net.write(port.name, given.subarray(at, at + port.bytes));
      at += port.bytes;
    }
    net.runRaw();
    at = 0;
    for (const port of net.outputs) {
      const found = Buffer.from(net.read(port.name));
      if (!found.equals(wanted.subarray(at, at + port.bytes))) {
        console.log(`${triples[i]}: ${cpu}: ${port.name} differs`);
        process.exitCode = 1;
      }
      at += port.bytes;
    }
  }
  files++;
}
console.log(`${files} files, levels ${(await levels(code)).join(", ")}`);
