/* The kernels that the vectors of Cortex-M (MVE) do better. */
#include "conv.h"

#if defined(__ARM_FEATURE_MVE)

void nmp_kernels_mve(nmp_kernels *kernels) {
  kernels->conv = nmp_conv_mve;
}

#endif
