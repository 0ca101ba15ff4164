/* Needs of the convolutions of a plain 32-bit CPU. Compiled for every machine. */
#include "arch/plain32/conv_plain32_plan.h"

/* Patches, then flags. */
size_t nmp_plain32_blocks_scratch(const nmp_conv *c) {
  return nmp_round_up(nmp_plain32_patches_bytes(c) + nmp_plain32_flags(c), 16);
}

#if !NMP_FIXED_CPU
const nmp_conv_kernel *nmp_conv_plain32_plan(const nmp_conv *c) {
  static const nmp_conv_kernel blocks = {.scratch = nmp_plain32_blocks_scratch, .adds = 1},
                               depthwise = {.scratch = NULL}, gemv = {.scratch = NULL, .adds = 1};
  return nmp_plain32_is_three_by_three(c) ? &depthwise
         : nmp_plain32_is_blocks(c)       ? &blocks
         : nmp_plain32_is_gemv(c)         ? &gemv
                                          : nmp_conv_portable(c);
}
#endif
