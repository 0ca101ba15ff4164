// Pictures: pixels as nmpconv/data/images.py makes them, and what comes of them.
byId("about").textContent = `${input.width}x${input.height} pixels, ${Math.round(net.arenaBytes / 1000)} kB of RAM here, ${net.cpu}`;

// Pillow's bilinear filter, rows first, whose support grows as a picture shrinks: of each output, its first source and the weights,
// with 22 bits behind the point.
const filter = (from, to) => {
  const scale = Math.max(from / to, 1);
  return Array.from({ length: to }, (_, i) => {
    const centre = (i + 0.5) * (from / to);
    const first = Math.max(Math.trunc(centre - scale + 0.5), 0), end = Math.min(Math.trunc(centre + scale + 0.5), from);
    const raw = Array.from({ length: end - first }, (_, k) => Math.max(1 - Math.abs((k + first - centre + 0.5) * (1 / scale)), 0));
    const sum = raw.reduce((a, b) => a + b, 0);
    return { first, weights: raw.map((w) => Math.trunc(0.5 + (w / sum) * 2 ** 22)) };
  });
};

const along = (from, lines, step, stride, to, filters, toStep, toStride) => {
  for (let line = 0; line < lines; line++) {
    filters.forEach(({ first, weights }, i) => {
      for (let c = 0; c < 3; c++) {
        let sum = 2 ** 21;
        weights.forEach((w, k) => { sum += w * from[line * step + (first + k) * stride + c]; });
        to[line * toStep + i * toStride + c] = Math.min(Math.max(Math.floor(sum / 2 ** 22), 0), 255);
      }
    });
  }
  return to;
};

const resized = ({ rgb, width, height }, w, h) => {
  let at = rgb, wide = width;
  if (w !== width) {
    at = along(at, height, 3 * width, 3, new Uint8Array(3 * w * height), filter(width, w), 3 * w, 3);
    wide = w;
  }
  return h === height ? at : along(at, wide, 3, 3 * wide, new Uint8Array(3 * wide * h), filter(height, h), 3, 3 * wide);
};

const halfEven = (x) => (x % 1 === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));

// Size and top left corner of a picture in the model's input.
const placed = (w, h) => {
  const { width, height, resize, crop } = input;
  if (w === width && h === height) return [w, h, 0, 0];
  if (resize === "none") throw new Error(`a picture of ${w}x${h} where the model needs ${width}x${height}`);
  if (resize === "letterbox") {
    const wide = w * height >= h * width;
    const fit = (a, b, c) => Math.max(Math.floor((a * b) / c), 1);
    return wide ? [width, fit(h, width, w), 0, 0] : [fit(w, height, h), height, 0, 0];
  }
  let [iw, ih] = [halfEven(width / crop), halfEven(height / crop)];
  if (resize === "shorter") {
    const scale = Math.max(iw / w, ih / h);
    [iw, ih] = [Math.max(halfEven(w * scale), width), Math.max(halfEven(h * scale), height)];
  }
  return [iw, ih, -Math.floor((iw - width) / 2), -Math.floor((ih - height) / 2)];
};

const fitted = (picture) => {
  const [w, h, left, top] = placed(picture.width, picture.height);
  const small = resized(picture, w, h), all = new Uint8Array(3 * input.width * input.height).fill(input.pad);
  for (let y = Math.max(top, 0); y < Math.min(top + h, input.height); y++) {
    for (let x = Math.max(left, 0); x < Math.min(left + w, input.width); x++) {
      for (let c = 0; c < 3; c++) all[3 * (y * input.width + x) + c] = small[3 * ((y - top) * w + x - left) + c];
    }
  }
  return all;
};

const gray = (rgb) => Uint8Array.from({ length: rgb.length / 3 },
  (_, i) => (19595 * rgb[3 * i] + 38470 * rgb[3 * i + 1] + 7471 * rgb[3 * i + 2] + 32768) >> 16);

// Channels as Pillow decodes them, before a picture is resized.
const decoded = (image) => {
  const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data, width, height } = context.getImageData(0, 0, image.width, image.height);
  let rgb = new Uint8Array(3 * width * height);
  for (let i = 0; i < width * height; i++) for (let c = 0; c < 3; c++) rgb[3 * i + c] = data[4 * i + c];
  if (input.channels === 1) rgb = Uint8Array.from({ length: rgb.length }, ((levels) => (_, i) => levels[Math.floor(i / 3)])(gray(rgb)));
  return { rgb, width, height };
};

const feed = (rgb) => {
  const { channels, mean, std, range } = input, bgr = input.channel_order === "bgr";
  const pick = (i, c) => rgb[3 * i + (channels === 1 ? 0 : bgr ? 2 - c : c)];
  const of = (list, c) => list[list.length > 1 ? c : 0];
  const values = Array.from({ length: input.width * input.height * channels }, (_, at) => {
    const i = Math.floor(at / channels), c = at % channels;
    if (input.pixels) return rgb[3 * i + (channels === 1 ? 0 : c)] - 128;
    return (range[0] + pick(i, c) * ((range[1] - range[0]) / 255) - of(mean, c)) / of(std, c);
  });
  net.write(input.name, input.pixels ? Int8Array.from(values) : quantized(port, Float32Array.from(values)));
};

