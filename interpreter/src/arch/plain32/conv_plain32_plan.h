/* Plans of convolutions by a plain 32-bit CPU, in plain numbers: what its kernels and conv_plain32_plan.c share. */
#ifndef NMP_ARCH_PLAIN32_CONV_PLAIN32_PLAN_H
#define NMP_ARCH_PLAIN32_CONV_PLAIN32_PLAN_H

#include "arch/plain32/level.h"
#include "conv/conv.h"

#define NMP_PLAIN32_PIXELS 4        /* of a block */
#define NMP_PLAIN32_FLAGS_MAX 512   /* pairs of channels whose weights are looked at, a byte of scratch each */
#define NMP_PLAIN32_GROUPED_FROM 32 /* pixels from which it pays to look at all weights for those added up by fours */
#define NMP_PLAIN32_TAPS 9          /* of the depthwise convolutions */

/* A sum of 65535 int8 products is below 2^30: so is what it starts at. */
static inline int nmp_conv_plain32_fits_8(int shift, int32_t bias) {
  return shift > 0 && shift < 30 && bias > -((1 << 29) >> shift) && bias < (1 << 29) >> shift;
}

/* The end of a sum of k products that is -(high * 2^16 + low), in 32 bits: up to a shift of 16 the high word times a
 * power of two that keeps it below 2^30; from 17 on the low word only rounds down.
 */
static inline int nmp_conv_plain32_fits_16(int shift, int32_t bias, size_t k) {
  return shift > 0 && shift < 46 && (shift > 16 || k <= (size_t)1 << shift) && bias > -(1 << 29) && bias < 1 << 29;
}

static inline int nmp_plain32_is_wide(const nmp_conv *c) {
  return NMP_WIDE_SUM(nmp_x_wide(c), nmp_w_wide(c));
}

static inline size_t nmp_plain32_out_per_group(const nmp_conv *c) {
  return c->out / c->groups;
}

/* Pairs of channels; the last channel of an odd number is a pair with itself. */
static inline size_t nmp_plain32_pairs(const nmp_conv *c) {
  return (nmp_plain32_out_per_group(c) + 1) / 2;
}

static inline size_t nmp_plain32_patches_bytes(const nmp_conv *c) {
  const size_t pixels = NMP_PLAIN32_PIXELS;
  return (size_t)c->k * (nmp_x_wide(c)            ? pixels * sizeof(int16_t)
                         : nmp_plain32_is_wide(c) ? pixels
                                                  : pixels / 2 * sizeof(int32_t));
}

/* Bytes of flags: for each pair of channels whether its products are added up by fours. */
static inline size_t nmp_plain32_flags(const nmp_conv *c) {
  const size_t all = c->groups * nmp_plain32_pairs(c);
  return nmp_x_wide(c) == nmp_w_wide(c) && all <= NMP_PLAIN32_FLAGS_MAX &&
                 nmp_conv_pixels(c) >= NMP_PLAIN32_GROUPED_FROM
             ? all
             : 0;
}

/* Matrix products in blocks (conv_plain32.c). High words stay below 2^30, with what is added to round. */
static inline int nmp_plain32_is_blocks(const nmp_conv *c) {
  return !nmp_conv_is_depthwise(c) && nmp_conv_pixels(c) >= NMP_PLAIN32_PIXELS && c->k < 32768;
}

/* Fewer pixels of int8 that are patches as they are, as of a fully connected layer (conv_plain32_gemv.c). */
static inline int nmp_plain32_is_gemv(const nmp_conv *c) {
  return !nmp_plain32_is_wide(c) && nmp_conv_pixels(c) < NMP_PLAIN32_PIXELS && nmp_conv_is_direct(c) &&
         !nmp_conv_is_depthwise(c) && c->k < 65536;
}

static inline int nmp_plain32_is_exact(const nmp_conv *c) {
  for (size_t i = 0; i < c->out; i++) {
    const int shift = nmp_conv_shift(c, i);
    const int32_t bias = nmp_conv_bias(c, i);
    if (nmp_x_wide(c) ? !nmp_conv_plain32_fits_16(shift, bias, NMP_PLAIN32_TAPS)
                      : !nmp_conv_plain32_fits_8(shift, bias)) {
      return 0;
    }
  }
  return 1;
}

/* Depthwise 3x3 of one width, whose results are exact in 32 bits (conv_plain32_depthwise.c). It takes no scratch. */
static inline int nmp_plain32_is_three_by_three(const nmp_conv *c) {
  return c->v.kernel == 3 && c->h.kernel == 3 && c->v.dilation == 1 && c->h.dilation == 1 &&
         nmp_x_wide(c) == nmp_w_wide(c) && nmp_x_wide(c) == nmp_y_wide(c) && nmp_conv_is_depthwise(c) &&
         nmp_plain32_is_exact(c);
}

size_t nmp_plain32_blocks_scratch(const nmp_conv *c);

#endif
