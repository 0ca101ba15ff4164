/* The level of RISC-V with vectors of any length (NMP_RVV of base/build.h). Convolutions pack their weights into the
 * arena.
 */
#ifndef NMP_ARCH_RVV_LEVEL_H
#define NMP_ARCH_RVV_LEVEL_H

#include "kernels/kernels.h"

#ifdef NMP_RVV

nmp_gemm_fn nmp_rvv_gemm_8x8, nmp_rvv_gemm_8x16, nmp_rvv_gemm_16x8, nmp_rvv_gemm_16x16;
nmp_depthwise_fn nmp_rvv_depthwise_8x8, nmp_rvv_depthwise_8x16, nmp_rvv_depthwise_16x8, nmp_rvv_depthwise_16x16;
nmp_scale_fn nmp_rvv_scale_32to8, nmp_rvv_scale_32to16, nmp_rvv_scale_64to8, nmp_rvv_scale_64to16;
nmp_requantize_fn nmp_rvv_requantize_8to8, nmp_rvv_requantize_8to16;
nmp_requantize_fn nmp_rvv_requantize_16to8, nmp_rvv_requantize_16to16;
nmp_add_fn nmp_rvv_add_8x8to8, nmp_rvv_add_8x8to16, nmp_rvv_add_8x16to8, nmp_rvv_add_8x16to16;
nmp_add_fn nmp_rvv_add_16x8to8, nmp_rvv_add_16x8to16, nmp_rvv_add_16x16to8, nmp_rvv_add_16x16to16;
nmp_mul_fn nmp_rvv_mul_8x8to8, nmp_rvv_mul_8x8to16, nmp_rvv_mul_8x16to8, nmp_rvv_mul_8x16to16;
nmp_mul_fn nmp_rvv_mul_16x8to8, nmp_rvv_mul_16x8to16, nmp_rvv_mul_16x16to8, nmp_rvv_mul_16x16to16;
nmp_lookup_fn nmp_rvv_lookup_8to8, nmp_rvv_lookup_8to16;
nmp_max_fn nmp_rvv_max_8, nmp_rvv_max_16;
nmp_sum_fn nmp_rvv_sum_8, nmp_rvv_sum_16;
nmp_conv_choose_fn nmp_conv_rvv;
nmp_conv_choose_fn nmp_conv_rvv_depthwise; /* NULL: none of its own */

#define NMP_RVV_KERNELS                                                                                               \
  .gemm = NMP_TABLE_2(nmp_rvv_gemm), .depthwise = NMP_TABLE_2(nmp_rvv_depthwise),                                     \
  .scale = {{nmp_rvv_scale_32to8, nmp_rvv_scale_32to16}, {nmp_rvv_scale_64to8, nmp_rvv_scale_64to16}},                \
  .requantize = NMP_TABLE_2_TO(nmp_rvv_requantize), .add = NMP_TABLE_3(nmp_rvv_add), .mul = NMP_TABLE_3(nmp_rvv_mul), \
  .lookup = {nmp_rvv_lookup_8to8, nmp_rvv_lookup_8to16}, .max = NMP_TABLE_1(nmp_rvv_max),                             \
  .sum = NMP_TABLE_1(nmp_rvv_sum), .conv = nmp_conv_rvv

#endif
#endif
