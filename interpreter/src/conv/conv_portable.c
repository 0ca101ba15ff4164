/* 1. One input and one output channel a group: all channels of a pixel at once, tap by tap.
 * 2. 1x1, stride 1, one group, no padding: the pixels are the rows of a matrix product as they are.
 * 3. Anything else: the patches of a few output pixels are gathered into the scratch and then are such rows.
 */
#include "conv/patch.h"
#include "conv/rows.h"
#include "dispatch.h"

/* Depthwise: the addresses of the taps, then the weights of a tile of channels tap by tap. */
static size_t portable_scratch(const nmp_conv *c) {
  if (nmp_conv_is_depthwise(c)) {
    return nmp_round_up(c->k * NMP_IN_USE(c->kernels).address, 16) +
           nmp_round_up((size_t)c->k * NMP_TILE_CHANNELS << nmp_w_wide(c), 16);
  }
  return nmp_conv_is_direct(c) ? 0 : nmp_round_up((size_t)NMP_TILE_ROWS * c->k << nmp_x_wide(c), 16);
}

static void run_rows(const nmp_conv *c) {
  const size_t pixels = nmp_conv_pixels(c), out_per_group = c->groups == 1 ? c->out : c->out / c->groups;
  const int direct = nmp_conv_is_direct(c);
  for (size_t pixel = 0; pixel < pixels; pixel += NMP_TILE_ROWS) {
    const size_t rows = pixels - pixel < NMP_TILE_ROWS ? pixels - pixel : NMP_TILE_ROWS;
    for (size_t group = 0; group < c->groups; group++) {
      const uint8_t *patches = direct ? (const uint8_t *)c->x + (pixel * c->k << nmp_x_wide(c)) : c->scratch;
      for (size_t r = 0; r < rows && !direct; r++) {
        nmp_gather(c, nmp_locate(c, pixel + r), group, (uint8_t *)c->scratch + (r * c->k << nmp_x_wide(c)));
      }
      nmp_rows(c, patches, rows, group * out_per_group, out_per_group, pixel);
    }
  }
}

/* Weights [C][taps] of n channels to [taps][n]. */
static void transpose_weights(const nmp_conv *c, size_t first, size_t n, void *to) {
  for (size_t t = 0; t < c->k; t++) {
    for (size_t i = 0; i < n; i++) {
      const size_t from = (first + i) * c->k + t;
      if (nmp_w_wide(c)) {
        ((int16_t *)to)[t * n + i] = ((const int16_t *)c->w)[from];
      } else {
        ((int8_t *)to)[t * n + i] = ((const int8_t *)c->w)[from];
      }
    }
  }
}

/* The addresses of channel `first` of every tap of an output pixel. */
static void point(const nmp_conv *c, nmp_place at, size_t first, const void **taps) {
  static const int16_t zeros[NMP_TILE_CHANNELS] = {0};
  const void *outside = c->pad ? nmp_padding(c, first) : (const void *)zeros;
  for (int32_t ky = 0; ky < c->v.kernel; ky++) {
    const int32_t iy = nmp_pixel(&c->v, at.y, ky);
    for (int32_t kx = 0; kx < c->h.kernel; kx++) {
      const int32_t ix = nmp_pixel(&c->h, at.x, kx);
      const int pixel = nmp_inside(&c->v, iy) && nmp_inside(&c->h, ix);
      *taps++ = pixel ? nmp_element(c, at, iy, ix, first) : outside;
    }
  }
}

static void run_depthwise(const nmp_conv *c) {
  const int sum_wide = NMP_WIDE_SUM(nmp_x_wide(c), nmp_w_wide(c));
  const size_t pixels = nmp_conv_pixels(c);
  const void **taps = (const void **)c->scratch;
  void *weights = (uint8_t *)c->scratch + nmp_round_up(c->k * sizeof(void *), 16);
  int64_t sums[NMP_TILE_ROWS * NMP_TILE_CHANNELS]; /* int32 in the first half when both factors are int8 */
  nmp_channels channels;
  for (size_t first = 0; first < c->out; first += NMP_TILE_CHANNELS) {
    const size_t n = c->out - first < NMP_TILE_CHANNELS ? c->out - first : NMP_TILE_CHANNELS;
    transpose_weights(c, first, n, weights);
    nmp_channels_load(&channels, c, first, n);
    for (size_t pixel = 0; pixel < pixels; pixel += NMP_TILE_ROWS) {
      const size_t rows = pixels - pixel < NMP_TILE_ROWS ? pixels - pixel : NMP_TILE_ROWS;
      for (size_t r = 0; r < rows; r++) {
        point(c, nmp_locate(c, pixel + r), first, taps);
        NMP_BY_2(NMP_IN_USE(c->kernels).depthwise, nmp_x_wide(c), nmp_w_wide(c))
        ((uint8_t *)sums + r * n * (sum_wide ? 8 : 4), taps, weights, c->k, n);
      }
      nmp_scale_rows(c, &channels, sums, rows, first, n, pixel);
    }
  }
}

static void portable_run(const nmp_conv *c, size_t task, size_t tasks) {
  (void)task;
  (void)tasks;
  if (nmp_conv_is_depthwise(c)) {
    run_depthwise(c);
  } else {
    run_rows(c);
  }
}

const nmp_conv_kernel *nmp_conv_portable(const nmp_conv *c) {
  static const nmp_conv_kernel portable = {.scratch = portable_scratch, .run = portable_run, .adds = NMP_CONV_ADD == 1};
  (void)c;
  return &portable;
}
