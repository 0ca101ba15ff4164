#include "conv.h"
#include "x86.h"

#ifdef NMP_X86
static const nmp_conv_kernel *choose(const nmp_conv *c) {
  const nmp_conv_kernel *kernel = nmp_depthwise_avx512vnni(c);
  return kernel ? kernel : nmp_conv_portable(c);
}

void nmp_kernels_avx512vnni(nmp_kernels *kernels) {
  kernels->conv = choose;
}
#endif
