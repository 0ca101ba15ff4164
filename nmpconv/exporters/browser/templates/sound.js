// Sounds: frames as `nmpconv run` makes them, and what the model says to them.
const { front, turned } = input;
const framesOf = frontEnd(front), step = front.hop || 1, size = front.window || 1, width = front.mfcc || front.bands || 1;
const isRanked = outputs.length === 1 && outputs[0].shape.filter((n) => n > 1).length === 1;
const seconds = (frames) => (((frames - 1) * step + size) / front.rate).toFixed(2);
const unit = `${front.bands ? "frame" : "sample"}${input.frames > 1 ? "s" : ""}${hasStates ? " a call" : ""}`;
byId("about").textContent = [`${input.frames} ${unit}, ${seconds(input.frames)} s at ${front.rate} Hz`,
  `${Math.round(net.arenaBytes / 1000)} kB of RAM here`, net.cpu].join(", ");

// A run on as many frames as the input has. Returns the scores, or null where outputs are none.
let took = 0;
const call = (frames) => {
  const values = new (front.tables ? Float64Array : Float32Array)(frames.length * width);
  frames.forEach((frame, i) => frame.forEach((x, band) => { values[turned ? band * frames.length + i : i * width + band] = x; }));
  net.write(input.name, quantized(port, values));
  const begin = performance.now();
  net.runRaw();
  took += performance.now() - begin;
  return isRanked ? dequantized(outputs[0], net.read(outputs[0].name)) : null;
};

// A function of samples that follow each other, which returns the results of the calls that they fill: of a model with states
// of all frames in turn, else of the last ones.
const listener = () => {
  let samples = new Float32Array(), frames = [];
  net.reset();
  return (more) => {
    const all = new Float32Array(samples.length + more.length), calls = [];
    all.set(samples);
    all.set(more, samples.length);
    const fresh = framesOf(all);
    took = 0;
    samples = all.slice(fresh.length * step);
    frames = frames.concat(fresh);
    if (hasStates) {
      while (frames.length >= input.frames) calls.push(call(frames.splice(0, input.frames)));
    } else if (fresh.length && frames.length >= input.frames) {
      frames = frames.slice(-input.frames);
      calls.push(call(frames));
    }
    return calls;
  };
};

// Calls in a row with one best class; the score is the highest of them.
const stretches = (calls) => {
  const spans = [];
  calls.forEach((scores, i) => {
    const [k] = ranking(scores, 1), same = spans.at(-1)?.k === k ? spans.pop() : { first: i, k, score: -Infinity };
    spans.push({ ...same, last: i, score: Math.max(same.score, scores[k]) });
  });
  return spans;
};

const shapes = () => outputs.map((one) => [one.name, one.shape.join("x")]);
const time = (count) => {
  byId("time").textContent = `${(took / count).toFixed(2)} ms for the model, on one thread${hasStates ? `, a call; ${count} call${count > 1 ? "s" : ""}` : ""}`;
};

const heard = (samples) => {
  const count = Math.max(Math.floor((samples.length - size) / step) + 1, 0);
  if (hasStates ? count < input.frames : count !== input.frames) {
    throw new Error(`it has ${count} frames; the model takes ${input.frames}, which is ${seconds(input.frames)} s`);
  }
  draw(samples);
  const calls = listener()(samples);
  const spans = () => stretches(calls).map(({ first, last, k, score }) => (
    [first === last ? `call ${first}` : `calls ${first} to ${last}`, named(k), score.toPrecision(4)]));
  fill(!isRanked ? shapes() : hasStates ? spans() : rows(calls.at(-1)));
  time(calls.length);
};

// The sound's highest and lowest samples along the canvas.
const view = byId("view"), pen = view.getContext("2d");
const draw = (samples) => {
  const { width: columns, height } = view, each = samples.length / columns;
  pen.clearRect(0, 0, columns, height);
  pen.fillStyle = getComputedStyle(view).color;
  for (let x = 0; x < columns; x++) {
    const some = samples.subarray(Math.floor(x * each), Math.max(Math.floor((x + 1) * each), Math.floor(x * each) + 1));
    const [low, high] = some.reduce(([a, b], sample) => [Math.min(a, sample), Math.max(b, sample)], [1, -1]);
    pen.fillRect(x, (height * (1 - high)) / 2, 1, Math.max((height * (high - low)) / 2, 1));
  }
};

// What is no WAV file of whole numbers at the model's rate is decoded, and brought to that rate, by the browser.
const samplesOf = async (blob) => {
  const content = await blob.arrayBuffer(), file = wav(new Uint8Array(content));
  byId("note").textContent = "";
  if (file?.rate === front.rate) return file.samples;
  const audio = await new OfflineAudioContext(1, 1, front.rate).decodeAudioData(content);
  byId("note").textContent = `The browser brought it to ${front.rate} Hz: nmpconv run takes WAV files of that rate alone.`;
  const channels = Array.from({ length: audio.numberOfChannels }, (_, c) => audio.getChannelData(c));
  return channels[0].map((_, i) => channels.reduce((sum, channel) => sum + channel[i], 0) / channels.length);
};

const open = (blob) => tried("sound", async () => heard(await samplesOf(blob)));

const RECORDER = `registerProcessor("recorder", class extends AudioWorkletProcessor {
  process([[samples]]) {
    if (samples) this.port.postMessage(samples.slice());
    return true;
  }
});`;
live("live", "microphone", { audio: { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false } }, async (stream) => {
  const context = new AudioContext({ sampleRate: front.rate });
  // Of a page in a folder a blob's address is refused.
  await context.audioWorklet.addModule(`data:text/javascript,${encodeURIComponent(RECORDER)}`);
  const recorder = new AudioWorkletNode(context, "recorder", { numberOfOutputs: 0 });
  context.createMediaStreamSource(stream).connect(recorder);
  const listen = listener(), shown = new Float32Array(front.rate);
  let waiting = [], ended = false;
  recorder.port.onmessage = ({ data }) => waiting.push(data);
  const next = () => {
    if (ended) return;
    const samples = Float32Array.from(waiting.flatMap((chunk) => Array.from(chunk))).subarray(-shown.length);
    waiting = [];
    if (samples.length) {
      shown.copyWithin(0, samples.length);
      shown.set(samples, shown.length - samples.length);
      draw(shown);
      const calls = listen(samples);
      if (calls.length) {
        fill(isRanked ? rows(calls.at(-1)) : shapes());
        time(calls.length);
      }
    }
    requestAnimationFrame(next);
  };
  next();
  return () => {
    ended = true;
    context.close();
  };
});
