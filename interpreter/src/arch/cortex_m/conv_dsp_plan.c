/* Needs of the convolutions of Cortex-M's DSP extension, told by another machine. */
#include "base/build.h"

#if !NMP_FIXED_CPU

#include "arch/cortex_m/conv_dsp_plan.inc"

const nmp_conv_kernel *nmp_conv_dsp_plan(const nmp_conv *c) {
  static const nmp_conv_kernel three_rows = {.scratch = nmp_dsp_three_rows_scratch};
  static const nmp_conv_kernel taps = {.scratch = nmp_dsp_taps_scratch};
  static const nmp_conv_kernel products = {.scratch = nmp_dsp_products_scratch, .adds = 1};
  return nmp_dsp_is_three_rows(c) ? &three_rows : nmp_dsp_is_taps(c) ? &taps : &products;
}

#endif
