/* Plans of convolutions by Cortex-M's DSP extension, in plain numbers: what its kernels and conv_dsp_plan.c share. */
#ifndef NMP_ARCH_CORTEX_M_CONV_DSP_PLAN_H
#define NMP_ARCH_CORTEX_M_CONV_DSP_PLAN_H

#include "arch/cortex_m/level.h"
#include "conv/conv.h"

#define NMP_DSP_ENDS_MAX 64                           /* channels whose ends are prepared at a time */
#define NMP_DSP_ENDS_BYTES(channels) ((channels) * 5) /* that they take, aligned to 4 */
#define NMP_DSP_KERNEL_MAX 8                          /* columns of the kernel of a depthwise convolution */
#define NMP_DSP_THREE_ROWS_BYTES 672                  /* of its scratch (conv_dsp_depthwise.c) */
#define NMP_DSP_TAPS_MAX 128                          /* of a depthwise convolution with another kernel */
#define NMP_DSP_TAPS_ROOM 32 /* bytes of its scratch in front of the weights (conv_dsp_taps.c) */

/* Products that fit int32 with a start: int8 x int8 ones are at most 2^14, int16 x int8 ones 2^22. */
static inline int nmp_dsp_is_narrow(const nmp_conv *c) {
  const uint32_t most = nmp_x_wide(c) ? 256 : 65536;
  return !nmp_w_wide(c) && (NMP_CONV_K_MAX <= most || c->k <= most);
}

/* Depthwise, three rows of the kernel: conv_dsp_depthwise.c computes it. */
static inline int nmp_dsp_is_three_rows(const nmp_conv *c) {
  const int wide = nmp_x_wide(c) && c->out >= 2, narrow = !nmp_x_wide(c) && !nmp_w_wide(c) && c->out >= 4;
  return nmp_conv_is_depthwise(c) && (wide || narrow) && c->v.kernel == 3 && c->h.kernel <= NMP_DSP_KERNEL_MAX &&
         c->h.stride < 8 && c->h.dilation == 1;
}

/* Depthwise with any other kernel, or fewer channels: conv_dsp_taps.c computes it. */
static inline int nmp_dsp_is_taps(const nmp_conv *c) {
  const int wide = nmp_x_wide(c) && c->out >= 2, narrow = !nmp_x_wide(c) && !nmp_w_wide(c);
  return NMP_CONV_TAPS && nmp_conv_is_depthwise(c) && (wide || narrow) && c->k <= NMP_DSP_TAPS_MAX &&
         !nmp_dsp_is_three_rows(c);
}

static inline size_t nmp_dsp_taps_scratch(const nmp_conv *c) {
  return NMP_DSP_TAPS_ROOM + nmp_round_up((size_t)c->k * (nmp_x_wide(c) ? 4 : 8), 16);
}

static inline size_t nmp_dsp_three_rows_scratch(const nmp_conv *c) {
  (void)c;
  return NMP_DSP_THREE_ROWS_BYTES;
}

#endif
