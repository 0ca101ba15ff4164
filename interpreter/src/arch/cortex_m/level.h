/* The levels of Cortex-M: of the DSP extension (M4, M7, M33), or of vectors (MVE, "Helium": M55, M85). */
#ifndef NMP_ARCH_CORTEX_M_LEVEL_H
#define NMP_ARCH_CORTEX_M_LEVEL_H

#include "kernels/kernels.h"

/* r9 in assembly that takes all registers: with -frwpi a program's data lie from there. */
#ifdef __ARM_RWPI
#define NMP_PUSH_R9 "push {r9}\n"
#define NMP_POP_R9 "pop {r9}\n"
#define NMP_R9_LOST
#else
#define NMP_PUSH_R9
#define NMP_POP_R9
#define NMP_R9_LOST "r9",
#endif

#if !NMP_FIXED_CPU
/* Kernels that another machine knows by what they need; they cannot be run. */
nmp_conv_choose_fn nmp_conv_dsp_plan, nmp_conv_mve_plan;
#endif

#if defined(__ARM_FEATURE_DSP) && defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M' && \
    !defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
#define NMP_DSP

nmp_add_fn nmp_dsp_add_8, nmp_dsp_add_16, nmp_dsp_sub_8, nmp_dsp_sub_16;
nmp_conv_choose_fn nmp_conv_dsp;
#define NMP_DSP_KERNELS                                                                         \
  .add[0][0][0] = nmp_dsp_add_8, .add[1][1][1] = nmp_dsp_add_16, .sub[0][0][0] = nmp_dsp_sub_8, \
  .sub[1][1][1] = nmp_dsp_sub_16, .conv = nmp_conv_dsp

#elif defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
#define NMP_MVE

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

#endif
#endif
