/* What the convolutions of Cortex-M's vectors (MVE, "Helium") share. */
#ifndef NMP_MVE_H
#define NMP_MVE_H

#include "conv.h"

#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
#define NMP_MVE

#include <arm_mve.h>

nmp_add_fn nmp_mve_add_8x8to8, nmp_mve_add_8x8to16, nmp_mve_add_8x16to8, nmp_mve_add_8x16to16;
nmp_add_fn nmp_mve_add_16x8to8, nmp_mve_add_16x8to16, nmp_mve_add_16x16to8, nmp_mve_add_16x16to16;
nmp_mul_fn nmp_mve_mul_8x8to8, nmp_mve_mul_8x8to16, nmp_mve_mul_8x16to8, nmp_mve_mul_8x16to16;
nmp_mul_fn nmp_mve_mul_16x8to8, nmp_mve_mul_16x8to16, nmp_mve_mul_16x16to8, nmp_mve_mul_16x16to16;
nmp_requantize_fn nmp_mve_requantize_8to8, nmp_mve_requantize_8to16;
nmp_requantize_fn nmp_mve_requantize_16to8, nmp_mve_requantize_16to16;
nmp_lookup_fn nmp_mve_lookup_8to8, nmp_mve_lookup_8to16;
nmp_max_fn nmp_mve_max_8, nmp_mve_max_16;
nmp_sum_fn nmp_mve_sum_8, nmp_mve_sum_16;
nmp_conv_choose_fn nmp_conv_mve;
#define NMP_MVE_KERNELS                                                                                               \
  .requantize = NMP_TABLE_2_TO(nmp_mve_requantize), .add = NMP_TABLE_3(nmp_mve_add), .mul = NMP_TABLE_3(nmp_mve_mul), \
  .lookup = {nmp_mve_lookup_8to8, nmp_mve_lookup_8to16}, .max = NMP_TABLE_1(nmp_mve_max),                             \
  .sum = NMP_TABLE_1(nmp_mve_sum), .conv = nmp_conv_mve

/* Channels [first, first + count) of rows of k factors, one after the other at x, to the output from `pixel` on. */
typedef void nmp_conv_rows_fn(const nmp_conv *c, const void *x, size_t rows, size_t first, size_t count, size_t pixel);
nmp_conv_rows_fn nmp_conv_mve_narrow; /* both factors int8 */
nmp_conv_rows_fn nmp_conv_mve_wide;

/* Bytes at the start of the scratch, where nmp_conv_mve_narrow finds the only exponent of all channels repeated. */
static inline size_t nmp_conv_mve_repeated(const nmp_conv *c) {
  return c->exponent_step || (nmp_x_wide(c) | nmp_w_wide(c)) ? 0 : (c->out + 15) / 16 * 16;
}

/* Depthwise convolutions of at least NMP_MVE_LANES channels. */
#define NMP_MVE_LANES 8
size_t nmp_conv_mve_depthwise_scratch(const nmp_conv *c);
void nmp_conv_mve_depthwise(const nmp_conv *c);

/* The output pixels [first, last) of an axis whose windows hold no padding. */
void nmp_conv_mve_full(const nmp_axis *axis, int32_t *first, int32_t *last);

#endif
#endif
