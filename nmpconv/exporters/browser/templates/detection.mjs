// Boxes of a detector's outputs, read as nmpconv/evaluation/detection/ does. An output is { shape, values }, as in the ONNX
// model; a box [left, top, right, bottom, score, class] in pixels of the model's input.

const YOLO_ANCHORS = { 8: [[10, 13], [16, 30], [33, 23]], 16: [[30, 61], [62, 45], [59, 119]], 32: [[116, 90], [156, 198], [373, 326]] };
const YOLOV8_BINS = 16, NANODET_BINS = 8, LOGARITHM_MOST = 20, KEPT_MOST = 1000;

const many = (count, each) => Array.from({ length: count }, (_, i) => each(i));
const table = ({ shape, values }) => {
  const columns = shape.at(-1);
  return many(values.length / columns, (i) => values.subarray(i * columns, (i + 1) * columns));
};
// [1, columns, n] or [1, columns, h, w]
const turned = ({ shape, values }, first = 0, columns = shape[1]) => {
  const count = values.length / shape[1];
  return many(count, (i) => Float64Array.from({ length: columns }, (_, k) => values[(first + k) * count + i]));
};
const cells = (rows, columns) => many(rows * columns, (i) => [i % columns, Math.floor(i / columns)]);

// Column, row and stride of each.
const points = (count, [height, width]) => {
  const of = (strides) => strides.flatMap((s) => cells(Math.ceil(height / s), Math.ceil(width / s)).map((cell) => [...cell, s]));
  const near = of([8, 16, 32]);
  return near.length === count ? near : of([8, 16, 32, 64]);
};

const sigmoid = (x) => 0.5 * (1 + Math.tanh(0.5 * x));
const around = (x, y, w, h) => [x - w / 2, y - h / 2, x + w / 2, y + h / 2];
const between = (x, y, [left, top, right, bottom], stride) => [x - left * stride, y - top * stride, x + right * stride, y + bottom * stride];
const side = (logarithm) => Math.exp(Math.min(logarithm, LOGARITHM_MOST));
const best = (scores) => {
  let at = 0;
  for (let i = 1; i < scores.length; i++) if (scores[i] > scores[at]) at = i;
  return [scores[at], at];
};
// Means of the distributions of four sides.
const expected = (logits, bins) => many(4, (k) => {
  const some = logits.subarray(k * bins, (k + 1) * bins), most = Math.max(...some), odds = Array.from(some, (x) => Math.exp(x - most));
  return odds.reduce((sum, p, i) => sum + p * i, 0) / odds.reduce((sum, p) => sum + p, 0);
});
const inStrides = (row, [x, y, stride]) => around((row[0] + x) * stride, (row[1] + y) * stride, side(row[2]) * stride, side(row[3]) * stride);
const plain = (row, scores) => [...around(row[0], row[1], row[2], row[3]), ...best(scores)];
const timesObject = (row) => row.subarray(5).map((score) => score * row[4]);

const yolox = ([output], size) => {
  const rows = table(output), at = points(rows.length, size);
  return rows.map((row, i) => [...inStrides(row, at[i]), ...best(timesObject(row))]);
};

const yolov5Head = (head, size) => {
  const flat = head.shape.length === 4;
  const [height, width] = flat ? head.shape.slice(2) : head.shape.slice(2, 4), columns = flat ? head.shape[1] / 3 : head.shape[4];
  const stride = Math.floor(size[0] / height), count = height * width, rows = flat ? null : table(head);
  return YOLO_ANCHORS[stride].flatMap(([w, h], anchor) => {
    const some = flat ? turned(head, anchor * columns, columns) : rows.slice(anchor * count, (anchor + 1) * count);
    return some.map((raw, i) => {
      const row = Float64Array.from(raw, sigmoid), [x, y] = [i % width, Math.floor(i / width)];
      const middle = [2 * row[0] - 0.5 + x, 2 * row[1] - 0.5 + y].map((at) => at * stride);
      return [...around(...middle, (2 * row[2]) ** 2 * w, (2 * row[3]) ** 2 * h), ...best(timesObject(row))];
    });
  });
};

