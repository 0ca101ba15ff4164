/* RISC-V with 32-bit registers and without vectors. */
#ifndef NMP_RV32_H
#define NMP_RV32_H

#include "kernels.h"

#if defined(__riscv_xlen) && __riscv_xlen == 32 && !defined(__riscv_vector)
#define NMP_RV32

nmp_gemm_fn nmp_rv32_gemm_8x8;
nmp_depthwise_fn nmp_rv32_depthwise_8x8;
nmp_scale_fn nmp_rv32_scale_32to8, nmp_rv32_scale_32to16;
#define NMP_RV32_KERNELS                                                      \
  .gemm[0][0] = nmp_rv32_gemm_8x8, .depthwise[0][0] = nmp_rv32_depthwise_8x8, \
  .scale[0] = {nmp_rv32_scale_32to8, nmp_rv32_scale_32to16}

#endif
#endif
