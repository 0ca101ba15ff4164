#include "arch/aarch64/level.h"

#ifdef NMP_AARCH64
#include "conv/conv.h"

static const nmp_conv_kernel *i8mm_choose(const nmp_conv *c) {
  const nmp_conv_kernel *depthwise = nmp_depthwise_neondot(c);
  return depthwise ? depthwise : nmp_conv_i8mm(c);
}

/* In addition to those of neondot. */
void nmp_kernels_i8mm(nmp_kernels *kernels) {
  kernels->conv = i8mm_choose;
}
#endif
