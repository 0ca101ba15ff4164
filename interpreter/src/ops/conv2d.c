/* x [N,H,W,C], w [O,KH,KW,I], b [O], optional pad [C]; I = C / groups.
 *
 * 1. One input and one output channel a group: all channels of a pixel at once, tap by tap.
 * 2. 1x1, stride 1, one group, no padding: the pixels are the rows of a matrix product as they are.
 * 3. Anything else: the patches of a few output pixels are gathered into the scratch and then are such rows.
 */
#include <string.h>

#include "matmul.h"
#include "window.h"

typedef struct conv {
  nmp_axis v, h;            /* vertical, horizontal */
  size_t groups, per_group; /* per_group: I */
  size_t channels, out;     /* C, O */
  size_t k;                 /* products of a sum: KH * KW * I */
  size_t pixels;            /* N * OH * OW */
} conv;

static conv decode(const nmp_op *op) {
  const nmp_conv2d_params *p = &op->params.conv2d;
  const int32_t *x = op->in[0].shape, *w = op->in[1].shape, *y = op->out[0].shape;
  conv c;
  c.v = (nmp_axis){x[1], y[1], w[1], p->stride_h, p->dilation_h, p->pad_top, p->pad_bottom};
  c.h = (nmp_axis){x[2], y[2], w[2], p->stride_w, p->dilation_w, p->pad_left, p->pad_right};
  c.groups = (size_t)p->groups;
  c.per_group = (size_t)w[3];
  c.channels = (size_t)x[3];
  c.out = (size_t)w[0];
  c.k = op->in[1].size / c.out;
  c.pixels = op->out[0].size / c.out;
  return c;
}

static nmp_rule check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 3, 4, 1));
  const nmp_tensor *x = &op->in[0], *w = &op->in[1], *y = &op->out[0];
  const int64_t groups = op->params.conv2d.groups;
  NMP_REQUIRE(x->rank == 4, "rank of the input", x->rank, 4);
  NMP_REQUIRE(w->rank == 4, "rank of the weights", w->rank, 4);
  NMP_REQUIRE(y->rank == 4, "rank of the output", y->rank, 4);
  NMP_REQUIRE(groups >= 1, "groups", groups, 1);
  NMP_REQUIRE(groups * w->shape[3] == x->shape[3], "input channels", x->shape[3], groups * w->shape[3]);
  NMP_REQUIRE(w->shape[0] % groups == 0, "output channels of a group", w->shape[0] % groups, 0);
  NMP_REQUIRE(y->shape[0] == x->shape[0], "batch", y->shape[0], x->shape[0]);
  NMP_REQUIRE(y->shape[3] == w->shape[0], "output channels", y->shape[3], w->shape[0]);
  const conv c = decode(op);
  NMP_TRY(nmp_check_axis(&c.v));
  NMP_TRY(nmp_check_axis(&c.h));
  if (op->input_count == 4) {
    NMP_TRY(nmp_check_vector(&op->in[3], x->shape[3], x->bits, x->exponent));
  }
  return nmp_check_weights(op, w->shape[0], (int64_t)c.k);
}

static int is_depthwise(const conv *c) {
  return c->per_group == 1 && c->out == c->groups;
}

static int is_direct(const conv *c) {
  return c->k == c->channels && c->groups == 1 && c->v.stride == 1 && c->h.stride == 1 && c->v.before == 0 &&
         c->v.after == 0 && c->h.before == 0 && c->h.after == 0;
}

static size_t align(size_t bytes) {
  return (bytes + 15) / 16 * 16;
}

/* Depthwise: the addresses of the taps, then the weights of a tile of channels tap by tap. */
static size_t scratch(const nmp_op *op) {
  const conv c = decode(op);
  if (is_depthwise(&c)) {
    return align(c.k * sizeof(void *)) + align(c.k * NMP_TILE_CHANNELS * nmp_bytes(&op->in[1]));
  }
  return is_direct(&c) ? 0 : align(NMP_TILE_ROWS * c.k * nmp_bytes(&op->in[0]));
}

static uint64_t work(const nmp_op *op) {
  return (uint64_t)op->out[0].size * (op->in[1].size / (uint32_t)op->in[1].shape[0]);
}

/* The row y and column x of an output pixel, and the element where its image starts. */
typedef struct place {
  int32_t y, x;
  size_t image;
} place;

static place locate(const conv *c, size_t pixel) {
  const size_t width = (size_t)c->h.out, plane = (size_t)c->v.out * width;
  const size_t image = pixel / plane, rest = pixel % plane;
  return (place){(int32_t)(rest / width), (int32_t)(rest % width),
                 image * (size_t)c->v.in * (size_t)c->h.in * c->channels};
}

static int inside(const nmp_axis *axis, int32_t pixel) {
  return pixel >= 0 && pixel < axis->in;
}

static size_t element(const conv *c, place at, int32_t y, int32_t x) {
  return at.image + ((size_t)y * (size_t)c->h.in + (size_t)x) * c->channels;
}

