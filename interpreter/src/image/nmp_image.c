/* Frames of a camera: rows are summed with the weights of an output row, then columns, all in 32 bits.
 *
 * A weight has at most ONE, an axis at most 2 * NMP_IMAGE_SHRINK_MAX + 2 of them, whose sum is below 2^17: a sum of
 * rows is below 2^25, times FINE below 2^29, and a sum of columns below 255 * FINE * 2^17 < 2^29.
 */
#include "nmp_image.h"

#define ONE 1024u /* largest weight */
#define FINE 16u  /* steps of a pixel's value between the two passes */

/* Pixels of one axis under an output pixel, and their weights: see axis_weight. */
typedef struct axis {
  uint32_t in, out, reach; /* reach: of a triangle, in halves of an output's share of a pixel */
  nmp_image_filter filter;
} axis;

static axis axis_of(uint32_t in, uint32_t out, nmp_image_filter filter) {
  const axis found = {in, out, 2 * (in > out ? in : out), filter};
  return found;
}

static uint32_t smaller(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

static uint32_t larger(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

/* Distances and lengths are in units of a pixel / (2 * out): pixel x is [2x * out, (2x + 2) * out), an output pixel
 * i [2i * in, (2i + 2) * in). */
static uint32_t axis_weight(const axis *a, uint32_t i, uint32_t x) {
  if (a->filter == NMP_IMAGE_AREA) {
    const uint32_t from = larger(2 * x * a->out, 2 * i * a->in);
    const uint32_t to = smaller((2 * x + 2) * a->out, (2 * i + 2) * a->in);
    return to > from ? (to - from) * (ONE / 2) / smaller(a->in, a->out) : 0;
  }
  const uint32_t pixel = (2 * x + 1) * a->out, centre = (2 * i + 1) * a->in;
  const uint32_t far = pixel > centre ? pixel - centre : centre - pixel;
  return far < a->reach ? (a->reach - far) * ONE / a->reach : 0;
}

/* The first pixel that may have a weight, and the one after the last. */
static uint32_t axis_first(const axis *a, uint32_t i) {
  const uint32_t half = a->filter == NMP_IMAGE_AREA ? a->in : a->reach, centre = (2 * i + 1) * a->in;
  return centre > half ? (centre - half) / (2 * a->out) : 0;
}

static uint32_t axis_end(const axis *a, uint32_t i) {
  const uint32_t half = a->filter == NMP_IMAGE_AREA ? a->in : a->reach, centre = (2 * i + 1) * a->in;
  return smaller((centre + half) / (2 * a->out) + 1, a->in);
}

static uint8_t within_byte(int32_t value) {
  return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* value / 2^bits, rounded to the nearest, halves up. */
static int32_t rounded(int32_t value, uint32_t bits) {
  const int32_t sum = bits ? value + (1 << (bits - 1)) : value;
  return sum >= 0 ? sum >> bits : -((-sum + (1 << bits) - 1) >> bits);
}

static void from_yuv(uint8_t rgb[3], int32_t y, int32_t u, int32_t v) {
  rgb[0] = within_byte(y + rounded(359 * v, 8));
  rgb[1] = within_byte(y - rounded(88 * u + 183 * v, 8));
  rgb[2] = within_byte(y + rounded(454 * u, 8));
}

/* One pixel in the model's channels. */
static void decode(const nmp_image_frame *frame, const uint8_t *row, uint32_t x, uint32_t channels, uint8_t out[3]) {
  uint8_t rgb[3];
  if (frame->format == NMP_IMAGE_GRAY || (frame->format == NMP_IMAGE_YUYV && channels == 1)) {
    out[0] = out[1] = out[2] = frame->format == NMP_IMAGE_GRAY ? row[x] : row[2 * (size_t)x];
    return;
  }
  if (frame->format == NMP_IMAGE_RGB888) {
    rgb[0] = row[3 * (size_t)x];
    rgb[1] = row[3 * (size_t)x + 1];
    rgb[2] = row[3 * (size_t)x + 2];
  } else if (frame->format == NMP_IMAGE_YUYV) {
    const uint8_t *pair = row + 4 * (size_t)(x / 2);
    from_yuv(rgb, pair[(size_t)2 * (x % 2)], pair[1] - 128, pair[3] - 128);
  } else {
    const uint32_t swap = frame->format == NMP_IMAGE_RGB565_BE;
    const uint32_t v = (uint32_t)row[2 * (size_t)x + swap] | (uint32_t)row[2 * (size_t)x + !swap] << 8;
    const uint32_t r = v >> 11, g = v >> 5 & 63, b = v & 31;
    rgb[0] = (uint8_t)(r << 3 | r >> 2);
    rgb[1] = (uint8_t)(g << 2 | g >> 4);
    rgb[2] = (uint8_t)(b << 3 | b >> 2);
  }
  if (channels == 1) {
    out[0] = (uint8_t)((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 32768u) >> 16);
    return;
  }
  out[0] = rgb[0];
  out[1] = rgb[1];
  out[2] = rgb[2];
}

/* Sums the rows under output row i, then divides: values of FINE steps a level, [width, channels]. */
static void sum_rows(const nmp_image_frame *frame, const axis *rows, uint32_t i, uint32_t channels, uint32_t *sums) {
  const size_t count = (size_t)frame->width * channels;
  uint32_t total = 0;
  for (size_t k = 0; k < count; k++) {
    sums[k] = 0;
  }
  for (uint32_t y = axis_first(rows, i); y < axis_end(rows, i); y++) {
    const uint32_t weight = axis_weight(rows, i, y);
    const uint8_t *row = frame->pixels + (size_t)(frame->top + y) * frame->stride;
    total += weight;
    for (uint32_t x = 0; weight && x < frame->width; x++) {
      uint8_t pixel[3];
      decode(frame, row, frame->left + x, channels, pixel);
      for (uint32_t c = 0; c < channels; c++) {
        sums[x * channels + c] += weight * pixel[c];
      }
    }
  }
  for (size_t k = 0; k < count; k++) {
    sums[k] = (sums[k] * FINE + total / 2) / total;
  }
}

static int32_t on_grid(const nmp_image_input *input, uint32_t channel, uint32_t pixel) {
  const int32_t value = rounded((int32_t)pixel * input->factor[channel] + input->bias[channel], input->shift);
  return value < input->clip_min ? input->clip_min : value > input->clip_max ? input->clip_max : value;
}

static void write_row(const nmp_image_input *input, const axis *columns, const uint32_t *sums, size_t at, void *to) {
  for (uint32_t j = 0; j < input->width; j++) {
    uint32_t found[3] = {0, 0, 0}, total = 0;
    for (uint32_t x = axis_first(columns, j); x < axis_end(columns, j); x++) {
      const uint32_t weight = axis_weight(columns, j, x);
      total += weight;
      for (uint32_t c = 0; c < input->channels; c++) {
        found[c] += weight * sums[x * input->channels + c];
      }
    }
    for (uint32_t c = 0; c < input->channels; c++, at++) {
      const uint32_t from = input->bgr ? input->channels - 1 - c : c;
      const int32_t value = on_grid(input, c, (found[from] + total * (FINE / 2)) / (total * FINE));
      if (input->bits == 8) {
        ((int8_t *)to)[at] = (int8_t)value;
      } else {
        ((int16_t *)to)[at] = (int16_t)value;
      }
    }
  }
}

static int side_fits(uint32_t in, uint32_t out) {
  return in && out && in <= NMP_IMAGE_SIDE_MAX && out <= NMP_IMAGE_SIDE_MAX && in <= NMP_IMAGE_SHRINK_MAX * out;
}

/* Bytes of a row up to the pixel after the last; of YUYV in pairs. */
static size_t row_bytes(const nmp_image_frame *frame) {
  const size_t end = (size_t)frame->left + frame->width;
  const size_t pixel = frame->format == NMP_IMAGE_GRAY ? 1 : frame->format == NMP_IMAGE_RGB888 ? 3 : 2;
  return frame->format == NMP_IMAGE_YUYV ? (end + 1) / 2 * 4 : end * pixel;
}

static int frame_fits(const nmp_image_frame *frame) {
  if ((uint32_t)frame->format > NMP_IMAGE_YUYV || !frame->width || !frame->height || frame->left > NMP_IMAGE_SIDE_MAX ||
      frame->top > NMP_IMAGE_SIDE_MAX || frame->width > NMP_IMAGE_SIDE_MAX || frame->height > NMP_IMAGE_SIDE_MAX) {
    return 0;
  }
  const size_t last = (size_t)frame->top + frame->height - 1, row = row_bytes(frame);
  return frame->stride >= row && frame->bytes >= row && last <= (frame->bytes - row) / frame->stride;
}

static int input_fits(const nmp_image_input *input) {
  const int32_t low = input->bits == 8 ? -128 : -32768;
  int fits = (input->channels == 1 || input->channels == 3) && (input->bits == 8 || input->bits == 16);
  fits = fits && input->shift <= 24 && input->clip_min >= low && input->clip_max <= -1 - low;
  for (uint32_t c = 0; fits && c < input->channels; c++) { /* sums stay within 31 bits */
    fits = input->factor[c] >= -(1 << 21) && input->factor[c] <= 1 << 21;
    fits = fits && input->bias[c] >= -(1 << 30) && input->bias[c] <= 1 << 30;
  }
  return fits && input->clip_min <= input->clip_max;
}

nmp_status nmp_image_cover(nmp_image_frame *frame, const nmp_image_input *input) {
  if (!frame || !input || !frame_fits(frame) || !side_fits(1, input->width) || !side_fits(1, input->height)) {
    return NMP_E_ARGUMENT;
  }
  const uint32_t w = frame->width, h = frame->height;
  const int wide = w * input->height > h * input->width;
  const uint32_t width = wide ? larger(h * input->width / input->height, 1) : w;
  const uint32_t height = wide ? h : larger(w * input->height / input->width, 1);
  frame->left += (w - width) / 2;
  frame->top += (h - height) / 2;
  frame->width = width;
  frame->height = height;
  return NMP_OK;
}

nmp_status nmp_image_fill(const nmp_image_frame *frame, const nmp_image_input *input, nmp_image_filter filter, void *to,
                          size_t bytes, uint32_t *scratch, size_t elements) {
  if (!frame || !frame->pixels || !input || !to || !scratch || (uint32_t)filter > NMP_IMAGE_AREA ||
      !frame_fits(frame) || !input_fits(input) || !side_fits(frame->width, input->width) ||
      !side_fits(frame->height, input->height) || elements < NMP_IMAGE_SCRATCH(frame->width, input->channels) ||
      bytes / (input->bits / 8) / input->channels / input->width < input->height || (uintptr_t)to % (input->bits / 8)) {
    return NMP_E_ARGUMENT;
  }
  const axis rows = axis_of(frame->height, input->height, filter),
             columns = axis_of(frame->width, input->width, filter);
  for (uint32_t i = 0; i < input->height; i++) {
    sum_rows(frame, &rows, i, input->channels, scratch);
    write_row(input, &columns, scratch, (size_t)i * input->width * input->channels, to);
  }
  return NMP_OK;
}
