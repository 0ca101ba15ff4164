/* fits_int32: proof from the weights of a convolution that a sum stays in 32 bits whatever the input is. */
#ifndef NMP_CONV_FITS_INT32_H
#define NMP_CONV_FITS_INT32_H

#include "conv/conv.h"

#define NMP_STRETCH 128 /* weights whose sums fit: those of int8 into 16 bits, those of int16 into 32 */

/* Sum of a channel's weights, and the sum of their magnitudes. */
typedef struct nmp_weight_sums {
  int64_t sum, magnitudes;
} nmp_weight_sums;

static inline void nmp_sum_narrow(nmp_weight_sums *s, const int8_t *weights, size_t n) {
  int16_t sum = 0, magnitudes = 0;
  for (size_t i = 0; i < n; i++) {
    const int16_t w = weights[i], minus = (int16_t)-w;
    sum = (int16_t)(sum + w);
    magnitudes = (int16_t)(magnitudes + (w < minus ? minus : w));
  }
  s->sum += sum;
  s->magnitudes += magnitudes;
}

static inline void nmp_sum_wide(nmp_weight_sums *s, const int16_t *weights, size_t n) {
  int32_t sum = 0, magnitudes = 0;
  for (size_t i = 0; i < n; i++) {
    const int32_t w = weights[i];
    sum += w;
    magnitudes += w < 0 ? -w : w;
  }
  s->sum += sum;
  s->magnitudes += magnitudes;
}

/* In stretches, which compilers turn into vectors of narrow sums. */
static inline nmp_weight_sums nmp_sum_weights(const nmp_conv *c, size_t channel) {
  nmp_weight_sums s = {.sum = 0};
  for (size_t i = channel * c->k, end = i + c->k, n; i < end; i += n) {
    n = end - i < NMP_STRETCH ? end - i : NMP_STRETCH;
    if (c->w_wide) {
      nmp_sum_wide(&s, (const int16_t *)c->w + i, n);
    } else {
      nmp_sum_narrow(&s, (const int8_t *)c->w + i, n);
    }
  }
  return s;
}

/* The largest magnitude of an element of x. */
static inline int64_t nmp_x_most(const nmp_conv *c) {
  return c->x_wide ? 32768 : 128;
}

/* A sum that begins at `start` fits, and so does all on the way, when what is added has magnitudes of `most` in all:
 * nmp_x_most * nmp_sum_weights().magnitudes for products of x and the weights.
 */
static inline int nmp_fits_int32(int64_t start, int64_t most) {
  return (start < 0 ? -start : start) + most <= INT32_MAX;
}

#endif