/* The patch of one output pixel and group: KH * KW * I elements. Neighbouring taps are copied in one go. */
static void gather(const nmp_op *op, const conv *c, place at, size_t group, uint8_t *patch) {
  const nmp_tensor *x = &op->in[0];
  const size_t first = group * c->per_group, tap = c->per_group * nmp_bytes(x);
  for (int32_t ky = 0; ky < c->v.kernel; ky++) {
    const int32_t iy = nmp_pixel(&c->v, at.y, ky);
    int32_t run;
    for (int32_t kx = 0; kx < c->h.kernel; kx += run, patch += (size_t)run * tap) {
      const int32_t ix = nmp_pixel(&c->h, at.x, kx);
      run = 1;
      if (inside(&c->v, iy) && inside(&c->h, ix)) {
        if (c->h.dilation == 1 && c->groups == 1) {
          run = c->h.kernel - kx < c->h.in - ix ? c->h.kernel - kx : c->h.in - ix;
        }
        memcpy(patch, nmp_at(x, element(c, at, iy, ix) + first), (size_t)run * tap);
      } else if (op->input_count == 4) {
        memcpy(patch, nmp_at(&op->in[3], first), tap);
      } else {
        memset(patch, 0, tap);
      }
    }
  }
}

static void run_rows(const nmp_op *op, const conv *c) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const size_t out_per_group = c->out / c->groups;
  const int direct = is_direct(c);
  for (size_t pixel = 0; pixel < c->pixels; pixel += NMP_TILE_ROWS) {
    const size_t rows = c->pixels - pixel < NMP_TILE_ROWS ? c->pixels - pixel : NMP_TILE_ROWS;
    for (size_t group = 0; group < c->groups; group++) {
      const size_t first = group * out_per_group;
      const void *patches = direct ? nmp_at(x, pixel * c->k) : op->scratch;
      for (size_t r = 0; r < rows && !direct; r++) {
        gather(op, c, locate(c, pixel + r), group, (uint8_t *)op->scratch + r * c->k * nmp_bytes(x));
      }
      nmp_matmul(op, patches, c->k, rows, c->k, first, out_per_group, nmp_at(y, pixel * c->out + first), c->out);
    }
  }
}

/* Weights [C][taps] of n channels to [taps][n]. */
static void transpose_weights(const nmp_tensor *w, size_t first, size_t n, size_t taps, void *to) {
  for (size_t t = 0; t < taps; t++) {
    for (size_t c = 0; c < n; c++) {
      const void *from = nmp_at(w, (first + c) * taps + t);
      if (w->bits == 8) {
        ((int8_t *)to)[t * n + c] = *(const int8_t *)from;
      } else {
        ((int16_t *)to)[t * n + c] = *(const int16_t *)from;
      }
    }
  }
}

/* The addresses of channel `first` of every tap of an output pixel. */
static void point(const nmp_op *op, const conv *c, place at, size_t first, const void **taps) {
  static const int16_t zeros[NMP_TILE_CHANNELS] = {0};
  const void *padding = op->input_count == 4 ? nmp_at(&op->in[3], first) : (const void *)zeros;
  for (int32_t ky = 0; ky < c->v.kernel; ky++) {
    const int32_t iy = nmp_pixel(&c->v, at.y, ky);
    for (int32_t kx = 0; kx < c->h.kernel; kx++) {
      const int32_t ix = nmp_pixel(&c->h, at.x, kx);
      const int pixel = inside(&c->v, iy) && inside(&c->h, ix);
      *taps++ = pixel ? nmp_at(&op->in[0], element(c, at, iy, ix) + first) : padding;
    }
  }
}

static void run_depthwise(const nmp_op *op, const conv *c) {
  const nmp_tensor *w = &op->in[1], *y = &op->out[0];
  const int x_wide = NMP_WIDE(op->in[0].bits), w_wide = NMP_WIDE(w->bits), sum_wide = NMP_WIDE_SUM(x_wide, w_wide);
  const void **taps = (const void **)op->scratch;
  void *weights = (uint8_t *)op->scratch + align(c->k * sizeof(void *));
  int64_t sums[NMP_TILE_ROWS * NMP_TILE_CHANNELS]; /* int32 in the first half when both factors are int8 */
  nmp_channels channels;
  for (size_t first = 0; first < c->out; first += NMP_TILE_CHANNELS) {
    const size_t n = c->out - first < NMP_TILE_CHANNELS ? c->out - first : NMP_TILE_CHANNELS;
    transpose_weights(w, first, n, c->k, weights);
    nmp_channels_load(&channels, op, first, n);
    for (size_t pixel = 0; pixel < c->pixels; pixel += NMP_TILE_ROWS) {
      const size_t rows = c->pixels - pixel < NMP_TILE_ROWS ? c->pixels - pixel : NMP_TILE_ROWS;
      for (size_t r = 0; r < rows; r++) {
        point(op, c, locate(c, pixel + r), first, taps);
        op->kernels->depthwise[x_wide][w_wide]((uint8_t *)sums + r * n * (sum_wide ? 8 : 4), taps, weights, c->k, n);
      }
      op->kernels->scale[sum_wide][NMP_WIDE(y->bits)](nmp_at(y, pixel * c->out + first), c->out, sums, rows, n,
                                                      channels.bias, channels.shift, y->lo, y->hi);
    }
  }
}

static void run(const nmp_op *op) {
  const conv c = decode(op);
  if (is_depthwise(&c)) {
    run_depthwise(op, &c);
  } else {
    run_rows(op, &c);
  }
}

const nmp_op_type nmp_conv2d_type = {check, scratch, run, 0, work};
