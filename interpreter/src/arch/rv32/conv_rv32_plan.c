/* What the convolutions of a plain 32-bit RISC-V need. Compiled for every machine. */
#include "arch/rv32/conv_rv32_plan.h"

/* Patches, then flags. */
size_t nmp_rv32_blocks_scratch(const nmp_conv *c) {
  return nmp_round_up(nmp_rv32_patches_bytes(c) + nmp_rv32_flags(c), 16);
}

#if !NMP_FIXED_CPU
const nmp_conv_kernel *nmp_conv_rv32_plan(const nmp_conv *c) {
  static const nmp_conv_kernel blocks = {.scratch = nmp_rv32_blocks_scratch}, depthwise = {.scratch = NULL};
  return nmp_rv32_is_three_by_three(c) ? &depthwise : nmp_rv32_is_blocks(c) ? &blocks : nmp_conv_portable(c);
}
#endif
