/* Needs of the convolutions of Cortex-M's vectors. Compiled for every machine. */
#include "arch/cortex_m/conv_mve_plan.h"

#ifndef NMP_MVE /* mve.c has it for vectors */
int nmp_mve_most(const int8_t *exponents, uint32_t n) {
  int most = exponents[0];
  for (uint32_t i = 1; i < n; i++) {
    most = exponents[i] > most ? exponents[i] : most;
  }
  return most;
}
#endif

size_t nmp_mve_scratch(const nmp_conv *c) {
  const size_t repeated = nmp_mve_repeated(c);
  const size_t bytes = nmp_mve_is_by_eight(c)  ? c->k * NMP_MVE_LANES * sizeof(int16_t) << nmp_mve_is_split(c)
                       : nmp_conv_is_direct(c) ? repeated
                                               : repeated + nmp_mve_patches(c) * nmp_mve_patch_bytes(c);
  return nmp_round_up(bytes, 16);
}

#if !NMP_FIXED_CPU
const nmp_conv_kernel *nmp_conv_mve_plan(const nmp_conv *c) {
  static const nmp_conv_kernel mve = {.scratch = nmp_mve_scratch, .adds = 1};
  return nmp_mve_claims(c) ? &mve : nmp_conv_portable(c);
}
#endif
