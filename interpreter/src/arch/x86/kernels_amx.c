#include "arch/x86/level.h"

#ifdef NMP_AMX
#include "conv/conv.h"

/* Everything else is that of the level before, which is always the same but where tiles are emulated. */
static const nmp_conv_kernel *amx_choose(const nmp_conv *c) {
  const nmp_conv_kernel *found = nmp_conv_amx(c);
#ifdef NMP_AMX_EMULATED
  if (found == NULL && !(nmp_x86_features() & NMP_AVX512VNNI)) {
    return nmp_conv_portable(c);
  }
#endif
  found = found ? found : nmp_depthwise_avx512vnni(c);
  return found ? found : nmp_conv_avx512vnni(c);
}

void nmp_kernels_amx(nmp_kernels *kernels) {
  kernels->conv = amx_choose;
}
#endif
