#include "conv/rows.h"

#include "base/fixed.h"
#include "dispatch.h"

void nmp_channels_load(nmp_channels *restrict channels, const nmp_conv *c, size_t first, size_t count) {
  for (size_t i = 0; i < count; i++) {
    channels->bias[i] = nmp_conv_bias(c, first + i);
    channels->shift[i] = (int8_t)nmp_conv_shift(c, first + i);
  }
}

/* Both factors int8; with what y holds. */
static void scale_and_add(const nmp_conv *c, const nmp_channels *channels, const void *sums, size_t rows, size_t count,
                          int8_t *y) {
  const int32_t *from = sums;
  for (size_t r = 0; r < rows; r++, y += c->out) {
    for (size_t i = 0; i < count; i++, from++) {
      y[i] = (int8_t)nmp_sat(nmp_rsh(*from, channels->shift[i]) + channels->bias[i] + y[i], c->lo, c->hi);
    }
  }
}

void nmp_scale_rows(const nmp_conv *c, const nmp_channels *channels, const void *sums, size_t rows, size_t first,
                    size_t count, size_t pixel) {
  if (nmp_conv_adds(c)) {
    scale_and_add(c, channels, sums, rows, count, (int8_t *)c->y + pixel * c->out + first);
    return;
  }
  NMP_BY_2(NMP_IN_USE(c->kernels).scale, NMP_WIDE_SUM(nmp_x_wide(c), nmp_w_wide(c)), nmp_y_wide(c))
  ((uint8_t *)c->y + ((pixel * c->out + first) << nmp_y_wide(c)), c->out, sums, rows, count, channels->bias,
   channels->shift, c->lo, c->hi);
}

void nmp_rows(const nmp_conv *c, const void *x, size_t rows, size_t first, size_t count, size_t pixel) {
  int64_t sums[NMP_TILE_ROWS * NMP_TILE_CHANNELS]; /* int32 in the first half when both factors are int8 */
  nmp_channels channels;
  for (size_t done = 0, n; done < count; done += n) {
    n = count - done < NMP_TILE_CHANNELS ? count - done : NMP_TILE_CHANNELS;
    nmp_channels_load(&channels, c, first + done, n);
    NMP_BY_2(NMP_IN_USE(c->kernels).gemm, nmp_x_wide(c), nmp_w_wide(c))
    (sums, x, c->k, (const uint8_t *)c->w + ((first + done) * c->k << nmp_w_wide(c)), c->k, rows, n);
    nmp_scale_rows(c, &channels, sums, rows, first + done, n, pixel);
  }
}
