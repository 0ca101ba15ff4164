// node wasm_answers.mjs RUNTIME.mjs MODULE.wasm: for each line of JSON {number, file, given}, what every level of the
// module makes of the file: {refused: nmp_status}, {trap: an error that is no refusal} or {outputs}.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const [, , runtime, module] = process.argv;
const { load, levels } = await import(runtime);
const code = await WebAssembly.compile(readFileSync(module));

const answer = async (cpu, file, given) => {
  try {
    const net = await load(file, { module: code, cpu });
    let at = 0;
    for (const port of net.inputs) {
      net.write(port.name, given.subarray(at, at + port.bytes));
      at += port.bytes;
    }
    net.runRaw();
    return { outputs: Buffer.concat(net.outputs.map((port) => net.read(port.name))).toString("base64") };
  } catch (error) {
    const refused = error.status !== undefined;
    return refused ? { refused: error.status } : { trap: `${error.constructor.name}: ${error.message}` };
  }
};

for await (const line of createInterface({ input: process.stdin })) {
  const { number, file, given } = JSON.parse(line);
  const [bytes, inputs] = [file, given].map((text) => Buffer.from(text, "base64"));
  const answers = { number };
  for (const cpu of await levels(code)) answers[cpu] = await answer(cpu, bytes, inputs);
  console.log(JSON.stringify(answers));
}
