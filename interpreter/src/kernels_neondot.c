#include "aarch64.h"

#ifdef NMP_AARCH64
#include "conv.h"

static const nmp_conv_kernel *choose(const nmp_conv *c) {
  const nmp_conv_kernel *depthwise = nmp_depthwise_neondot(c);
  return depthwise ? depthwise : nmp_conv_neondot(c);
}

/* In addition to those of neon. */
void nmp_kernels_neondot(nmp_kernels *kernels) {
  kernels->conv = choose;
}
#endif
