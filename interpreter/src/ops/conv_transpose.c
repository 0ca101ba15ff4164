/* x [N,H,W,C] with zeros between its pixels, w [O,KH,KW,I], b [O]; I = C / groups. The pixels under the kernel are
 * gathered into the scratch for a few outputs at a time and then are rows of a matrix product.
 */
#include <string.h>

#include "base/util.h"
#include "conv/rows.h"
#include "ops/common/weighted.h"
#include "ops/common/window.h"

typedef struct deconv {
  nmp_axis v, h; /* over the pixels with zeros in between, with stride 1 */
  int32_t stride_v, stride_h;
  size_t groups, per_group, channels, out; /* per_group: I */
  size_t k, pixels;                        /* products of a sum; N * OH * OW */
} deconv;

static int64_t spread_out(int32_t size, int32_t stride) {
  return (int64_t)(size - 1) * stride + 1;
}

static nmp_rule check_stride(int32_t size, int32_t stride) {
  NMP_COMPARE(stride, >=, 1, "stride");
  NMP_COMPARE(stride, <=, NMP_SIDE_MAX, "stride");
  NMP_COMPARE(spread_out(size, stride), <=, INT32_MAX, "pixels with zeros");
  return NMP_FINE;
}

static deconv decode(const nmp_op *op) {
  const nmp_conv_transpose_params *p = &op->params.conv_transpose;
  const int32_t *x = op->in[0].shape, *w = op->in[1].shape, *y = op->out[0].shape;
  deconv c;
  c.v = (nmp_axis){.in = (int32_t)spread_out(x[1], p->stride_h),
                   .out = y[1],
                   .kernel = w[1],
                   .stride = 1,
                   .dilation = p->dilation_h,
                   .before = p->pad_top,
                   .after = p->pad_bottom};
  c.h = (nmp_axis){.in = (int32_t)spread_out(x[2], p->stride_w),
                   .out = y[2],
                   .kernel = w[2],
                   .stride = 1,
                   .dilation = p->dilation_w,
                   .before = p->pad_left,
                   .after = p->pad_right};
  c.stride_v = p->stride_h;
  c.stride_h = p->stride_w;
  c.groups = (size_t)p->groups;
  c.per_group = (size_t)w[3];
  c.channels = (size_t)x[3];
  c.out = (size_t)w[0];
  c.k = op->in[1].size / c.out;
  c.pixels = op->out[0].size / c.out;
  return c;
}

static nmp_rule conv_transpose_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 3, 3, 1));
  const nmp_tensor *x = &op->in[0], *w = &op->in[1], *y = &op->out[0];
  const nmp_conv_transpose_params *p = &op->params.conv_transpose;
  const int64_t groups = p->groups;
  NMP_COMPARE(x->rank, ==, 4, "rank of the input");
  NMP_COMPARE(w->rank, ==, 4, "rank of the weights");
  NMP_COMPARE(y->rank, ==, 4, "rank of the output");
  NMP_COMPARE(groups, >=, 1, "groups");
  NMP_COMPARE(x->shape[3], ==, groups * w->shape[3], "input channels");
  NMP_COMPARE(w->shape[0] % groups, ==, 0, "output channels of a group");
  NMP_COMPARE(y->shape[0], ==, x->shape[0], "batch");
  NMP_COMPARE(y->shape[3], ==, w->shape[0], "output channels");
  NMP_TRY(check_stride(x->shape[1], p->stride_h));
  NMP_TRY(check_stride(x->shape[2], p->stride_w));
  const deconv c = decode(op);
  NMP_TRY(nmp_check_axis(&c.v));
  NMP_TRY(nmp_check_axis(&c.h));
  return nmp_check_weights(op, w->shape[0], (int64_t)c.k);
}

static size_t conv_transpose_scratch(const nmp_op *op) {
  const deconv c = decode(op);
  return nmp_round_up(NMP_TILE_ROWS * c.k * nmp_bytes(&op->in[0]), 16);
}

static uint64_t conv_transpose_work(const nmp_op *op) {
  return (uint64_t)op->out[0].size * (op->in[1].size / (uint32_t)op->in[1].shape[0]);
}

/* The index of the pixel at a place between the zeros, -1 for a zero. */
static int32_t real_pixel(const nmp_axis *axis, int32_t stride, int32_t place) {
  return place < 0 || place >= axis->in || place % stride != 0 ? -1 : place / stride;
}

/* Gathers what one output pixel and group sees: KH * KW * I elements. */
static void gather(const nmp_op *op, const deconv *c, size_t pixel, size_t group, uint8_t *patch) {
  const nmp_tensor *x = &op->in[0];
  const size_t width = (size_t)c->h.out, plane = (size_t)c->v.out * width, tap = c->per_group * nmp_bytes(x);
  const size_t image = pixel / plane * (size_t)x->shape[1];
  const int32_t oy = (int32_t)(pixel % plane / width), ox = (int32_t)(pixel % width);
  for (int32_t ky = 0; ky < c->v.kernel; ky++) {
    const int32_t iy = real_pixel(&c->v, c->stride_v, nmp_pixel(&c->v, oy, ky));
    if (iy < 0) {
      memset(patch, 0, (size_t)c->h.kernel * tap);
      patch += (size_t)c->h.kernel * tap;
      continue;
    }
    const size_t row = (image + (size_t)iy) * (size_t)x->shape[2];
    for (int32_t kx = 0; kx < c->h.kernel; kx++, patch += tap) {
      const int32_t ix = real_pixel(&c->h, c->stride_h, nmp_pixel(&c->h, ox, kx));
      if (ix < 0) {
        memset(patch, 0, tap);
      } else {
        memcpy(patch, nmp_at(x, (row + (size_t)ix) * c->channels + group * c->per_group), tap);
      }
    }
  }
}

static void conv_transpose_run(const nmp_op *op) {
  const deconv c = decode(op);
  const size_t out_per_group = c.out / c.groups, row_bytes = c.k * nmp_bytes(&op->in[0]);
  nmp_conv product;
  nmp_conv_fill(&product, op);
  for (size_t pixel = 0; pixel < c.pixels; pixel += NMP_TILE_ROWS) {
    const size_t rows = c.pixels - pixel < NMP_TILE_ROWS ? c.pixels - pixel : NMP_TILE_ROWS;
    for (size_t group = 0; group < c.groups; group++) {
      for (size_t r = 0; r < rows; r++) {
        gather(op, &c, pixel + r, group, (uint8_t *)op->scratch + r * row_bytes);
      }
      nmp_rows(&product, op->scratch, rows, group * out_per_group, out_per_group, pixel);
    }
  }
}

const nmp_op_type nmp_conv_transpose_type = {.check = conv_transpose_check,
                                             .scratch = conv_transpose_scratch,
                                             .run = conv_transpose_run,
                                             .work = conv_transpose_work};
