/* Plans of convolutions by Cortex-M's vectors (MVE, "Helium"), in plain numbers: what its kernels and conv_mve_plan.c
 * share.
 */
#ifndef NMP_ARCH_CORTEX_M_CONV_MVE_PLAN_H
#define NMP_ARCH_CORTEX_M_CONV_MVE_PLAN_H

#include "arch/cortex_m/level.h"
#include "conv/conv.h"

#define NMP_MVE_LANES 8            /* channels of a depthwise convolution at a time */
#define NMP_MVE_PATCH_BYTES 512    /* of scratch, unless one patch is longer */
#define NMP_MVE_PATCHES 16         /* at a time, at most */
#define NMP_MVE_DEPTHWISE_TAPS 256 /* whose sums stay in 32 bits */

/* Depthwise, with channels for a vector: conv_mve_depthwise.c computes it. */
static inline int nmp_mve_is_by_eight(const nmp_conv *c) {
  return nmp_conv_is_depthwise(c) && c->out >= NMP_MVE_LANES;
}

/* Both factors int16: weights are split into two bytes. */
static inline int nmp_mve_is_split(const nmp_conv *c) {
  return nmp_x_wide(c) && nmp_w_wide(c);
}

/* Bytes at the start of the scratch, where nmp_conv_mve_narrow finds the only exponent of all channels repeated. */
static inline size_t nmp_mve_repeated(const nmp_conv *c) {
  return c->exponent_step || (nmp_x_wide(c) | nmp_w_wide(c)) ? 0 : nmp_round_up(c->out, 16);
}

static inline size_t nmp_mve_patch_bytes(const nmp_conv *c) {
  return (size_t)c->k << nmp_x_wide(c);
}

/* Patches that are gathered at a time. */
static inline size_t nmp_mve_patches(const nmp_conv *c) {
  const size_t fit = NMP_MVE_PATCH_BYTES / nmp_mve_patch_bytes(c), least = nmp_x_wide(c) | nmp_w_wide(c) ? 2 : 1;
  return fit < least ? least : fit < NMP_MVE_PATCHES ? fit : NMP_MVE_PATCHES;
}

/* The largest of n > 0 exponents. */
int nmp_mve_most(const int8_t *exponents, uint32_t n);

static inline int nmp_mve_least_shift(const nmp_conv *c) {
  return c->shift - nmp_mve_most(c->exponents, c->exponent_step ? c->out : 1);
}

/* True where a sum that a shift to the left has saturated is beyond the range of y with the bias, too. */
static inline int nmp_mve_stays_out(const nmp_conv *c) {
  const int32_t most = INT32_MAX - INT16_MAX;
  if (c->bias_bits < 32 || nmp_mve_least_shift(c) >= 0) {
    return 1;
  }
  for (uint32_t i = 0; i < c->out; i++) {
    const int32_t bias = nmp_conv_bias(c, i);
    if (bias < -most || bias > most) {
      return 0;
    }
  }
  return 1;
}

/* Leaves to the portable kernels what is not exact in 32 bits: sums that are still too large after their shift, and
 * biases that bring back what a shift to the left has saturated.
 */
static inline int nmp_mve_claims(const nmp_conv *c) {
  if (nmp_mve_is_by_eight(c)) {
    if (c->k > NMP_MVE_DEPTHWISE_TAPS) {
      return 0;
    }
    if (nmp_x_wide(c) && nmp_w_wide(c)) {
      return nmp_mve_least_shift(c) >= 9;
    }
  } else if (nmp_x_wide(c) | nmp_w_wide(c)) {
    const int shift = nmp_mve_least_shift(c),
              room = shift + (nmp_x_wide(c) && nmp_w_wide(c) ? 1 : 9); /* products: 2^30, 2^22 */
    return shift >= 0 && (room >= 17 || c->k < (1u << room));
  }
  return nmp_mve_stays_out(c);
}

size_t nmp_mve_scratch(const nmp_conv *c);

#endif
