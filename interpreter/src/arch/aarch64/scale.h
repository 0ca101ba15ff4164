/* sat(rsh(sum, shift) + bias) of 4 channels. */
#ifndef NMP_ARCH_AARCH64_SCALE_H
#define NMP_ARCH_AARCH64_SCALE_H

#include <arm_neon.h>

#include "base/isa.h"

typedef struct scales {
  int64x2_t left[2], bias[2]; /* left: shifts to the left; those to the right round half up */
} scales;

static NMP_INLINE scales scales_of(int32x4_t shift, int32x4_t bias) {
  const int32x4_t left = vnegq_s32(shift);
  return (scales){{vmovl_s32(vget_low_s32(left)), vmovl_high_s32(left)},
                  {vmovl_s32(vget_low_s32(bias)), vmovl_high_s32(bias)}};
}

static NMP_INLINE int32x4_t scale_4(int64x2_t low, int64x2_t high, const scales *how) {
  low = vaddq_s64(vrshlq_s64(low, how->left[0]), how->bias[0]);
  high = vaddq_s64(vrshlq_s64(high, how->left[1]), how->bias[1]);
  return vcombine_s32(vqmovn_s64(low), vqmovn_s64(high));
}

#endif
