#include "conv.h"
#include "x86.h"

#ifdef NMP_X86
static const nmp_conv_kernel *choose(const nmp_conv *c) {
  const nmp_conv_kernel *kernel = nmp_depthwise_avx2(c);
  return kernel ? kernel : nmp_conv_portable(c);
}

void nmp_kernels_avx2(nmp_kernels *kernels) {
  kernels->conv = choose;
}
#endif
