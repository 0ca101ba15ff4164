// The page of every model: what is dropped is opened by `open` of picture.js or sound.js, which comes behind this.
const byId = (id) => document.getElementById(id);
const facts = JSON.parse(byId("facts").textContent);
const binary = (id) => Uint8Array.from(atob(byId(id).textContent), (c) => c.charCodeAt(0));
const { input, labels, detection } = facts;
const SHOWN = 5;
const net = await load(binary("model"), { module: binary("wasm") });
const port = net.inputs.find((one) => one.name === input.name);
// Outputs that are no states, or all.
const taken = net.inputs.map((one) => one.state);
const hasStates = taken.some((output) => output >= 0);
const stateless = net.outputs.filter((_, i) => !taken.includes(i)), outputs = stateless.length ? stateless : net.outputs;

const named = (k) => labels[k] ?? `class ${k}`;
const ranking = (scores, count) => Array.from(scores.keys()).sort((a, b) => scores[b] - scores[a] || a - b).slice(0, count);
const rows = (scores) => ranking(scores, SHOWN).map((k) => [named(k), scores[k].toPrecision(4)]);
const fill = (lines) => {
  byId("result").replaceChildren();
  for (const line of lines) {
    const row = byId("result").insertRow();
    for (const text of line) row.insertCell().textContent = text;
  }
};

const hex = async (bytes) => Array.from(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)), (b) => b.toString(16).padStart(2, "0")).join("");

const failed = (error) => { byId("failed").textContent = error ? error.message : ""; };
const tried = async (what, task) => {
  failed();
  try {
    await task();
  } catch (error) {
    failed(new Error(`This ${what} cannot be run: ${error.message}`));
  }
};

byId("file").addEventListener("change", ({ target }) => target.files[0] && open(target.files[0]));
const drop = byId("drop");
for (const kind of ["dragover", "dragleave", "drop"]) {
  drop.addEventListener(kind, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", kind === "dragover");
    const [first] = event.dataTransfer?.files ?? [];
    if (kind === "drop" && first) open(first);
  });
}

// A button that starts and stops a camera or a microphone. begin: what is done with its stream, and returns how to end it.
const live = (id, named, constraints, begin) => {
  let stop;
  const started = async () => {
    const stream = await navigator.mediaDevices.getUserMedia(constraints), release = () => stream.getTracks().forEach((track) => track.stop());
    const end = await begin(stream).catch((error) => {
      release();
      throw error;
    });
    return () => {
      end();
      release();
    };
  };
  byId(id).addEventListener("click", async () => {
    failed();
    const end = stop;
    stop = undefined;
    end?.();
    try {
      if (!end) stop = await started();
    } catch (error) {
      failed(new Error(`No ${named}: ${error.message}`));
    }
    byId(id).textContent = `${stop ? "Stop" : "Use"} the ${named}`;
  });
};

// For tests, and for pages that put this one into a frame.
window.nmp = { net, open: (blob) => open(blob), digest: async () => Promise.all(outputs.map((one) => hex(net.read(one.name)))) };
