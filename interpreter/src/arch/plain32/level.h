/* 32-bit registers without vectors or products of pairs: RISC-V, Xtensa, Cortex-M0, M0+ and M3. */
#ifndef NMP_ARCH_PLAIN32_LEVEL_H
#define NMP_ARCH_PLAIN32_LEVEL_H

#include "kernels/kernels.h"

#if !NMP_FIXED_CPU
/* Kernels that another machine knows by what they need; they cannot be run. */
nmp_conv_choose_fn nmp_conv_plain32_plan;
#endif

#if defined(__XTENSA__) || (defined(__riscv_xlen) && __riscv_xlen == 32 && !defined(NMP_RVV)) || \
    (defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M' && !defined(__ARM_FEATURE_DSP) && defined(__GNUC__))
#define NMP_PLAIN32

nmp_gemm_fn nmp_plain32_gemm_8x8, nmp_plain32_gemm_8x16, nmp_plain32_gemm_16x8, nmp_plain32_gemm_16x16;
nmp_depthwise_fn nmp_plain32_depthwise_8x8;
nmp_scale_fn nmp_plain32_scale_32to8, nmp_plain32_scale_32to16, nmp_plain32_scale_64to8, nmp_plain32_scale_64to16;
nmp_add_fn nmp_plain32_add_8x8to8, nmp_plain32_add_16x16to16;
nmp_conv_choose_fn nmp_conv_plain32;

/* The sums of one row of gemm_8x8. */
void nmp_plain32_row_8x8(int32_t *sums, const int8_t *x, const int8_t *w, size_t k, size_t channels);

#define NMP_PLAIN32_KERNELS                                                                                            \
  .gemm = NMP_TABLE_2(nmp_plain32_gemm), .depthwise[0][0] = nmp_plain32_depthwise_8x8,                                 \
  .scale = {{nmp_plain32_scale_32to8, nmp_plain32_scale_32to16}, {nmp_plain32_scale_64to8, nmp_plain32_scale_64to16}}, \
  .add[0][0][0] = nmp_plain32_add_8x8to8, .add[1][1][1] = nmp_plain32_add_16x16to16, .conv = nmp_conv_plain32

#endif
#endif