// The picture that the model sees, large enough for lines and words over it.
const SCALE = Math.max(1, Math.round(480 / Math.max(input.width, input.height)));
const view = byId("view"), pen = view.getContext("2d");
const show = (rgb) => {
  const pixels = new ImageData(input.width, input.height);
  for (let i = 0; i < input.width * input.height; i++) pixels.data.set([rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2], 255], 4 * i);
  spread(pixels);
};
const spread = (pixels) => {
  const small = new OffscreenCanvas(pixels.width, pixels.height);
  small.getContext("2d").putImageData(pixels, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, 0, 0, view.width, view.height);
};

const TIMED = 100; // milliseconds of runs of a picture: the first ones are those of a module that is being compiled
const BATCH = 4; // milliseconds that are measured at once: clocks of browsers have steps of 0.1 to 1

// Milliseconds of runs, in batches, for so many in all: of any integers, since these cost the same.
const timed = (all) => {
  let now = performance.now(), times = [], count = 1;
  const end = now + all;
  while (now < end) {
    for (let i = 0; i < count; i++) net.runRaw();
    const took = performance.now() - now;
    now += took;
    if (now < end && took < (times.length ? BATCH / 2 : BATCH)) [times, count] = [[], 2 * count];
    else times.push(took / count);
  }
  return { times, runs: times.length * count };
};

const written = (took) => (took ? (took < 0.1 ? took.toPrecision(2) : took.toFixed(2)) : "less than 1");

// All that is done to a picture; with a number of milliseconds the time of a run is measured for so long before.
const answer = (picture, all = 0) => {
  const rgb = fitted(picture), { times, runs } = timed(hasStates ? 0 : all);
  feed(rgb); // results lie over it
  const begin = performance.now();
  net.runRaw();
  if (!runs) times.push(performance.now() - begin);
  tell(rgb);
  const fast = times.sort((a, b) => a - b).slice(0, Math.ceil(times.length / 2));
  const text = written(fast.reduce((a, b) => a + b) / fast.length);
  byId("time").textContent = `${text} ms for the model, on one thread${runs ? `, the faster half of ${runs} runs` : ""}`;
  seen = rgb;
};

let seen;
const tell = (rgb) => {
  show(rgb);
  fill(detection ? detected() : outputs.flatMap(told));
};

const told = (port) => {
  const sides = port.shape.filter((side) => side > 1).length;
  if (sides === 3 && port.shape.length === 4) mask(port);
  return sides < 2 ? rows(dequantized(port, net.read(port.name))) : [[port.name, port.shape.join("x")]];
};

// The most likely class of each place, in colours over the picture. Classes are the axis with the fewest elements.
const mask = (port) => {
  const [, a, b, c] = port.shape, scores = dequantized(port, net.read(port.name));
  const [height, width, classes, isFirst] = a <= Math.min(b, c) ? [b, c, a, true] : [a, b, c, false];
  const score = (i, k) => scores[isFirst ? k * width * height + i : i * classes + k];
  const pixels = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    let best = 0;
    for (let k = 1; k < classes; k++) if (score(i, k) > score(i, best)) best = k;
    const hue = best * 2.399963;
    pixels.data.set([0, 2.0944, 4.1888].map((shift) => 128 + 127 * Math.cos(hue + shift)).concat(best ? 128 : 0), 4 * i);
  }
  spread(pixels);
};

// Draws the boxes of what was run last. Returns a row for each.
const detected = () => {
  const heads = outputs.map((port) => (
    { shape: facts.outputs[port.name], values: Float64Array.from(dequantized(port, net.read(port.name))) }));
  const least = Number(byId("score").value);
  byId("least").textContent = least.toFixed(2);
  pen.lineWidth = 2;
  pen.font = "14px system-ui, sans-serif";
  return boxes(detection.decoder, heads, [input.height, input.width], least, detection.overlap).map(([left, top, right, bottom, score, k]) => {
    pen.strokeStyle = pen.fillStyle = `hsl(${(k * 137.508) % 360} 100% 30%)`;
    pen.strokeRect(SCALE * left, SCALE * top, SCALE * (right - left), SCALE * (bottom - top));
    const [text, x, y] = [`${named(k)} ${score.toFixed(2)}`, SCALE * Math.max(left, 0), Math.max(SCALE * top, 18)];
    pen.fillRect(x - 1, y - 18, pen.measureText(text).width + 8, 18);
    pen.fillStyle = "white";
    pen.fillText(text, x + 3, y - 5);
    return [named(k), score.toPrecision(4), [left, top, right, bottom].map(Math.round).join(", ")];
  });
};

[view.width, view.height] = [SCALE * input.width, SCALE * input.height];
byId("detector").hidden = !detection;
if (detection) byId("score").value = detection.score;
byId("score").addEventListener("input", () => seen && tell(seen));

const open = (blob) => tried("picture", async () => {
  answer(decoded(await createImageBitmap(blob, { premultiplyAlpha: "none", colorSpaceConversion: "none" })), TIMED);
});

live("live", "camera", { video: true }, async (stream) => {
  const video = Object.assign(document.createElement("video"), { srcObject: stream, muted: true });
  await video.play();
  let ended = false;
  const next = async () => {
    if (ended) return;
    answer(decoded(await createImageBitmap(video)));
    requestAnimationFrame(next);
  };
  next();
  return () => { ended = true; };
});
