/* What Cortex-M's DSP extension does better than the portable kernels. */
#include "dsp.h"

#ifdef NMP_DSP

void nmp_kernels_dsp(nmp_kernels *kernels) {
  kernels->conv = nmp_conv_dsp;
}

#endif
