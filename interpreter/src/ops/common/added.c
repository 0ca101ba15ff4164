#include "ops/common/added.h"

#if NMP_CONV_ADD
#include <string.h>

#include "base/fixed.h"
#include "conv/patch.h"
#include "conv/rows.h"
#include "dispatch.h"

nmp_op nmp_added_to(const nmp_op *op) {
  nmp_op conv = *op;
  for (uint32_t i = 1; i < NMP_OP_INPUTS; i++) {
    conv.in[i - 1] = op->in[i];
  }
  conv.input_count--;
  return conv;
}

/* Cases 1 and 2. */
static int is_simple(const nmp_op *op) {
  const nmp_tensor *r = &op->in[0], *y = &op->out[0];
  return r->bits == 8 && y->bits == 8 && r->exponent == y->exponent;
}

/* Case 2, of a convolution that adds. */
static int is_apart(const nmp_conv *c) {
  const nmp_conv_kernel *kernel = NMP_IN_USE(c->kernels).conv(c);
  return NMP_CONV_ADD > 1 && NMP_KEEP_STEPS && NMP_ACTIVATION_BITS != 8 && !kernel->adds && kernel->packed;
}

/* Case 1. */
static const nmp_conv_kernel *adding(const nmp_conv *c) {
  const nmp_conv_kernel *kernel = NMP_IN_USE(c->kernels).conv(c);
  return NMP_CONV_ADD == 1 || kernel->adds ? kernel : nmp_conv_portable(c);
}

void nmp_added_fill(nmp_conv *c, const nmp_op *op) {
  c->adds = (uint8_t)is_simple(op);
  if (c->adds && is_apart(c)) {
    c->adds = 0;
    c->y_wide = 1;
    c->lo = INT16_MIN;
    c->hi = INT16_MAX;
  }
}

nmp_rule nmp_added_check(const nmp_op *op) {
  const int8_t built = NMP_CONV_ADD > 1 || (is_simple(op) && op->in[1].bits == 8 && op->in[2].bits == 8);
  NMP_REQUIRE_BUILT(built, "a sum of other widths or grids than int8 on one", 0, 1);
  return NMP_FINE;
}

static size_t y_bytes(const nmp_op *op) {
  return nmp_round_up(op->out[0].size * sizeof(int16_t), NMP_CACHE_LINE);
}

static size_t exact_scratch(const nmp_conv *c) {
  return nmp_conv_is_direct(c) ? 0 : nmp_round_up((size_t)NMP_TILE_ROWS * c->k << nmp_x_wide(c), 16);
}

size_t nmp_added_scratch(const nmp_op *op) {
  nmp_conv c;
  op->type->conv(op, &c);
  if (c.adds) {
    const nmp_conv_kernel *kernel = adding(&c);
    return kernel->scratch ? nmp_round_up(kernel->scratch(&c), NMP_CACHE_LINE) : 0;
  }
  return is_simple(op) ? y_bytes(op) + nmp_conv_scratch(op) : exact_scratch(&c);
}

/* Case 1. */
static void run_adding(const nmp_op *op, const nmp_conv *c) {
  const nmp_tensor *r = &op->in[0];
  if (r->data != c->y) {
    memcpy(c->y, r->data, r->size);
  }
  adding(c)->run(c, 0, 1);
}

#if NMP_KEEP_STEPS
static void run_apart(const nmp_op *op) {
  const nmp_tensor *y = &op->out[0];
  const nmp_binary how = {.a_step = 1, .b_step = 1, .lo = y->lo, .hi = y->hi};
  nmp_conv_call call = *op->call;
  call.conv.y = op->scratch;
  call.conv.scratch = (uint8_t *)op->scratch + y_bytes(op);
  nmp_conv_call_run(&call, op->threads);
  NMP_IN_USE(op->kernels).add[1][0][0](y->data, op->scratch, op->in[0].data, y->size, &how);
}
#endif

static int32_t element(const nmp_tensor *t, size_t i) {
  return NMP_WIDE(t->bits) ? ((const int16_t *)t->data)[i] : ((const int8_t *)t->data)[i];
}

/* Sums of rows x n to 64 bits, from the last one on, with r * 2^k of channels first + i of pixels pixel + row. */
static void add(const nmp_op *op, const nmp_conv *c, int64_t *sums, size_t rows, size_t first, size_t n, size_t pixel) {
  const nmp_tensor *r = &op->in[0];
  const int base = r->exponent - op->in[1].exponent, wide = NMP_WIDE_SUM(nmp_x_wide(c), nmp_w_wide(c));
  for (size_t i = rows * n; i-- > 0;) {
    const size_t channel = first + i % n;
    const int k = base - c->exponents[channel * c->exponent_step];
    int32_t narrow;
    memcpy(&narrow, (const uint8_t *)sums + i * sizeof(narrow), sizeof(narrow));
    const int64_t sum = wide ? sums[i] : narrow;
    sums[i] = sum + element(r, (pixel + i / n) * c->out + channel) * ((int64_t)1 << k);
  }
}

static void run_rows(const nmp_op *op, const nmp_conv *c, const void *x, size_t rows, size_t group, size_t pixel) {
  int64_t sums[NMP_TILE_ROWS * NMP_TILE_CHANNELS]; /* int32 in the first half when both factors are int8 */
  nmp_channels channels;
  const size_t out = c->out / c->groups, end = (group + 1) * out;
  for (size_t first = group * out, n; first < end; first += n) {
    n = end - first < NMP_TILE_CHANNELS ? end - first : NMP_TILE_CHANNELS;
    nmp_channels_load(&channels, c, first, n);
    NMP_BY_2(NMP_IN_USE(c->kernels).gemm, nmp_x_wide(c), nmp_w_wide(c))
    (sums, x, c->k, (const uint8_t *)c->w + (first * c->k << nmp_w_wide(c)), c->k, rows, n);
    add(op, c, sums, rows, first, n, pixel);
    NMP_BY_2(NMP_IN_USE(c->kernels).scale, 1, nmp_y_wide(c))
    ((uint8_t *)c->y + ((pixel * c->out + first) << nmp_y_wide(c)), c->out, sums, rows, n, channels.bias,
     channels.shift, c->lo, c->hi);
  }
}

/* Case 3. */
static void run_exactly(const nmp_op *op, const nmp_conv *c) {
  const size_t pixels = nmp_conv_pixels(c);
  for (size_t pixel = 0; pixel < pixels; pixel += NMP_TILE_ROWS) {
    const size_t rows = pixels - pixel < NMP_TILE_ROWS ? pixels - pixel : NMP_TILE_ROWS;
    for (size_t group = 0; group < c->groups; group++) {
      const uint8_t *x = (const uint8_t *)c->x + (pixel * c->k << nmp_x_wide(c));
      for (size_t i = 0; i < rows && !nmp_conv_is_direct(c); i++) {
        x = c->scratch;
        nmp_gather(c, nmp_locate(c, pixel + i), group, (uint8_t *)c->scratch + (i * c->k << nmp_x_wide(c)));
      }
      run_rows(op, c, x, rows, group, pixel);
    }
  }
}

void nmp_added_run(const nmp_op *op) {
  nmp_conv c;
#if NMP_KEEP_STEPS
  c = op->call->conv;
#else
  op->type->conv(op, &c);
#endif
  if (NMP_CONV_ADD == 1 || c.adds) {
    run_adding(op, &c);
#if NMP_KEEP_STEPS
  } else if (is_simple(op)) {
    run_apart(op);
#endif
  } else {
    run_exactly(op, &c);
  }
}
#endif
