/* RISC-V with 32-bit registers and without vectors. */
#ifndef NMP_RV32_H
#define NMP_RV32_H

#include "kernels.h"

#if defined(__riscv_xlen) && __riscv_xlen == 32 && !defined(__riscv_vector)
#define NMP_RV32

void nmp_kernels_rv32(nmp_kernels *kernels);
void nmp_kernels_rv32_wide(nmp_kernels *kernels);
nmp_conv_choose_fn nmp_conv_rv32;

#endif
#endif
