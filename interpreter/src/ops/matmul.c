#include "matmul.h"

static int shift_of(const nmp_op *op, size_t channel) {
  const nmp_tensor *w = &op->in[1];
  return op->out[0].exponent - op->in[0].exponent - w->exponents[w->exponent_count > 1 ? channel : 0];
}

nmp_rule nmp_check_weights(const nmp_op *op, int64_t out, int64_t k) {
  const nmp_tensor *w = &op->in[1], *b = &op->in[2];
  NMP_REQUIRE(w->is_const, "constant weights", 0, 1);
  NMP_REQUIRE(w->bits == 8 || w->bits == 16, "bits of the weights", w->bits, 16);
  NMP_REQUIRE(w->exponent_count == 1 || (w->axis == 0 && w->exponent_count == (uint32_t)out),
              "exponents of the weights", w->exponent_count, out);
  NMP_REQUIRE(k <= NMP_K_MAX, "products of a sum", k, NMP_K_MAX);
  for (uint32_t c = 0; c < w->exponent_count; c++) {
    NMP_TRY(nmp_check_shift(shift_of(op, c)));
  }
  return nmp_check_vector(b, out, b->bits, op->out[0].exponent);
}

void nmp_channels_load(nmp_channels *channels, const nmp_op *op, size_t first, size_t count) {
  const nmp_tensor *b = &op->in[2];
  for (size_t c = 0; c < count; c++) {
    const void *bias = nmp_at(b, first + c);
    channels->bias[c] = b->bits == 8    ? *(const int8_t *)bias
                        : b->bits == 16 ? *(const int16_t *)bias
                                        : *(const int32_t *)bias;
    channels->shift[c] = (int8_t)shift_of(op, first + c);
  }
}

void nmp_matmul(const nmp_op *op, const void *x, size_t x_stride, size_t rows, size_t k, size_t first, size_t count,
                void *y, size_t y_stride) {
  const nmp_tensor *w = &op->in[1], *out = &op->out[0];
  const int x_wide = NMP_WIDE(op->in[0].bits), w_wide = NMP_WIDE(w->bits);
  int64_t sums[NMP_TILE_ROWS * NMP_TILE_CHANNELS]; /* int32 in the first half when both factors are int8 */
  nmp_channels channels;
  for (size_t done = 0, n; done < count; done += n) {
    n = count - done < NMP_TILE_CHANNELS ? count - done : NMP_TILE_CHANNELS;
    nmp_channels_load(&channels, op, first + done, n);
    op->kernels->gemm[x_wide][w_wide](sums, x, x_stride, nmp_at(w, (first + done) * k), k, rows, n);
    op->kernels->scale[NMP_WIDE_SUM(x_wide, w_wide)][NMP_WIDE(out->bits)](
        (uint8_t *)y + done * nmp_bytes(out), y_stride, sums, rows, n, channels.bias, channels.shift, out->lo, out->hi);
  }
}