const yolov5 = (outputs, size) => {
  const whole = outputs.length === 1 && outputs[0].shape.length === 3;
  return whole ? table(outputs[0]).map((row) => plain(row, timesObject(row))) : outputs.flatMap((head) => yolov5Head(head, size));
};

const yolov8Head = (head, size) => {
  const stride = Math.floor(size[0] / head.shape[2]), sides = 4 * YOLOV8_BINS;
  return turned(head).map((row, i) => {
    const [x, y] = [i % head.shape[3], Math.floor(i / head.shape[3])].map((at) => (at + 0.5) * stride);
    return [...between(x, y, expected(row, YOLOV8_BINS), stride), ...best(row.subarray(sides).map(sigmoid))];
  });
};

const yolov8 = (outputs, size) => {
  const whole = outputs.length === 1 && outputs[0].shape.length === 3;
  return whole ? turned(outputs[0]).map((row) => plain(row, row.subarray(4))) : outputs.flatMap((head) => yolov8Head(head, size));
};

const nanodet = (outputs, size) => {
  const sides = 4 * NANODET_BINS, rows = outputs.map(table), by = (wide) => rows
    .filter((some) => (some[0].length === sides) === wide).sort((a, b) => b.length - a.length).flat();
  const split = rows.length === 1;
  const scores = split ? rows[0].map((row) => row.subarray(0, -sides)) : by(false);
  const distances = split ? rows[0].map((row) => row.subarray(-sides)) : by(true);
  const at = points(distances.length, size), middle = at.at(-1)[2] > 32 ? 0 : 0.5;
  return distances.map((row, i) => {
    const [x, y, stride] = at[i];
    return [...between((x + middle) * stride, (y + middle) * stride, expected(row, NANODET_BINS), stride), ...best(scores[i])];
  });
};

const ultraface = (outputs, [height, width]) => {
  const [scores, corners] = [2, 4].map((columns) => table(outputs.find(({ shape }) => shape[2] === columns)));
  return corners.map(([left, top, right, bottom], i) => [left * width, top * height, right * width, bottom * height, scores[i][1], 0]);
};

const yunet = (outputs, size) => {
  const corners = outputs.filter(({ shape }) => shape.at(-1) === 4).sort((a, b) => b.values.length - a.values.length);
  const rows = corners.flatMap((output) => {
    const [a, b] = outputs.filter(({ shape, values }) => shape.at(-1) === 1 && 4 * values.length === output.values.length);
    const clipped = (x) => Math.min(Math.max(x, 0), 1);
    return table(output).map((row, i) => [row, Math.sqrt(clipped(a.values[i]) * clipped(b.values[i]))]);
  });
  const at = points(rows.length, size);
  return rows.map(([row, score], i) => [...inStrides(row, at[i]), score, 0]);
};

const area = ([left, top, right, bottom]) => Math.max(right - left, 0) * Math.max(bottom - top, 0);
const overlap = (a, b) => {
  const shared = area([Math.max(a[0], b[0]), Math.max(a[1], b[1]), Math.min(a[2], b[2]), Math.min(a[3], b[3])]);
  const union = area(a) + area(b) - shared;
  return union > 0 ? shared / union : 0;
};

export const DECODERS = { nanodet, ultraface, yolov5, yolov8, yolox, yunet };

/** Boxes with at least this score, best first, that overlap no kept one of their class by more. size: height and width. */
export function boxes(decoder, outputs, size, score, most) {
  const found = [];
  for (const box of DECODERS[decoder](outputs, size).filter((one) => one[4] >= score).sort((a, b) => b[4] - a[4])) {
    if (found.length < KEPT_MOST && found.every((one) => one[5] !== box[5] || overlap(one, box) <= most)) found.push(box);
  }
  return found;
}
