/* Parts that the kernels of RISC-V with vectors share. */
#ifndef NMP_ARCH_RVV_RVV_H
#define NMP_ARCH_RVV_RVV_H

#include "arch/rvv/level.h"
#include "conv/conv.h"

#ifdef NMP_RVV
#include <riscv_vector.h>

#endif
#endif
