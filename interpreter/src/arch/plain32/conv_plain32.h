/* Parts that the convolutions of a plain 32-bit CPU share. */
#ifndef NMP_ARCH_PLAIN32_CONV_PLAIN32_H
#define NMP_ARCH_PLAIN32_CONV_PLAIN32_H

#include "arch/plain32/conv_plain32_plan.h"

#ifdef NMP_PLAIN32

/* Channels [first, last) of up to four pixels. patches: k steps of four pixels, as conv_plain32.c lays them out.
 * by_fours: for each pair of channels, whether groups of four products fit a word; NULL: none.
 */
typedef void nmp_channels_plain32(const nmp_conv *c, const void *patches, const uint8_t *by_fours, size_t pixel,
                                  size_t pixels, size_t first, size_t last);
nmp_channels_plain32 nmp_conv_plain32_8x8, nmp_conv_plain32_16x16, nmp_conv_plain32_16x8, nmp_conv_plain32_8x16;

typedef struct nmp_end_plain32 {
  int32_t half, bias;
  int shift, up; /* up: of the high word, from a shift of 17 on -1 */
} nmp_end_plain32;

static inline nmp_end_plain32 nmp_conv_plain32_end(int shift, int32_t bias) {
  return shift > 16 ? (nmp_end_plain32){1 << (shift - 17), bias, shift - 16, -1}
                    : (nmp_end_plain32){1 << (shift - 1), bias, shift, 16 - shift};
}

static inline int32_t nmp_conv_plain32_end_16(nmp_end_plain32 e, int32_t low, int32_t high) {
  return e.up < 0 ? ((e.half - high - (low != 0)) >> e.shift) + e.bias
                  : ((e.half - low) >> e.shift) - high * (1 << e.up) + e.bias;
}

/* All channels of fewer pixels than a block has: nmp_plain32_is_gemv. */
void nmp_conv_plain32_gemv(const nmp_conv *c, size_t task, size_t tasks);

nmp_conv_choose_fn nmp_conv_plain32_depthwise; /* 3x3; NULL: none of its own */

#endif
#endif
