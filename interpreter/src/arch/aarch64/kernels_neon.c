#include "arch/aarch64/level.h"

#ifdef NMP_AARCH64
#include <arm_neon.h>
#include <string.h>

#include "arch/aarch64/scale.h"
#include "base/fixed.h"
#include "conv/conv.h"

/* The order matters: each of these needs those before it. */
/* clang-format off */
static void loops(nmp_kernels *kernels);
#define NMP_LOOPS loops
#include "kernels/portable.inc"
#include "arch/aarch64/vector128.inc"
#include "kernels/elementwise.inc"
/* clang-format on */

/* 256 bytes are four tables of four registers: two for the negative x, which come first, two for the others. An index
 * that a table does not have leaves what was there.
 */
static NMP_LOOKUP(fast_lookup_8to8) {
  const uint8_t *xs = x, *t = table;
  const uint8x16x4_t a = vld1q_u8_x4(t), b = vld1q_u8_x4(t + 64), c = vld1q_u8_x4(t + 128), d = vld1q_u8_x4(t + 192);
  const uint8x16_t step = vdupq_n_u8(64);
  uint8_t *ys = y;
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const uint8x16_t i0 = veorq_u8(vld1q_u8(xs + i), vdupq_n_u8(0x80));
    const uint8x16_t i1 = vsubq_u8(i0, step), i2 = vsubq_u8(i1, step), i3 = vsubq_u8(i2, step);
    vst1q_u8(ys + i, vqtbx4q_u8(vqtbx4q_u8(vqtbx4q_u8(vqtbl4q_u8(a, i0), b, i1), c, i2), d, i3));
  }
  lookup_8to8(ys + i, xs + i, table, n - i, lo, hi);
}

/* 4 sums as int64 */
static NMP_INLINE void load_sums(const void *sums, size_t at, int is_wide, int64x2_t to[2]) {
  if (is_wide) {
    to[0] = vld1q_s64((const int64_t *)sums + at);
    to[1] = vld1q_s64((const int64_t *)sums + at + 2);
  } else {
    const int32x4_t narrow = vld1q_s32((const int32_t *)sums + at);
    to[0] = vmovl_s32(vget_low_s32(narrow));
    to[1] = vmovl_high_s32(narrow);
  }
}

static NMP_INLINE int32x4_t load_shifts(const int8_t *shift) {
  int8_t copy[8] = {0};
  memcpy(copy, shift, 4);
  return vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(copy))));
}

static NMP_INLINE void scale_rows(uint8_t *y, size_t y_stride, const void *sums, size_t rows, size_t channels,
                                  const int32_t *bias, const int8_t *shift, int32_t lo, int32_t hi, const int sum_wide,
                                  const int y_wide) {
  const int32x4_t least = vdupq_n_s32(lo), most = vdupq_n_s32(hi);
  size_t c = 0;
  for (; c + 4 <= channels; c += 4) {
    const scales how = scales_of(load_shifts(shift + c), vld1q_s32(bias + c));
    for (size_t r = 0; r < rows; r++) {
      int64x2_t four[2];
      load_sums(sums, r * channels + c, sum_wide, four);
      const int32x4_t q = vminq_s32(vmaxq_s32(scale_4(four[0], four[1], &how), least), most);
      const int16x4_t words = vmovn_s32(q);
      const int8x8_t bytes = vmovn_s16(vcombine_s16(words, words));
      memcpy(y + ((r * y_stride + c) << y_wide), y_wide ? (const void *)&words : (const void *)&bytes,
             (size_t)4 << y_wide);
    }
  }
  for (; c < channels; c++) {
    for (size_t r = 0; r < rows; r++) {
      const size_t at = r * channels + c;
      const int64_t sum = sum_wide ? ((const int64_t *)sums)[at] : ((const int32_t *)sums)[at];
      const int32_t value = nmp_sat(nmp_rsh(sum, shift[c]) + bias[c], lo, hi);
      if (y_wide) {
        ((int16_t *)(void *)y)[r * y_stride + c] = (int16_t)value;
      } else {
        ((int8_t *)y)[r * y_stride + c] = (int8_t)value;
      }
    }
  }
}

#define FAST_SCALE(widths, sum_wide, y_wide)                                              \
  static NMP_SCALE(fast_scale_##widths) {                                                 \
    scale_rows(y, y_stride, sums, rows, channels, bias, shift, lo, hi, sum_wide, y_wide); \
  }

FAST_SCALE(32to8, 0, 0)
FAST_SCALE(32to16, 0, 1)
FAST_SCALE(64to8, 1, 0)
FAST_SCALE(64to16, 1, 1)

static const nmp_conv_kernel *neon_choose(const nmp_conv *c) {
  const nmp_conv_kernel *depthwise = nmp_depthwise_neon(c);
  return depthwise ? depthwise : nmp_conv_neon(c);
}

void nmp_kernels_neon(nmp_kernels *kernels) {
  loops(kernels);
  elements(kernels);
  kernels->lookup[0] = fast_lookup_8to8;
  kernels->scale[0][0] = fast_scale_32to8;
  kernels->scale[0][1] = fast_scale_32to16;
  kernels->scale[1][0] = fast_scale_64to8;
  kernels->scale[1][1] = fast_scale_64to16;
  kernels->conv = neon_choose;
}
#endif
